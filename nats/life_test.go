package nats

import (
	"context"
	"strings"
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

// A message that is nearly as large as the servers take can be retried with a checkpoint, logs and
// long errors, and becomes a dead letter in the end.
func TestLargeMessageIsRetried(t *testing.T) {
	t.Parallel()
	l := lives(t, posthaste.QueueOptions{MaxAttempts: 4, BackoffBase: time.Millisecond, MaxPayload: 8 << 20})
	ctx := context.Background()
	most := int(l.conn.MaxPayload())
	if _, err := l.Send(ctx, posthaste.Message{Queue: "q", Payload: make([]byte, most)}); posthaste.CodeOf(err) != posthaste.CodeTooLarge {
		t.Fatalf("%d bytes: %v", most, err)
	}
	if _, err := l.Send(ctx, posthaste.Message{Queue: "q", Payload: make([]byte, most-reserve-1000)}); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		d := l.claim(1)[0]
		note := posthaste.Note{Checkpoint: []byte(`"` + strings.Repeat("c", posthaste.MaxCheckpointBytes-2) + `"`), Log: strings.Repeat("log line\n", 7000)}
		if r, err := l.Extend(ctx, posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{d.ID}, Notes: []posthaste.Note{note}}); err != nil || !r[0].Settled {
			t.Fatalf("%+v, %v", r, err)
		}
		l.settle(posthaste.Settlement{Outcome: posthaste.OutcomeRetried, Error: strings.Repeat("e", 4000)}, d)
	}
	q := l.queues.known("q")
	if m, err := l.lastOn(ctx, q.stream, q.subjects.under("d", "default", "*")); err != nil || m == nil {
		t.Errorf("there is no dead letter: %v", err)
	}
}

// A server that is cut off confirms a sign of progress. Without a majority for a write after it, the
// lease is not extended.
func TestLeaseNeedsAMajority(t *testing.T) {
	t.Parallel()
	l := lives(t, posthaste.QueueOptions{})
	l.send(1, posthaste.Message{})
	d := l.holding.get(l.claim(1)[0].ID)
	before := l.holding.leaseOf(d)
	l.renew(context.Background(), []*held{d})
	after := l.holding.leaseOf(d)
	if after <= before {
		t.Errorf("the lease was not extended: %s, then %s", before, after)
	}
	if err := l.js.DeleteStream(context.Background(), "KV_"+l.prefix+"-store"); err != nil { // no write succeeds
		t.Fatal(err)
	}
	l.renew(context.Background(), []*held{d})
	if now := l.holding.leaseOf(d); now != after {
		t.Errorf("the lease was extended from %s to %s", after, now)
	}
}
