package redis

import (
	"sync"
	"time"
)

// ticker remembers the queues whose schedules failed, so that they hold up no others.
type ticker struct {
	mu     sync.Mutex
	failed map[string]time.Time // when the last try failed, by queue
}

// failedAt returns when the last try of a queue's schedule failed, if it did.
func (t *ticker) failedAt(queue string) (at time.Time, failed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at, failed = t.failed[queue]
	return at, failed
}

// tried notes how a try of a queue's schedule ended.
func (t *ticker) tried(queue string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		delete(t.failed, queue)
	} else {
		t.failed[queue] = time.Now()
	}
}
