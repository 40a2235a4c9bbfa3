package email

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// quoted writes s as a quoted string.
func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

func isASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// hasControl reports whether s contains a control character. Line breaks are the important
// ones: with them an attacker could add headers.
func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) || r == '\u2028' || r == '\u2029'
	})
}

// splitOutside splits s at separators outside quotes, comments and angle brackets.
func splitOutside(s string, separator byte) (items []string) {
	var within byte
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case within == '"' && c == '\\':
			i++
		case within != 0:
			if c == within {
				within = 0
			}
		case c == '"':
			within = '"'
		case c == '<':
			within = '>'
		case c == '(':
			within = ')'
		case c == separator:
			items = append(items, s[from:i])
			from = i + 1
		}
	}
	return append(items, s[from:])
}
