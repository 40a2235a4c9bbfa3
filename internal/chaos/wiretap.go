//go:build unix

package chaos

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"sync"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
)

// wiretap writes the history of a shipped relay, which writes none itself. It reads a
// connection to RabbitMQ, and records each published message, and the broker's confirm after
// the relay got it.
type wiretap struct {
	r *history.Recorder
	// killed reports whether the relay was killed: its messages in flight then have no end.
	killed func() bool

	relay, broker frames
	head          []byte // of the message that is being published
	body          []byte

	mu   sync.Mutex
	tag  uint64          // of the last published message
	open map[uint64]seen // messages without a confirm
}

// The relay sets these headers with data that the broker does not know.
const (
	headerID      = "rig-id"
	headerAttempt = "rig-attempt"
)

// Constants of AMQP: kinds of frames, and methods by class and number.
const (
	methodFrame = 1
	headerFrame = 2
	bodyFrame   = 3
)

var (
	basicPublish = []byte{0, 60, 0, 40}
	basicAck     = []byte{0, 60, 0, 80}
	basicNack    = []byte{0, 60, 0, 120}
)

// confirms reports whether data from the broker contains a confirm.
func confirms(sent []byte) bool { return bytes.Contains(sent, basicAck) }

// asked implements [witness].
func (w *wiretap) asked(sent []byte) {
	for _, f := range w.relay.cut(sent) {
		switch {
		case f.kind == methodFrame:
			w.head, w.body = nil, nil
		case f.kind == headerFrame && len(f.payload) >= 12:
			w.head = f.payload
		case f.kind == bodyFrame:
			w.body = append(w.body, f.payload...)
		}
		if w.head != nil && uint64(len(w.body)) >= binary.BigEndian.Uint64(w.head[4:]) {
			w.published()
			w.head, w.body = nil, nil
		}
	}
}

// published records a message that goes to the broker.
func (w *wiretap) published() {
	id, _ := strconv.ParseInt(headerOf(w.head, headerID), 10, 64)
	attempt, _ := strconv.Atoi(headerOf(w.head, headerAttempt))
	s, whole := arrived(w.r, history.Event{ID: posthaste.MessageID(id), Attempt: attempt}, w.body)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tag++
	if whole {
		w.open[w.tag] = s
	}
}

// headerOf returns a string among the headers of a message, or "".
func headerOf(head []byte, name string) string {
	i := bytes.Index(head, append([]byte{byte(len(name))}, name+"S"...))
	if i < 0 {
		return ""
	}
	rest := head[i+len(name)+2:]
	if len(rest) < 4 {
		return ""
	}
	n := binary.BigEndian.Uint32(rest)
	if uint32(len(rest)-4) < n {
		return ""
	}
	return string(rest[4 : 4+n])
}

// answered implements [witness].
func (w *wiretap) answered(sent []byte) {
	for _, f := range w.broker.cut(sent) {
		ack := bytes.HasPrefix(f.payload, basicAck)
		if f.kind != methodFrame || len(f.payload) < 13 || !ack && !bytes.HasPrefix(f.payload, basicNack) {
			continue
		}
		last, several := binary.BigEndian.Uint64(f.payload[4:]), f.payload[12]&1 == 1
		var err error
		if !ack {
			err = errRefused
		}
		w.mu.Lock()
		for tag, s := range w.open {
			if tag == last || several && tag < last {
				s.left(w.r, err)
				delete(w.open, tag)
			}
		}
		w.mu.Unlock()
	}
}

// over implements [witness].
func (w *wiretap) over() {
	if w.killed() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.open {
		s.left(w.r, errUnconfirmed)
	}
	w.open = nil
}

// frame is an AMQP frame.
type frame struct {
	kind    byte
	payload []byte
}

// frames splits a stream into frames.
type frames struct{ rest []byte }

// cut adds data, and returns the frames that are complete.
func (f *frames) cut(sent []byte) (all []frame) {
	const greeting = "AMQP"
	f.rest = append(f.rest, sent...)
	if bytes.HasPrefix(f.rest, []byte(greeting)) {
		if len(f.rest) < len(greeting)+4 {
			return nil
		}
		f.rest = f.rest[len(greeting)+4:]
	}
	for len(f.rest) >= 7 {
		end := 7 + int(binary.BigEndian.Uint32(f.rest[3:]))
		if len(f.rest) <= end { // and a byte that ends it
			break
		}
		all = append(all, frame{f.rest[0], f.rest[7:end]})
		f.rest = f.rest[end+1:]
	}
	return all
}
