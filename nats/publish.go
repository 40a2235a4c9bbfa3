package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/posthaste-mq/posthaste"
)

// errExists means that a record exists: nothing was stored.
var errExists = errors.New("nats: the record exists")

// sendTimeout bounds a send whose context has no deadline, and partTimeout each of its attempts.
const (
	sendTimeout = 15 * time.Second
	partTimeout = 3 * time.Second
	// lostAfter is when a request that may be repeated counts as lost, such as the first attempt of an entry.
	lostAfter = time.Second
	// firesEarly is how long before its time a schedule may be delivered, and how long a repetition
	// may take.
	firesEarly = time.Second + partTimeout
	// pauseBetween attempts, while no server answers.
	pauseBetween = 100 * time.Millisecond
)

// untilAnswered repeats a request that may be repeated while it gets no answer, for callTimeout at most: a server
// that hands over or loses a lead drops the requests that it has.
func untilAnswered(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for {
		once, cancel := context.WithTimeout(ctx, lostAfter)
		err := request(once)
		cancel()
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

// withSendTimeout gives a context without a deadline the deadline of a send.
func withSendTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return withSendTimeoutSince(ctx, time.Now())
}

// withSendTimeoutSince is withSendTimeout for a send that has begun.
func withSendTimeoutSince(ctx context.Context, begun time.Time) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, begun.Add(sendTimeout))
}

// store stores entries of one queue, all or none. Its errors are errExists if a record exists, NotFound if
// the queue was dropped, Unavailable if nothing was stored, and OutcomeUnknown if the answer was lost.
//
// A queue that was created again has the subjects of the dropped one. So the last entry, which commits a
// batch, names its stream, and another stream does not take it. When a schedule fires, the server removes that
// header.
func (e *Engine) store(ctx context.Context, q *queue, parts []*natsgo.Msg) error {
	for _, m := range parts {
		if size, most := int64(m.Size()), e.conn.MaxPayload(); size > most && most > 0 {
			return tooLarge(size, most)
		}
	}
	if len(parts) > maxBatch {
		return unsupported("messages", "more than %d messages and dedupe keys in one call are not supported", maxBatch)
	}
	if len(parts) == 0 {
		return ctx.Err()
	}
	if last := parts[len(parts)-1]; strings.HasPrefix(last.Subject, string(q.subjects)) {
		last.Header.Set(headerStream, q.stream)
	}
	var err error
	if len(parts) == 1 {
		err = e.storeOne(ctx, parts[0])
	} else {
		ctx, cancel := withSendTimeout(ctx)
		defer cancel()
		err = e.storeBatch(ctx, parts)
	}
	switch {
	case posthaste.CodeOf(err) == posthaste.CodeUnavailable:
		return e.queueError(context.WithoutCancel(ctx), q, err) // the queue may have been dropped
	case wasReplaced(err):
		_, _ = e.freshQueue(ctx, q.Name) // for the next call
		return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue", Message: "queue " + quoted(q.Name) + " was dropped, and another queue has its name now", Cause: err}
	}
	return err
}

func tooLarge(size, most int64) error {
	return &posthaste.Error{Code: posthaste.CodeTooLarge, Field: "payload", Message: fmt.Sprintf("the message has %d bytes with its headers, and the NATS servers take at most %d", size, most),
		Hint: "raise max_payload of the NATS servers, or store large data elsewhere"}
}

// reserve is the part of the servers' max_payload that a message must leave free when it is sent: for the
// story of its attempts and a checkpoint.
const reserve = 80 << 10

// checkSize rejects a message that could not be retried.
func (e *Engine) checkSize(m *natsgo.Msg) error {
	if size, most := int64(m.Size()), e.conn.MaxPayload()-reserve; size > most && most > 0 {
		return tooLarge(size, most)
	}
	return nil
}

// shortenStory shortens the story of a message until the servers accept it. It removes first the logs and
// receipts, then all attempts but the last one.
func (e *Engine) shortenStory(m *meta, body []byte) {
	most := e.conn.MaxPayload()
	if most <= 0 {
		return
	}
	fits := func() bool { return int64(m.encoded("", body).Size())+4096 < most }
	if len(m.Story) == 0 || fits() {
		return
	}
	m.Story = slices.Clone(m.Story)
	for i := range m.Story {
		m.Story[i].Log, m.Story[i].Receipt = "", nil
	}
	if last := len(m.Story) - 1; !fits() {
		m.Story = m.Story[last:]
	}
}

// storeOne stores an entry, and repeats that while no server answers. The server drops a repeated entry by
// its id, or rejects it because its record exists. A schedule needs no id, which the server would strip:
// a repeated one replaces the first.
func (e *Engine) storeOne(ctx context.Context, m *natsgo.Msg) error {
	if m.Header.Get(headerMsgID) == "" && m.Header.Get(headerExpectedSeq) == "" && m.Header.Get(headerSchedule) == "" {
		m.Header.Set(headerMsgID, nuid.Next())
	}
	perhaps := false // an earlier try may have stored it
	begun := time.Now()
	for first := true; ; first = false {
		timeout := partTimeout
		if first && m.Header.Get(headerExpectedSeq) == "" && !e.mayHaveFired(m, lostAfter+pauseBetween) { // it may be repeated
			timeout = lostAfter
		}
		once, cancel := context.WithTimeout(ctx, timeout)
		_, err := e.publish(once, m)
		cancel()
		if err == nil {
			return nil
		}
		if first { // most entries are stored at once and do not need this context
			var end context.CancelFunc
			ctx, end = withSendTimeoutSince(ctx, begun)
			defer end()
		}
		again, stored := classifyPublish(err)
		if again {
			if denial := e.denials.recent(); denial != nil {
				return denial
			}
			if timeout == partTimeout { // before that, the server may only be slow
				e.leaveIfCutOff()
			}
		}
		perhaps = perhaps || stored
		pause := pauseBetween
		if errors.Is(err, errInProcess) { // the servers are storing it
			pause = lostAfter
		}
		switch {
		case errors.Is(err, errWrongSequence) && perhaps:
			return outcomeUnknown(err) // the record may be its own
		case errors.Is(err, errWrongSequence):
			return errExists
		case !again:
			return e.readError(err)
		case !sleepFor(ctx, pause):
			return e.unsent(ctx, err, perhaps)
		case perhaps && e.mayHaveFired(m, 0):
			return outcomeUnknown(err) // repeated, it would come twice
		}
	}
}

// mayHaveFired reports whether the server may deliver a schedule within a time, if it has it. Until then a
// repetition replaces it.
func (e *Engine) mayHaveFired(m *natsgo.Msg, within time.Duration) bool {
	at, is := strings.CutPrefix(m.Header.Get(headerSchedule), "@at ")
	if !is {
		return false
	}
	due, err := time.Parse(time.RFC3339Nano, at)
	return err != nil || due.Before(e.clock.now().Add(firesEarly+within))
}

var (
	errWrongSequence = &jetstream.APIError{ErrorCode: codeWrongLastSequence}
	errInProcess     = &jetstream.APIError{ErrorCode: codeInProcess}
)

// classifyPublish reports whether a publish may be repeated after an error, and whether the message may have
// been stored.
func classifyPublish(err error) (again, stored bool) {
	var api jetstream.JetStreamError
	switch {
	case errors.Is(err, natsgo.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, natsgo.ErrReconnectBufExceeded), errors.Is(err, natsgo.ErrConnectionReconnecting):
		return true, false
	case errors.Is(err, natsgo.ErrTimeout), errors.Is(err, context.DeadlineExceeded), errors.Is(err, natsgo.ErrDisconnected), errors.Is(err, natsgo.ErrConnectionClosed):
		return true, true
	case errors.As(err, &api) && api.APIError() != nil:
		a := api.APIError()
		if a.ErrorCode == codeInProcess || a.ErrorCode == codeStoreFailed { // other servers may have stored it
			return true, true
		}
		if isFull(err) {
			return true, false
		}
		return a.ErrorCode == codeMayYetFail || a.ErrorCode == codeIncomplete || a.Code == 429 || a.Code == 503, false
	}
	return false, false
}

// unsent is the error of a send that was given up.
func (e *Engine) unsent(ctx context.Context, err error, perhaps bool) error {
	switch {
	case perhaps:
		return outcomeUnknown(err)
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case isFull(err):
		return e.readError(err)
	}
	return unavailable("NATS does not take messages", err)
}

// storeBatch stores entries in one atomic batch. Unlike a single entry, a batch that may have been stored is
// not repeated, because the server knows no id of it.
func (e *Engine) storeBatch(ctx context.Context, parts []*natsgo.Msg) error {
	for {
		err := e.tryBatch(ctx, parts)
		if err == nil {
			return nil
		}
		again, stored := classifyPublish(err)
		if again {
			if denial := e.denials.recent(); denial != nil {
				return denial
			}
			e.leaveIfCutOff()
		}
		switch {
		case errors.Is(err, errWrongSequence):
			return errExists
		case stored:
			return outcomeUnknown(err)
		case !again:
			return e.readError(err)
		case !sleepFor(ctx, pauseBetween):
			return e.unsent(ctx, err, false)
		}
	}
}

func (e *Engine) tryBatch(ctx context.Context, parts []*natsgo.Msg) error {
	batch := nuid.Next()
	last := len(parts) - 1
	for i, m := range parts {
		m.Header.Set(headerBatch, batch)
		m.Header.Set(headerBatchPlace, strconv.Itoa(i+1))
		if i < last {
			if err := e.conn.PublishMsg(m); err != nil {
				return err
			}
		}
	}
	parts[last].Header.Set(headerBatchCommits, "1")
	ctx, cancel := context.WithTimeout(ctx, partTimeout)
	defer cancel()
	seq, err := e.publish(ctx, parts[last])
	if err == nil && seq == 0 {
		err = errors.New("nats: the answer to a batch has no sequence")
	}
	return err
}
