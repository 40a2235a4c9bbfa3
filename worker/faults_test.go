package worker_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/worker"
)

// sometimes fails one in n calls of the given names.
func sometimes(err error, n int, calls ...string) func(string) error {
	return func(call string) error {
		if slices.Contains(calls, call) && rand.IntN(n) == 0 {
			return err
		}
		return nil
	}
}

// TestAnswersThatGetLost: claims and settles fail before and after they took
// effect. Every message is handled once, and none is told as a duplicate.
func TestAnswersThatGetLost(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		f.faults.set(sometimes(errAway, 4, "claim", "settle", "unsettled"), sometimes(errLost, 3, "claim", "settle", "register"))
		ids := f.send(queue, 300)
		l := f.run(f.faults, worker.Config{Batch: 40}, func(w *worker.Worker) { worker.HandleRaw(w, queue, f.seen.handle) })
		f.untilState(posthaste.StateDone, ids...)
		l.stop()
		f.eachOnce(ids)
		if n := f.seen.told(posthaste.EventDuplicate, ""); n != 0 {
			f.Errorf("%d duplicates were told", n)
		}
		if n := f.seen.told(posthaste.EventSettled, posthaste.OutcomeDone); n != len(ids) {
			f.Errorf("%d successes were told, want %d", n, len(ids))
		}
		if f.seen.told(posthaste.EventError, "") == 0 {
			f.Error("no trouble was told: the test did not test")
		}
	})
}

// A worker that stops while the store is away goes on settling handled messages until its
// grace time is over, so that they do not run again elsewhere.
func TestStopWaitsForTheStoreWithinItsGrace(t *testing.T) {
	for name, comes := range map[string]bool{"the store comes back": true, "it does not": false} {
		t.Run(name, func(t *testing.T) { stopWhileAway(t, comes) })
	}
}

func stopWhileAway(t *testing.T, comes bool) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		var away atomic.Bool
		f.faults.set(func(call string) error {
			if away.Load() && call != "register" {
				return errAway
			}
			return nil
		}, nil)
		held := make(chan struct{})
		l := f.run(f.faults, worker.Config{Grace: 30 * time.Second}, func(w *worker.Worker) {
			worker.HandleRaw(w, queue, func(ctx context.Context, d posthaste.RawDelivery) error {
				<-held
				return f.seen.handle(ctx, d)
			})
		})
		ids := f.send(queue, 3)
		f.nowState(posthaste.StateRunning, ids...)
		away.Store(true)
		l.cancel()
		close(held)
		f.now("all are handled", func() bool { return f.seen.count() == len(ids) })
		if !comes {
			l.stop()
			if t := f.elapsed(); t != 30*time.Second {
				f.Errorf("the worker ended after %s, want its grace time", t)
			}
			f.nowState(posthaste.StateRunning, ids...)
			return
		}
		f.after(26 * time.Second)
		if !l.runs() {
			f.Fatal("the worker gave up, though it could wait for longer")
		}
		away.Store(false)
		l.stop() // after the wait between two tries, which is shorter than 3 s
		f.nowState(posthaste.StateDone, ids...)
		f.eachOnce(ids)
	})
}

// TestStoreAway: the store is away at the start and in the middle; the worker
// goes on by itself.
func TestStoreAway(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		var away atomic.Bool
		var refused atomic.Int32
		f.faults.set(func(string) error {
			if away.Load() {
				refused.Add(1)
				return errAway
			}
			return nil
		}, nil)
		away.Store(true)
		w := worker.New(f.faults, worker.Config{Logger: slog.New(f.seen), Telemetry: f.seen, Lease: 10 * time.Second})
		worker.HandleRaw(w, queue, f.seen.handle)
		stop := testrun.Background(f, w.Run)
		f.until("the start was refused twice", func() bool { return refused.Load() >= 2 })
		away.Store(false)
		<-w.Started()
		ids := f.send(queue, 100)
		f.untilState(posthaste.StateDone, ids...)
		away.Store(true)
		refused.Store(0)
		ids = append(ids, f.send(queue, 100)...)
		f.until("claims were refused", func() bool { return refused.Load() >= 2 })
		away.Store(false)
		f.untilState(posthaste.StateDone, ids...)
		f.eachOnce(ids)
		stop()
	})
}

// TestSwallowedClaim: an answer said that there was nothing although something
// was handed out. The comparison with the store finds and releases it.
func TestSwallowedClaim(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		ids := f.send(queue, 5)
		var claims atomic.Int32
		f.faults.set(nil, func(call string) error {
			if call == "claim" && claims.Add(1) == 1 {
				return errSwallow
			}
			if call == "claim" && claims.Load() == 2 {
				return errLost // any error makes the worker compare
			}
			return nil
		})
		f.run(f.faults, worker.Config{}, func(w *worker.Worker) { worker.HandleRaw(w, queue, f.seen.handle) })
		f.after(500*time.Millisecond - 1) // the worker compares half a second after an error
		f.nowState(posthaste.StateRunning, ids...)
		f.after(1)
		f.nowState(posthaste.StateDone, ids...)
		f.eachOnce(ids)
		for _, id := range ids {
			if a := f.state(id).Attempts; a[len(a)-1].Attempt != 1 {
				f.Errorf("message %d was done in attempt %d: releasing must not count", id, a[len(a)-1].Attempt)
			}
		}
	})
}

// TestStopReleasesWhatALostClaimHandedOut: the worker stops before it knows
// what its claim did.
func TestStopReleasesWhatALostClaimHandedOut(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		ids := f.send(queue, 5)
		var claims atomic.Int32
		f.faults.set(nil, func(call string) error {
			if call == "claim" {
				claims.Add(1)
				return errLost
			}
			return nil
		})
		l := f.run(f.faults, worker.Config{}, func(w *worker.Worker) { worker.HandleRaw(w, queue, f.seen.handle) })
		f.now("a claim's answer was lost", func() bool { return claims.Load() > 0 })
		l.stop()
		if t := f.elapsed(); t != 0 {
			f.Errorf("it stopped after %s, and nothing runs that it should wait for", t)
		}
		for _, id := range ids {
			if s := f.state(id); s.State != posthaste.StateReady {
				f.Errorf("message %d is %+v, want ready", id, s)
			}
		}
		if f.seen.count() != 0 {
			f.Error("something was handled")
		}
	})
}

// TestSecondWorkerTakesOver: one worker is cut off from the store with its handlers stuck.
// Another handles its messages. When the first is back, it learns that it was lost, reports
// the messages that ran twice, and works on.
func TestSecondWorkerTakesOver(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		cut := f.faults.cutOff()
		ids := f.send(queue, 50)
		release := make(chan struct{})
		var stuck, after atomic.Int32
		lease := worker.Config{Lease: time.Second, Concurrency: 4}
		told := &recorder{} // by the first
		lease.Telemetry = told
		first := f.run(f.faults, lease, func(w *worker.Worker) {
			worker.HandleRaw(w, queue, func(context.Context, posthaste.RawDelivery) error {
				select {
				case <-release:
					after.Add(1)
				default:
					stuck.Add(1)
					<-release
				}
				return nil
			})
		})
		f.now("the first worker is full", func() bool { return stuck.Load() == 4 })
		cut.Store(true)
		alive := worker.Config{Lease: 30 * time.Second, Heartbeat: 200 * time.Millisecond, Concurrency: 4, Telemetry: f.seen}
		second := f.run(f.memory, alive, func(w *worker.Worker) { worker.HandleRaw(w, queue, f.seen.handle) })
		f.nowState(posthaste.StateRunning, ids[:4]...)
		f.rescued(time.Second, ids) // all by the second
		f.eachOnce(ids)
		f.now("the rescue is told", func() bool { return f.seen.told(posthaste.EventRescued, "") > 0 })
		second.stop()
		cut.Store(false)
		f.until("the first learns that it was lost", func() bool { return told.told(posthaste.EventLost, "") > 0 })
		close(release)
		f.now("what ran twice is told", func() bool { return told.told(posthaste.EventDuplicate, "") == 4 })
		more := f.send(queue, 20)
		f.nowState(posthaste.StateDone, more...)
		if n := after.Load(); n != 20 {
			f.Errorf("the first worker started %d messages after it was back, want only the 20 new ones", n)
		}
		first.stop()
	})
}

// rescued checks that messages of a worker that has sent no heartbeat since the test
// began run elsewhere 100 to 200 ms after its lease has ended.
func (f *fixture) rescued(lease time.Duration, ids []posthaste.MessageID) {
	f.Helper()
	f.after(lease + 100*time.Millisecond - 1 - f.elapsed())
	if f.seen.told(posthaste.EventRescued, "") > 0 {
		f.Errorf("what a worker held ran elsewhere %s after its last heartbeat, with a lease of %s", f.elapsed(), lease)
	}
	f.after(100*time.Millisecond + 1)
	f.nowState(posthaste.StateDone, ids...)
}

// TestRescuesWhenALeaseEnds: what a worker held that is gone runs again when its lease
// ends, without a heartbeat of the others in between.
func TestRescuesWhenALeaseEnds(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		ids := f.send(queue, 3)
		gone, err := f.memory.Register(f.ctx, posthaste.WorkerInfo{Name: "gone", Lease: time.Second})
		f.must(err)
		_, err = f.memory.Claim(f.ctx, posthaste.ClaimRequest{Worker: gone, Number: 1, QueueRef: posthaste.QueueRef{Queue: queue}, Max: 3})
		f.must(err)
		f.run(f.memory, worker.Config{Lease: 10 * time.Minute, Heartbeat: 3 * time.Minute}, func(w *worker.Worker) { worker.HandleRaw(w, queue, f.seen.handle) })
		f.rescued(time.Second, ids)
		f.eachOnce(ids)
	})
}

// noLooks answers heartbeats after the first as a store that could not examine the queues.
type noLooks struct {
	posthaste.Store
	beats atomic.Int32
}

func (e *noLooks) Heartbeat(ctx context.Context, beat posthaste.Heartbeat) (posthaste.HeartbeatReply, error) {
	reply, err := e.Store.Heartbeat(ctx, beat)
	if err == nil && e.beats.Add(1) > 1 {
		reply = posthaste.HeartbeatReply{QueuesUnknown: true}
	}
	return reply, err
}

// TestBlindHeartbeatsForgetNothing: what an earlier heartbeat told, the next end of a
// lease and the next tick, holds while later ones cannot look.
func TestBlindHeartbeatsForgetNothing(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		ids := f.send(queue, 3)
		gone, err := f.memory.Register(f.ctx, posthaste.WorkerInfo{Name: "gone", Lease: 2 * time.Second})
		f.must(err)
		_, err = f.memory.Claim(f.ctx, posthaste.ClaimRequest{Worker: gone, Number: 1, QueueRef: posthaste.QueueRef{Queue: queue}, Max: 3})
		f.must(err)
		f.schedule("every 2 seconds")
		e := &noLooks{Store: f.memory}
		f.run(e, worker.Config{Lease: 10 * time.Minute, Heartbeat: 100 * time.Millisecond}, func(w *worker.Worker) { worker.HandleRaw(w, queue, f.seen.handle) })
		f.after(2*time.Second - 1)
		if n := f.seen.told(posthaste.EventTicked, ""); n != 0 {
			f.Errorf("%d ticks were sent before they were due", n)
		}
		f.after(1)
		if n := f.seen.told(posthaste.EventTicked, ""); n != 1 {
			f.Errorf("%d ticks were sent after 2 s, want 1", n)
		}
		f.rescued(2*time.Second, ids)
		if n := e.beats.Load(); n < 22 {
			f.Errorf("%d heartbeats were sent in 2.2 s", n)
		}
	})
}

// TestLateHeartbeatStartsNothing: while heartbeats do not get through for a whole lease,
// prefetched messages do not start.
func TestLateHeartbeatStartsNothing(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		cut := f.faults.cutOff("heartbeat")
		const lease = 3 * time.Second
		ids := f.send(queue, 10)
		step := make(chan struct{})
		var started atomic.Int32
		f.run(f.faults, worker.Config{Lease: lease}, func(w *worker.Worker) {
			worker.HandleRaw(w, queue, func(context.Context, posthaste.RawDelivery) error {
				started.Add(1)
				<-step
				return nil
			}, worker.WithConcurrency(1))
		})
		f.now("one runs", func() bool { return started.Load() == 1 })
		cut.Store(true)
		f.after(lease - 1)
		step <- struct{}{}
		f.now("another one starts while the lease lasts", func() bool { return started.Load() == 2 })
		f.after(1)
		if f.seen.logged("lease") == "" {
			f.Error("the end of the lease is not logged")
		}
		step <- struct{}{}
		f.nowState(posthaste.StateDone, ids[:2]...)
		if n := started.Load(); n != 2 {
			f.Errorf("%d were started after the lease was over", n-2)
		}
		cut.Store(false)
		for range 8 {
			step <- struct{}{}
		}
		f.nowState(posthaste.StateDone, ids...)
	})
}

// TestLP7_RunsAlone: a message whose earlier attempts were lost with their
// process runs while nothing else does, of any queue.
func TestLP7_RunsAlone(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		f.create("other", posthaste.QueueOptions{})
		ids := f.sendSuspect()
		others := f.send("other", 300)
		others = append(others, f.send(queue, 300)...)
		var running, beside atomic.Int32
		handle := func(ctx context.Context, d posthaste.RawDelivery) error {
			n := running.Add(1)
			defer running.Add(-1)
			if d.Alone {
				for range 20 {
					beside.Store(max(beside.Load(), n-1))
					time.Sleep(time.Millisecond)
					n = running.Load()
				}
				for _, id := range others { // those that had ended are settled by now
					if s := f.state(id); s.State == posthaste.StateRunning {
						f.Errorf("message %d is unsettled while another runs alone", id)
					}
				}
			} else {
				time.Sleep(100 * time.Microsecond)
			}
			return f.seen.handle(ctx, d)
		}
		f.run(f.memory, worker.Config{Concurrency: 8}, func(w *worker.Worker) {
			worker.HandleRaw(w, queue, handle)
			worker.HandleRaw(w, "other", handle)
		})
		f.untilState(posthaste.StateDone, ids...)
		f.untilState(posthaste.StateDone, others...)
		f.eachOnce(slices.Concat(ids, others))
		if n := beside.Load(); n != 0 {
			f.Errorf("%d handlers ran beside the one that had to run alone", n)
		}
	})
}

// sendSuspect sends a message whose first two attempts are lost with their workers, so
// that the next one has to run alone.
func (f *fixture) sendSuspect() []posthaste.MessageID {
	f.Helper()
	ids := f.send(queue, 1)
	for number := range int64(2) {
		w, err := f.memory.Register(f.ctx, posthaste.WorkerInfo{Lease: time.Minute})
		f.must(err)
		reply, err := f.memory.Claim(f.ctx, posthaste.ClaimRequest{Worker: w, Number: number, QueueRef: posthaste.QueueRef{Queue: queue}, Max: 1})
		f.must(err)
		if len(reply.Deliveries) != 1 {
			f.Fatal("nothing was handed out")
		}
		f.must(f.memory.Unregister(f.ctx, w))
	}
	return ids
}

// claimedAlone answers a claim of a message that has to run alone when the worker gives
// up waiting for it.
type claimedAlone struct {
	posthaste.Store
	claimed chan struct{}
}

func (e *claimedAlone) Claim(ctx context.Context, r posthaste.ClaimRequest) (posthaste.ClaimReply, error) {
	reply, err := e.Store.Claim(ctx, r)
	if err == nil && len(reply.Deliveries) > 0 && reply.Deliveries[0].Alone {
		close(e.claimed)
		<-ctx.Done()
	}
	return reply, err
}

// A worker that is asked to end while it claims a message that has to run alone ends,
// and hands that back.
func TestEndsBeforeItRunsAlone(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		ids := f.sendSuspect()
		engine := &claimedAlone{f.memory, make(chan struct{})}
		l := f.run(engine, worker.Config{}, func(w *worker.Worker) { worker.HandleRaw(w, queue, f.seen.handle) })
		<-engine.claimed
		l.stop()
		if t := f.elapsed(); t != time.Second {
			f.Errorf("it ended after %s, want the second that a claim on its way has", t)
		}
		f.nowState(posthaste.StateRetrying, ids...)
		f.run(f.memory, worker.Config{}, func(w *worker.Worker) { worker.HandleRaw(w, queue, f.seen.handle) })
		f.untilState(posthaste.StateDone, ids...)
		f.eachOnce(ids)
	})
}
