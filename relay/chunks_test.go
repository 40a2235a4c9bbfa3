package relay_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/codec/msgpack"
	"github.com/posthaste-mq/posthaste/relay"
)

// recordingSink keeps its deliveries, and rejects chunks that contain the payload refuse.
type recordingSink struct {
	chunks []posthaste.RawDelivery
	sizes  []int
	refuse string
	err    error
}

func (k *recordingSink) Close() error { return nil }

func (k *recordingSink) Deliver(ctx context.Context, batch []posthaste.RawDelivery) []posthaste.SinkResult {
	results := make([]posthaste.SinkResult, len(batch))
	for i, d := range batch {
		codec := msgpack.Codec
		if d.ContentType == posthaste.ContentTypeJSON {
			codec = nil
		}
		messages, err := relay.Chunks{Codec: codec}.Unpack(ctx, posthaste.Message{Payload: d.Payload})
		if err != nil {
			results[i].Err = err
			continue
		}
		k.sizes = append(k.sizes, len(messages))
		for _, m := range messages {
			if k.refuse != "" && string(m.Payload.([]byte)) == k.refuse {
				results[i].Err = k.err
			}
		}
		if results[i].Err == nil {
			k.chunks = append(k.chunks, d)
		}
	}
	return results
}

func deliveries(n int) (all []posthaste.RawDelivery) {
	for i := range n {
		all = append(all, posthaste.RawDelivery{ID: posthaste.DeliveryID(100 + i), MessageID: posthaste.MessageID(i + 1), Queue: "q", Attempt: 1 + i%2, Key: "ada", Kind: "due",
			Reference: fmt.Sprint("n-", i), Headers: map[string]string{"traceparent": fmt.Sprint(i)}, ContentType: "text/plain", Payload: fmt.Append(nil, "payload ", i)})
	}
	return all
}

// Messages that are packed and unpacked keep their fields and ids.
func TestChunksRoundTrip(t *testing.T) {
	t.Parallel()
	chunks := relay.Chunks{Codec: msgpack.Codec, Prefix: "shop/"}
	k := &recordingSink{}
	for i, r := range chunks.Sink(k).Deliver(t.Context(), deliveries(25)) {
		if r.Err != nil {
			t.Errorf("message %d: %v", i, r.Err)
		}
	}
	if want := []int{10, 10, 5}; !reflect.DeepEqual(k.sizes, want) {
		t.Errorf("chunks of %v, want %v", k.sizes, want)
	}
	var got []posthaste.Message
	for _, d := range k.chunks {
		if d.ContentType != msgpack.ContentType || d.Attempt != 2 || d.Headers != nil {
			t.Errorf("chunk: %+v", d)
		}
		messages, err := chunks.Unpack(t.Context(), posthaste.Message{Payload: d.Payload})
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, messages...)
	}
	for i, d := range deliveries(25) {
		d.Headers = maps.Clone(d.Headers)
		if d.Headers == nil {
			d.Headers = map[string]string{}
		}
		d.Headers["message-id"] = fmt.Sprint("shop/q/", i+1)
		want := posthaste.Message{Key: d.Key, Kind: d.Kind, Reference: d.Reference, Headers: d.Headers, ContentType: d.ContentType, Payload: d.Payload, DedupeKey: fmt.Sprint("shop/q/", i+1)}
		if !reflect.DeepEqual(got[i], want) {
			t.Errorf("got  %+v\nwant %+v", got[i], want)
		}
	}
	for _, wrong := range []any{"text", []byte("no chunk"), []byte{0x91, 0x80}} {
		if _, err := chunks.Unpack(t.Context(), posthaste.Message{Payload: wrong}); err == nil {
			t.Errorf("%q was unpacked, want an error", wrong)
		}
	}
}

// A message that is rejected for good does not fail its neighbors. A chunk with another
// error is not published again in the same attempt.
func TestChunksIsolateWhatIsRefused(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]struct{ failed, calls int }{
		posthaste.Permanent(errors.New("too large")): {1, 3 + 10},
		errors.New("nack"):                           {10, 3},
	} {
		k := &recordingSink{refuse: "payload 15", err: err}
		failed := 0
		for i, r := range (relay.Chunks{Size: 10, Codec: msgpack.Codec}).Sink(k).Deliver(t.Context(), deliveries(30)) {
			if r.Err != nil {
				failed++
			} else if i == 15 {
				t.Errorf("%v: message 15 was delivered", err)
			}
		}
		if failed != want.failed || len(k.sizes) != want.calls {
			t.Errorf("%v: %d failed and %d chunks were delivered, want %d and %d", err, failed, len(k.sizes), want.failed, want.calls)
		}
	}
}

// The same messages give a chunk the same id, and other messages another one, so that a
// broker that deduplicates drops only a chunk that it has.
func TestChunkIDs(t *testing.T) {
	t.Parallel()
	id := func(batch []posthaste.RawDelivery) posthaste.MessageID {
		k := &recordingSink{}
		for _, r := range (relay.Chunks{}).Sink(k).Deliver(t.Context(), batch) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		return k.chunks[0].MessageID
	}
	ten := deliveries(10)
	again := deliveries(10)
	for i := range again {
		again[i].Attempt++
	}
	if first := id(ten); first <= 0 || id(again) != first || id(ten[:9]) == first || id(append(ten[:9:9], deliveries(11)[10])) == first {
		t.Errorf("ids: %d, again %d, without the last %d", first, id(again), id(ten[:9]))
	}
}

// A chunk has the attempt histories of its messages, by which a sink decides to deliver
// alone a message that may have failed others.
func TestChunkTellsTheStories(t *testing.T) {
	t.Parallel()
	k := &recordingSink{}
	batch := deliveries(10)
	batch[3].Story = []posthaste.Attempt{{Attempt: 1, Receipt: []byte(`{"channel_closed": 403}`)}}
	batch[7].Story = []posthaste.Attempt{{Attempt: 1, Error: "one"}, {Attempt: 2, Error: "two"}}
	(relay.Chunks{}).Sink(k).Deliver(t.Context(), batch)
	want := append(batch[3].Story[:1:1], batch[7].Story...)
	if got := k.chunks[0].Story; !reflect.DeepEqual(got, want) {
		t.Errorf("the chunk's story is %+v, want %+v", got, want)
	}
}

// endingSink rejects everything for good, and ends the context before it returns.
type endingSink struct{ end context.CancelFunc }

func (endingSink) Close() error { return nil }

func (r endingSink) Deliver(_ context.Context, batch []posthaste.RawDelivery) []posthaste.SinkResult {
	r.end()
	results := make([]posthaste.SinkResult, len(batch))
	for i := range results {
		results[i].Err = posthaste.Permanent(errors.New("too large"))
	}
	return results
}

// If there is no time to find out which message of a chunk is rejected, all are retried.
func TestChunksRefusedAtTheEndComeAgain(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	for i, r := range (relay.Chunks{Size: 10}).Sink(endingSink{end}).Deliver(ctx, deliveries(15)) {
		if r.Err == nil || posthaste.IsPermanent(r.Err) || !errors.Is(r.Err, context.Canceled) || !strings.Contains(r.Err.Error(), "too large") {
			t.Errorf("message %d: %v", i, r.Err)
		}
	}
}
