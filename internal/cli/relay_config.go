package cli

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"
	"time"

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
	// ToEngine is the URL of another engine, in place of a broker.
	ToEngine string `yaml:"to_engine"`
	// Token is the token for the server, if ToEngine is one.
	Token string `yaml:"token"`
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

// setRelays returns the relays of the flags: one for each queue, with the same settings.
func setRelays(queues []string, broker, toEngine string, set []string) ([]relayConfig, error) {
	var relays []relayConfig
	for _, queue := range queues {
		node := &yaml.Node{Kind: yaml.MappingNode}
		add := func(node *yaml.Node, key, value string) {
			node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, &yaml.Node{Kind: yaml.ScalarNode, Value: value})
		}
		add(node, "queue", queue)
		if toEngine != "" {
			add(node, "to_engine", toEngine)
		}
		groups := map[string]*yaml.Node{}
		for _, s := range set {
			key, value, ok := strings.Cut(s, "=")
			if !ok || key == "" {
				return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "set", Message: fmt.Sprintf("--set must be KEY=VALUE, got %q", s), Hint: "for example --set exchange=orders"}
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
			case "to_engine":
				return "--to-engine"
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
		return c, c.fault("queue", "a relay must be a mapping", "for example queue: orders")
	}
	if err := node.Decode(&c.relayTarget); err != nil {
		return c, c.fault("queue", strings.TrimPrefix(err.Error(), "yaml: "), "")
	}
	if err := posthaste.CheckName("queue", c.Queue); err != nil {
		return c, c.fault("queue", err.Error(), "")
	}
	if c.Batch < 1 || c.Batch > 10_000 {
		return c, c.fault("batch", fmt.Sprintf("batch must be 1 to 10000, got %d", c.Batch), "")
	}
	if c.Concurrency < 1 || c.Concurrency > 100 {
		return c, c.fault("concurrency", fmt.Sprintf("concurrency must be 1 to 100, got %d", c.Concurrency), "")
	}
	err := cmp.Or(c.empty(node, "chunks", "encoding: json"), c.empty(node, "cloudevents", "source: /shop"))
	if err != nil {
		return c, err
	}
	if c.kind, err = c.destination(node); err != nil {
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

// destination returns the kind of the broker or engine to which the messages go.
func (c *relayConfig) destination(node *yaml.Node) (kind *brokers.Kind, err error) {
	if c.ToEngine == "" {
		if c.Token != "" {
			return nil, c.fault("token", "token is set without to_engine", "set to_engine to the URL of a server, or omit token")
		}
		c.Broker, kind, err = c.broker(c.Broker)
		return kind, err
	}
	if valueOf(node, "broker") != nil {
		return nil, c.fault("to_engine", "broker and to_engine are mutually exclusive", "omit one of them")
	}
	if c.Chunks != nil {
		return nil, c.fault("chunks", "chunks is for brokers, and to_engine is set", "omit chunks")
	}
	return c.engine()
}

// chunks returns the chunks of a relay, nil without.
func (c *relayConfig) chunks() (*relay.Chunks, error) {
	if c.Chunks == nil {
		return nil, nil
	}
	codec, err := chunkCodec(c.place, c.Chunks.Encoding)
	if err != nil {
		return nil, err
	}
	size := c.Chunks.Size
	if err := relay.Bounded("chunks.size", &size, min(10, c.Batch), c.Batch); err != nil {
		return nil, c.placed(err)
	}
	return &relay.Chunks{Size: size, Codec: codec, Prefix: c.Chunks.Prefix}, nil
}

// checkTimeout bounds the check of each broker before the start.
const checkTimeout = 15 * time.Second
