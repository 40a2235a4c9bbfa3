// Package localbell is a doorbell for engines without a notification between processes: it is rung
// only within its own process.
package localbell

import (
	"context"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Bell implements [posthaste.Doorbell].
type Bell struct {
	asleep  func(queue string, nextDue time.Duration) (due <-chan time.Time, wake func())
	onClose func(*Bell)
	mu      sync.Mutex
	rings   map[string]chan struct{}
	closed  chan struct{}
	once    sync.Once
}

// New returns a doorbell. Each Sleep that found nothing calls asleep with the NextDue of its look, and
// ends when it receives from due, which may be nil. However it ends, it calls wake. Neither is called
// under a lock. Close calls onClose once.
func New(asleep func(queue string, nextDue time.Duration) (due <-chan time.Time, wake func()), onClose func(*Bell)) *Bell {
	return &Bell{asleep: asleep, onClose: onClose, rings: map[string]chan struct{}{}, closed: make(chan struct{})}
}

func (b *Bell) ring(queue string) chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rings[queue] == nil {
		b.rings[queue] = make(chan struct{}, 1)
	}
	return b.rings[queue]
}

// Sleep implements [posthaste.Doorbell].
func (b *Bell) Sleep(ctx context.Context, queue string, look func(context.Context) (posthaste.LookReply, error)) error {
	ring := b.ring(queue)
	select {
	case <-ring: // of an earlier sleep
	default:
	}
	found, err := look(ctx)
	if err != nil || found.Found {
		return err
	}
	due, wake := b.asleep(queue, found.NextDue)
	defer wake()
	select {
	case <-ring:
	case <-due:
	case <-b.closed:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Wake implements [posthaste.Doorbell].
func (b *Bell) Wake(queue string) {
	select {
	case b.ring(queue) <- struct{}{}:
	default:
	}
}

// Close implements [posthaste.Doorbell].
func (b *Bell) Close() {
	b.once.Do(func() {
		b.onClose(b)
		close(b.closed)
	})
}
