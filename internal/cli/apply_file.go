package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/cron"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// declarationFile reads a file of declared queues. Options are those of the HTTP API, in YAML.
type declarationFile struct{ name string }

// fault returns an error with the place of a node in the file.
func (f *declarationFile) fault(node *yaml.Node, field, format string, args ...any) error {
	return &posthaste.Error{Code: posthaste.CodeInvalid, Field: field, Message: fmt.Sprintf("%s:%d: %s", f.name, max(1, node.Line), fmt.Sprintf(format, args...))}
}

// readDeclaration parses a file of declared queues and schedules.
func readDeclaration(name string) (*posthaste.Declaration, error) {
	f := &declarationFile{name}
	document, second, err := readDocuments(name)
	if err != nil {
		return nil, err
	}
	if second != nil {
		return nil, f.fault(second, "config", "the file has a second document, expected one")
	}
	if len(document.Content) == 0 {
		return nil, f.fault(document, "owner", "the file is empty; it needs owner: and queues:")
	}
	d := &posthaste.Declaration{}
	var owner, queues, schedules *yaml.Node
	if err := f.members(document.Content[0], "the file", func(key, value *yaml.Node) error {
		switch key.Value {
		case "owner":
			owner = value
		case "queues":
			queues = value
		case "schedules":
			schedules = value
		default:
			return f.fault(key, key.Value, "unknown field %q; expected owner, queues or schedules", key.Value)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if owner == nil || owner.Kind != yaml.ScalarNode || posthaste.CheckName("owner", owner.Value) != nil {
		return nil, f.fault(orNode(owner, document), "owner", "owner is required: a name of a-z, 0-9, _, - and . that says who declares these queues")
	}
	d.Owner = owner.Value
	if err := f.each(queues, "queues", func(name string, key, value *yaml.Node) error {
		q, err := f.queue(name, value)
		d.Queues = append(d.Queues, q)
		return f.placed(err, key)
	}); err != nil {
		return nil, err
	}
	return d, f.each(schedules, "schedules", func(name string, key, value *yaml.Node) error {
		data, err := f.json(value)
		if err != nil {
			return err
		}
		s, err := wire.ParseSchedule(name, data)
		if err == nil {
			err = checkTicks(s)
		}
		d.Schedules = append(d.Schedules, s)
		return f.at(err, value)
	})
}

// checkTicks checks what the store would check when it gets the schedule: the spec and the time
// zone.
func checkTicks(s posthaste.Schedule) error {
	line, err := cron.Parse(s.Spec)
	if err != nil {
		return err
	}
	zone, err := cron.Zone(s.TimeZone)
	if err != nil {
		return err
	}
	if _, ticks := line.Next(zone, time.Now().Truncate(time.Second)); !ticks {
		return posthaste.Invalidf("spec", "the cron line '%s' never fires: none of its months has such a day", s.Spec)
	}
	return nil
}

func orNode(node, or *yaml.Node) *yaml.Node {
	if node == nil {
		return or
	}
	return node
}

// queue reads a queue: its options, and its subscriptions.
func (f *declarationFile) queue(name string, node *yaml.Node) (posthaste.DeclaredQueue, error) {
	q := posthaste.DeclaredQueue{Name: name}
	if err := posthaste.CheckName("queues", name); err != nil {
		return q, err
	}
	options, subscriptions := *node, (*yaml.Node)(nil)
	if node.Kind == yaml.MappingNode {
		options.Content = slices.Clone(node.Content)
		for i := 0; i+1 < len(options.Content); i += 2 {
			if options.Content[i].Value == "subscriptions" {
				subscriptions = options.Content[i+1]
				options.Content = slices.Delete(options.Content, i, i+2)
				break
			}
		}
	}
	data, err := f.json(&options)
	if err != nil {
		return q, err
	}
	if q.Options, err = wire.ParseQueueUpdate(data); err != nil {
		return q, f.at(err, node)
	}
	if q.Options.Options.Owner != "" || slices.Contains(q.Options.Reset, "owner") {
		return q, f.fault(node, "owner", "the owner of queue %s is that of the file; leave it out here", name)
	}
	return q, f.each(subscriptions, "subscriptions", func(name string, key, value *yaml.Node) error {
		data, err := f.json(value)
		if err != nil {
			return err
		}
		if q.Subscriptions == nil {
			q.Subscriptions = map[string]posthaste.SubscriptionOptions{}
		}
		if err := posthaste.CheckName("subscription", name); err != nil {
			return f.placed(err, key)
		}
		q.Subscriptions[name], err = wire.ParseSubscriptionOptions(data)
		return f.at(err, value)
	})
}

// members calls do for each member of a mapping; a key may appear once.
func (f *declarationFile) members(node *yaml.Node, what string, do func(key, value *yaml.Node) error) error {
	if node.Kind != yaml.MappingNode {
		return f.fault(node, "config", "%s must be a mapping of names", what)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		if seen[key.Value] {
			return f.fault(key, key.Value, "%q is given twice", key.Value)
		}
		seen[key.Value] = true
		if err := do(key, node.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// each calls do for each object of a mapping by its name. An absent mapping has none.
func (f *declarationFile) each(node *yaml.Node, what string, do func(name string, key, value *yaml.Node) error) error {
	if node == nil || node.Tag == "!!null" {
		return nil
	}
	return f.members(node, what, func(key, value *yaml.Node) error { return do(key.Value, key, value) })
}

// json converts a node to JSON; an empty one becomes {}.
func (f *declarationFile) json(node *yaml.Node) ([]byte, error) {
	if node.Tag == "!!null" {
		return []byte("{}"), nil
	}
	var value any
	if err := node.Decode(&value); err != nil {
		return nil, f.fault(node, "config", "%s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	data, err := json.Marshal(value)
	if err != nil {
		return nil, f.fault(node, "config", "it cannot be written as JSON: %s", err)
	}
	return data, nil
}

// placed gives an error the place of a node, unless it has one.
func (f *declarationFile) placed(err error, node *yaml.Node) error { return f.atLine(err, node.Line) }

// at gives an error the place of its field within a node.
func (f *declarationFile) at(err error, node *yaml.Node) error {
	if told, ok := errors.AsType[*posthaste.Error](err); ok {
		return f.atLine(err, lineOf(node, told.Field))
	}
	return err
}

func (f *declarationFile) atLine(err error, line int) error {
	told, ok := errors.AsType[*posthaste.Error](err)
	if !ok || strings.HasPrefix(told.Message, f.name+":") {
		return err
	}
	with := *told
	with.Message = fmt.Sprintf("%s:%d: %s", f.name, max(1, line), told.Message)
	return &with
}
