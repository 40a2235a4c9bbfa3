// Package msgpack is the codec for payloads in MessagePack.
//
//	client.Send(ctx, posthaste.Message{Queue: "orders", Payload: order, Codec: msgpack.Codec})
//	worker.New(engine, worker.Config{Codecs: []posthaste.Codec{msgpack.Codec}})
//
// A struct field is named by its tag "codec", or by its tag "json" as in encoding/json. Times
// are encoded as MessagePack timestamps.
package msgpack

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ugorji/go/codec"

	"github.com/posthaste-mq/posthaste"
)

// ContentType is the content type of encoded payloads. Codec also decodes
// application/x-msgpack and application/vnd.msgpack.
const ContentType = "application/msgpack"

// Codec encodes and decodes MessagePack.
var Codec posthaste.Codec = messagePack{}

// maxDepth bounds the nesting depth of decoded values. Each level needs stack, and a program
// cannot recover from a stack overflow.
const maxDepth = 1000

var handle = func() *codec.MsgpackHandle {
	h := &codec.MsgpackHandle{WriteExt: true} // with the types bin and timestamp
	h.RawToString = true
	h.MaxDepth = maxDepth
	return h
}()

// Creating an encoder or decoder costs more than encoding a small payload, so they are reused.
// After a panic in a value's own method they are discarded.
var (
	encoders = sync.Pool{New: func() any { return codec.NewEncoderBytes(new([]byte), handle) }}
	decoders = sync.Pool{New: func() any { return codec.NewDecoderBytes(nil, handle) }}
)

type messagePack struct{}

func (messagePack) ContentTypes() []string {
	return []string{ContentType, "application/x-msgpack", "application/vnd.msgpack"}
}

func (messagePack) Encode(value any) (payload []byte, err error) {
	encoder := encoders.Get().(*codec.Encoder)
	encoder.ResetBytes(&payload)
	err = encoder.Encode(value)
	encoders.Put(encoder)
	return payload, err
}

func (messagePack) Decode(payload []byte, into any) error {
	if err := whole(payload); err != nil {
		return err
	}
	decoder := decoders.Get().(*codec.Decoder)
	decoder.ResetBytes(payload)
	err := decoder.Decode(into)
	decoders.Put(decoder)
	return err
}

// whole reports whether payload is one complete value. The library trusts lengths too much: 6
// bytes that claim to be a long array caused it to allocate 64 MiB.
func whole(payload []byte) error {
	rest, values := payload, uint64(1)
	for ; values > 0; values-- {
		if uint64(len(rest)) < values {
			return errors.New("the payload is shorter than it claims to be")
		}
		sort := rest[0]
		rest = rest[1:]
		v, err := shapeOf(sort)
		if err != nil {
			return err
		}
		if len(rest) < v.width {
			return errors.New("the payload is shorter than it claims to be")
		}
		length := uint64(0)
		for _, b := range rest[:v.width] {
			length = length<<8 | uint64(b)
		}
		rest = rest[v.width:]
		size, elements := v.size, v.elements+v.each*length
		if v.each == 0 {
			size += length
		}
		if uint64(len(rest)) < size {
			return errors.New("the payload is shorter than it claims to be")
		}
		rest = rest[size:]
		values += elements
	}
	if len(rest) > 0 {
		return fmt.Errorf("%d bytes follow the value", len(rest))
	}
	return nil
}

// shape is the form of a value, which its first byte determines.
type shape struct {
	size     uint64 // bytes of the value
	elements uint64 // values inside of it
	width    int    // size of a length that follows
	each     uint64 // values per unit of that length; 0 if it counts bytes
}

func shapeOf(sort byte) (v shape, err error) {
	switch {
	case sort <= 0x7f, sort >= 0xe0, sort == 0xc0, sort == 0xc2, sort == 0xc3: // small integers, nil, booleans
	case sort <= 0x8f: // small map
		v.elements = 2 * uint64(sort&0x0f)
	case sort <= 0x9f: // small array
		v.elements = uint64(sort & 0x0f)
	case sort <= 0xbf: // short text
		v.size = uint64(sort & 0x1f)
	case sort == 0xc1:
		return v, errors.New("the payload contains the byte c1, which MessagePack never uses")
	case sort <= 0xc6: // bytes
		v.width = 1 << (sort - 0xc4)
	case sort <= 0xc9: // extension, with a type byte
		v.width, v.size = 1<<(sort-0xc7), 1
	case sort <= 0xcb: // floating point numbers
		v.size = 4 << (sort - 0xca)
	case sort <= 0xcf: // unsigned integers
		v.size = 1 << (sort - 0xcc)
	case sort <= 0xd3: // integers
		v.size = 1 << (sort - 0xd0)
	case sort <= 0xd8: // extensions of fixed sizes
		v.size = 1 + 1<<(sort-0xd4)
	case sort <= 0xdb: // text
		v.width = 1 << (sort - 0xd9)
	case sort <= 0xdd: // array
		v.width, v.each = 2<<(sort-0xdc), 1
	default: // map
		v.width, v.each = 2<<(sort-0xde), 2
	}
	return v, nil
}
