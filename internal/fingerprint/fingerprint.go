// Package fingerprint tells alike errors by their texts.
package fingerprint

import (
	"regexp"
	"strings"
)

// maxText is how much of an error counts.
const maxText = 500

// variable matches the parts of an error that differ between alike errors.
var variable = regexp.MustCompile(`"[^"]*"|'[^']*'|[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|0x[0-9a-fA-F]+|[0-9a-fA-F]{12,}|[0-9]+(?:[.:,][0-9]+)*`)

// Of returns the first line of an error without the parts that differ between alike errors:
// numbers, ids and quoted text.
func Of(text string) string { return variable.ReplaceAllString(First(text), "…") }

// First returns the first line of an error, shortened to 500 bytes.
func First(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "")
	}
	return text
}

// Part returns the longest part of an error that alike errors have in common. It is the whole
// first line if every part is short.
func Part(text string) (part string) {
	text = First(text)
	for _, between := range variable.Split(text, -1) {
		if between = strings.TrimSpace(between); len(between) > len(part) {
			part = between
		}
	}
	if len(part) < 8 {
		part = text
	}
	return part
}
