// Package memory is an engine that lives in the process and stores nothing. It is only for
// tests, including those of users. It shows that enginetest does not depend on PostgreSQL, and
// lets the runtime be tested without a database.
package memory

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
	"github.com/posthaste-mq/posthaste/internal/localbell"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

// Engine implements [posthaste.Engine]. One mutex guards everything.
type Engine struct {
	mu       sync.Mutex
	queues   map[string]*queue
	messages map[posthaste.MessageID]*message
	// deliveries is indexed by id - 1.
	deliveries []*delivery
	timed      []*delivery // unsettled leases by time
	workers    map[posthaste.WorkerID]*worker
	bells      map[*localbell.Bell]struct{}
	actions    []posthaste.Action
	requests   map[[2]string]request // by scope and key
	schedules  map[string]*schedule
	pauses     map[posthaste.Pausable]*posthaste.Pause
	lastPause  int64
	lastID     posthaste.MessageID
	flowed     bool
	tokens     []*posthaste.Token
	tokenMade  bool
	figures    figures
	now        func() time.Time
	moved      bool // now moves by jumps, and [Engine.Moved] says when
}

// Open returns an empty engine.
func Open() *Engine {
	return &Engine{now: time.Now, figures: figures{last: map[*queue]posthaste.SubscriptionInfo{}},
		queues: map[string]*queue{}, messages: map[posthaste.MessageID]*message{},
		workers: map[posthaste.WorkerID]*worker{}, bells: map[*localbell.Bell]struct{}{}, requests: map[[2]string]request{}, schedules: map[string]*schedule{},
		pauses: map[posthaste.Pausable]*posthaste.Pause{},
	}
}

// OpenAt returns an empty engine whose time is that of now, which stands still between calls of
// [Engine.Moved]. The leases of workers are by the process's clock, as their heartbeats are.
func OpenAt(now func() time.Time) *Engine {
	e := Open()
	e.now, e.moved = now, true
	return e
}

// Now returns the engine's time, and whether it stands still.
func (e *Engine) Now() (now time.Time, still bool) { return e.now(), e.moved }

// NextTick returns when the next tick of a schedule is due, or the next pause ends; zero if
// neither is.
func (e *Engine) NextTick() (at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if in := e.tickIn(e.now()); in > 0 {
		at = e.now().Add(in)
	}
	return at
}

// Moved catches up after the engine's time has moved: it ends pauses, sends the messages of ticks, makes
// deliveries of expired leases available again, and wakes all that wait for messages.
func (e *Engine) Moved() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.endPauses(context.Background())
	e.tick(&posthaste.MaintainReply{})
	e.rescueTimed(nil, e.now())
	for b := range e.bells {
		for name := range e.queues {
			b.Wake(name)
		}
	}
}

type queue struct {
	name      string
	options   posthaste.QueueOptions
	createdAt time.Time
	pausedAt  time.Time
	paused    []string // kinds, in order
	fresh     [posthaste.MaxPriority + 1][]*entry
	due       dueEntries
	apart     []*entry            // that were set aside, oldest first
	once      map[string]*message // by dedupe key
	unique    map[string]*message // the last holder of each unique key
	info      posthaste.SubscriptionInfo
}

type message struct {
	posthaste.Message
	id          posthaste.MessageID
	body        []byte
	uniqueKey   string
	contentType string
	createdAt   time.Time
	state       posthaste.State
	dueAt       time.Time
	diedAt      time.Time
	erasedAt    time.Time
	attempts    []posthaste.Attempt
}

// entry is an attempt that waits or was handed out.
type entry struct {
	m                            *message
	attempt                      int
	dueAt                        time.Time
	since                        time.Time // its age counts from then
	asideAt                      time.Time // when it was set aside; zero if it waits with the others
	failures, losses, lostsAlone int
	story                        []posthaste.Attempt
}

type delivery struct {
	*entry
	q         *queue
	worker    posthaste.WorkerID // 0: by time
	number    int64
	until     time.Time
	alone     bool
	claimedAt time.Time
	settled   bool
	cancelled bool // while it was handed out
}

// dueEntries is a heap by due time.
type dueEntries []*entry

func (d dueEntries) Len() int           { return len(d) }
func (d dueEntries) Less(i, j int) bool { return d[i].dueAt.Before(d[j].dueAt) }
func (d dueEntries) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *dueEntries) Push(x any)        { *d = append(*d, x.(*entry)) }
func (d *dueEntries) Pop() any {
	n := len(*d) - 1
	e := (*d)[n]
	*d = (*d)[:n]
	return e
}

func notFound(field, format string, args ...any) error {
	return &posthaste.Error{Code: posthaste.CodeNotFound, Field: field, Message: fmt.Sprintf(format, args...)}
}

func (e *Engine) queue(name string) (*queue, error) {
	if q := e.queues[name]; q != nil {
		return q, nil
	}
	return nil, notFound("queue", "queue %s does not exist", quote.Name(name))
}

func (e *Engine) subscribed(ref posthaste.QueueRef) (*queue, error) {
	q, err := e.queue(ref.Queue)
	if err == nil && ref.Normal().Subscription != posthaste.DefaultSubscription {
		return nil, notFound("subscription", "queue %s has no subscription %s", quote.Name(ref.Queue), quote.Name(ref.Subscription))
	}
	return q, err
}

// request holds the messages that were sent under an idempotency key.
type request struct {
	digest []byte
	sent   []posthaste.Sent
	until  time.Time
}

// SendOnce implements [posthaste.Engine].
func (e *Engine) SendOnce(ctx context.Context, r posthaste.Idempotency, messages ...posthaste.Message) (sent []posthaste.Sent, replayed bool, err error) {
	if err := r.Check(); err != nil {
		return nil, false, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now()
	if before, ok := e.requests[[2]string{r.Scope, r.Key}]; ok && now.Before(before.until) {
		if !bytes.Equal(before.digest, r.Digest) {
			return nil, false, &posthaste.Error{Code: posthaste.CodeKeyReused, Field: "Idempotency-Key", Message: "the key was used for a different request"}
		}
		return slices.Clone(before.sent), true, nil
	}
	sent, err = e.send(ctx, messages)
	if err == nil {
		e.requests[[2]string{r.Scope, r.Key}] = request{digest: r.Digest, sent: slices.Clone(sent), until: now.Add(r.Window)}
	}
	return sent, false, err
}

// Send implements [posthaste.Engine].
func (e *Engine) Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.Sent, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.send(ctx, messages)
}

func (e *Engine) send(ctx context.Context, messages []posthaste.Message) ([]posthaste.Sent, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	made := make([]*message, len(messages))
	now := e.now()
	for i := range messages {
		m, err := e.check(messages[i], now)
		if err != nil {
			return nil, err
		}
		made[i] = m
	}
	keys := make([]string, len(made))
	for i, m := range made {
		if m.uniqueKey != "" {
			keys[i] = m.Queue + "/" + m.uniqueKey
		}
	}
	if err := posthaste.CheckUniqueKeys(messages, keys); err != nil {
		return nil, err
	}
	sent := make([]posthaste.Sent, len(made))
	for i, m := range made {
		q := e.queues[m.Queue]
		if m.DedupeKey != "" {
			if first := q.once[m.DedupeKey]; first != nil && first.state != posthaste.StateCancelled && first.state != posthaste.StateDiscarded && now.Before(first.createdAt.Add(cmp.Or(first.DedupeWindow, 24*time.Hour))) {
				sent[i] = posthaste.Sent{ID: first.id, Duplicate: true}
				continue
			}
			q.once[m.DedupeKey] = m
		}
		if m.uniqueKey != "" {
			if holder := q.holder(m.uniqueKey); holder != nil {
				sent[i] = e.unsent(holder, m)
				continue
			}
			q.unique[m.uniqueKey] = m
		}
		sent[i].ID = e.store(m)
	}
	return sent, nil
}

// store stores a validated message. e.mu is held.
func (e *Engine) store(m *message) posthaste.MessageID {
	e.lastID++
	m.id = e.lastID
	e.messages[m.id] = m
	q := e.queues[m.Queue]
	q.info.Sent++
	e.append(q, &entry{m: m, attempt: 1, dueAt: m.dueAt, since: cmpTime(m.dueAt, m.createdAt)}, !m.NoWake)
	return m.id
}

func (e *Engine) check(sent posthaste.Message, now time.Time) (*message, error) {
	sent.Complete()
	if err := sent.Check(); err != nil {
		return nil, err
	}
	q, err := e.queue(sent.Queue)
	if err != nil {
		return nil, err
	}
	if err := sent.CheckFor(&q.options); err != nil {
		return nil, err
	}
	m := &message{Message: sent, createdAt: now, state: posthaste.StateReady, dueAt: sent.SendAt}
	if m.body, m.contentType, err = jsoncheck.Body(&sent, q.options.MaxPayload); err != nil {
		return nil, err
	}
	m.body = slices.Clone(m.body)
	if m.Unique != nil {
		m.uniqueKey = m.UniqueKey(m.body)
	}
	if sent.Delay > 0 {
		m.dueAt = now.Add(sent.Delay)
	}
	if most := now.Add(m.maxDelay()); m.maxDelay() > 0 && m.dueAt.After(most) {
		m.dueAt = most
	}
	if m.dueAt.After(now) {
		m.state = posthaste.StateScheduled
	} else {
		m.dueAt = time.Time{} // a time in the past means now
	}
	return m, nil
}

// append makes an entry available and rings the doorbells.
func (e *Engine) append(q *queue, n *entry, ring bool) {
	e.flowed = true
	q.info.Depth++
	q.put(n)
	if ring {
		for b := range e.bells {
			b.Wake(q.name)
		}
	}
}

// put puts an entry where it waits.
func (q *queue) put(n *entry) {
	switch {
	case !n.asideAt.IsZero():
		q.apart = append(q.apart, n)
	case n.dueAt.IsZero():
		q.fresh[n.m.Priority] = append(q.fresh[n.m.Priority], n)
	default:
		heap.Push(&q.due, n)
	}
}

// Maintain implements [posthaste.Engine].
func (e *Engine) Maintain(ctx context.Context, kinds posthaste.Upkeep) (reply posthaste.MaintainReply, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if kinds&posthaste.UpkeepRescue != 0 {
		reply.Rescued = e.rescue()
	}
	if kinds&posthaste.UpkeepTicks != 0 {
		reply.PausesEnded = e.endPauses(ctx)
		e.tick(&reply)
	}
	if kinds&posthaste.UpkeepSpace != 0 {
		e.flowed = false
		e.sample(e.now())
	}
	return reply, ctx.Err()
}

// Ready implements [posthaste.Engine].
func (e *Engine) Ready(ctx context.Context) error { return ctx.Err() }

// Close implements [posthaste.Engine].
func (e *Engine) Close() {}

// Doorbell implements [posthaste.Engine].
func (e *Engine) Doorbell(ctx context.Context) (posthaste.Doorbell, error) {
	b := localbell.New(e.asleep, func(b *localbell.Bell) {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.bells, b)
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.bells[b] = struct{}{}
	return b, ctx.Err()
}

// asleep wakes a sleep at the time of the next message, unless a test moves the time.
func (e *Engine) asleep(_ string, nextDue time.Duration) (due <-chan time.Time, wake func()) {
	if nextDue < 0 || e.moved {
		return nil, func() {}
	}
	timer := time.NewTimer(nextDue)
	return timer.C, func() { timer.Stop() }
}
