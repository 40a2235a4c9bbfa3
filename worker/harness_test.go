package worker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/memory"
	"github.com/posthaste-mq/posthaste/worker"
)

const queue = "q"

// patience bounds the virtual time that [fixture.until] waits.
const patience = 10 * time.Minute

// fixture is the engine of one test and a record of what happened on it.
type fixture struct {
	*testing.T
	memory *memory.Engine
	faults *faults
	seen   *recorder
	ctx    context.Context
	began  time.Time
}

// inBubble runs a test on an engine in memory in a bubble of testing/synctest: time is
// virtual and passes only while every goroutine waits, so that nothing in the test
// depends on how fast the machine is. The bubble also fails the test if a goroutine of
// the worker outlives it.
func inBubble(t *testing.T, o posthaste.QueueOptions, test func(f *fixture)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := memory.Open()
		f := &fixture{T: t, memory: m, faults: &faults{Store: m}, seen: &recorder{}, ctx: t.Context(), began: time.Now()}
		f.create(queue, o)
		test(f)
	})
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) create(name string, o posthaste.QueueOptions) {
	f.Helper()
	f.must(f.memory.CreateQueue(f.ctx, name, o))
}

func (f *fixture) send(name string, n int) []posthaste.MessageID {
	f.Helper()
	messages := make([]posthaste.Message, n)
	for i := range messages {
		messages[i] = posthaste.Message{Queue: name, Payload: i}
	}
	ids, err := posthaste.IDs(f.memory.Send(f.ctx, messages...))
	f.must(err)
	return ids
}

// life is one Run of a worker.
type life struct {
	worker *worker.Worker
	cancel func()
	ended  chan error
	f      *fixture
}

// run starts a worker and stops it with the test.
func (f *fixture) run(engine posthaste.Store, c worker.Config, register func(w *worker.Worker)) *life {
	f.Helper()
	if c.Logger == nil {
		c.Logger = slog.New(f.seen)
	}
	if c.Telemetry == nil {
		c.Telemetry = f.seen
	}
	w := worker.New(engine, c)
	register(w)
	ctx, cancel := context.WithCancel(context.Background())
	l := &life{worker: w, cancel: cancel, ended: make(chan error, 1), f: f}
	go func() { l.ended <- w.Run(ctx) }()
	select {
	case <-w.Started():
	case err := <-l.ended:
		f.Fatalf("the worker did not start: %v", err)
	}
	f.Cleanup(func() { l.stop() })
	return l
}

// stop is safe to call twice. It panics if the worker does not end, because its timers
// would keep the bubble alive for ever.
func (l *life) stop() {
	l.cancel()
	select {
	case err := <-l.ended:
		if err != nil {
			l.f.Errorf("Run returned %v", err)
		}
	case <-time.After(patience):
		panic("the worker does not end")
	}
	l.ended <- nil
}

// runs reports whether Run has not returned once all goroutines wait.
func (l *life) runs() bool {
	synctest.Wait()
	return len(l.ended) == 0
}

// elapsed is the virtual time since the test began.
func (f *fixture) elapsed() time.Duration { return time.Since(f.began) }

// now checks, without any time passing, that all goroutines come to rest in a state in
// which ok holds.
func (f *fixture) now(what string, ok func() bool) {
	f.Helper()
	synctest.Wait()
	if !ok() {
		f.Fatalf("after %s all goroutines wait, and it does not hold that %s", f.elapsed(), what)
	}
}

// after lets virtual time pass until all goroutines have come to rest.
func (f *fixture) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// until lets virtual time pass in steps of a millisecond until ok holds.
func (f *fixture) until(what string, ok func() bool) {
	f.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		synctest.Wait()
		if ok() {
			return
		}
		if time.Now().After(end) {
			f.Fatalf("waited for %s in vain until %s", patience, what)
		}
	}
}

func (f *fixture) state(id posthaste.MessageID) posthaste.MessageState {
	f.Helper()
	info, err := f.memory.Message(f.ctx, id)
	f.must(err)
	return info.Subscriptions[0]
}

// nowState checks, without any time passing, that messages come to be in a state.
func (f *fixture) nowState(state posthaste.State, ids ...posthaste.MessageID) {
	f.Helper()
	synctest.Wait()
	for _, id := range ids {
		if s := f.state(id); s.State != state {
			f.Fatalf("after %s all goroutines wait, and message %d is %+v, want %s", f.elapsed(), id, s, state)
		}
	}
}

func (f *fixture) untilState(state posthaste.State, ids ...posthaste.MessageID) {
	f.Helper()
	for _, id := range ids {
		f.until(fmt.Sprintf("message %d is %s", id, state), func() bool { return f.state(id).State == state })
	}
}

// recorder keeps handled messages, telemetry events and log records.
type recorder struct {
	mu      sync.Mutex
	handled map[posthaste.MessageID]int
	events  []posthaste.Event
	logs    []slog.Record
}

func (r *recorder) handle(_ context.Context, d posthaste.RawDelivery) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.handled == nil {
		r.handled = map[posthaste.MessageID]int{}
	}
	r.handled[d.MessageID]++
	return nil
}

func (r *recorder) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.handled)
}

func (f *fixture) eachOnce(ids []posthaste.MessageID) {
	f.Helper()
	f.seen.mu.Lock()
	defer f.seen.mu.Unlock()
	for _, id := range ids {
		if f.seen.handled[id] != 1 {
			f.Errorf("message %d was handled %d times", id, f.seen.handled[id])
		}
	}
}

func (r *recorder) Event(_ context.Context, e posthaste.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// told sums the counts of the events of a kind and, if given, an outcome.
func (r *recorder) told(kind posthaste.EventKind, outcome posthaste.Outcome) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if e.Kind == kind && (outcome == "" || e.Outcome == outcome) {
			n += max(1, e.Count)
		}
	}
	return n
}

func (r *recorder) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }
func (r *recorder) WithAttrs([]slog.Attr) slog.Handler           { return r }
func (r *recorder) WithGroup(string) slog.Handler                { return r }
func (r *recorder) Handle(_ context.Context, record slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = append(r.logs, record)
	return nil
}

// logged finds the value of an attribute in any line.
func (r *recorder) logged(key string) (value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, record := range r.logs {
		record.Attrs(func(a slog.Attr) bool {
			if a.Key == key {
				value = a.Value.String()
			}
			return value == ""
		})
	}
	return value
}

// faults is an engine whose calls fail before or after they had their effect.
type faults struct {
	posthaste.Store
	mu     sync.Mutex
	before func(call string) error
	after  func(call string) error
}

var (
	errAway = &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "the store is away"}
	errLost = &posthaste.Error{Code: posthaste.CodeOutcomeUnknown, Message: "the answer was lost"}
)

func (f *faults) set(before, after func(call string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

// cutOff makes calls, all if none is named, fail while cut is true.
func (f *faults) cutOff(calls ...string) (cut *atomic.Bool) {
	cut = &atomic.Bool{}
	f.set(func(call string) error {
		if cut.Load() && (len(calls) == 0 || slices.Contains(calls, call)) {
			return errAway
		}
		return nil
	}, nil)
	return cut
}

func (f *faults) around(ctx context.Context, call string, do func() error) error {
	f.mu.Lock()
	before, after := f.before, f.after
	f.mu.Unlock()
	if before != nil {
		if err := before(call); err != nil {
			return err
		}
	}
	err := do()
	if after != nil && err == nil {
		err = after(call)
	}
	return err
}

func (f *faults) Claim(ctx context.Context, req posthaste.ClaimRequest) (reply posthaste.ClaimReply, err error) {
	err = f.around(ctx, "claim", func() (err error) {
		reply, err = f.Store.Claim(ctx, req)
		return err
	})
	if errors.Is(err, errSwallow) {
		return posthaste.ClaimReply{NextDue: -1}, nil
	}
	if err != nil {
		return posthaste.ClaimReply{}, err
	}
	return reply, nil
}

// errSwallow makes a claim answer that there was nothing, whatever it did.
var errSwallow = errors.New("swallow the answer")

func (f *faults) Settle(ctx context.Context, s []posthaste.Settlement) (results []posthaste.SettleResult, err error) {
	err = f.around(ctx, "settle", func() (err error) {
		results, err = f.Store.Settle(ctx, s)
		return err
	})
	return results, err
}

func (f *faults) Extend(ctx context.Context, req posthaste.ExtendRequest) (results []posthaste.SettleResult, err error) {
	err = f.around(ctx, "extend", func() (err error) {
		results, err = f.Store.Extend(ctx, req)
		return err
	})
	return results, err
}

func (f *faults) Heartbeat(ctx context.Context, beat posthaste.Heartbeat) (reply posthaste.HeartbeatReply, err error) {
	err = f.around(ctx, "heartbeat", func() (err error) {
		reply, err = f.Store.Heartbeat(ctx, beat)
		return err
	})
	return reply, err
}

func (f *faults) Register(ctx context.Context, info posthaste.WorkerInfo) (id posthaste.WorkerID, err error) {
	err = f.around(ctx, "register", func() (err error) {
		id, err = f.Store.Register(ctx, info)
		return err
	})
	return id, err
}

func (f *faults) Unsettled(ctx context.Context, w posthaste.WorkerID, upTo int64) (ids []posthaste.DeliveryID, err error) {
	err = f.around(ctx, "unsettled", func() (err error) {
		ids, err = f.Store.Unsettled(ctx, w, upTo)
		return err
	})
	return ids, err
}

func (f *faults) Maintain(ctx context.Context, what posthaste.Upkeep) (reply posthaste.MaintainReply, err error) {
	if what != posthaste.UpkeepRescue {
		return f.Store.Maintain(ctx, what)
	}
	err = f.around(ctx, "rescue", func() (err error) {
		reply, err = f.Store.Maintain(ctx, what)
		return err
	})
	return reply, err
}

func (f *faults) Unregister(ctx context.Context, w posthaste.WorkerID) error {
	return f.around(ctx, "unregister", func() error { return f.Store.Unregister(ctx, w) })
}
