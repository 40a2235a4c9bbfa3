package cli

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/brokers"
)

// place returns where a field was set: a line of a file, or a flag.
type place func(field string) string

var schemeForm = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)

// broker parses a broker's URL, with variables of the environment.
func (p place) broker(text string) (string, *brokers.Kind, error) {
	url, err := expand(text)
	if err != nil {
		return "", nil, p.fault("broker", err.Error(), "set the variable, or write the URL itself")
	}
	scheme, _, _ := strings.Cut(url, "://")
	kind := brokers.OfScheme(scheme)
	if kind == nil {
		message := fmt.Sprintf("unknown broker scheme %q", scheme)
		if url == "" {
			message = "no broker is set"
		} else if !schemeForm.MatchString(scheme) {
			message = "the broker is not a URL"
		}
		return "", nil, p.fault("broker", message, "expected a URL that begins with "+strings.Join(brokers.Schemes(), "://, ")+"://")
	}
	return url, kind, nil
}

// fault returns an error with the place of a field.
func (p place) fault(field, message, hint string) error {
	return &posthaste.Error{Code: posthaste.CodeInvalid, Field: field, Message: p(field) + ": " + message, Hint: hint}
}

// placed adds the place to an error of a sink or source that names a field.
func (p place) placed(err error) error {
	var e *posthaste.Error
	if !errors.As(err, &e) || e.Code != posthaste.CodeInvalid {
		return err
	}
	field := e.Field
	if field == "url" {
		field = "broker"
	}
	return &posthaste.Error{Code: e.Code, Field: field, Message: p(field) + ": " + e.Message, Hint: e.Hint, Cause: err}
}

// unknown is an unknown key.
type unknown struct {
	node  *yaml.Node
	path  string
	known []string
}

func (u *unknown) key() string { return u.path + u.node.Value }

func (u *unknown) message() string { return fmt.Sprintf("unknown key %q", u.key()) }

func (u *unknown) hint() string { return "expected one of " + strings.Join(u.known, ", ") }

// unknownKey returns a key of a mapping, at any depth, that none of the structs has.
func unknownKey(node *yaml.Node, structs ...reflect.Type) *unknown {
	return unknownBelow(node, "", structs)
}

func unknownBelow(node *yaml.Node, path string, structs []reflect.Type) *unknown {
	if node.Kind != yaml.MappingNode {
		return nil // decoding it fails
	}
	fields := map[string]reflect.Type{}
	for _, t := range structs {
		keysOf(t, fields)
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		t, ok := fields[key.Value]
		if !ok {
			return &unknown{node: key, path: path, known: slices.Sorted(maps.Keys(fields))}
		}
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() == reflect.Struct {
			if u := unknownBelow(node.Content[i+1], path+key.Value+".", []reflect.Type{t}); u != nil {
				return u
			}
		}
	}
	return nil
}

// keysOf adds the keys of a struct.
func keysOf(t reflect.Type, into map[string]reflect.Type) {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for i := range t.NumField() {
		field := t.Field(i)
		name, option, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if option == "inline" {
			keysOf(field.Type, into)
		} else if name != "" && name != "-" {
			into[name] = field.Type
		}
	}
}

// lineOf returns the line of a field such as "cloudevents.source", or of the nearest
// enclosing field that is set.
func lineOf(node *yaml.Node, field string) int {
	line := node.Line
	for node.Kind == yaml.MappingNode && field != "" {
		name, rest, _ := strings.Cut(field, ".")
		var found *yaml.Node
		for i := 0; i+1 < len(node.Content); i += 2 {
			if key := node.Content[i].Value; key == name || key == field {
				line, found = node.Content[i].Line, node.Content[i+1]
			}
		}
		if found == nil {
			break
		}
		node, field = found, rest
	}
	return line
}

// valueOf returns the value of a key of a mapping, or nil.
func valueOf(node *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}
	return nil
}

// empty rejects a key without a value, which would be treated like a missing key.
func (p place) empty(node *yaml.Node, key, such string) error {
	if value := valueOf(node, key); value != nil && value.ShortTag() == "!!null" {
		return p.fault(key, key+" is empty", "add its keys, such as "+such+", or omit it")
	}
	return nil
}
