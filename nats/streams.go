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
//   - KV_<prefix>-store, a key-value bucket, called the store: queues, tokens, schedules, workers. The
//     leader answers its reads, so that a process reads what another has written.
//   - <prefix>-ids: each entry that is published gives its publisher a block of ids: see ids.go.
//   - <prefix>-log: actions of operators, and outcomes of messages: see outcome.go.

// logAge is how long actions are kept, and outcomes of messages at most.
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

// nameOf returns the name of which subjectToken made a token.
func nameOf(token string) string { return strings.ReplaceAll(token, "=", ".") }

// streamOf returns the name of the stream of a queue. It ends with the number born, so that a process that
// drops a queue does not remove the stream of the next queue with that name. Their subjects are equal.
func (e *Engine) streamOf(queue string, born int64) string {
	return e.prefix + "-q-" + subjectToken(queue) + "-" + strconv.FormatInt(born, 10)
}

// subjects is the prefix of the subjects of a queue. All filters of consumers that deliver messages are
// literal. A lane is a priority, or a partition of an ordered queue.
//
//	q.<lane>               messages that wait for all subscriptions; o.<lane> in an ordered queue
//	r.<sub>.<lane>         retries and copies for one subscription
//	s.<id>                 scheduled messages
//	s.<id>.<sub>           retries that are not due
//	d.<sub>.<id>           dead letters
//	n.<sub>.<id>           notes of the attempt that runs
//	n.<sub>.<id>.kept      of an ordered queue: a message after its last attempt
//	i.k.<hash>             records: the dedupe key was used
//	i.o.<hash>             the idempotency key was used
//	i.n.<sub>.<since>.<entry>   the entry was continued, see followSubject
//	i.c.<sub>.<id>         the message was cancelled while it was handed out
//	i.t.<schedule>.<created>.<tick>   the tick was sent
type subjects string

func (e *Engine) subjectsOf(queue string) subjects {
	return subjects(e.prefix + ".queue." + subjectToken(queue) + ".")
}

// under returns a subject of the queue, or a filter.
func (s subjects) under(tokens ...string) string { return string(s) + strings.Join(tokens, ".") }
