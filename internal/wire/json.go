package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
)

// MaxBatch is the largest number of elements in an array of a request.
const MaxBatch = 10_000

// Check reports whether data is exactly one JSON value in valid UTF-8 that readers accept
// (see package jsoncheck). The error names the byte at fault.
func Check(data []byte) error {
	if !utf8.Valid(data) || !json.Valid(data) {
		return malformed(data)
	}
	if fault := jsoncheck.Readable(data); fault != "" {
		return posthaste.Invalidf("", "the JSON %s", fault)
	}
	return nil
}

// malformed describes the first fault of data that is not valid JSON in UTF-8.
func malformed(data []byte) error {
	if at := invalidUTF8(data); at >= 0 {
		return posthaste.Invalidf("", "the JSON is not valid UTF-8 at byte %d", at)
	}
	if len(bytes.TrimLeft(data, " \t\r\n")) == 0 {
		return posthaste.Invalidf("", "a JSON value is required, and the input is empty")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	var value json.RawMessage
	err := dec.Decode(&value)
	var syntax *json.SyntaxError
	switch {
	case err == nil:
		rest := bytes.TrimLeft(data[dec.InputOffset():], " \t\r\n")
		return posthaste.Invalidf("", "the JSON value is followed by other text at byte %d", len(data)-len(rest))
	case errors.As(err, &syntax):
		return posthaste.Invalidf("", "the JSON is malformed at byte %d: %s", syntax.Offset, syntax.Error())
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return posthaste.Invalidf("", "the JSON is incomplete: it ends at byte %d", len(data))
	}
	return posthaste.Invalidf("", "the JSON cannot be read: %s", err)
}

func invalidUTF8(data []byte) int {
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return -1
}

// split calls take for each member of an object or, without a name, for each element of an
// array. data must be valid JSON. The parts are parts of data: nothing is copied.
func split(data []byte, take func(name, value json.RawMessage)) {
	var name json.RawMessage
	depth, start := 0, 0
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			for i++; i < len(data) && data[i] != '"'; i++ {
				if data[i] == '\\' {
					i++
				}
			}
		case c == '{' || c == '[':
			if depth++; depth == 1 {
				start = i + 1
			}
		case depth == 1 && c == ':':
			name, start = trim(data[start:i]), i+1
		case depth == 1 && (c == ',' || c == '}' || c == ']'):
			if value := trim(data[start:i]); len(value) > 0 {
				take(name, value)
			}
			start = i + 1
			if c != ',' {
				depth--
			}
		case c == '}' || c == ']':
			depth--
		}
	}
}

// trim removes spaces, and the capacity behind the part.
func trim(part []byte) json.RawMessage {
	part = bytes.TrimSpace(part)
	return part[:len(part):len(part)]
}

// Object is a JSON object whose fields are taken one by one. It keeps the first fault for
// [Object.Finish], so that a parser reads like a list of its fields. A field that is null
// counts as absent.
type Object struct {
	path   string
	fields map[string]json.RawMessage
	order  []string
	err    error
	// known has the names that were taken while fields were left. An array in the object costs
	// no allocation of its own.
	known  [maxKnown]string
	knowns int
}

// maxKnown is the most fields that the error for an unknown field lists.
const maxKnown = 24

// ParseObject reads a JSON object. A field may appear only once. Errors put path before the
// names of fields, such as "deliveries[0]". If path is not empty, data must be a part of
// JSON that [Check] has accepted.
func ParseObject(path string, data []byte) (*Object, error) {
	if path == "" {
		if err := Check(data); err != nil {
			return nil, err
		}
	}
	return parseObject(path, data)
}

// parseObject is ParseObject for data that Check has accepted.
func parseObject(path string, data []byte) (*Object, error) {
	if kindOf(data) != "an object" {
		return nil, wrongKind(path, "a JSON object", data)
	}
	o := &Object{path: path, fields: make(map[string]json.RawMessage, 8), order: make([]string, 0, 8)}
	split(data, func(quoted, value json.RawMessage) {
		name := unquote(quoted)
		if _, twice := o.fields[name]; twice {
			o.Fail(name, "is given twice")
		}
		o.fields[name] = value
		o.order = append(o.order, name)
	})
	if o.err != nil {
		return nil, o.err
	}
	return o, nil
}

// ParseArray reads a JSON array and returns its elements, which are not decoded. It rejects
// more than [MaxBatch] elements. path is as in [ParseObject].
func ParseArray(path string, data []byte) ([]json.RawMessage, error) {
	if path == "" {
		if err := Check(data); err != nil {
			return nil, err
		}
	}
	return parseArray(path, data)
}

// parseArray is ParseArray for data that Check has accepted.
func parseArray(path string, data []byte) ([]json.RawMessage, error) {
	if kindOf(data) != "an array" {
		return nil, wrongKind(path, "a JSON array", data)
	}
	var elements []json.RawMessage
	count := 0
	split(data, func(_, value json.RawMessage) {
		if count++; count <= MaxBatch {
			elements = append(elements, value)
		}
	})
	if count > MaxBatch {
		return nil, posthaste.Invalidf(path, "an array may have at most %d elements, got %d", MaxBatch, count)
	}
	return elements, nil
}

func (o *Object) at(name string) string {
	if o.path == "" {
		return name
	}
	return o.path + "." + name
}

// Fail records a fault of the named field, unless a fault was recorded before.
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

// Raw takes a field without decoding it; nil if it is absent. Unlike the other methods it
// distinguishes null (the four bytes) from absent.
func (o *Object) Raw(name string) json.RawMessage {
	if len(o.fields) == 0 {
		return nil
	}
	o.note(name)
	raw := o.fields[name]
	delete(o.fields, name)
	return raw
}

// note records that a field is known.
func (o *Object) note(name string) {
	if o.knowns < maxKnown {
		o.known[o.knowns] = name
		o.knowns++
	}
}

func (o *Object) take(name string) (json.RawMessage, bool) {
	raw := o.Raw(name)
	return raw, raw != nil && !isNull(raw)
}

// Has reports whether the field is present, not null, and not yet taken.
func (o *Object) Has(name string) bool {
	raw, ok := o.fields[name]
	return ok && !isNull(raw)
}

// given reports whether the field is present, also as null, and not yet taken.
func (o *Object) given(name string) bool {
	o.note(name)
	_, is := o.fields[name]
	return is
}

// Filled records a fault for each field that is null or "". In a filter, an empty field must
// not count as absent, because the filter would then select everything.
func (o *Object) Filled() {
	for _, name := range o.order {
		if raw, ok := o.fields[name]; ok && (isNull(raw) || string(bytes.TrimSpace(raw)) == `""`) {
			o.Fail(name, "must not be empty; leave it out instead")
		}
	}
}

// Text takes a string; "" if absent.
func (o *Object) Text(name string) string {
	raw, ok := o.take(name)
	if !ok {
		return ""
	}
	return o.text(name, raw)
}

func (o *Object) text(name string, raw json.RawMessage) string {
	s, fault := decode(raw)
	if fault != "" {
		o.Fail(name, "%s", fault)
	}
	return s
}

// LooseText takes a string with any content; "" if absent. Half a surrogate pair becomes
// the replacement character, because reporting a failure must not fail due to its text.
func (o *Object) LooseText(name string) string {
	raw, ok := o.take(name)
	if !ok {
		return ""
	}
	if kindOf(raw) != "a string" {
		o.keep(wrongKind(o.at(name), "a string", raw))
		return ""
	}
	return unquote(raw)
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

// Int takes an integer from min to max; 0 if absent.
func (o *Object) Int(name string, min, max int) int {
	raw, ok := o.take(name)
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(raw)), 10, 64)
	if err != nil {
		o.keep(wrongKind(o.at(name), "an integer", raw))
		return 0
	}
	if n < int64(min) || n > int64(max) {
		o.Fail(name, "must be %d to %d, got %d", min, max, n)
		return 0
	}
	return int(n)
}

// Number takes a number; 0 if absent.
func (o *Object) Number(name string) float64 {
	raw, ok := o.take(name)
	if !ok {
		return 0
	}
	n, err := strconv.ParseFloat(string(bytes.TrimSpace(raw)), 64)
	if err != nil {
		o.keep(wrongKind(o.at(name), "a number", raw))
	}
	return n
}

// Refuse records an error of a field, whose name gets the path of the object.
func (o *Object) Refuse(err error) {
	if e, ok := errors.AsType[*posthaste.Error](err); ok {
		placed := *e
		placed.Field = o.at(e.Field)
		err = &placed
	}
	o.keep(err)
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
	elements, err := parseArray(o.at(name), raw)
	o.keep(err)
	texts := make([]string, len(elements))
	for i, element := range elements {
		texts[i] = o.text(name+"["+strconv.Itoa(i)+"]", element)
	}
	return texts
}

// TextMap takes an object whose values are strings; nil if absent.
func (o *Object) TextMap(name string) map[string]string {
	raw, ok := o.take(name)
	if !ok {
		return nil
	}
	if kindOf(raw) != "an object" {
		o.keep(wrongKind(o.at(name), "a JSON object", raw))
		return nil
	}
	texts := map[string]string{}
	split(raw, func(quoted, value json.RawMessage) {
		key := unquote(quoted)
		text, fault := decode(value)
		if _, twice := texts[key]; twice {
			fault = "is given twice"
		}
		if fault != "" {
			o.Fail(name+"."+key, "%s", fault)
		}
		texts[key] = text
	})
	return texts
}

// Object takes an inner object; nil if it is absent or not an object. The caller calls
// Finish of the inner object.
func (o *Object) Object(name string) *Object {
	raw, ok := o.take(name)
	if !ok {
		return nil
	}
	inner, err := parseObject(o.at(name), raw)
	o.keep(err)
	return inner
}

// Finish returns the first fault. A field that was not taken is a fault: a field in later
// is planned and not supported yet, any other field is unknown.
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
				return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: at, Message: at + " is not supported yet", Hint: "leave it out"}
			}
		}
		return posthaste.Invalidf(at, "%s is unknown; expected %s", strconv.Quote(at), o.expected())
	}
	return nil
}

// expected lists the fields that were asked for. An unknown field is never taken, so that all
// names were noted.
func (o *Object) expected() string {
	names := slices.Compact(slices.Sorted(slices.Values(o.known[:o.knowns])))
	switch len(names) {
	case 0:
		return "an empty object"
	case 1:
		return names[0]
	}
	return "one of " + strings.Join(names, ", ")
}
