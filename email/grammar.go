package email

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"
)

// grammar formats the value of the named header. The value is not empty and has no surplus
// blanks.
type grammar func(name, s string) (string, error)

// grammars are the headers that programs read, by canonical name.
var grammars = func() map[string]grammar {
	all := map[string]grammar{}
	for names, write := range byGrammar {
		for name := range strings.FieldsSeq(names) {
			all[name] = write
		}
	}
	return all
}()

var byGrammar = map[string]grammar{
	"In-Reply-To References Supersedes Obsoletes": messageIDs,

	"List-Archive List-Help List-Owner List-Subscribe List-Unsubscribe Archived-At": urls,
	"List-Post": listPost,
	"List-Id":   listID,

	"Disposition-Notification-To Return-Receipt-To X-Confirm-Reading-To Errors-To Mail-Followup-To Mail-Reply-To Abuse-Reports-To": addressList,

	"Keywords": phraseList,

	"Accept-Language Auto-Submitted Autoforwarded Deferred-Delivery Disposition-Notification-Options Expires Expiry-Date Feedback-Id" +
		" Importance List-Unsubscribe-Post Mt-Priority Original-Recipient Precedence Priority Reply-By Require-Recipient-Valid-Since" +
		" Sensitivity Thread-Index Tls-Required X-Auto-Response-Suppress X-Msmail-Priority X-Priority": plainWords,
}

// plainWords rejects values that cannot be written without encoding.
func plainWords(_, s string) (string, error) {
	switch {
	case strings.ContainsFunc(s, func(r rune) bool { return r > unicode.MaxASCII }):
		return "", errors.New("has a character beyond ASCII, which cannot be written in this header")
	case strings.Contains(s, "=?"):
		return "", errors.New(`has "=?", which begins an encoded word and cannot be written in this header`)
	}
	return s, nil
}

// messageIDs formats a list of Message-IDs (RFC 5322, section 3.6.4). The text in the angle
// brackets is not checked, because a reply repeats IDs that other programs created.
func messageIDs(name, s string) (string, error) {
	s, err := plainWords(name, strings.ReplaceAll(s, "><", "> <"))
	if err != nil {
		return "", err
	}
	for id := range strings.SplitSeq(s, " ") {
		inner, open := strings.CutPrefix(id, "<")
		inner, closed := strings.CutSuffix(inner, ">")
		if !open || !closed || inner == "" || strings.ContainsAny(inner, "<>") {
			return "", fmt.Errorf("must be Message-IDs such as <id@example.com>, separated by blanks: %q is not one", id)
		}
	}
	return s, nil
}

// listPost formats List-Post, which may be NO if posting is not allowed.
func listPost(name, s string) (string, error) {
	if strings.EqualFold(s, "NO") {
		return "NO", nil
	}
	return urls(name, s)
}

// urls formats a list of URLs in angle brackets, with comments (RFC 2369).
func urls(name, s string) (string, error) {
	if _, err := plainWords(name, s); err != nil {
		return "", fmt.Errorf("%w; other characters of a URL are percent-encoded", err)
	}
	var items []string
	for _, item := range splitOutside(s, ',') {
		item = strings.TrimSpace(item)
		address, comment, closed := strings.Cut(item, ">")
		address, open := strings.CutPrefix(address, "<")
		parsed, err := url.Parse(address)
		comment = strings.TrimSpace(comment)
		if !open || !closed || err != nil || parsed.Scheme == "" || strings.ContainsAny(address, " <") || comment != "" && !isComment(comment) {
			return "", fmt.Errorf("must be URLs in angle brackets, separated by commas, such as <https://example.com/list?id=7>: %q is not one", item)
		}
		items = append(items, strings.TrimSpace("<"+address+"> "+comment))
	}
	return strings.Join(items, ", "), nil
}

// isComment reports whether s is one comment without nested comments.
func isComment(s string) bool {
	inner, open := strings.CutPrefix(s, "(")
	inner, closed := strings.CutSuffix(inner, ")")
	return open && closed && !strings.ContainsAny(inner, `()\<>`)
}

// listID formats a List-Id (RFC 2919): a phrase and a name in angle brackets.
func listID(name, s string) (string, error) {
	open := strings.LastIndexByte(s, '<')
	id, closed := strings.CutSuffix(s[open+1:], ">")
	if open < 0 || !closed || !isDotAtom(id) || !isASCII(id) {
		return "", errors.New("must end in the name of a list such as <announce.example.com>")
	}
	title, err := parseName(s[:open])
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(phrase(name, title) + " <" + id + ">"), nil
}

// addressList formats a list of addresses.
func addressList(name, s string) (string, error) {
	var list []Address
	for _, item := range splitOutside(s, ',') {
		a, err := ParseAddress(item)
		if err != nil {
			return "", err
		}
		if a.NeedsSMTPUTF8() {
			return "", errors.New(`has a character beyond ASCII before the "@", which cannot be written in this header`)
		}
		list = append(list, a)
	}
	return writeAddresses(name, list), nil
}

// phraseList formats a list of phrases.
func phraseList(name, s string) (string, error) {
	var list []string
	for _, item := range splitOutside(s, ',') {
		words, err := parseName(item)
		if err != nil {
			return "", err
		}
		if words == "" {
			return "", errors.New("must be words or phrases, separated by commas")
		}
		list = append(list, phrase(name, words))
	}
	return strings.Join(list, ", "), nil
}
