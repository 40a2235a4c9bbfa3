package cli

import (
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
func (p place) empty(node *yaml.Node, key, such string) error {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key && node.Content[i+1].ShortTag() == "!!null" {
			return p.fault(key, key+" says nothing", "write its keys below it, such as "+such+", or leave it out")
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
