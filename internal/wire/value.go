package wire

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
)

// decode decodes a JSON string. It rejects NUL, which stores cannot hold, and escapes that
// are not a character (lone surrogates), which decoding would silently replace.
func decode(raw json.RawMessage) (text, fault string) {
	if kind := kindOf(raw); kind != "a string" {
		return "", "must be a string, got " + kind
	}
	if what := jsoncheck.BadEscape(raw); what != "" {
		return "", "contains " + what
	}
	return unquote(raw), ""
}

// unquote decodes a valid JSON string without spaces around it.
func unquote(raw json.RawMessage) (s string) {
	if inner := raw[1 : len(raw)-1]; bytes.IndexByte(inner, '\\') < 0 {
		return string(inner)
	}
	_ = json.Unmarshal(raw, &s)
	return s
}

// IsVisible reports whether text has one or more visible ASCII characters and nothing else, as
// headers can carry it.
func IsVisible(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' })
}

func isNull(raw json.RawMessage) bool { return string(bytes.TrimSpace(raw)) == "null" }

func wrongKind(path, want string, raw []byte) error {
	if path == "" {
		return posthaste.Invalidf("", "the body must be %s, got %s", want, kindOf(raw))
	}
	return posthaste.Invalidf(path, "%s must be %s, got %s", path, want, kindOf(raw))
}

func kindOf(raw []byte) string {
	trimmed := bytes.TrimSpace(raw)
	if len(trimmed) == 0 {
		return "nothing"
	}
	switch trimmed[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "a number"
}
