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

// headerMeta is the header that holds all of a message but its payload, as JSON: see meta.
const headerMeta = "Posthaste"

// Headers that the server knows.
const (
	headerMsgID        = "Nats-Msg-Id"
	headerExpectedSeq  = "Nats-Expected-Last-Subject-Sequence"
	headerStream       = "Nats-Expected-Stream"
	headerTTL          = "Nats-TTL"
	headerSchedule     = "Nats-Schedule"
	headerTarget       = "Nats-Schedule-Target"
	headerScheduler    = "Nats-Scheduler" // of an entry that a schedule has fired: the subject of the schedule
	headerBatch        = "Nats-Batch-Id"
	headerBatchPlace   = "Nats-Batch-Sequence"
	headerBatchCommits = "Nats-Batch-Commit"
)

// meta is a message without its payload. It is stored as JSON in the header Posthaste, with short names,
// because each message has them. Times are in microseconds since 1970, by the clock of a server.
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
	Due       int64               `json:"due,omitempty"`   // it is or was scheduled until then
	Since     int64               `json:"since,omitempty"` // when its age begins, if that is neither Due nor At
	Once      string              `json:"once,omitempty"`  // its dedupe key, hashed

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
	// From is the sequence of the entry that this one continues, 0 for the first one.
	From uint64 `json:"from,omitempty"`
	// DiedAt and Error are of a dead letter, whose subject has its subscription.
	DiedAt int64  `json:"died,omitempty"`
	Error  string `json:"error,omitempty"`
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

// maxHeader is the maximum length of the header Posthaste, because the server bounds all headers of a
// message to 64 KiB. If meta is longer, it precedes the payload, and the header has its length.
const maxHeader = 32 << 10

// encoded returns the message as an entry of a stream.
func (m *meta) encoded(subject string, body []byte) *natsgo.Msg {
	head := m.text()
	if len(head) > maxHeader {
		return &natsgo.Msg{Subject: subject, Header: natsgo.Header{headerMeta: {"+" + strconv.Itoa(len(head))}}, Data: append(head, body...)}
	}
	return &natsgo.Msg{Subject: subject, Header: natsgo.Header{headerMeta: {string(head)}}, Data: body}
}

// decode returns the message and the payload of an entry.
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
