package relay

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/posthaste-mq/posthaste"
)

// Chunks packs several messages into one message of the broker, and unpacks them where a
// source reads it. It suits brokers and consumers for which a message costs more than its
// content, such as ten notifications of a few bytes. Both ends need the same Codec. Do not
// use it for ordered queues: a chunk holds messages of many keys.
type Chunks struct {
	// Size is the maximum number of messages of a chunk (default 10). A chunk never
	// waits for more messages to arrive.
	Size int
	// Codec encodes the chunks. The codec of package msgpack needs less space and time
	// than the default, which is JSON with payloads in base64.
	Codec posthaste.Codec
	// Prefix precedes message ids. They are unique in one database only: set a prefix
	// if several databases relay to one broker.
	Prefix string
}

// jsonCodec is the default codec.
type jsonCodec struct{}

func (jsonCodec) ContentTypes() []string                { return []string{posthaste.ContentTypeJSON} }
func (jsonCodec) Encode(value any) ([]byte, error)      { return json.Marshal(value) }
func (jsonCodec) Decode(payload []byte, into any) error { return json.Unmarshal(payload, into) }

// packedMessage is a message in a chunk.
type packedMessage struct {
	ID          string            `json:"id"`
	Kind        string            `json:"kind,omitempty"`
	Key         string            `json:"key,omitempty"`
	Reference   string            `json:"reference,omitempty"`
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Payload     []byte            `json:"payload"`
}

// Sink returns a sink that delivers chunks through another sink, which it closes.
//
// The id of a chunk is made of the ids of its messages, so that a broker that deduplicates
// drops only a chunk with the same messages. A chunk has the highest attempt and the
// attempt histories of all its messages. Kind, key, reference and headers, with the trace,
// stay those of each message inside.
//
// On redelivery, messages may be packed into other chunks; [Chunks.Unpack] identifies each
// message by itself. If a chunk is rejected for good, its messages are delivered again in
// chunks of one, so that one bad message does not fail its neighbors. If there is no time
// left for that, the attempt fails and is retried.
func (c Chunks) Sink(sink posthaste.Sink) posthaste.Sink {
	if c.Size < 1 {
		c.Size = 10
	}
	if c.Codec == nil {
		c.Codec = jsonCodec{}
	}
	return &chunkSink{c, sink}
}

type chunkSink struct {
	Chunks
	sink posthaste.Sink
}

// Close implements [posthaste.Sink].
func (s *chunkSink) Close() error { return s.sink.Close() }

// Deliver implements [posthaste.Sink].
func (s *chunkSink) Deliver(ctx context.Context, batch []posthaste.RawDelivery) []posthaste.SinkResult {
	results := s.deliver(ctx, batch, s.Size)
	var alone []posthaste.RawDelivery
	var places []int
	for i, r := range results {
		if s.Size > 1 && len(batch) > 1 && posthaste.IsPermanent(r.Err) {
			alone, places = append(alone, batch[i]), append(places, i)
		}
	}
	if ctx.Err() != nil { // unknown which message of a chunk is at fault
		for _, i := range places {
			results[i].Err = Failed(ctx, "its chunk was refused, and the time limit was reached before it was published alone", results[i].Err)
		}
		return results
	}
	if len(alone) > 0 {
		for i, r := range s.deliver(ctx, alone, 1) {
			results[places[i]] = r
		}
	}
	return results
}

func (s *chunkSink) deliver(ctx context.Context, batch []posthaste.RawDelivery, size int) []posthaste.SinkResult {
	results := make([]posthaste.SinkResult, len(batch))
	var packed []posthaste.RawDelivery
	var from []int // the index in batch of each chunk's first message
	for i := 0; i < len(batch); i += size {
		chunk, err := s.pack(batch[i:min(i+size, len(batch))])
		if err != nil {
			for k := i; k < min(i+size, len(batch)); k++ {
				results[k].Err = posthaste.Permanent(err)
			}
			continue
		}
		packed, from = append(packed, chunk), append(from, i)
	}
	if len(packed) == 0 {
		return results
	}
	for n, r := range s.sink.Deliver(ctx, packed) {
		for i := from[n]; i < min(from[n]+size, len(batch)); i++ {
			results[i] = r
		}
	}
	return results
}

// pack packs several deliveries into one.
func (s *chunkSink) pack(messages []posthaste.RawDelivery) (posthaste.RawDelivery, error) {
	first := messages[0]
	d := posthaste.RawDelivery{ID: first.ID, Queue: first.Queue, Subscription: first.Subscription,
		CreatedAt: first.CreatedAt, DueAt: first.DueAt, Timeout: first.Timeout, ContentType: s.Codec.ContentTypes()[0]}
	all := make([]packedMessage, len(messages))
	ids := sha256.New()
	for i, m := range messages {
		all[i] = packedMessage{ID: s.Prefix + m.Queue + "/" + m.MessageID.String(), Kind: m.Kind, Key: m.Key, Reference: m.Reference,
			ContentType: cmp.Or(m.ContentType, posthaste.ContentTypeJSON), Headers: m.Headers, Payload: m.Payload}
		fmt.Fprintln(ids, all[i].ID)
		d.Attempt, d.Alone = max(d.Attempt, m.Attempt), d.Alone || m.Alone
		d.Story = append(d.Story, m.Story...)
	}
	d.MessageID = posthaste.MessageID(binary.BigEndian.Uint64(ids.Sum(nil)) >> 1) // never negative
	var err error
	if d.Payload, err = s.Codec.Encode(all); err != nil {
		err = fmt.Errorf("encoding a chunk: %w", err)
	}
	return d, err
}

// Unpack unpacks a chunk. It can be the Config.Unpack of a source. Each message gets a
// dedupe key of its own, so that it is stored once whichever messages were delivered with
// it. The key is also its header [posthaste.HeaderMessageID], unless the message has that
// header, so that an inbox can deduplicate it after the dedupe window. It returns an error
// if the payload is not a chunk.
func (c Chunks) Unpack(_ context.Context, m posthaste.Message) ([]posthaste.Message, error) {
	payload, ok := m.Payload.([]byte)
	if !ok {
		return nil, errors.New("the payload of a chunk must be bytes")
	}
	if c.Codec == nil {
		c.Codec = jsonCodec{}
	}
	var all []packedMessage
	if err := c.Codec.Decode(payload, &all); err != nil {
		return nil, fmt.Errorf("not a chunk: %w", err)
	}
	messages := make([]posthaste.Message, len(all))
	for i, x := range all {
		if x.ID == "" {
			return nil, fmt.Errorf("not a chunk: message %d has no id", i+1)
		}
		id := DedupeKey(x.ID)
		x.Headers = WithMessageID(x.Headers, id)
		messages[i] = posthaste.Message{Kind: x.Kind, Key: x.Key, Reference: x.Reference, ContentType: x.ContentType, Headers: x.Headers,
			Payload: x.Payload, DedupeKey: id}
	}
	return messages, nil
}

// WithMessageID returns headers with a message's id in [posthaste.HeaderMessageID], by which an
// inbox deduplicates, unless they have that header. It is [WithHeader].
func WithMessageID(headers map[string]string, id string) map[string]string {
	if headers[posthaste.HeaderMessageID] != "" {
		return headers
	}
	return WithHeader(headers, posthaste.HeaderMessageID, id)
}

// WithHeader sets a header if there is room for it, and returns the headers, which it changes or,
// if they are nil, makes.
func WithHeader(headers map[string]string, name, value string) map[string]string {
	if headerSpace(headers) < len(name)+len(value)-len(headers[name]) {
		return headers
	}
	if headers == nil {
		headers = make(map[string]string, 1)
	}
	headers[name] = value
	return headers
}

// headerSpace returns how many bytes of headers can be added to a message.
func headerSpace(headers map[string]string) int {
	left := posthaste.MaxHeaderBytes
	for name, value := range headers {
		left -= len(name) + len(value)
	}
	return left
}
