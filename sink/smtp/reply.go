package smtp

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste/email"
)

// maxReplyText bounds the text of a reply in bytes. It is stored for each recipient and
// attempt.
const maxReplyText = 300

// reply is a server's reply to a command.
type reply struct {
	code     int
	enhanced string
	text     string
}

// enhancedCode matches a status code of RFC 3463 at the beginning of a line.
var enhancedCode = regexp.MustCompile(`(?m)^([245]\.\d{1,3}\.\d{1,3})(?:[ \t]|$)`)

// newReply parses a reply. Its text becomes one line of valid UTF-8.
func newReply(code int, lines string) reply {
	r := reply{code: code}
	if m := enhancedCode.FindStringSubmatch(lines); m != nil && strings.HasPrefix(lines, m[1]) {
		r.enhanced = m[1]
		lines = enhancedCode.ReplaceAllString(lines, "")
	}
	r.text = oneLine(lines)
	return r
}

// String returns the reply as the server sent it, on one line.
func (r reply) String() string { return answerText(r.code, r.enhanced, r.text) }

func answerText(code int, enhanced, text string) string {
	var words []string
	if code != 0 {
		words = append(words, fmt.Sprint(code))
	}
	if enhanced != "" {
		words = append(words, enhanced)
	}
	return strings.Join(append(words, reply{text: text}.words()), " ")
}

// words returns the reply's text without codes.
func (r reply) words() string {
	if r.text == "" {
		return "(the server gave no reason)"
	}
	return r.text
}

func (r reply) ok() bool { return r.code >= 200 && r.code < 300 }

// closing reports that the server is about to close the connection.
func (r reply) closing() bool { return r.code == 421 }

// status returns the status that the reply means for its recipients.
func (r reply) status() email.AnswerStatus {
	switch {
	case r.ok():
		return email.Accepted
	case r.code >= 500 && r.code < 600 && !r.aboutUs():
		return email.Refused
	}
	return email.Deferred
}

// tooMany reports whether a reply to RCPT may mean that the transaction has too many
// recipients (RFC 5321, 4.5.3.1.10): 452, or 552 from servers of RFC 821, unless the status
// code gives another reason, such as a full mailbox.
func (r reply) tooMany() bool {
	switch r.code {
	case 452:
		return r.enhanced == "" || r.enhanced == "4.0.0" || r.enhanced == "4.5.3"
	case 552:
		return r.enhanced == "" || r.enhanced == "5.0.0" || r.enhanced == "5.5.3"
	}
	return false
}

// rcptStatus returns the status that the reply to RCPT means for its recipient.
func (r reply) rcptStatus() email.AnswerStatus {
	if r.tooMany() {
		return email.Deferred
	}
	return r.status()
}

// aboutUs reports a refusal of the session rather than of the mail: a password or encryption
// is missing or wrong. The mail is retried until an operator has fixed it.
func (r reply) aboutUs() bool {
	switch r.code {
	case 530, 534, 535, 538:
		return true
	}
	return false
}

// replyError is a reply that ended the opening of a session.
type replyError struct {
	step  string
	reply reply
}

// Error implements error.
func (e *replyError) Error() string { return e.step + ": " + e.reply.String() }

// oneLine returns the text as one short line of valid UTF-8 without control characters.
func oneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > maxReplyText {
		n := maxReplyText
		for !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n] + "…"
	}
	return s
}
