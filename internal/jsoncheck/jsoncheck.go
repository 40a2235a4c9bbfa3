// Package jsoncheck defines which JSON may be stored: JSON that PostgreSQL's jsonb and every
// reader in Go and JavaScript accept, for all engines and senders. In SQL posthaste.check_json
// does the same. Engines that do not check payloads and settlements in SQL check them with it.
package jsoncheck

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste"
)

// maxDepth bounds how deep JSON may nest, so that no reader has to recurse without end.
// Go's and PostgreSQL's own bounds are around ten thousand.
const maxDepth = 1000

// Check reports whether data is JSON that can be stored and read: valid, in UTF-8, within
// the bounds of [Readable], and all its escapes are characters. The error names field.
func Check(field string, data []byte) error {
	if !utf8.Valid(data) || !json.Valid(data) {
		if field != "payload" { // which alone has a content type
			return posthaste.Invalidf(field, "%s is not valid JSON in UTF-8", field)
		}
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: field, Message: field + " is not valid JSON in UTF-8, though its content type says so",
			Hint: "give another content type, such as " + posthaste.ContentTypeBytes}
	}
	if what := BadEscape(data); what != "" {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: field, Message: field + " holds " + what + ", which cannot be stored as JSON",
			Hint: "send it with another content type, such as " + posthaste.ContentTypeBytes}
	}
	if fault := Readable(data); fault != "" {
		return posthaste.Invalidf(field, "%s %s", field, fault)
	}
	return nil
}

// Body returns the encoded payload of a message and its content type. It returns an error if the
// payload has over maxPayload bytes, the limit of the queue, or is JSON that cannot be stored.
func Body(m *posthaste.Message, maxPayload int) (body []byte, contentType string, err error) {
	if body, contentType, err = m.Body(); err != nil {
		return nil, "", err
	}
	if len(body) > maxPayload {
		return nil, "", &posthaste.Error{Code: posthaste.CodeTooLarge, Field: "payload",
			Message: fmt.Sprintf("payload of %d bytes is over the queue's limit of %d (max_payload)", len(body), maxPayload)}
	}
	if posthaste.IsJSON(contentType) {
		if err := Check("payload", body); err != nil {
			return nil, "", err
		}
	}
	return body, contentType, nil
}

// Settlement returns an error if a caller of [posthaste.Engine.Settle] cannot give the outcome, or if
// the receipt or the terms of s cannot be stored.
func Settlement(s *posthaste.Settlement) error {
	switch s.Outcome {
	case posthaste.OutcomeDone, posthaste.OutcomeReleased, posthaste.OutcomeSetAside, posthaste.OutcomeRetried, posthaste.OutcomeDead:
	default:
		return posthaste.Invalidf("outcome", "a delivery cannot be settled as %q", s.Outcome)
	}
	if len(s.Receipt) > 0 {
		if err := Check("receipt", s.Receipt); err != nil {
			return err
		}
	}
	if len(s.Terms) == 0 {
		return nil
	}
	if len(s.Terms) > 1000 {
		return posthaste.Invalidf("terms", "there are over 1,000 terms")
	}
	return (&posthaste.Message{Queue: "any", Terms: s.Terms}).Check()
}

// Readable says why readers cannot take data, which is valid JSON; "" if they can. It
// nests no deeper than 1,000, and a double holds each number at least nearly: JavaScript
// reads 1e400 as Infinity, Go refuses it, and PostgreSQL writes all its digits.
func Readable(data []byte) (fault string) {
	depth := 0
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return fmt.Sprintf("nests deeper than %d at byte %d", maxDepth, i)
			}
		case c == '}' || c == ']':
			depth--
		case c == '-' || '0' <= c && c <= '9':
			end := i + 1
			for end < len(data) && strings.IndexByte("0123456789.eE+-", data[end]) >= 0 {
				end++
			}
			if !ordinary(data[i:end]) {
				return fmt.Sprintf("has a number at byte %d that is beyond ±1.8e308, or too small or too long", i)
			}
			i = end - 1
		}
	}
	return ""
}

// ordinary reports whether a double holds a number at least nearly, and no reader needs
// more than a thousand digits for it.
func ordinary(number []byte) bool {
	e := bytes.IndexAny(number, "eE")
	if e < 0 && len(number) <= 300 {
		return true
	}
	mantissa := number
	if e >= 0 {
		mantissa = number[:e]
		// PostgreSQL writes out the zeros of 0e-9999.
		if exponent, err := strconv.Atoi(string(number[e+1:])); err != nil || exponent < -324 || exponent > 308 {
			return false
		}
	}
	x, err := strconv.ParseFloat(string(number), 64)
	isZero := len(bytes.Trim(mantissa, "-0.")) == 0
	return err == nil && len(number) <= 1000 && (x != 0 || isZero)
}

// BadEscape returns the name of an escape of valid JSON that no store can hold as text: NUL,
// or half a surrogate pair. It returns "" if data has no such escape.
func BadEscape(data []byte) (what string) {
	for {
		at := bytes.IndexByte(data, '\\')
		if at < 0 || at+1 >= len(data) {
			return ""
		}
		data = data[at:]
		unit, ok := escapedUnit(data)
		switch low, pair := escapedUnit(data[min(6, len(data)):]); {
		case !ok:
			data = data[2:]
		case unit == 0:
			return `a NUL character (\u0000)`
		case unit < 0xD800 || unit > 0xDFFF:
			data = data[6:]
		case unit > 0xDBFF || !pair || low < 0xDC00 || low > 0xDFFF:
			return "half of a surrogate pair, which is no character"
		default:
			data = data[12:]
		}
	}
}

// escapedUnit reads the UTF-16 unit of an escape such as \u00e9.
func escapedUnit(data []byte) (uint64, bool) {
	if len(data) < 6 || data[0] != '\\' || data[1] != 'u' {
		return 0, false
	}
	unit, err := strconv.ParseUint(string(data[2:6]), 16, 16)
	return unit, err == nil
}
