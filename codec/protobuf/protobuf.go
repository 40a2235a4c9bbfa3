// Package protobuf is the codec for payloads in Protocol Buffers.
//
//	client.Send(ctx, posthaste.Message{Queue: "orders", Payload: order, Codec: protobuf.Codec})
//	worker.New(engine, worker.Config{Codecs: []posthaste.Codec{protobuf.Codec}})
//
// Handlers take pointers: worker.Handle(w, "orders", func(ctx context.Context, d
// posthaste.Delivery[*pb.Order]) error { … }). The binary form does not contain its message
// type: give each type its own queue or [posthaste.Message].Kind.
package protobuf

import (
	"fmt"
	"reflect"

	"google.golang.org/protobuf/proto"

	"github.com/posthaste-mq/posthaste"
)

// ContentType is the content type of encoded payloads. Codec also decodes
// application/x-protobuf and application/vnd.google.protobuf.
const ContentType = "application/protobuf"

// Codec encodes and decodes generated messages.
var Codec posthaste.Codec = protoBuf{}

type protoBuf struct{}

func (protoBuf) ContentTypes() []string {
	return []string{ContentType, "application/x-protobuf", "application/vnd.google.protobuf"}
}

func (protoBuf) Encode(value any) ([]byte, error) {
	m, ok := value.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is not a generated message", value)
	}
	return proto.Marshal(m)
}

func (protoBuf) Decode(payload []byte, into any) error {
	if m, ok := into.(proto.Message); ok {
		return proto.Unmarshal(payload, m)
	}
	// A handler's payload is a pointer to a message, and into points to that pointer.
	at := reflect.ValueOf(into)
	if at.Kind() == reflect.Pointer && at.Type().Elem().Kind() == reflect.Pointer {
		made := reflect.New(at.Type().Elem().Elem())
		if m, ok := made.Interface().(proto.Message); ok {
			at.Elem().Set(made)
			return proto.Unmarshal(payload, m)
		}
	}
	return fmt.Errorf("%T is not a pointer to a generated message", into)
}
