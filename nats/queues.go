package nats

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
)

// queue is a revision of a queue, its entry queue.<name> in the store. It is never changed: another
// revision is another value.
type queue struct {
	Name      string                 `json:"name"`
	No        int                    `json:"no"`
	Born      int64                  `json:"born"` // unique among all queues, also dropped ones
	Options   posthaste.QueueOptions `json:"options"`
	CreatedAt time.Time              `json:"created_at"`
	// Subscriptions are in the order of their names.
	Subscriptions []subscription `json:"subscriptions"`
	// Priorities are those above 0 that were ever used, for which there are consumers.
	Priorities []int     `json:"priorities,omitempty"`
	PausedAt   time.Time `json:"paused_at,omitzero"`
	// Pause is nil if the queue is not paused. Halted is when a process began to pause or resume the
	// consumers; zero once they are resumed.
	Pause  *pauseNote `json:"pause,omitempty"`
	Halted time.Time  `json:"halted,omitzero"`
	// Ready says that the stream and its consumers were made, and the queue is not being dropped.
	Ready bool `json:"ready"`
	// Dropping says that the queue is being dropped: see finishDrop.
	Dropping bool `json:"dropping,omitempty"`

	revision uint64
	stream   string
	subjects subjects
}

type subscription struct {
	Name      string           `json:"name"`
	Filter    posthaste.Filter `json:"filter,omitzero"`
	From      string           `json:"from,omitempty"`
	CreatedAt time.Time        `json:"created_at"`
	AckWait   time.Duration    `json:"ack_wait"`
}

// subscription returns a subscription of the queue, or nil.
func (q *queue) subscription(name string) *subscription {
	if i := slices.IndexFunc(q.Subscriptions, func(s subscription) bool { return s.Name == name }); i >= 0 {
		return &q.Subscriptions[i]
	}
	return nil
}

const queueKey = "queue."

// queueNamed returns the name of the queue of an entry.
func queueNamed(entry jetstream.KeyValueEntry) string {
	return nameOf(strings.TrimPrefix(entry.Key(), queueKey))
}

// queues caches the queues, and a watch of the store keeps it up to date.
type queues struct {
	mu   sync.Mutex
	all  map[string]*queue
	byNo map[int]*queue
}

func (s *queues) init() { s.all, s.byNo = map[string]*queue{}, map[int]*queue{} }

// learn caches a revision of a queue, or forgets the queue if q is nil, unless a newer revision is cached.
func (s *queues) learn(name string, revision uint64, q *queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.all[name]
	if old != nil && old.revision >= revision {
		return
	}
	if old != nil && s.byNo[old.No] == old {
		delete(s.byNo, old.No)
	}
	delete(s.all, name)
	if q != nil {
		s.all[name], s.byNo[q.No] = q, q
	}
}

// prune forgets the queues that a watch did not report, which has reported all up to the revision last.
func (s *queues) prune(reported map[string]bool, last uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, q := range s.all {
		if !reported[name] && q.revision <= last {
			delete(s.all, name)
			if s.byNo[q.No] == q {
				delete(s.byNo, q.No)
			}
		}
	}
}

func (s *queues) known(name string) *queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[name]
}

func (s *queues) numbered(no int) *queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byNo[no]
}

// listed returns the cached queues in the order of their names.
func (s *queues) listed() []*queue {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sortedQueues(slices.Collect(maps.Values(s.all)))
}

// sortedQueues sorts queues by their names.
func sortedQueues(all []*queue) []*queue {
	slices.SortFunc(all, func(a, b *queue) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// readQueue decodes an entry of the store.
func (e *Engine) readQueue(entry jetstream.KeyValueEntry) (*queue, error) {
	q := &queue{}
	if err := json.Unmarshal(entry.Value(), q); err != nil {
		return nil, err
	}
	q.revision, q.stream, q.subjects = entry.Revision(), e.streamOf(q.Name, q.Born), e.subjectsOf(q.Name)
	return q, nil
}

// watchQueues starts to keep e.queues up to date, and returns once it has all queues.
func (e *Engine) watchQueues(ctx context.Context) error {
	first := make(chan error, 1)
	e.runInBackground(func(ctx context.Context) {
		for ctx.Err() == nil {
			err := e.watchOnce(ctx, func() { sendFirst(first, nil) })
			sendFirst(first, err)
			sleepFor(ctx, watchAgain)
		}
	})
	select {
	case err := <-first:
		return e.readError(err)
	case <-ctx.Done():
		return e.readError(ctx.Err())
	}
}

// sendFirst sends an error to a channel, which is read once, or drops it.
func sendFirst(to chan error, err error) {
	select {
	case to <- err:
	default:
	}
}

// watchOnce caches the queues that one watch reports, until that ends, and calls complete when it has
// reported all. A watch ends by itself if the client cannot continue it.
func (e *Engine) watchOnce(ctx context.Context, complete func()) error {
	ctx, cancel := context.WithTimeout(ctx, watchLife)
	defer cancel()
	watch, err := e.kv.Watch(ctx, queueKey+">")
	if err != nil {
		return err
	}
	defer func() { _ = watch.Stop() }()
	reported, last := map[string]bool{}, uint64(0)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case entry, more := <-watch.Updates():
			switch {
			case !more:
				return natsgo.ErrConsumerDeleted
			case entry != nil:
				e.learnEntry(entry)
				if reported != nil {
					reported[queueNamed(entry)], last = true, entry.Revision()
				}
			case reported != nil:
				e.queues.prune(reported, last)
				reported = nil
				complete()
			}
		}
	}
}

// learnQueue caches a revision of a queue, and wakes the sleepers of the queue if it was resumed.
func (e *Engine) learnQueue(name string, revision uint64, q *queue) {
	old := e.queues.known(name)
	e.queues.learn(name, revision, q)
	if old != nil && q != nil && old.revision < revision && q.Pause == nil && (old.Pause != nil || !old.Halted.IsZero() && q.Halted.IsZero()) {
		e.bells.ring(name)
	}
}

func (e *Engine) learnEntry(entry jetstream.KeyValueEntry) *queue {
	name := queueNamed(entry)
	var q *queue
	if entry.Operation() == jetstream.KeyValuePut {
		var err error
		if q, err = e.readQueue(entry); err != nil {
			return nil
		}
	}
	e.learnQueue(name, entry.Revision(), q)
	return q
}

// queue returns a queue that is ready, from the cache if it is there.
func (e *Engine) queue(ctx context.Context, name string) (*queue, error) {
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	if q := e.queues.known(name); q != nil && q.Ready {
		return q, nil
	}
	return e.freshQueue(ctx, name)
}

// freshQueue reads a queue that is ready from the store.
func (e *Engine) freshQueue(ctx context.Context, name string) (*queue, error) {
	if posthaste.CheckName("queue", name) != nil {
		return nil, noQueue(name)
	}
	entry, err := e.kv.Get(ctx, queueKey+subjectToken(name))
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil, noQueue(name)
	}
	if err != nil {
		return nil, e.readError(err)
	}
	if q := e.learnEntry(entry); q != nil && q.Ready {
		return q, nil
	}
	return nil, noQueue(name)
}

// findSubscription returns a queue and a subscription of it. It reads the store if the cache lacks them.
func (e *Engine) findSubscription(ctx context.Context, ref posthaste.QueueRef) (*queue, *subscription, error) {
	ref = ref.Normal()
	q, err := e.queue(ctx, ref.Queue)
	if err != nil {
		return nil, nil, err
	}
	if s := q.subscription(ref.Subscription); s != nil {
		return q, s, nil
	}
	if q, err = e.freshQueue(ctx, ref.Queue); err != nil {
		return nil, nil, err
	}
	if s := q.subscription(ref.Subscription); s != nil {
		return q, s, nil
	}
	return nil, nil, notFound("subscription", "queue %s has no subscription %s", quoted(ref.Queue), quoted(ref.Subscription))
}

// changeQueue changes the entry of a queue. change gets a copy of it, and is called again if another process
// was faster. If it returns false, nothing is stored.
func (e *Engine) changeQueue(ctx context.Context, name string, change func(q *queue) (bool, error)) (*queue, error) {
	for {
		q, err := e.freshQueue(ctx, name)
		if err != nil {
			return nil, err
		}
		next := *q
		next.Subscriptions, next.Priorities = slices.Clone(q.Subscriptions), slices.Clone(q.Priorities)
		if changed, err := change(&next); err != nil || !changed {
			return q, err
		}
		stored, err := e.putQueue(ctx, &next)
		if err == nil || !conflicts(err) {
			return stored, e.readError(err)
		}
	}
}

// putQueue stores the entry of a queue, if the store still has the revision of q.
func (e *Engine) putQueue(ctx context.Context, q *queue) (*queue, error) {
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	next := *q
	if next.revision, err = e.kv.Update(ctx, queueKey+subjectToken(q.Name), body, q.revision); err != nil {
		return nil, err
	}
	e.learnQueue(q.Name, next.revision, &next)
	return &next, nil
}
