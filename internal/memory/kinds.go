package memory

import (
	"slices"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// allKinds accepts every kind.
func allKinds(string) bool { return true }

// normal returns kinds by the normal references of their subscriptions.
func normal(kinds map[posthaste.QueueRef][]string) map[posthaste.QueueRef][]string {
	all := map[posthaste.QueueRef][]string{}
	for ref, some := range kinds {
		all[ref.Normal()] = slices.Clone(some)
	}
	return all
}

// handles returns whether w handles a kind in a subscription.
func (w *worker) handles(ref posthaste.QueueRef) func(kind string) bool {
	kinds, some := w.kinds[ref.Normal()]
	if !some {
		return allKinds
	}
	return func(kind string) bool { return slices.Contains(kinds, kind) }
}

// splitApart removes the entries that were set aside and that handles accepts, oldest first. Lone
// ones must run alone. Those that are too old end.
func (q *queue) splitApart(handles func(kind string) bool, now time.Time) (all, lone []*entry) {
	slices.SortStableFunc(q.apart, func(a, b *entry) int { return a.asideAt.Compare(b.asideAt) })
	q.apart = slices.DeleteFunc(q.apart, func(n *entry) bool {
		switch {
		case q.isPaused(n) || !handles(n.m.Kind):
			return false
		case q.expired(n, now):
		case n.losses >= 2:
			lone = append(lone, n)
		default:
			all = append(all, n)
		}
		return true
	})
	return all, lone
}

// isPaused reports whether the entry is of a paused kind.
func (q *queue) isPaused(n *entry) bool { return slices.Contains(q.paused, n.m.Kind) }

// pausedApart sets the entry aside if its kind is paused, and reports whether it did.
func (q *queue) pausedApart(n *entry, now time.Time) bool {
	if !q.isPaused(n) {
		return false
	}
	n.asideAt, n.dueAt = now, now
	q.apart = append(q.apart, n)
	if n.m.state == posthaste.StateScheduled {
		n.m.state = posthaste.StateReady
	}
	return true
}

// switchKind pauses or resumes a kind of messages, and reports whether that changed it. e.mu is
// held.
func (e *Engine) switchKind(what posthaste.OfKind, pause bool) (changed bool, err error) {
	if err := what.Check(); err != nil {
		return false, err
	}
	q, err := e.queue(what.Queue)
	if err != nil {
		return false, err
	}
	is, err := what.Apply(q.paused, pause)
	if err != nil {
		return false, err
	}
	changed = len(is) != len(q.paused)
	q.paused = is
	return changed, nil
}

// hasApart reports whether entries of a kind that handles accepts were set aside.
func (q *queue) hasApart(handles func(kind string) bool) bool {
	return slices.ContainsFunc(q.apart, func(n *entry) bool { return !q.isPaused(n) && handles(n.m.Kind) })
}

// setAside describes the messages that were set aside. e.mu is held.
func (e *Engine) setAside(q *queue, now time.Time) (all []posthaste.SetAside) {
	ref := posthaste.QueueRef{Queue: q.name}.Normal()
	for _, n := range q.apart {
		at := slices.IndexFunc(all, func(s posthaste.SetAside) bool { return s.Kind == n.m.Kind })
		if at < 0 {
			at = len(all)
			all = append(all, posthaste.SetAside{Kind: n.m.Kind, Paused: q.isPaused(n)})
			for _, w := range e.workers {
				all[at].Known = all[at].Known || w.LostAt.IsZero() && w.left() >= 0 && slices.Contains(w.kinds[ref], n.m.Kind)
			}
		}
		all[at].Waiting++
		all[at].OldestAge = max(all[at].OldestAge, now.Sub(n.asideAt))
	}
	slices.SortFunc(all, func(a, b posthaste.SetAside) int { return strings.Compare(a.Kind, b.Kind) })
	return all
}
