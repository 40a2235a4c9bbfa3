package nats

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// answersSecond drops the first request on a subject, as a server does that loses its lead, and answers
// the others. It returns the number of requests.
func answersSecond(t *testing.T, conn *natsgo.Conn, subject string, answer *natsgo.Msg) *atomic.Int64 {
	t.Helper()
	var requests atomic.Int64
	s, err := conn.Subscribe(subject, func(m *natsgo.Msg) {
		if requests.Add(1) > 1 {
			_ = m.RespondMsg(answer) // a lost answer fails the test
		}
	})
	must(t, err)
	t.Cleanup(func() { _ = s.Unsubscribe() })
	must(t, conn.Flush())
	return &requests
}

// A claim whose pull is dropped pulls again.
func TestLostPullIsSentAgain(t *testing.T) {
	t.Parallel()
	e := several(t, 1, posthaste.QueueOptions{})[0]
	q := e.queues.known("jobs")
	b := e.buffers.of(q, &q.Subscriptions[0], 0)
	b.consumer = "lost"
	requests := answersSecond(t, e.conn, "$JS.API.CONSUMER.MSG.NEXT."+q.stream+".lost", &natsgo.Msg{Header: natsgo.Header{"Status": {"404"}}})
	if err := e.pullFrom(t.Context(), &claiming{q: q, sub: &q.Subscriptions[0], n: 1}, b); err != nil || requests.Load() < 2 {
		t.Errorf("%d pulls were sent: %v", requests.Load(), err)
	}
}

// An entry that is dropped is sent again before long, unless a repetition could meet its own record.
func TestLostEntryIsSentAgain(t *testing.T) {
	t.Parallel()
	e := openEngine(t, startServer(t))
	testrun.Timed(t, partTimeout, func() string {
		requests := answersSecond(t, e.conn, "lost", &natsgo.Msg{Data: []byte(`{"stream":"lost", "seq":1}`)})
		begun := time.Now()
		must(t, e.storeOne(t.Context(), &natsgo.Msg{Subject: "lost", Header: natsgo.Header{}}))
		if took := time.Since(begun); took >= partTimeout || requests.Load() != 2 {
			return fmt.Sprintf("it took %s and %d requests", took, requests.Load())
		}
		return ""
	})
	soon, cancel := context.WithTimeout(t.Context(), 2*lostAfter)
	defer cancel()
	requests := answersSecond(t, e.conn, "record", &natsgo.Msg{Data: []byte(`{"stream":"lost", "seq":1}`)})
	err := e.storeOne(soon, &natsgo.Msg{Subject: "record", Header: natsgo.Header{headerExpectedSeq: {"0"}}})
	if wantCode(t, "a record", err, posthaste.CodeOutcomeUnknown); requests.Load() != 1 {
		t.Errorf("a record was sent %d times", requests.Load())
	}
}
