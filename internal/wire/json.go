package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
)

// Check reports whether data is exactly one JSON value in valid UTF-8 that readers can take
// (see package jsoncheck). The error says at which byte it is not.
func Check(data []byte) error {
	if at := invalidUTF8(data); at >= 0 {
		return posthaste.Invalidf("", "the JSON is not valid UTF-8 at byte %d", at)
	}
	if len(bytes.TrimLeft(data, " \t\r\n")) == 0 {
		return posthaste.Invalidf("", "a JSON value is required, and there is none")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	var value json.RawMessage
	if err := dec.Decode(&value); err != nil {
		return syntaxError(err, len(data))
	}
	rest := data[dec.InputOffset():]
	if trimmed := bytes.TrimLeft(rest, " \t\r\n"); len(trimmed) > 0 {
		return posthaste.Invalidf("", "the JSON value is followed by something else at byte %d", len(data)-len(trimmed))
	}
	if fault := jsoncheck.Readable(data); fault != "" {
		return posthaste.Invalidf("", "the JSON %s", fault)
	}
	return nil
}

func syntaxError(err error, length int) error {
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return posthaste.Invalidf("", "the JSON is malformed at byte %d: %s", syntax.Offset, syntax.Error())
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return posthaste.Invalidf("", "the JSON ends too early, at byte %d", length)
	}
	return posthaste.Invalidf("", "the JSON cannot be read: %s", err)
}

func invalidUTF8(data []byte) int {
	if utf8.Valid(data) {
		return -1
	}
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

// Object is a JSON object whose fields are taken one by one. The first fault
// is kept and told by [Object.Finish], so that a parser reads like a list of
// its fields. A field that is null counts as absent.
type Object struct {
	path   string
	fields map[string]json.RawMessage
	order  []string
	err    error
}

// ParseObject reads a JSON object strictly: a field may appear only once. path
// is put before the names of fields in errors, such as "messages[3]" or "deliveries[0]".
func ParseObject(path string, data []byte) (*Object, error) {
	if path == "" {
		if err := Check(data); err != nil {
			return nil, err
		}
	}
	o := &Object{path: path, fields: map[string]json.RawMessage{}}
	if kindOf(data) != "an object" {
		return nil, wrongKind(path, "a JSON object", data)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if _, err := dec.Token(); err != nil {
		return nil, syntaxError(err, len(data))
	}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, syntaxError(err, len(data))
		}
		name, _ := token.(string)
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return nil, syntaxError(err, len(data))
		}
		if _, twice := o.fields[name]; twice {
			return nil, posthaste.Invalidf(o.at(name), "%s is given twice", o.at(name))
		}
		o.fields[name] = raw
		o.order = append(o.order, name)
	}
	return o, nil
}

// ParseArray reads a JSON array into its elements, still encoded; more than
// [MaxBatch] are refused before each costs memory of its own.
func ParseArray(path string, data []byte) ([]json.RawMessage, error) {
	if path == "" {
		if err := Check(data); err != nil {
			return nil, err
		}
	}
	if kindOf(data) != "an array" {
		return nil, wrongKind(path, "a JSON array", data)
	}
	if n := commas(data) + 1; n > MaxBatch {
		return nil, posthaste.Invalidf(path, "an array may hold at most %d, and this one holds %d", MaxBatch, n)
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(data, &elements); err != nil {
		return nil, syntaxError(err, len(data))
	}
	return elements, nil
}

// commas counts those between the elements of an array, which is well-formed.
func commas(data []byte) (n int) {
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ',' && depth == 1:
			n++
		}
	}
	return n
}

func (o *Object) at(name string) string {
	if o.path == "" {
		return name
	}
	return o.path + "." + name
}

// Fail records a fault of the named field, unless there is one already.
func (o *Object) Fail(name, format string, args ...any) {
	if o.err == nil {
		o.err = posthaste.Invalidf(o.at(name), "%s %s", o.at(name), fmt.Sprintf(format, args...))
	}
}

func (o *Object) keep(err error) {
	if o.err == nil {
		o.err = err
	}
}

// Raw takes a field as it stands; nil if it is absent. Unlike the other
// takers it tells null (the four bytes) from absent.
func (o *Object) Raw(name string) json.RawMessage {
	raw := o.fields[name]
	delete(o.fields, name)
	return raw
}

func (o *Object) take(name string) (json.RawMessage, bool) {
	raw := o.Raw(name)
	return raw, raw != nil && !isNull(raw)
}

// Has reports whether the field is there and not yet taken.
func (o *Object) Has(name string) bool {
	raw, ok := o.fields[name]
	return ok && !isNull(raw)
}

// Filled makes a fault of each field that is null or "". Where fields choose, one
// that was given and says nothing must not count as absent: all would be chosen.
func (o *Object) Filled() {
	for _, name := range o.order {
		if raw, ok := o.fields[name]; ok && (isNull(raw) || string(bytes.TrimSpace(raw)) == `""`) {
			o.Fail(name, "must not be empty: leave it out instead")
		}
	}
}

// Text takes a string; "" if absent.
func (o *Object) Text(name string) string {
	raw, ok := o.take(name)
	if !ok {
		return ""
	}
	s, err := text(o.at(name), raw)
	o.keep(err)
	return s
}

// LooseText takes a string whatever it holds; "" if absent. Half a surrogate pair becomes
// the replacement character: whoever reports a failure must not fail because of its text.
func (o *Object) LooseText(name string) (s string) {
	if raw, ok := o.take(name); ok && (kindOf(raw) != "a string" || json.Unmarshal(raw, &s) != nil) {
		o.keep(wrongKind(o.at(name), "a string", raw))
	}
	return s
}

// Bool takes true or false; def if absent.
func (o *Object) Bool(name string, def bool) bool {
	raw, ok := o.take(name)
	if !ok {
		return def
	}
	switch string(bytes.TrimSpace(raw)) {
	case "true":
		return true
	case "false":
		return false
	}
	o.keep(wrongKind(o.at(name), "true or false", raw))
	return def
}

// Int takes a whole number of min to max; 0 if absent.
func (o *Object) Int(name string, min, max int) int {
	raw, ok := o.take(name)
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(raw)), 10, 64)
	if err != nil {
		o.keep(wrongKind(o.at(name), "a whole number", raw))
		return 0
	}
	if n < int64(min) || n > int64(max) {
		o.Fail(name, "must be %d to %d, and is %d", min, max, n)
		return 0
	}
	return int(n)
}

// Duration takes a duration (see [ParseDuration]) that is not negative; 0 if absent.
func (o *Object) Duration(name string) time.Duration {
	if !o.Has(name) {
		o.Raw(name)
		return 0
	}
	s := o.Text(name)
	d, err := ParseDuration(s)
	if err != nil {
		o.Fail(name, "%s", err)
		return 0
	}
	if d < 0 {
		o.Fail(name, "must not be negative, and is %q", s)
		return 0
	}
	return d
}

// Time takes an RFC 3339 time; the zero time if absent.
func (o *Object) Time(name string) time.Time {
	if !o.Has(name) {
		o.Raw(name)
		return time.Time{}
	}
	t, err := ParseTime(o.Text(name))
	if err != nil {
		o.Fail(name, "%s", err)
	}
	return t
}

// Texts takes an array of strings; nil if absent.
func (o *Object) Texts(name string) []string {
	raw, ok := o.take(name)
	if !ok {
		return nil
	}
	elements, err := ParseArray(o.at(name), raw)
	o.keep(err)
	texts := make([]string, 0, len(elements))
	for i, element := range elements {
		s, err := text(fmt.Sprintf("%s[%d]", o.at(name), i), element)
		o.keep(err)
		texts = append(texts, s)
	}
	return texts
}

// TextMap takes an object whose values are strings; nil if absent.
func (o *Object) TextMap(name string) map[string]string {
	inner := o.Object(name)
	if inner == nil {
		return nil
	}
	texts := make(map[string]string, len(inner.order))
	for _, key := range inner.order {
		s, err := text(inner.at(key), inner.fields[key])
		o.keep(err)
		texts[key] = s
	}
	return texts
}

// Object takes an inner object; nil if absent or at fault. The caller calls
// its Finish.
func (o *Object) Object(name string) *Object {
	raw, ok := o.take(name)
	if !ok {
		return nil
	}
	inner, err := ParseObject(o.at(name), raw)
	o.keep(err)
	return inner
}

// Finish returns the first fault. Fields that nobody took are faults: those
// in later are known to the product and not supported yet, others are unknown.
func (o *Object) Finish(later ...string) error {
	if o.err != nil {
		return o.err
	}
	for _, name := range o.order {
		if _, left := o.fields[name]; !left {
			continue
		}
		at := o.at(name)
		for _, known := range later {
			if name == known {
				return &posthaste.Error{Code: posthaste.Unsupported, Field: at, Message: at + " is not supported yet", Hint: "leave it out"}
			}
		}
		return posthaste.Invalidf(at, "%s is unknown", strconv.Quote(at))
	}
	return nil
}

// text decodes a JSON string, and refuses what a store cannot hold: NUL, and escapes that
// name no character (lone surrogates), which decoding would silently replace.
func text(path string, raw json.RawMessage) (string, error) {
	var s string
	if kindOf(raw) != "a string" || json.Unmarshal(raw, &s) != nil {
		return "", wrongKind(path, "a string", raw)
	}
	if what := jsoncheck.BadEscape(raw); what != "" {
		return "", posthaste.Invalidf(path, "%s holds %s", path, what)
	}
	return s, nil
}

func isNull(raw json.RawMessage) bool { return string(bytes.TrimSpace(raw)) == "null" }

func wrongKind(path, want string, raw []byte) error {
	if path == "" {
		path = "the body"
		return posthaste.Invalidf("", "%s must be %s, and is %s", path, want, kindOf(raw))
	}
	return posthaste.Invalidf(path, "%s must be %s, and is %s", path, want, kindOf(raw))
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
