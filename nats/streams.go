package nats

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The streams that all queues share:
//
//   - KV_<prefix>-store, a key-value bucket: queues, tokens, schedules, workers. Its reads go to
//     the leader, so that a process sees what another has written.
//   - <prefix>-ids: each message takes a block of ids.
//   - <prefix>-log: actions of operators, and outcomes of messages in queues with a retention.

// logAge is how long actions are kept.
const logAge = 90 * 24 * time.Hour

func (e *Engine) commonStreams() []jetstream.StreamConfig {
	bucket := e.prefix + "-store"
	return []jetstream.StreamConfig{
		{Name: "KV_" + bucket, Subjects: []string{"$KV." + bucket + ".>"}, MaxMsgsPerSubject: 1, Replicas: e.replicas, Storage: jetstream.FileStorage,
			Discard: jetstream.DiscardNew, AllowRollup: true, DenyDelete: true, AllowMsgTTL: true, SubjectDeleteMarkerTTL: time.Minute, MaxMsgSize: -1, MaxMsgs: -1, MaxBytes: -1, Duplicates: 2 * time.Minute},
		{Name: e.prefix + "-ids", Subjects: []string{e.prefix + ".ids"}, MaxMsgs: 1, Replicas: e.replicas, Storage: jetstream.FileStorage, Duplicates: time.Second},
		{Name: e.prefix + "-log", Subjects: []string{e.prefix + ".log.>"}, MaxAge: logAge, Replicas: e.replicas, Storage: jetstream.FileStorage, AllowMsgTTL: true, AllowDirect: true},
	}
}

// ensureStream creates a stream unless there is one with that name.
func (e *Engine) ensureStream(ctx context.Context, c jetstream.StreamConfig) error {
	_, err := e.js.Stream(ctx, c.Name)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return e.readError(err)
	}
	if _, err = e.js.CreateStream(ctx, c); errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return nil
	}
	return e.readError(err)
}

// subjectToken returns a name as a token of subjects and names of streams: names have dots, and no "=".
func subjectToken(name string) string { return strings.ReplaceAll(name, ".", "=") }

// nameOf returns the name of a token.
func nameOf(token string) string { return strings.ReplaceAll(token, "=", ".") }

// streamOf returns the name of a queue's stream. It ends with a number of its own: a process that drops a
// queue, or settles a delivery of a dropped one, does not meet the next queue of that name.
func (e *Engine) streamOf(queue string, born int64) string {
	return e.prefix + "-q-" + subjectToken(queue) + "-" + strconv.FormatInt(born, 10)
}

// subjects are those of a queue. All filters of consumers that deliver messages are literal.
//
//	q.<priority>         messages that wait; o.<part> in an ordered queue
//	r.<sub>.<priority>   retries and copies for one subscription
//	s.<id>               scheduled messages
//	s.<id>.<sub>         retries that wait
//	d.<sub>.<id>         dead letters
//	i.<key>              records: the key was used
//	n.<sub>.<id>         notes of the handler
type subjects string

func (e *Engine) subjectsOf(queue string) subjects {
	return subjects(e.prefix + ".queue." + subjectToken(queue) + ".")
}

// under returns a subject of the queue.
func (s subjects) under(tokens ...string) string { return string(s) + strings.Join(tokens, ".") }
