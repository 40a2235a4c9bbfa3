package email

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxLineBytes is the maximum length of a header line (RFC 5322, without CRLF).
	maxLineBytes = 998
	// maxFolded is the length at which lines are folded (RFC 2047, section 2).
	maxFolded = 76
)

// The length of the longest encoded word (RFC 2047), and of the parts around its text.
const (
	maxEncodedWord = 75
	encodedStart   = "=?utf-8?q?"
	encodedEnd     = "?="
)

// encodeText encodes an unstructured value so that a reader gets exactly s back, even if the
// line was folded at its spaces. Plain text stays readable.
func encodeText(name, s string) string {
	if isASCII(s) && survivesFolding(name, s) {
		return s
	}
	return encodedWords(name, s)
}

// survivesFolding reports whether an ASCII value can be written unchanged. Folding may remove
// adjacent spaces and spaces at the ends, and cannot break a long word. A reader would decode
// text that looks like an encoded word.
func survivesFolding(name, s string) bool {
	return s == strings.Join(blanks(s), " ") && fitsLine(name, s) && !strings.Contains(s, "=?")
}

func fitsLine(name, s string) bool {
	for word := range strings.SplitSeq(s, " ") {
		if len(name)+len(": ")+len(word) > maxLineBytes {
			return false
		}
	}
	return true
}

// blanks splits s into words.
func blanks(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ' ' })
}

// encodedWords formats s as encoded words of whole characters that are valid wherever encoded
// words are (RFC 2047, section 5). The first one fits into the line of the header's name.
func encodedWords(name, s string) string {
	var b strings.Builder
	room, left := maxFolded-len(name)-len(": "), 0
	for i, r := range s {
		character := encodedRune(r)
		if left -= len(character); left < 0 || i == 0 {
			if i > 0 {
				room = maxEncodedWord
				b.WriteString(encodedEnd + " ")
			}
			b.WriteString(encodedStart)
			left = room - len(encodedStart) - len(encodedEnd) - len(character)
		}
		b.WriteString(character)
	}
	return b.String() + encodedEnd
}

func encodedRune(r rune) string {
	switch {
	case r == ' ':
		return "_"
	case r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("!*+-/", r)):
		return string(r)
	}
	var b strings.Builder
	for _, c := range []byte(string(r)) {
		fmt.Fprintf(&b, "=%02X", c)
	}
	return b.String()
}

// writeField writes a header, folded at spaces. The first word stays on the line of the name,
// because some servers treat a line with only a name as an empty header.
func writeField(b *bytes.Buffer, name, value string) {
	b.WriteString(name + ":")
	used := len(name) + len(":")
	before := name
	for i, word := range strings.Split(value, " ") {
		if i > 0 && used+len(" ")+len(word) > maxFolded && word != "" && before != "" {
			b.WriteString("\r\n")
			used = 0
		}
		b.WriteString(" " + word)
		used += len(" ") + len(word)
		before = word
	}
	b.WriteString("\r\n")
}
