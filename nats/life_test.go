package nats

import (
	"context"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// life is an engine with a queue and a worker.
type life struct {
	*testing.T
	*Engine
	worker posthaste.WorkerID
	number int64
}

func lives(t *testing.T, o posthaste.QueueOptions) *life {
	t.Helper()
	l := &life{T: t, Engine: openEngine(t, startServer(t), WithAckWait(leastAckWait))}
	if err := l.CreateQueue(context.Background(), "q", o); err != nil {
		t.Fatal(err)
	}
	l.register()
	return l
}

func (l *life) register() {
	l.Helper()
	var err error
	if l.worker, err = l.Register(context.Background(), posthaste.WorkerInfo{Name: "w", Lease: time.Minute}); err != nil {
		l.Fatal(err)
	}
}

func (l *life) send(n int, m posthaste.Message) {
	l.Helper()
	m.Queue = "q"
	all := make([]posthaste.Message, n)
	for i := range all {
		all[i] = m
		all[i].Payload = i
	}
	if _, err := l.Send(context.Background(), all...); err != nil {
		l.Fatal(err)
	}
}

func (l *life) claim(n int) (all []posthaste.RawDelivery) {
	l.Helper()
	if !testrun.Happens(time.Minute, func() bool {
		l.number++
		reply, err := l.Claim(context.Background(), posthaste.ClaimRequest{Worker: l.worker, Number: l.number, QueueRef: posthaste.QueueRef{Queue: "q"}, Max: n - len(all)})
		if err != nil {
			l.Fatal(err)
		}
		all = append(all, reply.Deliveries...)
		return len(all) == n
	}) {
		l.Fatalf("%d of %d messages came", len(all), n)
	}
	return all
}

func (l *life) settle(s posthaste.Settlement, all ...posthaste.RawDelivery) {
	l.Helper()
	var each []posthaste.Settlement
	for _, d := range all {
		s.Delivery = d.ID
		each = append(each, s)
	}
	results, err := l.Settle(context.Background(), each)
	if err != nil {
		l.Fatal(err)
	}
	for _, r := range results {
		if !r.Settled || r.Err != nil {
			l.Errorf("%s: %+v", s.Outcome, r)
		}
	}
}

func TestLifeOfAMessage(t *testing.T) {
	t.Parallel()
	l := lives(t, posthaste.QueueOptions{MaxAttempts: 2, BackoffBase: time.Millisecond})
	l.send(100, posthaste.Message{})
	l.settle(posthaste.Settlement{Outcome: posthaste.OutcomeDone}, l.claim(100)...)
	if n := stored(t, l.Engine, "q"); n != 0 {
		t.Errorf("%d are stored after they were done", n)
	}
	l.send(3, posthaste.Message{Priority: 1})
	l.settle(posthaste.Settlement{Outcome: posthaste.OutcomeReleased}, l.claim(3)...)
	l.settle(posthaste.Settlement{Outcome: posthaste.OutcomeRetried, Error: "no"}, l.claim(3)...)
	again := l.claim(3)
	for _, d := range again {
		if d.Attempt != 2 || len(d.Story) != 1 {
			t.Errorf("the second attempt is %+v", d)
		}
	}
	l.settle(posthaste.Settlement{Outcome: posthaste.OutcomeRetried, Error: "no"}, again...)
	if n := stored(t, l.Engine, "q"); n != 12 { // nine records of what followed, and three dead letters
		t.Errorf("%d are stored, want 12", n)
	}
}
