package protobuf

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/posthaste-mq/posthaste"
)

func sample(t interface{ Fatal(...any) }) *structpb.Struct {
	s, err := structpb.NewStruct(map[string]any{"item": "pën", "count": 3, "tags": []any{"a", nil, true}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A value sent with the codec arrives unchanged.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	want := sample(t)
	m := posthaste.Message{Queue: "q", Payload: want, Codec: Codec}
	body, contentType, err := m.Body()
	if err != nil || contentType != ContentType {
		t.Fatalf("%s, %v", contentType, err)
	}
	for _, as := range append(Codec.ContentTypes(), "Application/Protobuf; proto=Struct") {
		var got *structpb.Struct // as in a handler of Delivery[*structpb.Struct]
		if err := posthaste.Decode(posthaste.RawDelivery{Payload: body, ContentType: as}, &got, Codec); err != nil || !proto.Equal(got, want) {
			t.Errorf("%s: %v (%v)", as, got, err)
		}
	}
	direct := new(structpb.Struct)
	if err := Codec.Decode(body, direct); err != nil || !proto.Equal(direct, want) {
		t.Errorf("%v (%v)", direct, err)
	}
}

func TestWhatIsNoMessage(t *testing.T) {
	t.Parallel()
	m := posthaste.Message{Queue: "q", Payload: 7, Codec: Codec}
	if _, _, err := m.Body(); posthaste.CodeOf(err) != posthaste.CodeInvalid || !strings.Contains(err.Error(), "not a generated message") {
		t.Errorf("an integer was encoded: %v", err)
	}
	for _, into := range []any{new(int), new(*int), new(any), 7, nil} {
		if err := Codec.Decode(nil, into); err == nil {
			t.Errorf("decoded into %T", into)
		}
	}
	for name, payload := range map[string][]byte{
		"cut":          {0x0a, 0xff, 0xff, 0xff, 0x7f},
		"group":        bytes.Repeat([]byte{0x0b}, 1<<20),
		"wire type":    {0x0f},
		"text":         []byte(`{"a":1}`),
		"no UTF-8":     {0x0a, 0x01, 0xff},
		"nested depth": nest(6_000),
	} {
		var got *structpb.Value
		if name == "no UTF-8" {
			var text *wrapperspb.StringValue
			if err := Codec.Decode(payload, &text); err == nil {
				t.Errorf("%s was decoded", name)
			}
		} else if err := Codec.Decode(payload, &got); err == nil {
			t.Errorf("%s was decoded", name)
		}
	}
}

// nest returns a list in a list, and so on.
func nest(depth int) []byte {
	v := []byte{}
	for range depth {
		for _, tag := range []byte{0x0a, 0x32} { // ListValue.values, Value.list_value
			v = append(append([]byte{tag}, varint(len(v))...), v...)
		}
	}
	return v[2:]
}

func varint(n int) (b []byte) {
	for ; n > 127; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// Any input is decoded or rejected. A decoded value encodes to data that decodes to the same
// value.
func FuzzDecode(f *testing.F) {
	seed, err := Codec.Encode(sample(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte{0x0a, 0xff, 0xff, 0xff, 0x7f})
	f.Add(bytes.Repeat([]byte{0x0b}, 100))
	f.Fuzz(func(t *testing.T, payload []byte) {
		var first, second *structpb.Struct
		if Codec.Decode(payload, &first) != nil {
			return
		}
		again, err := Codec.Encode(first)
		if err != nil {
			t.Fatal(err)
		}
		if err := Codec.Decode(again, &second); err != nil {
			t.Fatalf("%x decodes, but its encoding does not: %v", payload, err)
		}
		third, err := Codec.Encode(second)
		if err != nil || len(third) != len(again) {
			t.Errorf("%x: %v became %v", payload, first, second)
		}
	})
}
