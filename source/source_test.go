package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/memory"
	"github.com/posthaste-mq/posthaste/relay"
)

// place is a broker in memory: it keeps what was not acknowledged, and hands that out
// again to the next session.
type place struct {
	mu     sync.Mutex
	kept   []string
	opened int
	last   *session
	eager  bool // acknowledges what it hands over: the twin
	// message makes what a source shall send; nil: that which is known by its id.
	message func(id string) (posthaste.Message, error)
}

func (p *place) Kind() string                { return "memory" }
func (p *place) Address() string             { return "here" }
func (p *place) Check(context.Context) error { return nil }

func (p *place) Open(context.Context) (Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.opened++
	p.last = &session{place: p, waiting: slices.Clone(p.kept)}
	return p.last, nil
}

type session struct {
	*place
	waiting []string
	closed  bool
	ended   bool // by the broker, which has everything back
}

func (s *session) Read(ctx context.Context, most int) (all []Arrival, err error) {
	for len(all) < most && len(s.waiting) > 0 {
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
	if s.place == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.closed && !s.ended
}
func (s *session) Close() { s.closed = true }

// ledger fails until it is steady, with nothing stored or with the answer lost by turns.
type ledger struct {
	*memory.Engine
	mu     sync.Mutex
	sends  int
	failed chan struct{} // one for each failure
	steady bool
	lost   bool // nothing is stored by what fails
}

func (l *ledger) Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.MessageID, error) {
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

// A store that can be reached and takes nothing, as one that is read-only, full or
// without the queue, is waited for with what was read in hand: what is given back again
// and again is dropped by the broker in the end. One that cannot be reached is given
// back to, for others may have better luck.
func TestHeldWhileTheStoreTakesNothing(t *testing.T) {
	t.Parallel()
	for _, reached := range []bool{true, false} {
		p := &place{kept: []string{"1", "2", "3"}}
		l := &refusing{ledger: &ledger{Engine: memory.Open(), failed: make(chan struct{}, 1000)}, reached: reached}
		if err := l.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
		s, err := New(l, Config{Queue: "orders", MaxWaiting: -1}, p)
		if err != nil {
			t.Fatal(err)
		}
		s.patience = time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		for range 5 {
			<-l.failed
			if !reached {
				break // nothing is read any more
			}
		}
		for again := false; !again && !reached; time.Sleep(time.Millisecond) {
			l.mu.Lock()
			again = l.asked > 5
			l.mu.Unlock()
		}
		p.mu.Lock()
		opened := p.opened
		p.mu.Unlock()
		if opened != 1 {
			t.Errorf("reached %t: %d sessions were opened", reached, opened)
		}
		l.mu.Lock()
		l.steady = true
		l.mu.Unlock()
		for empty := false; !empty; time.Sleep(time.Millisecond) {
			p.mu.Lock()
			empty = len(p.kept) == 0
			p.mu.Unlock()
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if p.opened == 1 != reached {
			t.Errorf("reached %t: %d sessions were opened", reached, p.opened)
		}
	}
}

// What is held is given back after the store could not be reached for a minute, however
// long it took nothing before that.
func TestPatienceBeginsWhenTheStoreIsGone(t *testing.T) {
	t.Parallel()
	l := &refusing{ledger: &ledger{Engine: memory.Open(), failed: make(chan struct{}, 1000)}, reached: true}
	if err := l.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	s, err := New(l, Config{Queue: "orders", MaxWaiting: -1}, &place{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		<-l.failed
		<-l.failed // when it was reached once
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

// A broker takes back what is held for very long. What is known by its id is held
// nevertheless, and taken in once; what is not is let go, or it would be taken in twice.
func TestHeldBeyondTheSession(t *testing.T) {
	t.Parallel()
	p := &place{kept: []string{"1", "2", "without", "3"}, message: func(id string) (posthaste.Message, error) {
		m := posthaste.Message{DedupeKey: id, Payload: []byte(id)}
		if id == "without" {
			m.DedupeKey = ""
		}
		return m, nil
	}}
	l := &refusing{ledger: &ledger{Engine: memory.Open(), failed: make(chan struct{}, 1000), lost: true}, reached: true}
	if err := l.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	s, err := New(l, Config{Queue: "orders", MaxWaiting: -1}, p)
	if err != nil {
		t.Fatal(err)
	}
	s.patience = time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	<-l.failed
	p.mu.Lock()
	p.last.ended = true
	p.mu.Unlock()
	<-l.failed
	<-l.failed
	l.mu.Lock()
	l.steady = true
	l.mu.Unlock()
	for empty := false; !empty; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		empty = len(p.kept) == 0
		p.mu.Unlock()
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	infos, err := l.Engine.Queues(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if stored := infos[0].Subscriptions[0].Depth; stored != 4 {
		t.Errorf("of 4 messages %d are in the ledger", stored)
	}
}

// refusing is a ledger that is looked at, or cannot be reached until it is steady.
type refusing struct {
	*ledger
	reached bool
	asked   int
}

func (l *refusing) Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asked++; !l.reached && !l.steady {
		return nil, &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "away"}
	}
	return l.Engine.Queues(ctx, names...)
}

// events keeps what it is told.
type events struct {
	mu  sync.Mutex
	all []posthaste.Event
}

func (t *events) Event(_ context.Context, e posthaste.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, e)
}

// Sources end while the ledger fails. What was not committed is taken in by the next
// one, and nothing twice; acknowledged before the commit it would be lost.
func TestAcknowledgedAfterTheCommit(t *testing.T) {
	t.Parallel()
	const n = 100
	for _, eager := range []bool{false, true} {
		p := &place{eager: eager}
		for i := range n {
			p.kept = append(p.kept, fmt.Sprint(i))
		}
		l := &ledger{Engine: memory.Open(), failed: make(chan struct{}, 1000)}
		if err := l.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
		told := &events{}
		run := func(until func() bool) {
			s, err := New(l, Config{Queue: "orders", Batch: 7, Telemetry: told}, p)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- s.Run(ctx) }()
			for !until() {
				time.Sleep(time.Millisecond)
			}
			cancel()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		for range 5 {
			run(func() bool { <-l.failed; return true })
		}
		l.mu.Lock()
		l.steady = true
		l.mu.Unlock()
		run(func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.kept) == 0 })
		infos, err := l.Queues(t.Context(), "orders")
		if err != nil {
			t.Fatal(err)
		}
		stored, count := infos[0].Subscriptions[0].Depth, 0
		for _, e := range told.all {
			if count += e.Count; e.Kind != posthaste.EventTaken || e.Queue != "orders" || e.Failed != 0 || e.Total < e.Duration {
				t.Errorf("told of %+v", e)
			}
		}
		switch {
		case !eager && (stored != n || count != n):
			t.Errorf("%d of %d messages are in the ledger, and %d were told of", stored, n, count)
		case eager && stored == n:
			t.Error("the twin that acknowledges before the commit loses nothing: this test sees nothing")
		}
	}
}

// Two shops publish events with the same ids: all of them are taken in. What comes a
// second time is not, and is counted and logged.
func TestKnownMessagesAreTold(t *testing.T) {
	t.Parallel()
	const n = 20
	p := &place{message: func(id string) (posthaste.Message, error) {
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
	told, said := &events{}, &lines{}
	s, err := New(l, Config{Queue: "orders", Batch: 7, Telemetry: told, Logger: slog.New(slog.NewTextHandler(said, nil))}, p)
	if err != nil {
		t.Fatal(err)
	}
	again := []string{"/store 3", "/shop 3", "/shop 7"}
	for _, kept := range [][]string{nil, again} {
		p.kept = append(p.kept, kept...)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		for empty := false; !empty; time.Sleep(time.Millisecond) {
			p.mu.Lock()
			empty = len(p.kept) == 0
			p.mu.Unlock()
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	infos, err := l.Queues(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	count, known := 0, 0
	for _, e := range told.all {
		count, known = count+e.Count, known+e.Known
	}
	if stored := infos[0].Subscriptions[0].Depth; stored != 2*n || count != 2*n+len(again) || known != len(again) {
		t.Errorf("of %d messages %d are in the ledger; told of %d, %d of them known", 2*n, stored, count, known)
	}
	for _, id := range again {
		if !strings.Contains(said.String(), id) {
			t.Errorf("%q is not logged: %s", id, said)
		}
	}
}

// lines keeps what is logged.
type lines struct {
	mu sync.Mutex
	strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.Write(p)
}

// What was sent and is not counted yet stands against the room, and nothing for good:
// neither what was in the queue already nor what others send.
func TestRoomBetweenCounts(t *testing.T) {
	var info posthaste.QueueInfo
	r := room{queue: "q", most: 100, ledger: counts{&info}}
	count := func(depth, total int64, again bool) {
		t.Helper()
		at := r.at
		if again {
			at = at.Add(time.Second)
		}
		info.Subscriptions = []posthaste.SubscriptionInfo{{Depth: depth, Sent: total, CountedAt: at}}
		if err := r.look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	free := func(want int64) {
		t.Helper()
		if got := r.free(); got != want {
			t.Errorf("%d are free, want %d", got, want)
		}
	}
	count(10, 1000, true)
	free(90)
	r.sent += 50
	free(40)
	count(30, 1020, true) // 20 of ours are counted
	free(40)
	count(40, 1050, true)
	free(60)
	count(45, 1060, true) // 10 by others
	free(55)
	r.sent += 20 // which were there already: they will never be counted
	free(35)
	count(45, 1060, true)
	free(35)
	count(45, 1060, false)
	free(35)
	count(45, 1060, true)
	free(35)
	count(45, 1060, true)
	free(55)
}

// Where any number may wait the queue is not looked at, but for after something was
// given back: then nothing is read until the store and the queue are there.
func TestStoreIsAwaitedWhereAnyNumberMayWait(t *testing.T) {
	t.Parallel()
	for _, code := range []posthaste.Code{posthaste.CodeUnavailable, posthaste.CodeNotFound} {
		away := &awayFor{times: 3, code: code}
		r := room{queue: "q", most: -1, ledger: away}
		told := 0
		tell := func(error) { told++ }
		if n, err := r.wait(t.Context(), time.Minute, tell); n != math.MaxInt || err != nil || away.asked != 0 {
			t.Errorf("%s, at first: %d, %v, asked %d times", code, n, err, away.asked)
		}
		r.doubted = true
		for range 2 {
			if n, err := r.wait(t.Context(), time.Minute, tell); n != math.MaxInt || err != nil || away.asked != 4 || told != 3 {
				t.Errorf("%s, afterwards: %d, %v, asked %d times, told %d times", code, n, err, away.asked, told)
			}
		}
		away.times, r.doubted = 1000, true
		if n, err := r.wait(t.Context(), time.Millisecond, tell); n != 0 || posthaste.CodeOf(err) != code {
			t.Errorf("%s, out of patience: %d, %v", code, n, err)
		}
	}
	denied := &awayFor{times: 1000, code: posthaste.CodeDenied}
	r := room{queue: "q", most: -1, ledger: denied, doubted: true}
	if n, err := r.wait(t.Context(), time.Minute, func(error) {}); n != math.MaxInt || err != nil {
		t.Errorf("who may only send: %d, %v", n, err)
	}
}

// awayFor is a ledger that is away so many times, or without the queue.
type awayFor struct {
	counts
	times, asked int
	code         posthaste.Code
}

func (a *awayFor) Queues(context.Context, ...string) ([]posthaste.QueueInfo, error) {
	switch a.asked++; {
	case a.asked > a.times:
		return []posthaste.QueueInfo{{}}, nil
	case a.code == posthaste.CodeNotFound:
		return nil, nil
	}
	return nil, &posthaste.Error{Code: a.code, Message: "away"}
}

// counts is a ledger that has these counts.
type counts struct{ info *posthaste.QueueInfo }

func (c counts) Send(context.Context, ...posthaste.Message) ([]posthaste.MessageID, error) {
	return nil, nil
}
func (c counts) Queues(context.Context, ...string) ([]posthaste.QueueInfo, error) {
	return []posthaste.QueueInfo{*c.info}, nil
}
func (c counts) Maintain(context.Context, posthaste.Upkeep) (posthaste.MaintainReply, error) {
	return posthaste.MaintainReply{}, nil
}
