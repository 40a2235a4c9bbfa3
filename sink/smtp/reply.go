package smtp

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste/email"
)

// maxReplyText bounds how much of a server's words is kept, in bytes: they are
// kept for each recipient and attempt.
const maxReplyText = 300

// reply is a server's answer to a command.
type reply struct {
	code     int
	enhanced string
	text     string
}

// enhancedCode is a status code of RFC 3463 at the beginning of a line.
var enhancedCode = regexp.MustCompile(`(?m)^([245]\.\d{1,3}\.\d{1,3})(?:[ \t]|$)`)

// newReply makes a reply of what was read. Its text is one line of valid UTF-8.
func newReply(code int, lines string) reply {
	r := reply{code: code}
	if m := enhancedCode.FindStringSubmatch(lines); m != nil && strings.HasPrefix(lines, m[1]) {
		r.enhanced = m[1]
		lines = enhancedCode.ReplaceAllString(lines, "")
	}
	r.text = oneLine(lines)
	return r
}

// String writes the reply as the server did.
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

// words is what the server said beside its codes.
func (r reply) words() string {
	if r.text == "" {
		return "(the server gave no reason)"
	}
	return r.text
}

func (r reply) ok() bool { return r.code >= 200 && r.code < 300 }

// closing reports that the server is about to close the connection.
func (r reply) closing() bool { return r.code == 421 }

// status is what the reply means for the recipients it is about.
func (r reply) status() email.AnswerStatus {
	switch {
	case r.ok():
		return email.Accepted
	case r.code >= 500 && r.code < 600 && !r.aboutUs():
		return email.Refused
	}
	return email.Deferred
}

// tooMany reports an answer to a RCPT that may say that the transaction has too many
// recipients (RFC 5321, 4.5.3.1.10): 452, or 552 as servers of RFC 821 say it, unless the
// status code gives another reason, such as a full mailbox.
func (r reply) tooMany() bool {
	switch r.code {
	case 452:
		return r.enhanced == "" || r.enhanced == "4.0.0" || r.enhanced == "4.5.3"
	case 552:
		return r.enhanced == "" || r.enhanced == "5.0.0" || r.enhanced == "5.5.3"
	}
	return false
}

// rcptStatus is what the reply to a RCPT means for its recipient.
func (r reply) rcptStatus() email.AnswerStatus {
	if r.tooMany() {
		return email.Deferred
	}
	return r.status()
}

// aboutUs reports a refusal of the session rather than of the mail: a password
// or encryption is missing or wrong. Somebody will mend that.
func (r reply) aboutUs() bool {
	switch r.code {
	case 530, 534, 535, 538:
		return true
	}
	return false
}

// replyError is an answer that ended the session's opening.
type replyError struct {
	step  string
	reply reply
}

// Error implements error.
func (e *replyError) Error() string { return e.step + ": " + e.reply.String() }

// oneLine makes one short line of valid UTF-8 without control characters.
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
