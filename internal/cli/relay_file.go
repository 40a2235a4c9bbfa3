package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/posthaste-mq/posthaste"
)

// readRelays parses a file of relays and sources. broker is the default broker.
func readRelays(file, broker string) (relays []relayConfig, sources []sourceConfig, err error) {
	document, second, err := readDocuments(file)
	if err != nil {
		return nil, nil, err
	}
	at := func(node *yaml.Node, field, message, hint string) error {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: field, Message: fmt.Sprintf("%s:%d: %s", file, max(1, node.Line), message), Hint: hint}
	}
	if second != nil {
		return nil, nil, at(second, "config", "the file has a second document, expected one", "remove the line ---, and put all relays in one list")
	}
	var all struct {
		Broker  string      `yaml:"broker"`
		Relays  []yaml.Node `yaml:"relays"`
		Sources []yaml.Node `yaml:"sources"`
	}
	if len(document.Content) == 0 {
		return nil, nil, at(document, "relays", "the file has no relay", "add relays: with a list, such as - queue: orders")
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
		return nil, nil, at(top, "relays", "the file has no relay and no source", "add relays: with a list, such as - queue: orders")
	}
	return relays, sources, nil
}

// readDocuments parses the first two documents of a YAML file. An empty file has one
// document without content. second is nil if there is only one document.
func readDocuments(file string) (first, second *yaml.Node, err error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "config", Message: "read the configuration: " + err.Error()}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	documents := [2]*yaml.Node{{}, nil}
	for i := range documents {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "config", Message: file + ": " + strings.TrimPrefix(err.Error(), "yaml: ")}
		}
		documents[i] = &node
	}
	return documents[0], documents[1], nil
}
