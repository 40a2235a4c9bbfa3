package worker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// laned hands out one message per claim, as a store whose lanes hold one each, and its
// doorbell polls: it pauses before each look.
type laned struct {
	posthaste.Store
	ordered bool
	claims  atomic.Int64
}

const pollPause = 5 * time.Millisecond

func (e *laned) Claim(ctx context.Context, req posthaste.ClaimRequest) (posthaste.ClaimReply, error) {
	e.claims.Add(1)
	req.Max = 1
	reply, err := e.Store.Claim(ctx, req)
	reply.InOrder = e.ordered
	return reply, err
}

func (e *laned) Doorbell(context.Context) (posthaste.Doorbell, error) {
	return &polled{closed: make(chan struct{})}, nil
}

type polled struct{ closed chan struct{} }

func (b *polled) Sleep(ctx context.Context, _ string, look func(context.Context) (posthaste.LookReply, error)) error {
	for {
		select {
		case <-time.After(pollPause):
		case <-b.closed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		if reply, err := look(ctx); err != nil || reply.Found {
			return err
		}
	}
}

func (b *polled) Wake(string) {}
func (b *polled) Close()      { close(b.closed) }

// While the doorbell polls, a queue with lanes must not pause between them. A queue with
// one lane pauses after a claim that was not filled, so that the next one finds more.
func TestNoPauseBetweenLanes(t *testing.T) {
	const messages = 8
	for _, c := range []struct {
		lanes   int
		ordered bool
		pauses  time.Duration
	}{{messages, false, 1}, {messages, true, 1}, {1, false, messages}} {
		t.Run(fmt.Sprintf("%d lanes, ordered %v", c.lanes, c.ordered), func(t *testing.T) {
			inBubble(t, posthaste.QueueOptions{Lanes: c.lanes}, func(f *fixture) {
				engine := &laned{Store: f.memory, ordered: c.ordered}
				f.run(engine, worker.Config{}, func(w *worker.Worker) { worker.HandleRaw(w, queue, f.seen.handle) })
				for round := range 3 {
					f.after(time.Second)
					synctest.Wait()
					before, began := engine.claims.Load(), time.Now()
					f.send(queue, messages)
					f.until("all are handled", func() bool { return f.seen.count() == (round+1)*messages })
					if took := time.Since(began); took > c.pauses*pollPause+time.Millisecond || took < (c.pauses-1)*pollPause {
						t.Errorf("%d messages took %s, want about %d pauses", messages, took, c.pauses)
					}
					t.Logf("round %d: %d claims", round, engine.claims.Load()-before)
				}
			})
		})
	}
}
