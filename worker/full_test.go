package worker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// places is an engine whose queue hands out so many messages at once, and does not report
// places that become free.
type places struct {
	posthaste.Store
	most int

	mu   sync.Mutex
	used int
}

func (p *places) Claim(ctx context.Context, req posthaste.ClaimRequest) (posthaste.ClaimReply, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used >= p.most {
		return posthaste.ClaimReply{NextDue: time.Hour, Limits: true, AtLimit: true, FreedBySettle: true}, nil
	}
	req.Max = min(req.Max, p.most-p.used)
	reply, err := p.Store.Claim(ctx, req)
	p.used += len(reply.Deliveries)
	reply.Limits = true
	return reply, err
}

func (p *places) Settle(ctx context.Context, settlements []posthaste.Settlement) ([]posthaste.SettleResult, error) {
	results, err := p.Store.Settle(ctx, settlements)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used -= len(results)
	return results, err
}

// A worker that sleeps because a queue's concurrency is used up looks again as soon as it
// has settled something of that queue, although nothing else wakes it.
func TestOwnSettleWakesAtALimit(t *testing.T) {
	inBubble(t, posthaste.QueueOptions{}, func(f *fixture) {
		const messages, most, takes = 60, 3, 10 * time.Millisecond
		ids := f.send(queue, messages)
		f.run(&places{Store: f.memory, most: most}, worker.Config{Concurrency: 20}, func(w *worker.Worker) {
			worker.HandleRaw(w, queue, func(ctx context.Context, d posthaste.RawDelivery) error {
				time.Sleep(takes)
				return f.seen.handle(ctx, d)
			})
		})
		f.untilState(posthaste.StateDone, ids...)
		if took := f.elapsed(); took > 2*messages/most*takes {
			t.Errorf("%d messages of %s, %d at a time, took %s", messages, takes, most, took)
		}
	})
}
