package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// pollingBell is the doorbell behind poolers in transaction mode. It looks at growing
// intervals and holds no keys, so senders do not notify.
type pollingBell struct {
	mu      sync.Mutex
	waiters map[string]chan struct{}
	closed  chan struct{}
	once    sync.Once
}

func newPollingBell() *pollingBell {
	return &pollingBell{waiters: make(map[string]chan struct{}), closed: make(chan struct{})}
}

// Sleep implements [posthaste.Doorbell]. It calls look until it finds something.
func (b *pollingBell) Sleep(ctx context.Context, queue string, look func(ctx context.Context) (posthaste.LookReply, error)) error {
	wake, err := b.beginSleep(queue)
	if err != nil {
		return err
	}
	defer b.endSleep(queue)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause := firstLook; ; pause = min(pause*3/2, slowestLook) {
		reply, err := look(ctx)
		if err != nil || reply.Found {
			return err
		}
		wait, due := jittered(pause), false
		if reply.NextDue >= 0 && reply.NextDue <= wait {
			wait, due = reply.NextDue, true
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
			return nil
		case <-b.closed:
			return nil
		case <-timer.C:
			if due {
				return nil
			}
		}
	}
}

func (b *pollingBell) beginSleep(queue string) (chan struct{}, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-b.closed:
		return nil, errDoorbellClosed()
	default:
	}
	if b.waiters[queue] != nil {
		return nil, errAlreadyWaiting(queue)
	}
	wake := make(chan struct{}, 1)
	b.waiters[queue] = wake
	return wake, nil
}

func (b *pollingBell) endSleep(queue string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.waiters, queue)
}

// Wake implements [posthaste.Doorbell].
func (b *pollingBell) Wake(queue string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if wake := b.waiters[queue]; wake != nil {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// Close implements [posthaste.Doorbell].
func (b *pollingBell) Close() { b.once.Do(func() { close(b.closed) }) }
