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
	byID   map[posthaste.MessageID]*lookup
	floors map[string]uint64 // of consumers, by queue and name
}

// Messages implements [posthaste.MessageAdmin]. It reads the newest 10,000 entries of each kind: waiting
// messages, schedules, dead letters, and outcomes. Messages can be selected by queue, state and time only.
func (e *Engine) Messages(ctx context.Context, f posthaste.MessageFilter) (page posthaste.Page[posthaste.MessageInfo], err error) {
	limit, err := listLimit(f.Limit, "messages")
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
	l := &listing{e: e, byID: map[posthaste.MessageID]*lookup{}, floors: map[string]uint64{}}
	if err := l.read(ctx, queues, f.State); err != nil {
		return page, err
	}
	now := e.clock.now()
	for _, id := range slices.SortedFunc(maps.Keys(l.byID), func(a, b posthaste.MessageID) int { return cmp.Compare(b, a) }) {
		if f.Before != 0 && id >= f.Before || len(page.Items) == limit {
			continue
		}
		s := l.byID[id]
		if err := s.spreadShared(func(sub *subscription, lane int) (uint64, error) { return l.ackFloor(ctx, s.q, sub, lane) }); err != nil {
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

// read adds the entries of queues that can have a state.
func (l *listing) read(ctx context.Context, queues []*queue, state posthaste.State) error {
	for _, q := range queues {
		for _, d := range l.e.holding.ofQueue(q.Name) {
			l.e.addHeld(l.of(q, d.meta.ID), d)
		}
		for _, filter := range append(q.waitFilters(), q.subjects.under("s.>"), q.subjects.under("d.>")) {
			_, err := l.e.newest(ctx, q.stream, filter, func(m *rawEntry) {
				if x, _, err := decode(m.Header, m.Data); err == nil {
					l.e.addEntry(l.of(q, x.ID), m)
				}
			})
			if err != nil {
				return err
			}
		}
		if q.Options.Ordered {
			if err := l.readKept(ctx, q); err != nil {
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
	_, err := l.e.newest(ctx, l.e.prefix+"-log", l.e.prefix+".log.out.>", func(m *rawEntry) {
		if x, _, err := decode(m.Header, m.Data); err == nil && byNo[queueNumber(x.ID)] != nil {
			l.e.addEntry(l.of(byNo[queueNumber(x.ID)], x.ID), m)
		}
	})
	return err
}

// readKept adds the fields that an ordered queue stores beside its messages, see kept.
func (l *listing) readKept(ctx context.Context, q *queue) error {
	_, err := l.e.newest(ctx, q.stream, q.subjects.under("n", "*", "*", "kept"), func(m *rawEntry) {
		tokens := strings.Split(m.Subject, ".")
		if id, err := strconv.ParseInt(tokens[len(tokens)-2], 10, 64); err == nil && l.byID[posthaste.MessageID(id)] != nil {
			l.byID[posthaste.MessageID(id)].addKept(m)
		}
	})
	return err
}

// of returns the lookup of a message, which it makes if necessary.
func (l *listing) of(q *queue, id posthaste.MessageID) *lookup {
	s := l.byID[id]
	if s == nil {
		s = &lookup{q: q, id: id, locations: map[string]*location{}}
		l.byID[id] = s
	}
	return s
}

// ackFloor is floor of the engine, which it calls once for each consumer.
func (l *listing) ackFloor(ctx context.Context, q *queue, sub *subscription, lane int) (uint64, error) {
	name := q.Name + " " + sub.Name + " " + strconv.Itoa(lane)
	if n, known := l.floors[name]; known {
		return n, nil
	}
	n, err := l.e.ackFloor(ctx, q, sub, lane)
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
