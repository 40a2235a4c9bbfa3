package cli

import (
	"context"
	"fmt"

	"gopkg.in/yaml.v3"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/codec/msgpack"
	"github.com/posthaste-mq/posthaste/relay"
)

// encodings are what chunks are encoded with; nil is JSON, as with [relay.Chunks].
var encodings = map[string]posthaste.Codec{"": nil, "json": nil, "msgpack": msgpack.Codec}

// relayChunks has a relay publish several messages as one of the broker.
type relayChunks struct {
	Size     int    `yaml:"size"`
	Encoding string `yaml:"encoding"`
	Prefix   string `yaml:"prefix"`
}

// sourceChunks has a source take them apart.
type sourceChunks struct {
	Encoding string `yaml:"encoding"`
}

// encoding is the codec of that name.
func (p place) encoding(name string) (posthaste.Codec, error) {
	codec, ok := encodings[name]
	if !ok {
		return nil, p.fault("chunks.encoding", fmt.Sprintf("encoding must be json or msgpack, and is %q", name), "the same at both ends")
	}
	return codec, nil
}

// empty refuses a key that says nothing below it, which would be taken for one that is
// not there.
func (p place) empty(node *yaml.Node, key string) error {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key && node.Content[i+1].Tag == "!!null" {
			return p.fault(key, key+" says nothing", "write its keys below it, such as encoding: json, or leave it out")
		}
	}
	return nil
}

// chunks are those of a relay; nil without.
func (c *relayConfig) chunks() (*relay.Chunks, error) {
	if c.Chunks == nil {
		return nil, nil
	}
	codec, err := c.encoding(c.Chunks.Encoding)
	if err != nil {
		return nil, err
	}
	size := c.Chunks.Size
	if err := relay.Bounded("chunks.size", &size, min(10, c.Batch), c.Batch); err != nil {
		return nil, c.placed(err)
	}
	return &relay.Chunks{Size: size, Codec: codec, Prefix: c.Chunks.Prefix}, nil
}

// checkChunks refuses chunks of an ordered queue, for one holds messages of many keys.
// Who may not look at queues is not told.
func (r *openRelay) checkChunks(ctx context.Context, engine posthaste.Engine) error {
	if r.Chunks == nil {
		return nil
	}
	found, err := engine.Queues(ctx, r.Queue)
	if posthaste.CodeOf(err) == posthaste.Denied {
		return nil
	}
	if err == nil && len(found) == 1 && found[0].Options.Ordered {
		return r.fault("chunks", fmt.Sprintf("queue %q is ordered, and a chunk holds messages of many keys", r.Queue), "leave chunks out")
	}
	return err
}
