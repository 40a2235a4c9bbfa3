package email

import (
	"fmt"
	"net/textproto"
	"strings"
)

// reservedHeaders are headers that the mail's fields or the servers set. Names are canonical.
// Each value says what to do instead.
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

// reservedPrefixes are the prefixes of further reserved names.
var reservedPrefixes = []string{"Content-", "Resent-", "Arc-"}

// reservedHint reports whether a header is reserved, and what to do instead.
func reservedHint(name string) (hint string, reserved bool) {
	name = textproto.CanonicalMIMEHeaderKey(name)
	if hint, ok := reservedHeaders[name]; ok {
		return hint, true
	}
	for _, p := range reservedPrefixes {
		if strings.HasPrefix(name, p) {
			return "the mail sets these headers itself", true
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

// leftOut reports whether a given header is omitted: it is empty and its grammar allows no
// empty value. Some programs set every header that they know.
func leftOut(name, value string) bool {
	return grammars[textproto.CanonicalMIMEHeaderKey(name)] != nil && len(blanks(value)) == 0
}

// writeHeader formats the value of a header. If the header has a grammar, blanks are
// collapsed, and the error says which part of the value does not fit. Any other value is read
// back exactly as it was given.
func writeHeader(name, value string) (string, error) {
	if write := grammars[textproto.CanonicalMIMEHeaderKey(name)]; write != nil {
		written, err := write(name, strings.Join(blanks(value), " "))
		if err == nil && !fitsLine(name, written) {
			err = fmt.Errorf("has a word that is too long for a line of %d bytes", maxLineBytes)
		}
		return written, err
	}
	return encodeText(name, value), nil
}
