package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"

	"gopkg.in/yaml.v3"
)

// format is how a command prints its result, and its errors.
type format string

// The formats, as --output names them.
const (
	asTable format = "table"
	asJSON  format = "json"
	asYAML  format = "yaml"
	asJSONL format = "jsonl"
)

var formats = []string{string(asTable), string(asJSON), string(asYAML), string(asJSONL)}

// encode writes value in a format for programs.
func encode(w io.Writer, f format, value any) error {
	switch f {
	case asYAML:
		return encodeYAML(w, value)
	case asJSONL:
		for _, item := range items(value) {
			if err := encodeJSON(w, item); err != nil {
				return err
			}
		}
		return nil
	}
	return encodeJSON(w, value)
}

// listing is a list that has further members as JSON.
type listing interface{ list() any }

// items returns the items of a list, or else the value itself.
func items(value any) (all []any) {
	if l, ok := value.(listing); ok {
		value = l.list()
	}
	list := reflect.ValueOf(value)
	if list.Kind() != reflect.Slice {
		return []any{value}
	}
	for i := range list.Len() {
		all = append(all, list.Index(i).Interface())
	}
	return all
}

// encodeJSON writes value as one line of JSON.
func encodeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// encodeYAML writes value as YAML, with the names and the order of its JSON.
func encodeYAML(w io.Writer, value any) error {
	var text bytes.Buffer
	if err := encodeJSON(&text, value); err != nil {
		return err
	}
	decoder := json.NewDecoder(&text)
	decoder.UseNumber()
	node, err := yamlNode(decoder)
	if err != nil {
		return err
	}
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	if err := encoder.Encode(node); err != nil {
		return err
	}
	return encoder.Close()
}

// yamlNode reads the next value of JSON. It does not use the YAML parser, which reads escaped
// characters above U+FFFF and long keys differently.
func yamlNode(from *json.Decoder) (*yaml.Node, error) {
	token, err := from.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Delim:
		node := &yaml.Node{Kind: yaml.SequenceNode}
		if token == '{' {
			node.Kind = yaml.MappingNode
		}
		for from.More() {
			for range 1 + strings.Count(token.String(), "{") { // the name and the value of a member
				child, err := yamlNode(from)
				if err != nil {
					return nil, err
				}
				node.Content = append(node.Content, child)
			}
		}
		if len(node.Content) == 0 {
			node.Style = yaml.FlowStyle
		}
		_, err = from.Token() // the end
		return node, err
	case string:
		// As a block, a first space would be indentation. The library does not quote "<<", which merges maps.
		if token == "<<" || strings.Contains(token, "\n") && strings.TrimLeft(token, " \t\r\n") != token {
			return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: token, Style: yaml.DoubleQuotedStyle}, nil
		}
		node := &yaml.Node{}
		return node, node.Encode(token) // quotes "no", which older parsers read as false
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: token.String()}, nil
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: "null"}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(token)}, nil
}
