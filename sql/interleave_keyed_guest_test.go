package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Subscriptions that come and go in the random interleavings of a keyed queue, and an actor that
// reschedules messages.

// keyedGuest is one life of a subscription. Its name is used once.
type keyedGuest struct {
	name, kind, from string
	begun, made      int64 // by the test's clock; made is 0 until it is known
	gone             bool  // it is being unsubscribed
}

// guest subscribes, reads for a random time, and unsubscribes in the middle of that.
func (x *keyedRun) guest(conn *pgx.Conn, r *rand.Rand) {
	for x.ctx.Err() == nil {
		g := &keyedGuest{from: []string{"now", "oldest"}[r.IntN(2)], kind: []string{"", "y"}[r.IntN(2)]}
		options := fmt.Sprintf(`{"from": %q, "scheduled": %v`, g.from, g.from == "now" && r.IntN(2) == 0)
		if g.kind != "" {
			options += fmt.Sprintf(`, "filter": {"kind": %q}`, g.kind)
		}
		x.mu.Lock()
		g.name = fmt.Sprint("guest-", len(x.visitors))
		g.begun = x.clock.Add(1)
		x.visitors[g.name] = g
		x.mu.Unlock()
		if !x.exec(conn, `select posthaste.subscribe('q', $1, $2)`, g.name, options+"}") {
			return
		}
		x.mu.Lock()
		g.made = x.clock.Add(1)
		x.mu.Unlock()
		read := x.receiver
		if x.workers > 0 {
			read = x.worker
		}
		var wg sync.WaitGroup
		for range 2 {
			seed := r.Uint64()
			wg.Go(func() {
				c := x.connect()
				defer c.Close(context.Background())
				read(c, rand.New(rand.NewPCG(seed, 0)), g.name)
			})
		}
		x.stays(time.Duration(50+r.IntN(500)) * time.Millisecond)
		if x.ctx.Err() == nil {
			x.leave(conn, g)
		}
		wg.Wait()
	}
}

// leave ends a subscription, and forgets the messages that it would have got.
func (x *keyedRun) leave(conn *pgx.Conn, g *keyedGuest) {
	x.mu.Lock()
	g.gone = true
	maps.DeleteFunc(x.messages, func(id keyedID, _ *keyedMessage) bool { return id.subscription == g.name })
	maps.DeleteFunc(x.byKey, func(k keyedKey, _ []*keyedMessage) bool { return k.subscription == g.name })
	x.died = slices.DeleteFunc(x.died, func(m *keyedMessage) bool { return m.key.subscription == g.name })
	x.mu.Unlock()
	if _, err := conn.Exec(context.Background(), `select posthaste.unsubscribe('q', $1)`, g.name); err != nil {
		x.fault("error: unsubscribe %s: %v", g.name, err)
	}
}

// isGone reports under the mutex whether a subscription has ended, or is being ended.
func (x *keyedRun) isGone(name string) bool {
	g := x.visitors[name]
	return g != nil && g.gone
}

func (x *keyedRun) gone(name string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.isGone(name)
}

// refusedFor records an error, unless the subscription is gone, which may be the reason.
func (x *keyedRun) refusedFor(name, what string, err error) {
	var pg *pgconn.PgError
	if x.gone(name) && errors.As(err, &pg) && (pg.Code == "PH404" || pg.Code == "PH409") {
		return
	}
	x.fault("error: %s: %v", what, err)
}

// copies returns messages as the guests have them that must get them: those that existed before
// the commit. Under the mutex.
func (x *keyedRun) copies(sent []*keyedMessage) (out []*keyedMessage) {
	for _, g := range x.visitors {
		for _, m := range sent {
			if g.made != 0 && !g.gone && m.key.subscription == "default" && (g.kind == "" || g.kind == m.kind) {
				out = append(out, &keyedMessage{id: m.id, kind: m.kind, key: keyedKey{g.name, m.key.key}, begun: m.begun})
			}
		}
	}
	return out
}

// entry returns a message as a subscription has it, nil if it is not for it. A guest may get
// messages that were sent before it was created: these are recorded only when they come.
// Under the mutex.
func (x *keyedRun) entry(id keyedID) *keyedMessage {
	if m := x.messages[id]; m != nil {
		return m
	}
	g, m := x.visitors[id.subscription], x.messages[keyedID{"default", id.message}]
	if g == nil || g.gone || m == nil || g.kind != "" && g.kind != m.kind ||
		g.from == "now" && m.committed != 0 && m.committed < g.begun && !m.moved {
		return nil
	}
	own := &keyedMessage{id: m.id, kind: m.kind, key: keyedKey{g.name, m.key.key}, begun: m.begun, committed: m.committed,
		rolledBack: m.rolledBack, cancelling: m.cancelling, moved: m.moved, noted: x.clock.Add(1)}
	x.messages[id] = own
	x.byKey[own.key] = append(x.byKey[own.key], own)
	return own
}

// everywhere returns a message as each subscription that may have it has it. Under the mutex.
func (x *keyedRun) everywhere(id int64) (out []*keyedMessage) {
	for name := range keyedSubscriptions {
		if m := x.messages[keyedID{name, id}]; m != nil {
			out = append(out, m)
		}
	}
	for name := range x.visitors {
		if m := x.messages[keyedID{name, id}]; m != nil {
			out = append(out, m)
		}
	}
	return out
}

// mover reschedules messages that were sent recently, or that wait for others of their key, until
// sending ends.
func (x *keyedRun) mover(conn *pgx.Conn, r *rand.Rand) {
	for x.sending() {
		pause(r, 0, 20)
		id, ok := x.recent(conn, r)
		if !ok {
			continue
		}
		most := 250
		if r.IntN(4) == 0 {
			most = 2000 // parked messages wait for long anyway
		}
		at := time.Now().Add(time.Duration(r.IntN(most)-20) * time.Millisecond).Truncate(time.Microsecond)
		over := map[string]bool{}
		x.mu.Lock()
		for _, m := range x.everywhere(id) {
			over[m.key.subscription] = m.over()
			m.moved, m.movedAt = true, math.MaxInt64
		}
		x.mu.Unlock()
		rows, err := conn.Query(context.Background(), `select subscription from posthaste.reschedule($1, $2) where rescheduled`, id, at)
		var names []string
		if err == nil {
			names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		}
		var pg *pgconn.PgError
		if err != nil && !(errors.As(err, &pg) && pg.Code == "PH404") {
			x.unexpected("reschedule", err)
			return
		}
		x.mu.Lock()
		for _, name := range names {
			m := x.entry(keyedID{name, id})
			switch {
			case m == nil && !x.isGone(name):
				x.found("message %d was moved for subscription %s, which it is not for", id, name)
			case m == nil:
			case over[name]:
				x.found("message %d was moved for subscription %s after it was done, cancelled or discarded: %v", id, name, m.story)
			default:
				m.movedAt, m.notBefore = x.clock.Add(1), at
				m.story = append(m.story, fmt.Sprintf("%d: moved to %s", m.movedAt, at))
			}
		}
		x.mu.Unlock()
	}
}

// recent returns a message that was sent recently, or is parked now.
func (x *keyedRun) recent(conn *pgx.Conn, r *rand.Rand) (id int64, ok bool) {
	x.mu.Lock()
	n := len(x.sent)
	if n > 0 {
		id = x.sent[n-1-r.IntN(min(n, 30))]
	}
	x.mu.Unlock()
	if n > 0 && r.IntN(2) == 0 {
		// A message that is parked now, if there is one.
		_ = conn.QueryRow(context.Background(), `select message_id from posthaste.parked order by random() limit 1`).Scan(&id)
	}
	return id, n > 0
}

// isEarly reports under the mutex whether a message that a claim handed out was rescheduled,
// before that claim began, to a time in the future.
func (m *keyedMessage) isEarly(asked int64) bool {
	return asked > m.movedAt && time.Now().Round(0).Before(m.notBefore)
}
