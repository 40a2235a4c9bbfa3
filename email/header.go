package email

import (
	"encoding/base64"
	"mime"
	"net/textproto"
	"strings"
	"unicode/utf8"
)

// maxLineBytes is how long a header line may get (RFC 5322, without CRLF).
const maxLineBytes = 998

// reservedHeaders are those that a mail gets from its fields, by composing or
// on its way. Names are canonical.
var reservedHeaders = map[string]string{
	"From":                   "use the field from",
	"To":                     "use the field to",
	"Cc":                     "use the field cc",
	"Bcc":                    "use the field bcc",
	"Reply-To":               "use the field reply_to",
	"Subject":                "use the field subject",
	"Sender":                 "a sender other than from is not supported",
	"Date":                   "the mail gets it by itself",
	"Message-Id":             "the mail gets it by itself, the same on every attempt",
	"Mime-Version":           "the mail gets it by itself",
	"Return-Path":            "servers on the way set it",
	"Received":               "servers on the way set it",
	"Delivered-To":           "servers on the way set it",
	"Authentication-Results": "servers on the way set it",
	"Dkim-Signature":         "signing is not supported yet",
}

// reservedPrefixes are the beginnings of further reserved names.
var reservedPrefixes = []string{"Content-", "Resent-", "Arc-"}

// reservedHint reports whether a header is reserved, and what to do instead.
func reservedHint(name string) (hint string, reserved bool) {
	name = textproto.CanonicalMIMEHeaderKey(name)
	if hint, ok := reservedHeaders[name]; ok {
		return hint, true
	}
	for _, p := range reservedPrefixes {
		if strings.HasPrefix(name, p) {
			return "the mail gets what it needs by itself", true
		}
	}
	return "", false
}

// isHeaderName reports whether s is a field name of RFC 5322.
func isHeaderName(s string) bool {
	if s == "" {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] > '~' || s[i] == ':' {
			return false
		}
	}
	return true
}

// encodeHeader encodes an unstructured header value so that a reader gets
// exactly s back, also after the line was folded at its spaces. What is plain
// stays readable.
func encodeHeader(name, s string) string {
	if !isASCII(s) {
		return mime.QEncoding.Encode("utf-8", s)
	}
	if survivesFolding(name, s) {
		return s
	}
	// Encoded words of whole characters, each below 75 bytes (RFC 2047).
	var b strings.Builder
	for len(s) > 0 {
		n := min(len(s), 45)
		for n < len(s) && !utf8.RuneStart(s[n]) {
			n--
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString("=?utf-8?b?" + base64.StdEncoding.EncodeToString([]byte(s[:n])) + "?=")
		s = s[n:]
	}
	return b.String()
}

// survivesFolding reports whether an ASCII value can be written as it is:
// folding may eat spaces that stand side by side or at the ends, cannot break
// a long word, and a reader would decode what looks like an encoded word.
func survivesFolding(name, s string) bool {
	if s != strings.TrimSpace(s) || strings.Contains(s, "  ") {
		return false
	}
	for word := range strings.SplitSeq(s, " ") {
		if len(name)+len(": ")+len(word) > maxLineBytes {
			return false
		}
	}
	decoded, err := new(mime.WordDecoder).DecodeHeader(s)
	return err == nil && decoded == s
}
