//go:build unix

package chaos

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
)

// drainTime is the part of a run's duration for draining: messages in flight at the last fault
// must be rescued, and in a long run more may wait.
func (r *rig) drainTime() time.Duration {
	return min(r.Duration/2, max(r.Lease+10*time.Second, r.Duration/20))
}

// play injects faults until it is time to drain, and drains.
func (r *rig) play(ctx context.Context) {
	begun := time.Now()
	loaded, cancel := context.WithDeadline(ctx, begun.Add(r.Duration-r.drainTime()))
	defer cancel()
	defer r.watchStalls()()
	defer r.watchMemory()()
	r.strikeAll(ctx, loaded)
	// Senders end, and all messages must be settled.
	var senders []int
	for i, role := range r.cast {
		if strings.HasSuffix(role, roleSender) {
			senders = append(senders, i)
		}
	}
	r.stop(senders...)
	r.record.Record(history.Event{Kind: Calm})
	r.unschedule(ctx)
	r.Log.Info("draining", "after", time.Since(begun).Round(time.Millisecond))
	until, cancel := context.WithDeadline(context.WithoutCancel(ctx), begun.Add(r.Duration+r.Slack))
	defer cancel()
	if r.drain(until) {
		r.record.Record(history.Event{Kind: Drained})
	}
	r.Log.Info("drained", "after", time.Since(begun).Round(time.Millisecond))
}

// scheduled is the name of the schedule.
const scheduled = "rig"

// schedule creates the schedule, which catches up all missed ticks.
func (r *rig) schedule(ctx context.Context) error {
	first, err := r.engine.PutSchedule(ctx, posthaste.Schedule{Name: scheduled, Spec: "every 1 second", CatchUp: posthaste.CatchUpEach,
		Message: posthaste.Message{Queue: Ticks, Payload: newContent(scheduled, 0)}})
	if err != nil {
		return err
	}
	r.record.Record(history.Event{Kind: Began, Note: first.Format(time.RFC3339Nano)})
	return nil
}

// unschedule stops the schedule, so that all messages can be settled.
func (r *rig) unschedule(ctx context.Context) {
	if !slices.Contains(r.Queues, Ticks) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	for ; ctx.Err() == nil; hold(ctx, 50*time.Millisecond) {
		at := time.Now()
		err := r.engine.Pause(ctx, posthaste.OfSchedule(scheduled), posthaste.PauseOptions{})
		if err == nil {
			r.record.Record(history.Event{Kind: Rests, Note: at.Format(time.RFC3339Nano)})
			return
		}
		r.Log.Warn("the schedule goes on", "error", err)
	}
}

// drain waits until all queues are empty, and replays dead letters.
func (r *rig) drain(ctx context.Context) bool {
	var rest int64
	var where string
	for {
		begun := time.Now()
		_, err := r.engine.Maintain(ctx, posthaste.UpkeepSpace) // updates the counts, too
		if err == nil {
			err = r.replay(ctx)
		}
		if err == nil {
			var infos []posthaste.QueueInfo
			infos, err = r.engine.Queues(ctx, r.Queues...)
			rest, where = 0, ""
			for _, q := range infos {
				for _, s := range q.Subscriptions {
					if n := s.Depth + s.InFlight + s.Dead; n > 0 {
						rest += n
						where += fmt.Sprintf("%s, %s: %d waiting, %d in flight, %d dead; ", q.Name, s.Name, s.Depth, s.InFlight, s.Dead)
					}
					if s.CountedAt.Before(begun) {
						rest++
					}
				}
			}
			if err == nil && rest == 0 {
				return true
			}
		}
		select {
		case <-ctx.Done():
			r.Log.Error("not drained", "left", where, "error", err)
			return false
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// replay replays all dead letters, as an operator does.
func (r *rig) replay(ctx context.Context) error {
	dead, err := r.engine.DeadLetters(ctx, posthaste.DeadLetterFilter{Queue: Plain, Limit: 1000})
	if err != nil || len(dead.Items) == 0 {
		return err
	}
	ids := make([]posthaste.MessageID, len(dead.Items))
	for i := range dead.Items {
		ids[i] = dead.Items[i].ID
	}
	_, err = r.engine.Replay(posthaste.WithActor(ctx, "rig"), posthaste.DeadLetterFilter{IDs: ids})
	return err
}

// watchStalls records stalls of the machine: periods in which a process that sleeps for 20 ms
// does not run.
func (r *rig) watchStalls() (stop func()) {
	const tick, much = 20 * time.Millisecond, 300 * time.Millisecond
	before := history.Now()
	return every(tick, func() {
		now := history.Now()
		if now-before > much {
			r.record.Record(history.Event{Kind: Stalled, Took: now - before})
		}
		before = history.Now()
	})
}

// every calls do repeatedly, with a pause after each call, until it is stopped.
func every(pause time.Duration, do func()) (stop func()) {
	done := make(chan struct{})
	var doing sync.WaitGroup
	doing.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(pause):
			}
			do()
		}
	})
	return func() {
		close(done)
		doing.Wait()
	}
}

// look records the content of the store at the end, and the messages that arrived elsewhere.
func (r *rig) look(ctx context.Context) error {
	// Workers end gracefully first: until then their deliveries are still held.
	r.stop(r.everywhere()...)
	if r.broker != nil {
		if err := r.broker.relayed(r.record); err != nil {
			return fmt.Errorf("relayed messages cannot be read: %w", err)
		}
	}
	// The upkeep that workers would do next: all messages are settled, so all space can be
	// reclaimed.
	for {
		reply, err := r.engine.Maintain(ctx, posthaste.UpkeepSpace)
		if err != nil {
			return fmt.Errorf("upkeep at the end: %w", err)
		}
		if !reply.More {
			break
		}
	}
	return r.store.look(ctx)
}

// leftBehind records that n of something are left, if there are any.
func (r *rig) leftBehind(what string, n int) {
	if n > 0 {
		r.record.Record(history.Event{Kind: Left, Note: what, Count: n})
	}
}
