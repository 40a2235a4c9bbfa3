package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// deadly is the payload that kills the process that handles it, if that was told.
const deadly = -1

// A message that no handler knows, or that cannot be decoded, is dead-lettered after one
// attempt and holds up no other.
func TestRE5_UnknownAndUndecodable(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{MaxAttempts: 9})
	h := work(t, e, worker.Config{}, func(d posthaste.RawDelivery) error {
		if d.Kind != "" {
			return posthaste.Permanent(fmt.Errorf("kind %q is not known here", d.Kind))
		}
		return nil
	})
	bad, err := posthaste.IDs(e.Send(t.Context(), posthaste.Message{Queue: jobs, Payload: 1, Kind: "unknown"}, posthaste.Message{Queue: jobs, Payload: "no number"}))
	if err != nil {
		t.Fatal(err)
	}
	good := send(t, e, 20)
	until(t, "the others are handled", func() bool { return h.all(good) })
	until(t, "all are settled", settledAll(t, e))
	dead, err := e.DeadLetters(t.Context(), posthaste.DeadLetterFilter{Queue: jobs})
	if err != nil || len(dead.Items) != len(bad) {
		t.Fatalf("dead letters %+v, %v", dead.Items, err)
	}
	for _, d := range dead.Items {
		if len(d.Attempts) != 1 || d.Error == "" {
			t.Errorf("message %d is dead after %+v", d.ID, d.Attempts)
		}
	}
}

// A message that kills every process that handles it is a dead letter after
// max_attempts alone, beside two that may have been others' fault; the others are done.
func TestRE5_PoisonThatKillsTheProcess(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{MaxAttempts: 2})
	messages := []posthaste.Message{{Queue: jobs, Payload: 1}, {Queue: jobs, Payload: deadly}, {Queue: jobs, Payload: 2}}
	ids, err := posthaste.IDs(e.Send(t.Context(), messages...))
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	state := func(id posthaste.MessageID) posthaste.MessageState {
		info, err := e.Message(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return info.Subscriptions[0]
	}
	over := func() bool {
		return state(ids[0]).State == posthaste.StateDone && state(ids[1]).State == posthaste.StateDead && state(ids[2]).State == posthaste.StateDone
	}
	deaths := 0
	for ; !over() && deaths < 20; deaths++ {
		func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, exe)
			cmd.Env = append(os.Environ(), doomed+"="+server.URL()+" "+e.keys.prefix+" deadly")
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() { // a process that has nothing deadly left lives until all is over
				defer close(ended)
				for lines := bufio.NewScanner(out); lines.Scan(); {
				}
			}()
			for {
				select {
				case <-ended:
					_ = cmd.Wait()
					return
				case <-time.After(20 * time.Millisecond):
					if over() {
						cancel()
						<-ended
						_ = cmd.Wait()
						return
					}
				}
			}
		}()
	}
	story := state(ids[1])
	if !over() || len(story.Attempts) < 2 || len(story.Attempts) > 4 {
		t.Errorf("after %d deaths it is %+v", deaths, story)
	}
	for i, a := range story.Attempts {
		if want := posthaste.OutcomeLost; i < len(story.Attempts)-1 && a.Outcome != want {
			t.Errorf("attempt %d ended %s, want %s", a.Attempt, a.Outcome, want)
		}
	}
}

// Messages that wait for a retry or are due later survive kills of Redis at any moment, also
// while the queue is paused; it stays paused.
func TestRE4_RetriesAndDueSurviveKills(t *testing.T) {
	t.Parallel()
	ctx, r, e := mortal(t)
	create(t, e, posthaste.QueueOptions{BackoffBase: 50 * time.Millisecond, BackoffMax: 50 * time.Millisecond, MaxAttempts: 1000})
	var mu sync.Mutex
	failed, done := map[posthaste.MessageID]int{}, map[posthaste.MessageID]bool{}
	work(t, e, worker.Config{Lease: 2 * time.Second}, func(d posthaste.RawDelivery) error {
		mu.Lock()
		defer mu.Unlock()
		if failed[d.MessageID]++; failed[d.MessageID] <= 3 {
			return errors.New("not yet")
		}
		done[d.MessageID] = true
		return nil
	})
	var ids []posthaste.MessageID
	for i := range 60 {
		got, err := posthaste.IDs(e.Send(ctx, posthaste.Message{Queue: jobs, Payload: i, Delay: time.Duration(i) * 10 * time.Millisecond, Priority: i % 4}))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, got...)
	}
	all := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(done) == len(ids)
	}
	for i := range 3 {
		if i == 1 {
			until(t, "it is paused", func() bool {
				return e.Pause(posthaste.WithActor(ctx, "ada"), posthaste.OfQueue(jobs), posthaste.PauseOptions{}) == nil
			})
		}
		r.Kill()
		if err := r.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			var infos []posthaste.QueueInfo
			var err error
			until(t, "Redis answers", func() (ok bool) {
				infos, err = e.Queues(ctx, jobs)
				return err == nil
			})
			if infos[0].PausedAt.IsZero() {
				t.Fatalf("after the kill it is %+v", infos)
			}
			until(t, "a receive of the paused queue succeeds", func() bool {
				reply, err := e.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 10, Lease: time.Second})
				if len(reply.Deliveries) > 0 {
					t.Fatalf("the paused queue handed out %d messages: %v", len(reply.Deliveries), err)
				}
				return err == nil
			})
			until(t, "it is resumed", func() bool { return e.Resume(posthaste.WithActor(ctx, "ada"), posthaste.OfQueue(jobs)) == nil })
		}
	}
	until(t, "all are handled in the end", all)
	until(t, "all are settled", settledAll(t, e))
	for _, id := range ids { // Redis runs by now
		if m, err := e.Message(ctx, id); err != nil || m.Subscriptions[0].State != posthaste.StateDone {
			t.Errorf("message %d is %+v: %v", id, m, err)
		}
	}
}
