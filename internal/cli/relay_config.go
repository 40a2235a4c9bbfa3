package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/brokers"
	"github.com/posthaste-mq/posthaste/relay"
)

// relayTarget is the part of a relay that all brokers share.
type relayTarget struct {
	Queue        string `yaml:"queue"`
	Subscription string `yaml:"subscription"`
	// Broker is the broker's URL. Its scheme selects the kind.
	Broker string `yaml:"broker"`
	// Batch is the maximum number of messages that are published together.
	Batch int `yaml:"batch"`
	// Concurrency is the number of batches in flight.
	Concurrency int `yaml:"concurrency"`
	// Chunks, if set, packs several messages into one of the broker.
	Chunks *relayChunks `yaml:"chunks"`
}

// relayConfig is the parsed configuration of a relay, with the place of each of its fields.
type relayConfig struct {
	relayTarget
	kind *brokers.Kind
	open brokers.OpenSink
	place
}

// place returns where a field was set: a line of a file, or a flag.
type place func(field string) string

// readRelays parses a file of relays and sources. broker is the default broker.
func readRelays(file, broker string) (relays []relayConfig, sources []sourceConfig, err error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "config", Message: "the configuration cannot be read: " + err.Error()}
	}
	var document, second yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(raw))
	err = documents.Decode(&document)
	more := err == nil
	if more {
		err = documents.Decode(&second)
		more = err == nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "config", Message: file + ": " + strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	at := func(node *yaml.Node, field, message, hint string) error {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: field, Message: fmt.Sprintf("%s:%d: %s", file, max(1, node.Line), message), Hint: hint}
	}
	if more {
		return nil, nil, at(&second, "config", "a second document begins, and a file of relays is one", "leave out the line ---, and put all relays into one list")
	}
	var all struct {
		Broker  string      `yaml:"broker"`
		Relays  []yaml.Node `yaml:"relays"`
		Sources []yaml.Node `yaml:"sources"`
	}
	if len(document.Content) == 0 {
		return nil, nil, at(&document, "relays", "there is no relay in it", "write relays: and below it a list, such as - queue: orders")
	}
	top := document.Content[0]
	if u := unknownKey(top, reflect.TypeOf(all)); u != nil {
		return nil, nil, at(u.node, u.key(), u.message(), u.hint())
	}
	if err := top.Decode(&all); err != nil {
		return nil, nil, at(top, "config", strings.TrimPrefix(err.Error(), "yaml: "), "")
	}
	if all.Broker == "" {
		all.Broker = broker
	}
	within := func(node *yaml.Node) place {
		return func(field string) string { return fmt.Sprintf("%s:%d", file, lineOf(node, field)) }
	}
	for i := range all.Relays {
		c, err := readRelay(&all.Relays[i], all.Broker, within(&all.Relays[i]))
		if err != nil {
			return nil, nil, err
		}
		relays = append(relays, c)
	}
	for i := range all.Sources {
		c, err := readSource(&all.Sources[i], all.Broker, within(&all.Sources[i]))
		if err != nil {
			return nil, nil, err
		}
		sources = append(sources, c)
	}
	if len(relays)+len(sources) == 0 {
		return nil, nil, at(top, "relays", "there is no relay in it, and no source", "write relays: and below it a list, such as - queue: orders")
	}
	return relays, sources, nil
}

// setRelays returns the relays of the flags: one for each queue, with the same settings.
func setRelays(queues []string, broker string, set []string) ([]relayConfig, error) {
	var relays []relayConfig
	for _, queue := range queues {
		node := &yaml.Node{Kind: yaml.MappingNode}
		add := func(node *yaml.Node, key, value string) {
			node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, &yaml.Node{Kind: yaml.ScalarNode, Value: value})
		}
		add(node, "queue", queue)
		groups := map[string]*yaml.Node{}
		for _, s := range set {
			key, value, ok := strings.Cut(s, "=")
			if !ok || key == "" {
				return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "set", Message: fmt.Sprintf("--set takes key=value, and not %q", s), Hint: "for example --set exchange=orders"}
			}
			group, name, nested := strings.Cut(key, ".")
			if !nested {
				add(node, key, value)
				continue
			}
			if groups[group] == nil {
				groups[group] = &yaml.Node{Kind: yaml.MappingNode}
				node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: group}, groups[group])
			}
			add(groups[group], name, value)
		}
		c, err := readRelay(node, broker, func(field string) string {
			switch field {
			case "queue", "broker", "url":
				return "--" + strings.ReplaceAll(field, "url", "broker")
			}
			return "--set " + field
		})
		if err != nil {
			return nil, err
		}
		relays = append(relays, c)
	}
	return relays, nil
}

// readRelay parses one relay.
func readRelay(node *yaml.Node, broker string, place place) (relayConfig, error) {
	c := relayConfig{relayTarget: relayTarget{Broker: broker, Batch: relay.DefaultBatch, Concurrency: relay.DefaultConcurrency}, place: place}
	if node.Kind != yaml.MappingNode {
		return c, c.fault("queue", "a relay is a list of keys and values", "such as queue: orders")
	}
	if err := node.Decode(&c.relayTarget); err != nil {
		return c, c.fault("queue", strings.TrimPrefix(err.Error(), "yaml: "), "")
	}
	if err := posthaste.CheckName("queue", c.Queue); err != nil {
		return c, c.fault("queue", err.Error(), "")
	}
	if c.Batch < 1 || c.Batch > 10_000 {
		return c, c.fault("batch", fmt.Sprintf("batch must be 1 to 10000, and is %d", c.Batch), "")
	}
	if c.Concurrency < 1 || c.Concurrency > 100 {
		return c, c.fault("concurrency", fmt.Sprintf("concurrency must be 1 to 100, and is %d", c.Concurrency), "")
	}
	err := cmp.Or(c.empty(node, "chunks", "encoding: json"), c.empty(node, "cloudevents", "source: /shop"))
	if err != nil {
		return c, err
	}
	if c.Broker, c.kind, err = c.broker(c.Broker); err != nil {
		return c, err
	}
	options, open := c.kind.Sink(c.Broker)
	if u := unknownKey(node, reflect.TypeOf(c.relayTarget), reflect.TypeOf(options)); u != nil {
		return c, c.fault(u.key(), u.message()+" of a relay to "+c.kind.Name, u.hint())
	}
	if err := node.Decode(options); err != nil {
		return c, c.fault("queue", strings.TrimPrefix(err.Error(), "yaml: "), "")
	}
	c.open = open
	_, err = c.chunks()
	return c, err
}

var schemeForm = regexp.MustCompile(`^[a-z][a-z0-9+.-]*$`)

// broker parses a broker's URL, with variables of the environment.
func (p place) broker(text string) (string, *brokers.Kind, error) {
	url, err := expand(text)
	if err != nil {
		return "", nil, p.fault("broker", err.Error(), "set it, or write the URL itself")
	}
	scheme, _, _ := strings.Cut(url, "://")
	kind := brokers.OfScheme(scheme)
	if kind == nil {
		message := fmt.Sprintf("there is no broker of scheme %q", scheme)
		if url == "" {
			message = "no broker is given"
		} else if !schemeForm.MatchString(scheme) {
			message = "the broker is no URL"
		}
		return "", nil, p.fault("broker", message, "its URL begins with "+strings.Join(brokers.Schemes(), "://, ")+"://")
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

// variable matches a variable of the environment in a broker's URL.
var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// expand replaces variables of the environment in a URL, so that a file need not hold
// passwords. A variable that is the whole URL is used unchanged; others are percent-encoded.
func expand(text string) (string, error) {
	var missing []string
	out := variable.ReplaceAllStringFunc(text, func(v string) string {
		name := v[2 : len(v)-1]
		value, ok := os.LookupEnv(name)
		if !ok {
			missing = append(missing, name)
		}
		if v == text {
			return value
		}
		return url.QueryEscape(value)
	})
	if missing != nil {
		return "", fmt.Errorf("the environment has no %s", strings.Join(missing, ", "))
	}
	return out, nil
}

// unknown is an unknown key.
type unknown struct {
	node  *yaml.Node
	path  string
	known []string
}

func (u *unknown) key() string     { return u.path + u.node.Value }
func (u *unknown) message() string { return fmt.Sprintf("unknown key %q", u.key()) }
func (u *unknown) hint() string    { return "there are " + strings.Join(u.known, ", ") }

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
