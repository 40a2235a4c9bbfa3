package nats

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

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
		subject := nuid.Next()
		requests := answersSecond(t, e.conn, subject, &natsgo.Msg{Data: []byte(`{"stream":"lost", "seq":1}`)})
		begun := time.Now()
		must(t, e.storeOne(t.Context(), &natsgo.Msg{Subject: subject, Header: natsgo.Header{}}))
		if took := time.Since(begun); took >= partTimeout || requests.Load() < 2 {
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

// A schedule that is due soon, and must not be repeated, has the time of an attempt that is not.
func TestSlowAnswerToDelayedMessage(t *testing.T) {
	t.Parallel()
	e := openEngine(t, startServer(t))
	s, err := e.conn.Subscribe("slow", func(m *natsgo.Msg) {
		time.AfterFunc(lostAfter+lostAfter/4, func() {
			_ = m.Respond([]byte(`{"stream":"slow", "seq":1}`)) // a lost answer fails the test
		})
	})
	must(t, err)
	defer func() { _ = s.Unsubscribe() }()
	must(t, e.conn.Flush())
	testrun.Timed(t, partTimeout-lostAfter, func() string {
		m := asSchedule(&natsgo.Msg{Subject: "slow", Header: natsgo.Header{}}, "target", e.clock.now().Add(2*time.Second))
		if err := e.storeOne(t.Context(), m); err != nil {
			return err.Error()
		}
		return ""
	})
}

// A request that may be repeated is, and a refused one is not.
func TestUntilAnswered(t *testing.T) {
	t.Parallel()
	tries := 0
	err := untilAnswered(t.Context(), func(ctx context.Context) error {
		if tries++; tries > 1 {
			return nil
		}
		<-ctx.Done()
		return unavailable("no answer", ctx.Err())
	})
	if err != nil || tries != 2 {
		t.Errorf("%d tries: %v", tries, err)
	}
	err = untilAnswered(t.Context(), func(context.Context) error { tries++; return errExists })
	if !errors.Is(err, errExists) || tries != 3 {
		t.Errorf("%d tries: %v", tries, err)
	}
}

// A worker whose registration was stored without an answer is registered, under one id.
func TestLostAnswerOfRegistration(t *testing.T) {
	t.Parallel()
	e := several(t, 1, posthaste.QueueOptions{})[0]
	e.workers.bucket.KeyValue = &losesFirst{KeyValue: e.workers.bucket.KeyValue}
	id, err := e.Register(t.Context(), posthaste.WorkerInfo{Name: "w", Lease: time.Minute})
	must(t, err)
	must(t, e.alive(t.Context(), id))
	if all := e.workers.knownAll(); len(all) != 1 {
		t.Errorf("the workers are %+v", all)
	}
}

// losesFirst loses the answer to the first new entry.
type losesFirst struct {
	jetstream.KeyValue
	lost bool
}

func (l *losesFirst) Create(ctx context.Context, key string, value []byte, o ...jetstream.KVCreateOpt) (uint64, error) {
	revision, err := l.KeyValue.Create(ctx, key, value, o...)
	if !l.lost && err == nil {
		l.lost = true
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return revision, err
}
