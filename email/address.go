package email

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/mail"
	"net/netip"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/text/encoding/htmlindex"
)

// Address is a parsed address. [ParseAddress] returns it.
type Address struct {
	// Name is the display name, decoded; often empty.
	Name string
	// Local is the part before the "@", without quoting.
	Local string
	// Domain is the part after the "@", as it was written.
	Domain string
}

// ParseAddress parses "ada@example.com", "Ada <ada@example.com>" or "\"Ada, Countess\"
// <ada@example.com>": the mailbox of RFC 5322 without comments and routes, with the addresses
// of RFC 5321 and, beyond ASCII, of RFC 6531 and IDNA 2008. White space in a display name
// counts as one space. The error describes the fault and contains no line breaks.
func ParseAddress(s string) (Address, error) {
	if !utf8.ValidString(s) {
		return Address{}, errors.New("is not valid UTF-8")
	}
	if hasControl(s) {
		return Address{}, errors.New("has a line break or another control character")
	}
	s = strings.TrimSpace(s)
	if s == "" {
		return Address{}, errors.New("is empty")
	}
	var a Address
	spec := s
	if inner, ok := strings.CutSuffix(s, ">"); ok {
		open := strings.LastIndexByte(inner, '<')
		if open < 0 {
			return Address{}, errors.New(`has a ">" without "<"`)
		}
		spec = inner[open+1:]
		name, err := parseName(inner[:open])
		if err != nil {
			return Address{}, err
		}
		a.Name = name
	}
	var err error
	if a.Local, a.Domain, err = splitSpec(spec); err != nil {
		return Address{}, err
	}
	if len(a.Local) > MaxLocalBytes {
		return Address{}, fmt.Errorf(`has %d bytes before the "@", at most %d are allowed`, len(a.Local), MaxLocalBytes)
	}
	if err := checkDomain(a.Domain); err != nil {
		return Address{}, err
	}
	if n := len(a.Envelope()); n > MaxAddressBytes {
		return Address{}, fmt.Errorf("has %d bytes, at most %d are allowed", n, MaxAddressBytes)
	}
	return a, nil
}

// Envelope returns the address as it is given to a server. If the local part is ASCII, the
// domain is in its ASCII form, which any server accepts. Otherwise the server needs SMTPUTF8
// anyway, and the domain is as it was written.
func (a Address) Envelope() string {
	return quoteLocal(a.Local) + "@" + a.wireDomain()
}

// NeedsSMTPUTF8 reports whether only servers that support SMTPUTF8 accept the address.
func (a Address) NeedsSMTPUTF8() bool { return !isASCII(a.Local) }

// AddressNeedsSMTPUTF8 reports whether only servers that support SMTPUTF8 accept an envelope
// address (one of [Email.Recipients]).
func AddressNeedsSMTPUTF8(envelope string) bool { return !isASCII(envelope) }

// wireDomain returns the domain for headers and the envelope.
func (a Address) wireDomain() string {
	if isASCII(a.Local) {
		return a.hostname()
	}
	return a.Domain
}

// hostname returns the domain in its DNS form.
func (a Address) hostname() string {
	if isASCII(a.Domain) {
		return a.Domain
	}
	ascii, err := idna.Lookup.ToASCII(a.Domain)
	if err != nil {
		return a.Domain // unreachable: checkDomain did the same conversion
	}
	return ascii
}

// writeAddresses writes a list of addresses for a header.
func writeAddresses(name string, list []Address) string {
	items := make([]string, len(list))
	for i, a := range list {
		items[i] = quoteLocal(a.Local) + "@" + a.wireDomain()
		if a.Name != "" {
			items[i] = phrase(name, a.Name) + " <" + items[i] + ">"
		}
	}
	return strings.Join(items, ", ")
}

// phrase writes a display name, or another phrase of a header.
func phrase(name, s string) string {
	switch {
	case s == "":
		return ""
	case !isASCII(s) || strings.Contains(s, "=?"):
		return encodedWords(name, s)
	case isDotAtom(strings.ReplaceAll(s, " ", "x")) && !strings.Contains(s, "."):
		return s
	}
	return quoted(s)
}

// nameWords matches adjacent encoded words of RFC 2047.
var nameWords = regexp.MustCompile(`=\?[^? ]+\?[BbQq]\?[^?]*\?=( *=\?[^? ]+\?[BbQq]\?[^?]*\?=)*`)

// wordDecoder decodes them in any character set that mail programs use.
var wordDecoder = mime.WordDecoder{CharsetReader: func(charset string, input io.Reader) (io.Reader, error) {
	charset, _, _ = strings.Cut(charset, "*") // a language may follow (RFC 2231)
	set, err := htmlindex.Get(charset)
	if err != nil {
		return nil, fmt.Errorf("has an encoded display name in the unknown character set %q: write the name itself", charset)
	}
	return set.NewDecoder().Reader(input), nil
}}

// parseName parses the part before "<": words, quoted strings, encoded words. Encoded words
// are also decoded inside quoted strings. RFC 2047 does not allow them there, but many
// programs write them so, and no real name looks like one. Parentheses belong to the name: RFC
// 5322 treats them as a comment, which mail programs do not show, but senders want them to be
// seen.
func parseName(s string) (string, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return "", nil
	}
	if strings.ContainsAny(s, "<>") && !strings.HasPrefix(s, `"`) {
		return "", errors.New(`has more than one "<"`)
	}
	words := splitOutside(s, ' ')
	for i, word := range words {
		// Quote these words; encoded words, and words already quoted, are decoded below.
		plain := !strings.ContainsAny(word, "()") && !strings.Contains(word, "=?") && !strings.Contains(word, "?=")
		if !plain && !strings.Contains(word, `"`) {
			words[i] = quoted(word)
		}
	}
	parsed, err := mail.ParseAddress(strings.Join(words, " ") + " <a@b.invalid>")
	if err != nil || strings.Count(parsed.Name, "(") < strings.Count(s, "(") {
		return "", errors.New("has words that must be quoted, as in \"Ada, Countess\" <ada@example.com>")
	}
	name := nameWords.ReplaceAllStringFunc(parsed.Name, func(words string) string {
		decoded, fault := wordDecoder.DecodeHeader(words)
		err = cmp.Or(err, fault)
		return decoded
	})
	if err != nil {
		return "", err
	}
	// Decoded words may contain control characters or invalid UTF-8 that the check of the
	// whole string did not see.
	if !utf8.ValidString(name) {
		return "", errors.New("has an encoded display name that is not in the character set that it names")
	}
	if hasControl(name) {
		return "", errors.New("has a line break or another control character in its display name")
	}
	name = strings.Join(strings.Fields(name), " ")
	if len(name) > MaxNameBytes {
		return "", fmt.Errorf("has a display name of %d bytes, at most %d are allowed", len(name), MaxNameBytes)
	}
	return name, nil
}

// splitSpec splits local@domain and unquotes the local part.
func splitSpec(s string) (local, domain string, err error) {
	if strings.HasPrefix(s, `"`) {
		local, rest, err := unquoteLocal(s)
		if err != nil {
			return "", "", err
		}
		domain, ok := strings.CutPrefix(rest, "@")
		if !ok {
			return "", "", errors.New(`has no "@"`)
		}
		return local, domain, nil
	}
	at := strings.LastIndexByte(s, '@')
	if at < 0 {
		return "", "", errors.New(`has no "@"`)
	}
	local, domain = s[:at], s[at+1:]
	if local == "" {
		return "", "", errors.New(`has nothing before the "@"`)
	}
	if !isDotAtom(local) {
		return "", "", fmt.Errorf(`has a character or dot before the "@" that is not allowed there unquoted: %q`, local)
	}
	return local, domain, nil
}

// unquoteLocal unquotes the quoted string at the start of s.
func unquoteLocal(s string) (local, rest string, err error) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			if b.Len() == 0 {
				return "", "", errors.New(`has nothing before the "@"`)
			}
			return b.String(), s[i+1:], nil
		case '\\':
			i++
			if i == len(s) || s[i] >= utf8.RuneSelf {
				return "", "", errors.New(`has a "\" without a character after it`)
			}
			b.WriteByte(s[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", "", errors.New(`has a quote that does not end`)
}

// quoteLocal quotes a local part if necessary.
func quoteLocal(local string) string {
	if isDotAtom(local) {
		return local
	}
	return quoted(local)
}

// isDotAtom reports whether s is a dot-atom of RFC 5322, with RFC 6531's
// characters beyond ASCII.
func isDotAtom(s string) bool {
	if s == "" || s[0] == '.' || s[len(s)-1] == '.' || strings.Contains(s, "..") {
		return false
	}
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		case strings.ContainsRune("!#$%&'*+-/=?^_`{|}~.", r):
		case r > unicode.MaxASCII && !unicode.IsControl(r) && !unicode.IsSpace(r) && r != utf8.RuneError:
		default:
			return false
		}
	}
	return true
}

// checkDomain checks a host name, or an address literal such as [192.0.2.1].
func checkDomain(domain string) error {
	if domain == "" {
		return errors.New(`has nothing after the "@"`)
	}
	if literal, ok := strings.CutPrefix(domain, "["); ok {
		literal, ok = strings.CutSuffix(literal, "]")
		six, is6 := strings.CutPrefix(literal, "IPv6:")
		ip, err := netip.ParseAddr(six)
		if !ok || err != nil || ip.Is6() != is6 || ip.Zone() != "" {
			return fmt.Errorf("has an invalid address literal: %q", domain)
		}
		return nil
	}
	ascii := domain
	if !isASCII(domain) {
		var err error
		if ascii, err = idna.Lookup.ToASCII(domain); err != nil {
			return fmt.Errorf("has a domain that is not allowed: %q", domain)
		}
	}
	if ascii == "" || len(ascii) > MaxDomainBytes {
		return fmt.Errorf("has a domain of %d bytes, at most %d are allowed", len(ascii), MaxDomainBytes)
	}
	for label := range strings.SplitSeq(ascii, ".") {
		if !isLabel(label) {
			return fmt.Errorf("has a domain that is not allowed: %q", domain)
		}
	}
	return nil
}

// isLabel reports whether s is one part of a host name.
func isLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
