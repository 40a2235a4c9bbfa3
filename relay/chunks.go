package relay

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	posthaste "github.com/posthaste-mq/posthaste"
)

// Chunks puts several messages into one of the broker, and takes them apart
// again where a source takes it in. It is for brokers and consumers to which a
// message costs more than its content, such as ten notifications of a few bytes.
// Both ends need the same Codec. Queues whose keys are in order are
// not for it: a chunk holds many keys.
type Chunks struct {
	// Size is how many messages a chunk holds at most (default 10). A chunk holds
	// what waits; nothing waits for it to be full.
	Size int
	// Codec is what chunks are encoded with, such as msgpack.Codec, which needs less
	// room and time (default: JSON, with payloads in base64).
	Codec posthaste.Codec
	// Prefix goes before ids, which are unique in one database: where several relay
	// to one broker it tells them apart.
	Prefix string
}

// asJSON is the codec where none is named.
type asJSON struct{}

func (asJSON) ContentTypes() []string                { return []string{posthaste.ContentTypeJSON} }
func (asJSON) Encode(value any) ([]byte, error)      { return json.Marshal(value) }
func (asJSON) Decode(payload []byte, into any) error { return json.Unmarshal(payload, into) }

// chunked is a message in a chunk.
type chunked struct {
	ID          string            `json:"id"`
	Kind        string            `json:"kind,omitempty"`
	Key         string            `json:"key,omitempty"`
	Reference   string            `json:"reference,omitempty"`
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Payload     []byte            `json:"payload"`
}

// Sink makes a sink deliver chunks. A chunk bears an id made of the
// ids of all its messages, so that no broker takes it for one of other company, and
// the highest attempt and the stories of all; kind, key, reference and headers, with the
// trace, are each message's own, inside. Which messages share a chunk may differ when they are
// delivered again; [Chunks.Unpack] knows each by itself. What is refused for good
// is delivered once more in chunks of one, so that it takes no neighbour with it; where
// the time is up before, its attempt fails and it comes again.
// It closes the sink it was made of.
func (c Chunks) Sink(sink posthaste.Sink) posthaste.Sink {
	if c.Size < 1 {
		c.Size = 10
	}
	if c.Codec == nil {
		c.Codec = asJSON{}
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
	if ctx.Err() != nil { // nobody knows yet which of a chunk is at fault
		for _, i := range places {
			results[i].Err = Failed(ctx, "its chunk was refused, and the time was up before it was published alone", results[i].Err)
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
	var from []int // where each chunk begins in the batch
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

// pack makes one delivery of several.
func (s *chunkSink) pack(messages []posthaste.RawDelivery) (posthaste.RawDelivery, error) {
	first := messages[0]
	d := posthaste.RawDelivery{ID: first.ID, Queue: first.Queue, Subscription: first.Subscription,
		CreatedAt: first.CreatedAt, DueAt: first.DueAt, Timeout: first.Timeout, ContentType: s.Codec.ContentTypes()[0]}
	all := make([]chunked, len(messages))
	ids := sha256.New()
	for i, m := range messages {
		all[i] = chunked{ID: s.Prefix + m.Queue + "/" + m.MessageID.String(), Kind: m.Kind, Key: m.Key, Reference: m.Reference,
			ContentType: cmp.Or(m.ContentType, posthaste.ContentTypeJSON), Headers: m.Headers, Payload: m.Payload}
		fmt.Fprintln(ids, all[i].ID)
		d.Attempt, d.Alone = max(d.Attempt, m.Attempt), d.Alone || m.Alone
		d.Story = append(d.Story, m.Story...)
	}
	d.MessageID = posthaste.MessageID(binary.BigEndian.Uint64(ids.Sum(nil)) >> 1) // never negative
	var err error
	if d.Payload, err = s.Codec.Encode(all); err != nil {
		err = fmt.Errorf("a chunk cannot be encoded: %w", err)
	}
	return d, err
}

// Unpack takes a chunk apart, for the Config.Unpack of a source. Each message has a
// dedupe key of its own, so that it goes into the ledger once, whatever was delivered
// together with it, and the same as header [posthaste.HeaderMessageID], unless it has
// one already, so that an inbox knows it for longer than dedupe keys are kept. A
// payload that is no chunk is an error.
func (c Chunks) Unpack(_ context.Context, m posthaste.Message) ([]posthaste.Message, error) {
	payload, ok := m.Payload.([]byte)
	if !ok {
		return nil, errors.New("a chunk comes as bytes")
	}
	if c.Codec == nil {
		c.Codec = asJSON{}
	}
	var all []chunked
	if err := c.Codec.Decode(payload, &all); err != nil {
		return nil, fmt.Errorf("it is no chunk: %w", err)
	}
	messages := make([]posthaste.Message, len(all))
	for i, x := range all {
		if x.ID == "" {
			return nil, fmt.Errorf("it is no chunk: message %d has no id", i+1)
		}
		id := DedupeKey(x.ID)
		if x.Headers[posthaste.HeaderMessageID] == "" && room(x.Headers) >= len(posthaste.HeaderMessageID)+len(id) {
			if x.Headers == nil {
				x.Headers = make(map[string]string, 1)
			}
			x.Headers[posthaste.HeaderMessageID] = id
		}
		messages[i] = posthaste.Message{Kind: x.Kind, Key: x.Key, Reference: x.Reference, ContentType: x.ContentType, Headers: x.Headers,
			Payload: x.Payload, DedupeKey: id}
	}
	return messages, nil
}

// room is how many bytes of further headers a message may have.
func room(headers map[string]string) int {
	left := posthaste.MaxHeaderBytes
	for name, value := range headers {
		left -= len(name) + len(value)
	}
	return left
}
