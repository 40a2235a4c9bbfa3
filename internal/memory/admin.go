package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

// CreateQueue implements [posthaste.QueueAdmin].
func (e *Engine) CreateQueue(ctx context.Context, name string, o posthaste.QueueOptions) error {
	if err := posthaste.CheckName("name", name); err != nil {
		return err
	}
	if o.Fair || o.Limits != (posthaste.QueueLimits{}) {
		return unlimited("limits")
	}
	if o.Ordered || o.StopOnDead {
		return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "ordered", Message: "the engine in memory has no ordered queues",
			Hint: "test these on a database: posthastetest.Database"}
	}
	wanted := o
	if err := o.Complete(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if q := e.queues[name]; q != nil {
		if differences := q.options.Differences(wanted); len(differences) > 0 {
			return posthaste.ConflictError(name, differences)
		}
		return ctx.Err()
	}
	e.queues[name] = &queue{name: name, options: o, createdAt: e.now(), once: map[string]*message{}, unique: map[string]*message{},
		info: posthaste.SubscriptionInfo{Name: posthaste.DefaultSubscription}}
	e.record(ctx, posthaste.Action{Action: "create", Queue: name})
	return ctx.Err()
}

// DropQueue implements [posthaste.QueueAdmin].
func (e *Engine) DropQueue(ctx context.Context, name string, o posthaste.DropOptions) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	q, err := e.queue(name)
	if err == nil && o.IfEmpty {
		err = q.info.RefuseContents(name)
	}
	if err != nil {
		return err
	}
	delete(e.queues, name)
	e.figures.forget(q)
	maps.DeleteFunc(e.schedules, func(_ string, s *schedule) bool { return s.Message.Queue == name })
	maps.DeleteFunc(e.messages, func(_ posthaste.MessageID, m *message) bool { return m.Queue == name })
	e.forgetPauses()
	e.record(ctx, posthaste.Action{Action: "drop", Queue: name})
	return ctx.Err()
}

// Queues implements [posthaste.Engine].
func (e *Engine) Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var infos []posthaste.QueueInfo
	for _, name := range slices.Sorted(maps.Keys(e.queues)) {
		if q := e.queues[name]; len(names) == 0 || slices.Contains(names, name) {
			info := q.info
			info.CountedAt = e.now()
			info.SetAside = e.setAside(q, info.CountedAt)
			one := q.describe()
			one.Subscriptions = []posthaste.SubscriptionInfo{info}
			infos = append(infos, one)
		}
	}
	return infos, ctx.Err()
}

// describe returns the queue without its subscription.
func (q *queue) describe() posthaste.QueueInfo {
	return posthaste.QueueInfo{Name: q.name, Options: q.options, CreatedAt: q.createdAt, PausedAt: q.pausedAt, PausedKinds: slices.Clone(q.paused)}
}

func (e *Engine) info(m *message) posthaste.MessageInfo {
	state := m.state
	if (state == posthaste.StateScheduled || state == posthaste.StateRetrying) && !m.dueAt.After(e.now()) && len(m.attempts) == 0 {
		state = posthaste.StateReady
	}
	return posthaste.MessageInfo{ID: m.id, Queue: m.Queue, Key: m.Key, Kind: m.Kind, Headers: m.Headers,
		Reference: m.Reference, Terms: m.Terms, ContentType: m.contentType, CreatedAt: m.createdAt, ErasedAt: m.erasedAt,
		Options: posthaste.KindOptions{MaxAttempts: m.MaxAttempts, Timeout: m.Timeout, Backoff: m.Backoff},
		Subscriptions: []posthaste.MessageState{{Subscription: posthaste.DefaultSubscription, State: state,
			DueAt: m.dueAt, Attempts: posthaste.NewestCheckpoint(slices.Clone(m.attempts))}}}
}

// Message implements [posthaste.MessageAdmin].
func (e *Engine) Message(ctx context.Context, id posthaste.MessageID) (posthaste.MessageInfo, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m := e.messages[id]
	if m == nil {
		return posthaste.MessageInfo{}, notFound("id", "message %d is unknown, or its space was reclaimed", id)
	}
	info := e.info(m)
	info.Payload = m.body
	info.Version = posthaste.VersionOf(&info)
	return info, ctx.Err()
}

// newest lists messages that match, newest first.
func (e *Engine) newest(before posthaste.MessageID, limit int, match func(*message) bool) (found []*message, err error) {
	if limit < 0 || limit > 1000 {
		return nil, posthaste.Invalidf("limit", "a call lists 1 to 1000 messages, not %d", limit)
	}
	for id := e.lastID; id > 0 && len(found) < cmp.Or(limit, 100); id-- {
		if m := e.messages[id]; m != nil && (before == 0 || id < before) && match(m) {
			found = append(found, m)
		}
	}
	return found, nil
}

// Messages implements [posthaste.MessageAdmin].
func (e *Engine) Messages(ctx context.Context, f posthaste.MessageFilter) (page posthaste.Page[posthaste.MessageInfo], err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if f.Queue != "" {
		if _, err := e.queue(f.Queue); err != nil {
			return page, err
		}
	}
	if f.State != "" && !slices.Contains(posthaste.States(), f.State) {
		return page, posthaste.Invalidf("state", "unknown state %s", quote.Name(string(f.State)))
	}
	found, err := e.newest(f.Before, f.Limit, func(m *message) bool {
		return (f.Queue == "" || f.Queue == m.Queue) && (f.Reference == "" || f.Reference == m.Reference) &&
			(f.Key == "" || f.Key == m.Key) && (f.Kind == "" || f.Kind == m.Kind) && !m.createdAt.Before(f.CreatedFrom) && (f.Term == "" || slices.Contains(m.Terms, f.Term)) && (f.State == "" || f.State == e.info(m).Subscriptions[0].State)
	})
	for _, m := range found {
		page.Items = append(page.Items, e.info(m).Brief())
	}
	return posthaste.NewPage(page.Items, cmp.Or(f.Limit, 100), 0, func(m *posthaste.MessageInfo) posthaste.MessageID { return m.ID }), firstError(err, ctx.Err())
}

// Workers implements [posthaste.Observer].
func (e *Engine) Workers(ctx context.Context) ([]posthaste.WorkerStatus, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []posthaste.WorkerStatus
	for _, w := range e.workers {
		all = append(all, w.WorkerStatus)
	}
	return all, ctx.Err()
}

// Vitals implements [posthaste.Observer].
func (e *Engine) Vitals(ctx context.Context) (posthaste.Vitals, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return posthaste.Vitals{Workers: len(e.workers), Doorbells: len(e.bells)}, ctx.Err()
}

// Capabilities implements [posthaste.Observer].
func (e *Engine) Capabilities() posthaste.Capabilities {
	return posthaste.Capabilities{AtMostOnce: true, SendAcross: true, Idempotency: true, Attempts: true, Search: true, Withdrawal: true,
		PauseKinds: true, Exact: true, Updates: true, Unique: true, Schedules: true, Tokens: true, Totals: true, Charts: true}
}

// Doctor implements [posthaste.Observer].
func (e *Engine) Doctor(ctx context.Context) ([]posthaste.Finding, error) { return nil, ctx.Err() }
