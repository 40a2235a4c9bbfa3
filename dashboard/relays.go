package dashboard

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/server"
)

// relaysRead is for how many relays the page reads the last error, which takes two calls each.
const relaysRead = 50

// relayRow is a subscription whose messages workers deliver to an external system.
type relayRow struct {
	posthaste.WorkerSink
	Paused bool
	// Info has the counters of the subscription. Known is false if it does not exist any more.
	Info  posthaste.SubscriptionInfo
	Known bool
	// Workers are the processes, those that are alive first.
	Workers []posthaste.WorkerStatus
	// Error is the last error of a message that waits for its retry or is a dead letter, with the
	// number of its attempts.
	Error    string
	ErrorAt  time.Time
	Message  posthaste.MessageID
	Attempts int
	// Retrying reports that the message waits for its retry.
	Retrying bool
	// Hidden reports that the viewer may not see the error.
	Hidden bool
}

// Alive reports whether a process runs the relay.
func (r relayRow) Alive() bool { return len(r.Workers) > 0 && r.Workers[0].LostAt.IsZero() }

// State is the state in one word.
func (r relayRow) State() string {
	switch {
	case r.Paused:
		return "paused"
	case !r.Alive():
		return "lost"
	case r.Retrying:
		return "failing"
	case r.Info.InFlight > 0 || r.Info.DonePerSecond > 0:
		return "running"
	case r.Info.Depth > 0:
		return "waiting"
	}
	return "idle"
}

// relays returns the relays that the registered workers name, by queue and destination.
func relays(s *snapshot) (rows []relayRow) {
	for _, w := range s.workers {
		for _, sink := range w.Sinks {
			i := slices.IndexFunc(rows, func(r relayRow) bool { return r.WorkerSink == sink })
			if i < 0 {
				i = len(rows)
				rows = append(rows, relayRow{WorkerSink: sink})
			}
			rows[i].Workers = append(rows[i].Workers, w)
		}
	}
	for i := range rows {
		r := &rows[i]
		slices.SortFunc(r.Workers, func(a, b posthaste.WorkerStatus) int {
			if a.LostAt.IsZero() != b.LostAt.IsZero() {
				return map[bool]int{true: -1, false: 1}[a.LostAt.IsZero()]
			}
			return strings.Compare(a.Name, b.Name)
		})
		q := s.queue(r.Queue)
		if q == nil {
			continue
		}
		r.Paused = !q.PausedAt.IsZero()
		for _, sub := range q.Subscriptions {
			if sub.Name == r.Subscription {
				r.Info, r.Known = sub, true
			}
		}
	}
	slices.SortFunc(rows, func(a, b relayRow) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Subscription, b.Subscription), cmp.Compare(a.Destination, b.Destination))
	})
	return rows
}

func (d *dashboard) showRelays(p *page) error {
	s, err := d.snapshots.look(p.ctx())
	if err != nil {
		return err
	}
	if s.workErr != nil {
		return s.workErr
	}
	rows := relays(s)
	for i := range rows[:min(len(rows), relaysRead)] {
		if !rows[i].Known {
			continue
		}
		// Errors of mail servers name recipients.
		rows[i].Hidden = rows[i].Queue == server.MailQueue && !p.Allows(server.ScopeReadPayload)
		if err := p.readError(&rows[i]); err != nil && posthaste.CodeOf(err) != posthaste.CodeNotFound { // it was dropped
			return err
		}
	}
	return p.show("relays", "Relays", "relays", false, struct {
		Relays         []relayRow
		CLI, Curl, SQL string
	}{rows, command("worker", "ls"), curl("GET", "/v1/workers", ""), ""})
}

// readError reads the last error of a relay: that of the newest message that waits for its retry,
// or that of the newest dead letter, whichever is later.
func (p *page) readError(r *relayRow) error {
	// The counters may be older than the messages, and do not tell whether there are any.
	dead, err := p.d.engine.DeadLetters(p.ctx(), posthaste.DeadLetterFilter{Queue: r.Queue, Subscription: r.Subscription, Limit: 1})
	if err != nil {
		return err
	}
	for _, letter := range dead.Items {
		r.Error, r.ErrorAt, r.Message, r.Attempts = letter.Error, letter.DiedAt, letter.ID, len(letter.Attempts)
	}
	if !p.d.can.Search {
		return nil
	}
	retried, err := p.d.engine.Messages(p.ctx(), posthaste.MessageFilter{Queue: r.Queue, State: posthaste.StateRetrying, Limit: 20})
	if err != nil {
		return err
	}
	for _, m := range retried.Items {
		for _, state := range m.Subscriptions {
			if state.Subscription != r.Subscription || state.State != posthaste.StateRetrying || len(state.Attempts) == 0 {
				continue
			}
			r.Retrying = true
			if last := state.Attempts[len(state.Attempts)-1]; r.Error == "" || last.EndedAt.After(r.ErrorAt) {
				r.Error, r.ErrorAt, r.Message, r.Attempts = last.Error, last.EndedAt, m.ID, len(state.Attempts)
			}
		}
	}
	return nil
}
