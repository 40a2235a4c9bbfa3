package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"

	"github.com/posthaste-mq/posthaste"
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

// outputFlags adds the flags that select the format.
func (a *app) outputFlags(root *cobra.Command, flags *pflag.FlagSet) {
	flags.VarP(&choice{values: formats, set: func(s string) { a.output = format(s) }}, "output", "o",
		"format of output and errors: table, json (one line), yaml, or jsonl (one line for each item of a list)")
	flags.BoolVar(&a.json, "json", false, "short for --output json")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// chooseFormat decides between --output and --json. A flag on the command line overrides
// variables.
func (a *app) chooseFormat(flags *pflag.FlagSet) error {
	switch {
	case typed(flags, "json") && !typed(flags, "output"):
		a.output = ""
	case typed(flags, "json") && a.json && a.output != asJSON:
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "output", Message: "--json contradicts --output " + string(a.output), Hint: "omit one of them"}
	}
	return nil
}

// format returns the selected format.
func (a *app) format() format {
	switch {
	case a.output != "":
		return a.output
	case a.json:
		return asJSON
	}
	return asTable
}

// print writes value in the selected format. text writes it as a table.
func (a *app) print(value any, text func(w *screen)) error {
	var out bytes.Buffer
	f := a.format()
	if f == asTable {
		text(a.screen(&out))
	} else if err := encode(&out, f, value); err != nil {
		return fmt.Errorf("encode the output as %s: %w", f, err)
	}
	if a.printed && f == asYAML {
		out = *bytes.NewBufferString("---\n" + out.String())
	}
	a.printed = true
	results, _ := a.streams()
	if _, err := results.Write(out.Bytes()); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// screen returns a screen that writes to w what will appear on standard output.
func (a *app) screen(w io.Writer) *screen {
	return &screen{Writer: w, now: time.Now(), color: a.onTerminal() && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// onTerminal reports whether standard output is a terminal.
func (a *app) onTerminal() bool {
	if a.terminal != nil {
		return a.terminal()
	}
	return isTerminal(a.stdout)
}

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

// items returns the items of a list, or else the value itself.
func items(value any) (all []any) {
	if p, ok := value.(page); ok {
		value = p.shown
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
