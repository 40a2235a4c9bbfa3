package nats

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/posthaste-mq/posthaste"
)

// listing collects messages.
type listing struct {
	e      *Engine
	byID   map[posthaste.MessageID]*sight
	floors map[string]uint64 // of consumers, by queue and name
}

// Messages implements [posthaste.MessageAdmin]. It reads the newest 10,000 entries of each kind: those
// that wait, scheduled ones, dead letters, and outcomes of queues with a retention. Messages can be
// selected by queue, state and time only.
func (e *Engine) Messages(ctx context.Context, f posthaste.MessageFilter) (page posthaste.Page[posthaste.MessageInfo], err error) {
	limit, err := opsLimit(f.Limit, "messages")
	if err != nil {
		return page, err
	}
	if err := checkFilter(&f); err != nil {
		return page, err
	}
	if err := e.ready(ctx); err != nil {
		return page, err
	}
	queues := e.queues.listed()
	if f.Queue != "" {
		q, err := e.queue(ctx, f.Queue)
		if err != nil {
			return page, err
		}
		queues = []*queue{q}
	}
	l := &listing{e: e, byID: map[posthaste.MessageID]*sight{}, floors: map[string]uint64{}}
	if err := l.reads(ctx, queues, f.State); err != nil {
		return page, err
	}
	now := e.clock.now()
	for _, id := range slices.SortedFunc(maps.Keys(l.byID), func(a, b posthaste.MessageID) int { return cmp.Compare(b, a) }) {
		if f.Before != 0 && id >= f.Before || len(page.Items) == limit {
			continue
		}
		s := l.byID[id]
		if err := s.spread(func(sub *subscription, track int) (uint64, error) { return l.floor(ctx, s.q, sub, track) }); err != nil {
			return page, err
		}
		info := s.info(now)
		if info.ID == 0 || info.CreatedAt.Before(f.CreatedFrom) || f.State != "" && !slices.ContainsFunc(info.Subscriptions, func(m posthaste.MessageState) bool { return m.State == f.State }) {
			continue
		}
		page.Items = append(page.Items, info.Brief())
	}
	return posthaste.NewPage(page.Items, limit, 0, func(m *posthaste.MessageInfo) posthaste.MessageID { return m.ID }), nil
}

// checkFilter rejects what the engine has no index for.
func checkFilter(f *posthaste.MessageFilter) error {
	if f.State != "" && !slices.Contains(posthaste.States(), f.State) {
		return posthaste.Invalidf("state", "unknown state %s", quoted(string(f.State)))
	}
	for field, is := range map[string]string{"reference": f.Reference, "key": f.Key, "kind": f.Kind, "term": f.Term} {
		if is != "" {
			return unsupported(field, "finding messages by %s is not supported", field)
		}
	}
	return nil
}

// reads takes the entries of queues that can have a state.
func (l *listing) reads(ctx context.Context, queues []*queue, state posthaste.State) error {
	for _, q := range queues {
		for _, d := range l.e.holding.ofQueue(q.Name) {
			l.e.takesHeld(l.of(q, d.meta.ID), d)
		}
		for _, filter := range append(q.waitFilters(), q.subjects.under("s.>"), q.subjects.under("d.>")) {
			err := l.e.newest(ctx, q.stream, filter, func(m *rawEntry) {
				if x, _, err := decode(m.Header, m.Data); err == nil {
					l.e.takes(l.of(q, x.ID), m)
				}
			})
			if err != nil {
				return err
			}
		}
		if q.Options.Ordered {
			if err := l.readsKept(ctx, q); err != nil {
				return err
			}
		}
	}
	switch state {
	case posthaste.StateReady, posthaste.StateScheduled, posthaste.StateRetrying, posthaste.StateRunning, posthaste.StateDead:
		return nil
	}
	byNo := map[int]*queue{}
	for _, q := range queues {
		byNo[q.No] = q
	}
	return l.e.newest(ctx, l.e.prefix+"-log", l.e.prefix+".log.out.>", func(m *rawEntry) {
		if x, _, err := decode(m.Header, m.Data); err == nil && byNo[queueNumber(x.ID)] != nil {
			l.e.takes(l.of(byNo[queueNumber(x.ID)], x.ID), m)
		}
	})
}

// readsKept takes what an ordered queue keeps beside the messages that come again.
func (l *listing) readsKept(ctx context.Context, q *queue) error {
	return l.e.newest(ctx, q.stream, q.subjects.under("n", "*", "*", "kept"), func(m *rawEntry) {
		tokens := strings.Split(m.Subject, ".")
		if id, err := strconv.ParseInt(tokens[len(tokens)-2], 10, 64); err == nil && l.byID[posthaste.MessageID(id)] != nil {
			l.byID[posthaste.MessageID(id)].takesKept(m)
		}
	})
}

// of returns the sight of a message, which it makes if necessary.
func (l *listing) of(q *queue, id posthaste.MessageID) *sight {
	s := l.byID[id]
	if s == nil {
		s = &sight{q: q, id: id, places: map[string]*place{}}
		l.byID[id] = s
	}
	return s
}

// floor asks once for each consumer.
func (l *listing) floor(ctx context.Context, q *queue, sub *subscription, track int) (uint64, error) {
	name := q.Name + " " + sub.Name + " " + strconv.Itoa(track)
	if n, known := l.floors[name]; known {
		return n, nil
	}
	n, err := l.e.floor(ctx, q, sub, track)
	l.floors[name] = n
	return n, err
}

// ofQueue returns the deliveries of a queue.
func (h *holding) ofQueue(name string) (all []*held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.byID {
		if d.q.Name == name {
			all = append(all, d)
		}
	}
	return all
}
