package redis

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ugorji/go/codec"

	"github.com/posthaste-mq/posthaste"
)

// content is the content of a message. It is stored as one string: the priority as a digit;
// the length of the options of its attempts (1 byte); the length of all before the payload from
// here on (3 bytes); key, kind, reference, content type, headers and terms, each with its
// length; those options, packed; and the payload. Scripts read it in words.lua, keyed.lua and
// ended.lua.
type content struct {
	priority                          int
	key, kind, reference, contentType string
	headers                           map[string]string
	terms                             []string
	attempts                          attemptOptions
	payload                           []byte
}

// attemptOptions are the options of a message's attempts, zero if its queue decides. Times are
// in µs.
type attemptOptions struct {
	MaxAttempts int   `codec:"n,omitempty"`
	Timeout     int64 `codec:"t,omitempty"`
	BackoffBase int64 `codec:"b,omitempty"`
	BackoffMax  int64 `codec:"m,omitempty"`
}

func attemptOptionsOf(m *posthaste.Message) attemptOptions {
	return attemptOptions{MaxAttempts: m.MaxAttempts, Timeout: wholeMicros(m.Timeout), BackoffBase: wholeMicros(m.Backoff.Base), BackoffMax: wholeMicros(m.Backoff.Max)}
}

func (o attemptOptions) addTo(m *posthaste.Message) {
	m.MaxAttempts, m.Timeout = o.MaxAttempts, fromMicros(o.Timeout)
	m.Backoff = posthaste.Backoff{Base: fromMicros(o.BackoffBase), Max: fromMicros(o.BackoffMax)}
}

func (o attemptOptions) options() posthaste.KindOptions {
	var m posthaste.Message
	o.addTo(&m)
	return posthaste.KindOptions{MaxAttempts: m.MaxAttempts, Timeout: m.Timeout, Backoff: m.Backoff}
}

// wholeMicros rounds up, because 0 means that an option is not set.
func wholeMicros(d time.Duration) int64 { return (d + time.Microsecond - 1).Microseconds() }

func (c *content) encode() []byte {
	b := make([]byte, 5, 64+len(c.payload))
	b[0] = byte('0' + c.priority)
	word := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	word(c.key)
	word(c.kind)
	word(c.reference)
	if c.contentType == posthaste.ContentTypeJSON {
		word("")
	} else {
		word(c.contentType)
	}
	b = binary.AppendUvarint(b, uint64(len(c.headers)))
	for _, name := range slices.Sorted(maps.Keys(c.headers)) {
		word(name)
		word(c.headers[name])
	}
	b = binary.AppendUvarint(b, uint64(len(c.terms)))
	for _, term := range c.terms {
		word(term)
	}
	size := 0
	if c.attempts != (attemptOptions{}) {
		options := packed(c.attempts)
		b, size = append(b, options...), len(options)
	}
	binary.BigEndian.PutUint32(b[1:5], uint32(len(b)-5)) // below 1<<24, because words and headers are bounded
	b[1] = byte(size)
	return append(b, c.payload...)
}

var errContent = errors.New("a message has a format that this version does not know")

func decodeContent(s string) (c content, err error) {
	if len(s) < 5 || s[0] < '0' || s[0] > '0'+posthaste.MaxPriority {
		return c, errContent
	}
	size, n := int(s[1]), int(binary.BigEndian.Uint32([]byte(s[1:5]))&(1<<24-1))
	if len(s) < 5+n || n < size {
		return c, errContent
	}
	c.priority = int(s[0] - '0')
	meta := s[5 : 5+n-size]
	if size > 0 {
		if c.attempts, err = unpackAttempts(s[5+n-size : 5+n]); err != nil {
			return c, errContent
		}
	}
	c.payload = []byte(s[5+n:])
	bad := false
	count := func() int {
		var start [4]byte // a length is below 1<<24, the size of all of them
		v, k := binary.Uvarint(start[:copy(start[:], meta)])
		if k <= 0 || v > uint64(len(meta)) {
			bad = true
			return 0
		}
		meta = meta[k:]
		return int(v)
	}
	word := func() string {
		n := count()
		if n > len(meta) {
			bad = true
			return ""
		}
		w := strings.Clone(meta[:n]) // s has the payload, which would stay in memory
		meta = meta[n:]
		return w
	}
	c.key, c.kind, c.reference, c.contentType = word(), word(), word(), word()
	if c.contentType == "" {
		c.contentType = posthaste.ContentTypeJSON
	}
	if n := count(); n > 0 && !bad {
		c.headers = make(map[string]string, n)
		for range n {
			name := word()
			c.headers[name] = word()
		}
	}
	for range count() {
		c.terms = append(c.terms, word())
	}
	if bad || len(meta) != 0 {
		return c, errContent
	}
	return c, nil
}

// unpackAttempts has a variable of its own, because unpack moves its target to the heap.
func unpackAttempts(s string) (o attemptOptions, err error) {
	err = unpack(s, &o)
	return o, err
}

// state is the state of a message after its first attempt, or that was due later in a queue
// with MaxAge. Scripts store further fields in it.
type state struct {
	Attempt  int          `codec:"a"`
	Losses   int          `codec:"l"`
	State    string       `codec:"z"`
	Erased   int64        `codec:"e"`
	Terms    []string     `codec:"t"`
	Attempts []attemptRow `codec:"s"`
	Notes    notes        `codec:"n"` // of the attempt that runs
}

type attemptRow struct {
	Attempt  int     `codec:"a"`
	Outcome  string  `codec:"o"`
	Worker   string  `codec:"w"`
	Claimed  int64   `codec:"c"`
	Ended    int64   `codec:"e"`
	Duration float64 `codec:"d"`
	Error    string  `codec:"m"`
	Receipt  string  `codec:"r"`
	notes
}

// notes are the notes of a delivery, in the form of scripts/notes.lua.
type notes struct {
	Checkpoint   string  `codec:"k,omitempty"`
	Progress     float64 `codec:"p,omitempty"`
	ProgressText string  `codec:"x,omitempty"`
	Log          string  `codec:"g,omitempty"`
	Cancelled    int64   `codec:"q,omitempty"`
}

func (n *notes) addTo(a *posthaste.Attempt) {
	if n.Checkpoint != "" {
		a.Checkpoint = json.RawMessage(n.Checkpoint)
	}
	a.Progress, a.ProgressText, a.Log = n.Progress, n.ProgressText, n.Log
	if n.Cancelled != 0 {
		a.CancelRequestedAt = at(n.Cancelled)
	}
}

// replayed reports whether the message was replayed and has not been tried since.
func (s *state) replayed() bool {
	n := len(s.Attempts)
	return n > 0 && s.Attempts[n-1].Outcome == string(posthaste.OutcomeDead)
}

func (s *state) story() (all []posthaste.Attempt) {
	for _, a := range s.Attempts {
		one := posthaste.Attempt{Attempt: a.Attempt, Outcome: posthaste.Outcome(a.Outcome), Worker: a.Worker,
			ClaimedAt: at(a.Claimed), EndedAt: at(a.Ended), DurationMS: a.Duration, Error: a.Error}
		if a.Receipt != "" {
			one.Receipt = json.RawMessage(a.Receipt)
		}
		a.addTo(&one)
		all = append(all, one)
	}
	return all
}

// handle encodes MessagePack like cmsgpack in scripts.
var handle = func() *codec.MsgpackHandle {
	h := &codec.MsgpackHandle{WriteExt: true}
	h.RawToString = true
	return h
}()

// packer is an encoder with its buffer. Encoders and decoders are pooled: to make one costs
// more than to use it, and each keyed message needs one.
type packer struct {
	encoder *codec.Encoder
	buffer  []byte
}

var (
	packers = sync.Pool{New: func() any {
		return &packer{encoder: codec.NewEncoderBytes(new([]byte), handle), buffer: make([]byte, 0, 512)}
	}}
	unpackers = sync.Pool{New: func() any { return codec.NewDecoderBytes(nil, handle) }}
)

// packed encodes a value for a script. The package only passes values that can be encoded.
func packed(v any) string {
	p := packers.Get().(*packer)
	p.buffer = p.buffer[:0]
	p.encoder.ResetBytes(&p.buffer)
	p.encoder.MustEncode(v)
	text := string(p.buffer)
	packers.Put(p)
	return text
}

func unpack(s string, into any) error {
	decoder := unpackers.Get().(*codec.Decoder)
	decoder.ResetBytes([]byte(s))
	err := decoder.Decode(into)
	unpackers.Put(decoder)
	return err
}
