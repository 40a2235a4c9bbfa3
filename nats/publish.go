package nats

import (
	"context"
	"encoding/json"
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
	// firesEarly is how long before its time a schedule may be delivered, and how long a repetition
	// may take.
	firesEarly = time.Second + partTimeout
	// pauseBetween attempts, while no server answers.
	pauseBetween = 100 * time.Millisecond
)

// within gives a context without a deadline that of a send.
func within(ctx context.Context) (context.Context, context.CancelFunc) {
	return withinSince(ctx, time.Now())
}

// withinSince is within for a send that has begun.
func withinSince(ctx context.Context, begun time.Time) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, begun.Add(sendTimeout))
}

// store stores messages of one queue, all or none. Its errors are errExists if a record exists,
// Unavailable if nothing was stored, and OutcomeUnknown if the answer was lost.
func (e *Engine) store(ctx context.Context, q *queue, parts []*natsgo.Msg) error {
	for _, m := range parts {
		if size, most := int64(m.Size()), e.conn.MaxPayload(); size > most && most > 0 {
			return tooLarge(size, most)
		}
	}
	if len(parts) > maxBatch {
		return unsupported("messages", "more than %d messages and dedupe keys in one call are not supported", maxBatch)
	}
	var err error
	switch len(parts) {
	case 0:
		return ctx.Err()
	case 1:
		err = e.storeOne(ctx, parts[0])
	default:
		ctx, cancel := within(ctx)
		defer cancel()
		err = e.storeBatch(ctx, parts)
	}
	if posthaste.CodeOf(err) == posthaste.CodeUnavailable {
		return e.missing(context.WithoutCancel(ctx), q, err) // the queue may have been dropped
	}
	return err
}

func tooLarge(size, most int64) error {
	return &posthaste.Error{Code: posthaste.CodeTooLarge, Field: "payload", Message: fmt.Sprintf("the message has %d bytes with its headers, and the NATS servers take at most %d", size, most),
		Hint: "raise max_payload of the NATS servers, or store large data elsewhere"}
}

// reserve is the part of the servers' max_payload that a message leaves free when it is sent: the story of
// its attempts and a checkpoint.
const reserve = 80 << 10

// checkSize rejects a message that could not be retried.
func (e *Engine) checkSize(m *natsgo.Msg) error {
	if size, most := int64(m.Size()), e.conn.MaxPayload()-reserve; size > most && most > 0 {
		return tooLarge(size, most)
	}
	return nil
}

// fits shortens the story of a message until the servers take it: first the logs, then the attempts
// but the last one.
func (e *Engine) fits(m *meta, body []byte) {
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

// storeOne stores a message, and repeats that while no server answers: its id, or its record,
// lets the server drop a repeated message. The server strips the id of a
// schedule, which replaces itself.
func (e *Engine) storeOne(ctx context.Context, m *natsgo.Msg) error {
	if m.Header.Get(headerMsgID) == "" && m.Header.Get(headerExpectedSeq) == "" && m.Header.Get(headerSchedule) == "" {
		m.Header.Set(headerMsgID, nuid.Next())
	}
	perhaps := false // an attempt may have stored it
	begun := time.Now()
	for first := true; ; first = false {
		once, cancel := context.WithTimeout(ctx, partTimeout)
		_, err := e.stored(once, m)
		cancel()
		if err == nil {
			return nil
		}
		if first { // few messages need it
			var end context.CancelFunc
			ctx, end = withinSince(ctx, begun)
			defer end()
		}
		again, stored := judged(err)
		if again {
			if refused := e.denials.recent(); refused != nil {
				return refused
			}
			e.doubt()
		}
		perhaps = perhaps || stored
		switch {
		case errors.Is(err, errWrongSequence) && perhaps:
			return unknown(err) // perhaps its own record
		case errors.Is(err, errWrongSequence):
			return errExists
		case !again:
			return e.fault(err)
		case !pausesFor(ctx, pauseBetween):
			return e.unsent(ctx, err, perhaps)
		case perhaps && e.mayHaveFired(m):
			return unknown(err) // repeated, it would come twice
		}
	}
}

// mayHaveFired reports whether the server may have delivered a schedule, if it has it. Until then a
// repetition replaces it.
func (e *Engine) mayHaveFired(m *natsgo.Msg) bool {
	at, is := strings.CutPrefix(m.Header.Get(headerSchedule), "@at ")
	if !is {
		return false
	}
	due, err := time.Parse(time.RFC3339Nano, at)
	return err != nil || due.Before(e.clock.now().Add(firesEarly))
}

var errWrongSequence = &jetstream.APIError{ErrorCode: codeWrongLastSequence}

// judged says whether a publish may be repeated after an error, and whether the message may be
// stored nevertheless.
func judged(err error) (again, stored bool) {
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
		return unknown(err)
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case isFull(err):
		return e.fault(err)
	}
	return unavailable("NATS does not take messages", err)
}

// pausesFor waits, and reports false if ctx ended.
func pausesFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// storeBatch stores messages in one atomic batch. A batch that may be stored is not repeated.
func (e *Engine) storeBatch(ctx context.Context, parts []*natsgo.Msg) error {
	for {
		err := e.tryBatch(ctx, parts)
		if err == nil {
			return nil
		}
		again, stored := judged(err)
		if again {
			if refused := e.denials.recent(); refused != nil {
				return refused
			}
			e.doubt()
		}
		switch {
		case errors.Is(err, errWrongSequence):
			return errExists
		case stored:
			return unknown(err)
		case !again:
			return e.fault(err)
		case !pausesFor(ctx, pauseBetween):
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
	seq, err := e.stored(ctx, parts[last])
	if err == nil && seq == 0 {
		err = errors.New("nats: the answer to a batch has no sequence")
	}
	return err
}

// lastOn returns the last message on a subject as the stream's leader has it, or nil. Direct gets
// may be answered by a server that lags.
func (e *Engine) lastOn(ctx context.Context, stream, subject string) (*jetstream.RawStreamMsg, error) {
	return e.leaderGet(ctx, stream, map[string]any{"last_by_subj": subject})
}

func (e *Engine) leaderGet(ctx context.Context, stream string, request any) (*jetstream.RawStreamMsg, error) {
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject string    `json:"subject"`
			Seq     uint64    `json:"seq"`
			Header  []byte    `json:"hdrs"`
			Data    []byte    `json:"data"`
			Time    time.Time `json:"time"`
		} `json:"message"`
	}
	if err := e.ask(ctx, "STREAM.MSG.GET."+stream, request, &answer); err != nil {
		return nil, err
	}
	switch {
	case answer.Error != nil && answer.Error.ErrorCode == codeNoMessage:
		return nil, nil
	case answer.Error != nil:
		return nil, e.fault(answer.Error)
	case answer.Message == nil:
		return nil, errors.New("nats: the answer has no message")
	}
	m := &jetstream.RawStreamMsg{Subject: answer.Message.Subject, Sequence: answer.Message.Seq, Data: answer.Message.Data, Time: answer.Message.Time}
	if len(answer.Message.Header) > 0 {
		header, err := natsgo.DecodeHeadersMsg(answer.Message.Header)
		if err != nil {
			return nil, err
		}
		m.Header = header
	}
	return m, nil
}

// ask calls the API of JetStream.
func (e *Engine) ask(ctx context.Context, what string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	reply, err := e.conn.RequestWithContext(ctx, "$JS.API."+what, body)
	if err != nil {
		return e.fault(err)
	}
	return json.Unmarshal(reply.Data, answer)
}
