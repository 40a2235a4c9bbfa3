package worker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// ticked is an engine whose calls of Tick are watched, and answered by answer
// where that is set.
type ticked struct {
	posthaste.Engine
	mu     sync.Mutex
	at     []time.Time
	beats  int
	answer func(call int) (posthaste.TickReply, error, bool)
}

func (e *ticked) Tick(ctx context.Context) (posthaste.TickReply, error) {
	e.mu.Lock()
	e.at = append(e.at, time.Now())
	call := len(e.at)
	e.mu.Unlock()
	if e.answer != nil {
		if reply, err, ok := e.answer(call); ok {
			return reply, err
		}
	}
	return e.Engine.Tick(ctx)
}

func (e *ticked) Heartbeat(ctx context.Context, beat posthaste.Heartbeat) (posthaste.HeartbeatReply, error) {
	reply, err := e.Engine.Heartbeat(ctx, beat)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.beats++
	return reply, err
}

func (e *ticked) calls() (ticks []time.Time, beats int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at, e.beats
}

func (f *fixture) schedule(spec string) {
	f.Helper()
	_, err := f.memory.SchedulePut(f.ctx, posthaste.Schedule{Name: "s", Spec: spec, CatchUp: posthaste.CatchUpEach, Message: posthaste.Message{Queue: queue, Payload: 1}})
	f.must(err)
}

// A worker sends what schedules tick, wakes for it and not in between, and asks
// nothing while there is none.
func TestWorkerWakesForTicks(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		e := &ticked{Engine: f.memory}
		f.run(e, worker.Config{Heartbeat: 20 * time.Millisecond}, func(w *worker.Worker) { worker.HandleRaw(w, queue, f.seen.handle) })
		f.until("some heartbeats have been", func() bool { _, beats := e.calls(); return beats > 5 })
		if ticks, _ := e.calls(); len(ticks) != 0 {
			f.Fatalf("without a schedule it ticked %d times", len(ticks))
		}
		f.schedule("every 1 second")
		f.until("three ticks are handled", func() bool { return f.seen.count() >= 3 })
		f.must(f.memory.SchedulePause(f.ctx, "s"))
		ticks, _ := e.calls()
		infos, err := f.memory.Schedules(f.ctx)
		f.must(err)
		// A heartbeat that was answered before a tick may be heard after it.
		if sent := int(infos[0].Sent); len(ticks) > 3*sent+3 {
			f.Errorf("it asked %d times for %d ticks", len(ticks), sent)
		}
		if told := f.seen.told(posthaste.EventTicked, ""); told != int(infos[0].Sent) {
			f.Errorf("%d ticks were told, %d were sent", told, infos[0].Sent)
		}
	})
}

// A tick that fails is tried again.
func TestTickThatFailsIsTriedAgain(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		e := &ticked{Engine: f.memory, answer: func(call int) (posthaste.TickReply, error, bool) { return posthaste.TickReply{}, errAway, call <= 2 }}
		f.schedule("every 1 second")
		f.run(e, worker.Config{}, func(w *worker.Worker) { worker.HandleRaw(w, queue, f.seen.handle) })
		f.until("a tick is handled", func() bool { return f.seen.count() >= 1 })
		if n := f.seen.told(posthaste.EventError, ""); n < 2 {
			f.Errorf("%d failures were told, want 2", n)
		}
	})
}

// A tick that somebody else has just now is asked for in growing intervals.
func TestTickOfSomebodyElseIsNotAskedForAllTheTime(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		e := &ticked{Engine: f.memory, answer: func(call int) (posthaste.TickReply, error, bool) {
			return posthaste.TickReply{TickIn: 1}, nil, call <= 6
		}}
		f.schedule("every 1 second")
		f.run(e, worker.Config{Heartbeat: 30 * time.Second, Lease: 2 * time.Minute}, func(w *worker.Worker) { worker.HandleRaw(w, queue, f.seen.handle) })
		f.until("a tick is handled", func() bool { return f.seen.count() >= 1 })
		ticks, _ := e.calls()
		if took := ticks[6].Sub(ticks[0]); took < (20+40+80+160+320+640)*time.Millisecond {
			f.Errorf("it asked 7 times in %s", took)
		}
	})
}
