package worker_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// ticked is an engine whose calls of Tick are watched, and answered by answer
// where that is set.
type ticked struct {
	posthaste.Store
	mu     sync.Mutex
	at     []time.Time
	beats  int
	answer func(call int) (posthaste.MaintainReply, error, bool)
}

func (e *ticked) Maintain(ctx context.Context, what posthaste.Upkeep) (posthaste.MaintainReply, error) {
	if what != posthaste.UpkeepTicks {
		return e.Store.Maintain(ctx, what)
	}
	e.mu.Lock()
	e.at = append(e.at, time.Now())
	call := len(e.at)
	e.mu.Unlock()
	if e.answer != nil {
		if reply, err, ok := e.answer(call); ok {
			return reply, err
		}
	}
	return e.Store.Maintain(ctx, posthaste.UpkeepTicks)
}

func (e *ticked) Heartbeat(ctx context.Context, beat posthaste.Heartbeat) (posthaste.HeartbeatReply, error) {
	reply, err := e.Store.Heartbeat(ctx, beat)
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
	_, err := f.memory.PutSchedule(f.ctx, posthaste.Schedule{Name: "s", Spec: spec, CatchUp: posthaste.CatchUpEach, Message: posthaste.Message{Queue: queue, Payload: 1}})
	f.must(err)
}

// A worker sends the messages of due ticks, wakes up for them and not in between, and makes no
// calls while no schedule exists.
func TestWorkerWakesForTicks(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		e := &ticked{Store: f.memory}
		// No heartbeat is sent at the time of a tick.
		f.run(e, worker.Config{Heartbeat: 70 * time.Millisecond}, func(w *worker.Worker) { worker.HandleRaw(w, queue, f.seen.handle) })
		f.after(500 * time.Millisecond)
		if ticks, beats := e.calls(); len(ticks) != 0 || beats != 8 {
			f.Fatalf("without a schedule it ticked %d times, and sent %d heartbeats, want 8", len(ticks), beats)
		}
		f.schedule("every 1 second")
		f.after(3500*time.Millisecond - f.elapsed())
		var at []time.Duration
		ticks, _ := e.calls()
		for _, t := range ticks {
			at = append(at, t.Sub(f.began))
		}
		if want := []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}; !slices.Equal(at, want) {
			f.Errorf("it ticked after %v, want %v", at, want)
		}
		if handled, told := f.seen.count(), f.seen.told(posthaste.EventTicked, ""); handled != 3 || told != 3 {
			f.Errorf("%d ticks were handled and %d told, want 3", handled, told)
		}
	})
}

// A worker ends a pause at its end, and handles the messages that waited; it makes no calls before.
func TestWorkerEndsPauses(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		e := &ticked{Store: f.memory}
		f.must(f.memory.Pause(f.ctx, posthaste.OfQueue(queue), posthaste.PauseOptions{Until: f.began.Add(2 * time.Second)}))
		f.send(queue, 3)
		f.run(e, worker.Config{Heartbeat: 70 * time.Millisecond}, func(w *worker.Worker) { worker.HandleRaw(w, queue, f.seen.handle) })
		f.after(1900*time.Millisecond - f.elapsed())
		if ticks, _ := e.calls(); len(ticks) != 0 || f.seen.count() != 0 {
			f.Fatalf("before the end it ticked %d times, and handled %d messages", len(ticks), f.seen.count())
		}
		f.after(150 * time.Millisecond)
		f.now("the messages are handled", func() bool { return f.seen.count() == 3 })
	})
}

// A tick that fails is tried again.
func TestTickThatFailsIsTriedAgain(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		e := &ticked{Store: f.memory, answer: func(call int) (posthaste.MaintainReply, error, bool) {
			return posthaste.MaintainReply{}, errAway, call <= 2
		}}
		f.schedule("every 1 second")
		f.run(e, worker.Config{}, func(w *worker.Worker) { worker.HandleRaw(w, queue, f.seen.handle) })
		f.after(time.Second)
		if n := f.seen.told(posthaste.EventError, ""); n != 1 || f.seen.count() != 0 {
			f.Errorf("at the time of the tick %d failures were told and %d ticks handled, want 1 and none", n, f.seen.count())
		}
		f.after(225 * time.Millisecond) // the longest waits before two tries
		f.now("the tick is handled", func() bool { return f.seen.count() == 1 })
		if n := f.seen.told(posthaste.EventError, ""); n != 2 {
			f.Errorf("%d failures were told, want 2", n)
		}
	})
}

// While another worker sends a tick, this worker asks for it in growing intervals.
func TestTickOfSomebodyElseIsNotAskedForAllTheTime(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		e := &ticked{Store: f.memory, answer: func(call int) (posthaste.MaintainReply, error, bool) {
			return posthaste.MaintainReply{TickIn: 1}, nil, call <= 6
		}}
		f.schedule("every 1 second")
		f.run(e, worker.Config{Heartbeat: 30 * time.Second, Lease: 2 * time.Minute}, func(w *worker.Worker) { worker.HandleRaw(w, queue, f.seen.handle) })
		f.until("a tick is handled", func() bool { return f.seen.count() >= 1 })
		ticks, _ := e.calls()
		for i, want := range []time.Duration{20, 40, 80, 160, 320, 640} {
			if wait := ticks[i+1].Sub(ticks[i]); wait != want*time.Millisecond {
				f.Errorf("it waited %s before it asked for the %d. time, want %d ms", wait, i+2, want)
			}
		}
	})
}
