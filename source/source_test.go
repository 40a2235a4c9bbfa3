package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/memory"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/relay"
)

// testBroker is a broker in memory. It keeps messages until they are acknowledged, and delivers
// them again to the next session.
type testBroker struct {
	mu     sync.Mutex
	kept   []string
	opened int
	last   *session
	eager  bool // acknowledges messages when they are read: the broken twin
	// message makes the message to send; nil: one with the dedupe key id.
	message func(id string) (posthaste.Message, error)
}

func (p *testBroker) Kind() string                { return "memory" }
func (p *testBroker) Address() string             { return "here" }
func (p *testBroker) Check(context.Context) error { return nil }

func (p *testBroker) Open(context.Context) (Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened++
	p.last = &session{testBroker: p, waiting: slices.Clone(p.kept)}
	return p.last, nil
}

// waitEmpty waits until all messages are acknowledged.
func (p *testBroker) waitEmpty(t *testing.T) {
	t.Helper()
	testrun.Until(t, time.Minute, "all messages are acknowledged", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.kept) == 0
	})
}

type session struct {
	*testBroker
	waiting []string
	closed  bool
	ended   bool // by the broker, which has all messages back
}

func (s *session) Read(ctx context.Context, limit int) (all []Arrival, err error) {
	for len(all) < limit && len(s.waiting) > 0 {
		id := s.waiting[0]
		s.waiting = s.waiting[1:]
		a := Arrival{Message: posthaste.Message{DedupeKey: id, Payload: []byte(id)}, Token: id}
		if s.message != nil {
			a.Message, a.Err = s.message(id)
		}
		all = append(all, a)
	}
	if len(all) == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if s.eager {
		return all, s.Acknowledge(ctx, all)
	}
	return all, nil
}

func (s *session) Acknowledge(_ context.Context, arrived []Arrival) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errors.New("the session has ended")
	}
	for _, a := range arrived {
		s.kept = slices.DeleteFunc(s.kept, func(id string) bool { return id == a.Token })
	}
	return nil
}

func (s *session) Refuse(context.Context, Arrival, map[string]string) error { return nil }
func (s *session) Use() bool {
	if s.testBroker == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && !s.ended
}
func (s *session) Close() { s.closed = true }

// ledger fails until it is steady. By turns nothing is stored or only the answer is lost.
type ledger struct {
	*memory.Engine
	mu     sync.Mutex
	sends  int
	failed chan struct{} // one token per failure
	steady bool
	lost   bool // a failed send never stores anything
}

func (l *ledger) Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.Sent, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sends++; l.steady {
		return l.Engine.Send(ctx, messages...)
	}
	if l.sends%5 == 0 && !l.lost {
		_, _ = l.Engine.Send(ctx, messages...)
	}
	l.failed <- struct{}{}
	return nil, &posthaste.Error{Code: posthaste.CodeOutcomeUnknown, Message: "the answer was lost"}
}

// While a store is reachable but takes no messages (read-only, full, or without the queue),
// the source holds the messages that it has read: the broker would drop messages that are
// returned again and again. If the store is unreachable, it returns them, because another
// process may reach it.
func TestHeldWhileTheStoreTakesNothing(t *testing.T) {
	t.Parallel()
	for _, reached := range []bool{true, false} {
		p := &testBroker{kept: []string{"1", "2", "3"}}
		l := &refusing{ledger: &ledger{Engine: memory.Open(), failed: make(chan struct{}, 1000)}, reached: reached}
		stop := l.take(t, p)
		for range 5 {
			<-l.failed
			if !reached {
				break // nothing more is read
			}
		}
		testrun.Until(t, time.Minute, "the store is asked again", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return reached || l.asked > 5
		})
		p.mu.Lock()
		opened := p.opened
		p.mu.Unlock()
		if opened != 1 {
			t.Errorf("reached %t: %d sessions were opened", reached, opened)
		}
		l.mu.Lock()
		l.steady = true
		l.mu.Unlock()
		p.waitEmpty(t)
		stop()
		if p.opened == 1 != reached {
			t.Errorf("reached %t: %d sessions were opened", reached, p.opened)
		}
	}
}

// Messages are returned after the store was unreachable for a minute, no matter how long it
// took no messages before that.
func TestPatienceBeginsWhenTheStoreIsGone(t *testing.T) {
	t.Parallel()
	l := &refusing{ledger: &ledger{Engine: memory.Open(), failed: make(chan struct{}, 1000)}, reached: true}
	if err := l.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	s, err := New(l, Config{Queue: "orders", MaxWaiting: -1}, &testBroker{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-l.failed
		<-l.failed // it was reachable once
		l.mu.Lock()
		l.reached = false
		l.mu.Unlock()
		<-l.failed
		<-l.failed
		l.mu.Lock()
		l.steady = true
		l.mu.Unlock()
	}()
	u := &unit{messages: []posthaste.Message{{Queue: "orders", Payload: 1}}}
	if err := s.send(t.Context(), t.Context(), &session{}, []*unit{u}, time.Now().Add(-time.Hour)); err != nil || !u.stored {
		t.Errorf("stored %t: %v", u.stored, err)
	}
}

// A broker takes back messages that are held for very long. Those with a dedupe key are
// held nevertheless and stored once. Those without one are dropped, because they would be
// stored twice.
func TestHeldBeyondTheSession(t *testing.T) {
	t.Parallel()
	p := &testBroker{kept: []string{"1", "2", "without", "3"}, message: func(id string) (posthaste.Message, error) {
		m := posthaste.Message{DedupeKey: id, Payload: []byte(id)}
		if id == "without" {
			m.DedupeKey = ""
		}
		return m, nil
	}}
	l := &refusing{ledger: &ledger{Engine: memory.Open(), failed: make(chan struct{}, 1000), lost: true}, reached: true}
	stop := l.take(t, p)
	<-l.failed
	p.mu.Lock()
	p.last.ended = true
	p.mu.Unlock()
	<-l.failed
	<-l.failed
	l.mu.Lock()
	l.steady = true
	l.mu.Unlock()
	p.waitEmpty(t)
	stop()
	infos, err := l.Engine.Queues(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if stored := infos[0].Subscriptions[0].Depth; stored != 4 {
		t.Errorf("of 4 messages %d are in the ledger", stored)
	}
}

// refusing is a ledger that counts looks and, unless reached, is unavailable until steady.
type refusing struct {
	*ledger
	reached bool
	asked   int
}

// take runs a source of a broker into the ledger until stop is called.
func (l *refusing) take(t *testing.T, p *testBroker) (stop func()) {
	t.Helper()
	if err := l.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	s, err := New(l, Config{Queue: "orders", MaxWaiting: -1}, p)
	if err != nil {
		t.Fatal(err)
	}
	s.patience = time.Millisecond
	return testrun.Background(t, s.Run)
}

func (l *refusing) Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked++; !l.reached && !l.steady {
		return nil, &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "away"}
	}
	return l.Engine.Queues(ctx, names...)
}

// events records events.
type events struct {
	mu  sync.Mutex
	all []posthaste.Event
}

func (t *events) Event(_ context.Context, e posthaste.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, e)
}

// Sources end while the ledger fails. The next source stores the uncommitted messages, and
// none twice. A source that acknowledges before the commit would lose them.
func TestAcknowledgedAfterTheCommit(t *testing.T) {
	t.Parallel()
	const n = 100
	for _, eager := range []bool{false, true} {
		p := &testBroker{eager: eager}
		for i := range n {
			p.kept = append(p.kept, fmt.Sprint(i))
		}
		l := &ledger{Engine: memory.Open(), failed: make(chan struct{}, 1000)}
		if err := l.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
		recorded := &events{}
		run := func(until func()) {
			s, err := New(l, Config{Queue: "orders", Batch: 7, Telemetry: recorded}, p)
			if err != nil {
				t.Fatal(err)
			}
			stop := testrun.Background(t, s.Run)
			until()
			stop()
		}
		for range 5 {
			run(func() { <-l.failed })
		}
		l.mu.Lock()
		l.steady = true
		l.mu.Unlock()
		run(func() { p.waitEmpty(t) })
		infos, err := l.Queues(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		stored, count := infos[0].Subscriptions[0].Depth, 0
		for _, e := range recorded.all {
			if count += e.Count; e.Kind != posthaste.EventTaken || e.Queue != "orders" || e.Failed != 0 || e.Total < e.Duration {
				t.Errorf("got event %+v", e)
			}
		}
		switch {
		case !eager && (stored != n || count != n):
			t.Errorf("%d of %d messages are in the ledger, and %d were counted", stored, n, count)
		case eager && stored == n:
			t.Error("the twin that acknowledges before the commit loses nothing: the test is ineffective")
		}
	}
}

// Events of two shops with equal ids are all stored. Duplicates are not stored; they are
// counted and logged.
func TestKnownMessagesAreTold(t *testing.T) {
	t.Parallel()
	const n = 20
	p := &testBroker{message: func(id string) (posthaste.Message, error) {
		shop, number, _ := strings.Cut(id, " ")
		in := relay.Incoming{Payload: []byte(id), Headers: map[string]string{"ce-specversion": "1.0", "ce-id": number, "ce-source": shop, "ce-type": "placed"}}
		return in.Message(relay.HeaderEvent)
	}}
	for i := range n {
		p.kept = append(p.kept, fmt.Sprint("/shop ", i), fmt.Sprint("/store ", i))
	}
	l := memory.Open()
	if err := l.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	recorded, log := &events{}, &testrun.Log{}
	s, err := New(l, Config{Queue: "orders", Batch: 7, Telemetry: recorded, Logger: slog.New(slog.NewTextHandler(log, nil))}, p)
	if err != nil {
		t.Fatal(err)
	}
	again := []string{"/store 3", "/shop 3", "/shop 7"}
	for _, kept := range [][]string{nil, again} {
		p.kept = append(p.kept, kept...)
		stop := testrun.Background(t, s.Run)
		p.waitEmpty(t)
		stop()
	}
	infos, err := l.Queues(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	count, known := 0, 0
	for _, e := range recorded.all {
		count, known = count+e.Count, known+e.Known
	}
	if stored := infos[0].Subscriptions[0].Depth; stored != 2*n || count != 2*n+len(again) || known != len(again) {
		t.Errorf("of %d messages %d are in the ledger; %d were counted, %d of them as duplicates", 2*n, stored, count, known)
	}
	for _, id := range again {
		if !log.Has(id) {
			t.Errorf("%q is not logged: %s", id, log)
		}
	}
}
