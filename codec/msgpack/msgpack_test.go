package msgpack

import (
	"bytes"
	"errors"
	"math/bits"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

type order struct {
	ID    int64          `json:"id"`
	Item  string         `codec:"what"`
	Price *float64       `json:"price,omitempty"`
	Notes []string       `json:"notes"`
	Extra map[string]any `json:"extra"`
	Raw   []byte
	At    time.Time
}

// A value sent with the codec arrives unchanged.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	price := 1.5
	want := order{ID: 1 << 62, Item: "pën", Price: &price, Notes: []string{"", "a"}, Raw: []byte{0, 255},
		Extra: map[string]any{"n": int64(-3), "s": "x", "b": true, "nil": nil}, At: time.Date(2024, 2, 29, 1, 2, 3, 4, time.UTC)}
	m := posthaste.Message{Queue: "q", Payload: want, Codec: Codec}
	body, contentType, err := m.Body()
	if err != nil || contentType != ContentType {
		t.Fatalf("%s, %v", contentType, err)
	}
	for _, as := range append(Codec.ContentTypes(), "Application/MsgPack; version=5") {
		var got order
		if err := posthaste.Decode(posthaste.RawDelivery{Payload: body, ContentType: as}, &got, Codec); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v (%v), want %+v", as, got, err, want)
		}
	}
	var fields map[string]any
	if err := Codec.Decode(body, &fields); err != nil || fields["what"] != "pën" || fields["id"] != int64(1<<62) {
		t.Errorf("the fields are %v (%v)", fields, err)
	}
	if _, err := Codec.Encode(refuses{}); err == nil {
		t.Error("what refuses to be encoded was encoded")
	}
}

type refuses struct{}

func (refuses) MarshalBinary() ([]byte, error) { return nil, errors.New("no") }
func (refuses) UnmarshalBinary([]byte) error   { return nil }

// Encoders and decoders are reused: an error, a panic or another goroutine must not affect the
// next payload.
func TestReuse(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for worker := range 8 {
		all.Go(func() {
			for n := range 200 {
				want := order{ID: int64(worker*1000 + n), Item: strings.Repeat("x", n), Notes: []string{"a"}, At: time.Unix(int64(n), 0).UTC()}
				payload, err := Codec.Encode(want)
				if err != nil {
					t.Error(err)
				}
				if _, err := Codec.Encode([]any{n, refuses{}}); err == nil {
					t.Error("a value that refuses was encoded")
				}
				if err := Codec.Decode([]byte{0x92, 1, 0xa1, 'x'}, new([]int)); err == nil {
					t.Error("a string was decoded into a number")
				}
				func() {
					defer func() { _ = recover() }()
					_, _ = Codec.Encode([]any{n, panics{}})
				}()
				var got order
				if err := Codec.Decode(payload, &got); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%+v (%v), want %+v", got, err, want)
				}
			}
		})
	}
	all.Wait()
}

type panics struct{}

func (panics) MarshalBinary() ([]byte, error) { panic("no") }
func (panics) UnmarshalBinary([]byte) error   { return nil }

// whole returns the correct length for every kind of value.
func TestEverySortIsWhole(t *testing.T) {
	t.Parallel()
	long, longer := strings.Repeat("x", 300), strings.Repeat("x", 70_000)
	for _, value := range []any{
		nil, true, false, 0, 127, -1, -32, -33, 200, 60_000, 5_000_000_000, uint64(1 << 63), -200, -60_000, -5_000_000_000, float32(1.5), 2.5,
		"", "x", strings.Repeat("x", 40), long, longer, []byte{}, []byte(long), []byte(longer),
		[]int{}, make([]int, 15), make([]int, 16), make([]int, 70_000), map[string]int{}, map[string]int{"a": 1}, numbered(20), numbered(70_000),
		time.Unix(1, 0), time.Unix(1, 1), time.Unix(1<<40, 1),
	} {
		payload, err := Codec.Encode(value)
		if err == nil {
			err = whole(payload)
		}
		if err != nil {
			t.Errorf("%.50v: %v", value, err)
		}
		for _, cut := range []int{1, len(payload) / 2} {
			if cut > 0 && whole(payload[:len(payload)-cut]) == nil {
				t.Errorf("%.50v is whole without its last %d bytes", value, cut)
			}
		}
	}
	for _, size := range []int{1, 2, 4, 8, 16} { // extensions of a fixed size
		payload := append([]byte{0xd4 + byte(bits.Len(uint(size))-1), 5}, make([]byte, size)...)
		if whole(payload) != nil || whole(payload[:size+1]) == nil {
			t.Errorf("an extension of %d bytes is not walked over", size)
		}
	}
	for width, sort := range map[int]byte{1: 0xc7, 2: 0xc8, 4: 0xc9} {
		payload := append([]byte{sort}, make([]byte, width)...)
		payload[width] = 3
		payload = append(payload, 5, 1, 2, 3)
		if whole(payload) != nil || whole(payload[:width+4]) == nil {
			t.Errorf("an extension with a length of %d bytes is not walked over", width)
		}
	}
}

func numbered(n int) map[int]int {
	m := make(map[int]int, n)
	for i := range n {
		m[i] = i
	}
	return m
}

// hostile returns payloads that claim more data than they have, or that are nested too deeply
// for the stack.
func hostile() map[string][]byte {
	return map[string][]byte{
		"empty":      {},
		"array":      {0xdd, 0xff, 0xff, 0xff, 0xff, 1},
		"map":        {0xdf, 0xff, 0xff, 0xff, 0xff, 1},
		"string":     {0xdb, 0x7f, 0xff, 0xff, 0xff, 'a'},
		"bytes":      {0xc6, 0x7f, 0xff, 0xff, 0xff, 'a'},
		"extension":  {0xc9, 0xff, 0xff, 0xff, 0xff, 5},
		"never used": {0xc1},
		"deep array": bytes.Repeat([]byte{0x91}, 4<<20),
		"deep map":   bytes.Repeat([]byte{0x81, 0xa0}, 2<<20),
		"two values": {1, 2},
		"short map":  {0x81, 0xa1},
		"no length":  {0xdc, 1},
	}
}

func targets() []any {
	return []any{new(any), new(order), new([]int64), new(map[string]any), new(string), new([]byte), new(int), new(*order)}
}

// Decoding a hostile payload fails and uses little memory.
func TestHostilePayloads(t *testing.T) { // not parallel: it measures memory
	for name, payload := range hostile() {
		for _, into := range targets() {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := Codec.Decode(payload, into)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Errorf("%s was decoded into %T", name, into)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 2<<20+4*uint64(len(payload)) {
				t.Errorf("%s of %d bytes took %d bytes into %T", name, len(payload), used, into)
			}
		}
	}
}

// Decoding without the codec fails with an error that says so.
func TestWithoutTheCodec(t *testing.T) {
	t.Parallel()
	d := posthaste.RawDelivery{Payload: []byte{0x80}, ContentType: ContentType}
	if err := posthaste.Decode(d, new(order)); posthaste.CodeOf(err) != posthaste.CodeUnsupported || !strings.Contains(err.Error(), "Codecs") {
		t.Errorf("without the codec: %v", err)
	}
	d.ContentType = "application/cbor"
	if err := posthaste.Decode(d, new(order), Codec); posthaste.CodeOf(err) != posthaste.CodeUnsupported {
		t.Errorf("another content type: %v", err)
	}
}

// Any input is decoded or rejected. A decoded value encodes to data that decodes to the same
// value.
func FuzzDecode(f *testing.F) {
	for _, payload := range hostile() {
		if len(payload) < 1<<16 {
			f.Add(payload)
		}
	}
	seed, err := Codec.Encode(order{ID: 7, Item: "x", Extra: map[string]any{"a": []any{1, "b", nil}}, At: time.Unix(1, 2)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, payload []byte) {
		for _, into := range targets() {
			_ = Codec.Decode(payload, into)
		}
		var first, second order
		if Codec.Decode(payload, &first) != nil {
			return
		}
		first.Extra = nil // may hold values that are not comparable
		again, err := Codec.Encode(first)
		if err != nil {
			t.Fatal(err)
		}
		if err := Codec.Decode(again, &second); err != nil {
			t.Fatalf("%x decodes, but its encoding does not: %v", payload, err)
		}
		if first.ID != second.ID || first.Item != second.Item || !bytes.Equal(first.Raw, second.Raw) || len(first.Notes) != len(second.Notes) {
			t.Errorf("%x: %+v became %+v", payload, first, second)
		}
	})
}
