package cli

import (
	"fmt"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/codec/msgpack"
)

// encodings holds the codecs of chunks by name. nil is JSON, as in [relay.Chunks].
var encodings = map[string]posthaste.Codec{"": nil, "json": nil, "msgpack": msgpack.Codec}

// relayChunks configures a relay that packs several messages into one broker message.
type relayChunks struct {
	Size     int    `yaml:"size"`
	Encoding string `yaml:"encoding"`
	Prefix   string `yaml:"prefix"`
}

// sourceChunks configures a source that unpacks them.
type sourceChunks struct {
	Encoding string `yaml:"encoding"`
}

// chunkCodec returns the codec with the given name. p is the place of its key.
func chunkCodec(p place, name string) (posthaste.Codec, error) {
	codec, ok := encodings[name]
	if !ok {
		return nil, p.fault("chunks.encoding", fmt.Sprintf("encoding must be json or msgpack, got %q", name), "use the same encoding in the relay and the source")
	}
	return codec, nil
}
