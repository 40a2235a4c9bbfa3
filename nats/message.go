package nats

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
)

// headerMeta holds all of a message but its payload, as JSON.
const headerMeta = "Posthaste"

// Headers that the server knows.
const (
	headerMsgID        = "Nats-Msg-Id"
	headerExpectedSeq  = "Nats-Expected-Last-Subject-Sequence"
	headerTTL          = "Nats-TTL"
	headerSchedule     = "Nats-Schedule"
	headerTarget       = "Nats-Schedule-Target"
	headerBatch        = "Nats-Batch-Id"
	headerBatchPlace   = "Nats-Batch-Sequence"
	headerBatchCommits = "Nats-Batch-Commit"
)

// meta is a message without its payload, as the header Posthaste has it. The names are short because
// each message has them. Times are in microseconds since 1970, by a server's clock.
type meta struct {
	ID        posthaste.MessageID `json:"id"`
	At        int64               `json:"at"`
	Key       string              `json:"key,omitempty"`
	Kind      string              `json:"kind,omitempty"`
	Headers   map[string]string   `json:"headers,omitempty"`
	Reference string              `json:"ref,omitempty"`
	Terms     []string            `json:"terms,omitempty"`
	Type      string              `json:"type,omitempty"`
	Priority  int                 `json:"prio,omitempty"`
	Due       int64               `json:"due,omitempty"` // until then it was scheduled
	Since     int64               `json:"since,omitempty"`
	Once      string              `json:"once,omitempty"` // its dedupe key, hashed

	MaxAttempts int           `json:"attempts,omitempty"`
	Timeout     time.Duration `json:"timeout,omitempty"`
	BackoffBase time.Duration `json:"base,omitempty"`
	BackoffMax  time.Duration `json:"max,omitempty"`

	// Attempt counts from 1; 0 is 1. Failures and LostAlone count towards MaxAttempts. Losses
	// decide whether it runs alone.
	Attempt   int                 `json:"n,omitempty"`
	Failures  int                 `json:"failed,omitempty"`
	Losses    int                 `json:"lost,omitempty"`
	LostAlone int                 `json:"alone,omitempty"`
	Story     []posthaste.Attempt `json:"story,omitempty"`
	// From is the sequence of the entry that this one continues.
	From uint64 `json:"from,omitempty"`
	// DiedAt and Error are of a dead letter, and the subscription it is of is in its subject.
	DiedAt int64  `json:"died,omitempty"`
	Error  string `json:"error,omitempty"`
	Erased int64  `json:"erased,omitempty"`
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}

// attempt counts from 1.
func (m *meta) attempt() int { return max(m.Attempt, 1) }

// own returns the message's own options.
func (m *meta) own() posthaste.KindOptions {
	return posthaste.KindOptions{MaxAttempts: m.MaxAttempts, Timeout: m.Timeout, Backoff: posthaste.Backoff{Base: m.BackoffBase, Max: m.BackoffMax}}
}

// maxHeader is how long the header Posthaste may be. The server bounds all headers of a message
// to 64 KiB. A longer one precedes the payload.
const maxHeader = 32 << 10

// encoded returns a message of a stream.
func (m *meta) encoded(subject string, body []byte) *natsgo.Msg {
	head := m.text()
	if len(head) > maxHeader {
		return &natsgo.Msg{Subject: subject, Header: natsgo.Header{headerMeta: {"+" + strconv.Itoa(len(head))}}, Data: append(head, body...)}
	}
	return &natsgo.Msg{Subject: subject, Header: natsgo.Header{headerMeta: {string(head)}}, Data: body}
}

// decode returns a message and its payload.
func decode(header natsgo.Header, data []byte) (*meta, []byte, error) {
	text := header.Get(headerMeta)
	if text == "" {
		return nil, nil, fmt.Errorf("the message has no header %s", headerMeta)
	}
	if size, ahead := strings.CutPrefix(text, "+"); ahead {
		n, err := strconv.Atoi(size)
		if err != nil || n < 0 || n > len(data) {
			return nil, nil, fmt.Errorf("the header %s is not the length of a part of the message", headerMeta)
		}
		text, data = string(data[:n]), data[n:]
	}
	m := &meta{}
	if m.read(text) {
		return m, data, nil
	}
	*m = meta{}
	if err := json.Unmarshal([]byte(text), m); err != nil {
		return nil, nil, fmt.Errorf("the header %s cannot be read: %w", headerMeta, err)
	}
	return m, data, nil
}
