// Package posthastetest helps to test programs that send and handle messages. It returns the
// sent messages, runs a worker until all are handled, calls a single handler, and sets the
// clock.
//
// It works with every engine. [Memory] is an engine in memory for tests without a database.
// Tests that need transactions get a new database each.
package posthastetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/memory"
	"github.com/posthaste-mq/posthaste/internal/scratch"
	"github.com/posthaste-mq/posthaste/worker"
)

// patience is how long Drain waits without any change before it gives up, and how long a step
// at the database may take.
const patience = 30 * time.Second

// page is the number of messages per page of a listing.
const page = 1000

// Memory returns an engine that lives in this process and keeps every message. It behaves like
// the engine on PostgreSQL, except that it has no transactions, ordered queues, limits or
// additional subscriptions; it returns an error for those. It works in a synctest bubble,
// together with a client and a worker that are created there.
//
// With a [Clock], of which it takes at most one, its time is that of the clock.
func Memory(clock ...*Clock) posthaste.Store {
	switch len(clock) {
	case 0:
		return memory.Open()
	case 1:
		return clock[0].open()
	}
	panic("posthastetest: an engine has one clock")
}

// Database creates a database with the schema on the server of serverURL, and returns its URL.
// The user needs the privilege to create databases. The database is dropped with the test.
// Open it with postgres.Open, and close all connections to it within the test.
func Database(t testing.TB, serverURL string) (databaseURL string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	databaseURL, drop, err := scratch.Make(ctx, serverURL)
	if err != nil {
		t.Fatalf("no database for the test: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := drop(ctx); err != nil {
			t.Errorf("the test's database cannot be dropped: %v", err)
		}
	})
	return databaseURL
}

// Sent returns every message of a queue in any state, oldest first and with its payload.
// Messages sent in a transaction are included after its commit.
func Sent(t testing.TB, engine posthaste.Store, queue string) []posthaste.MessageInfo {
	t.Helper()
	found := list(t, engine, queue)
	slices.Reverse(found)
	for i := range found {
		m, err := engine.Message(t.Context(), found[i].ID)
		if err != nil {
			t.Fatalf("message %s of queue %s: %v", found[i].ID, queue, err)
		}
		found[i] = m
	}
	return found
}

// Payloads returns the payloads of every message of a queue, oldest first, decoded by content
// type as in [posthaste.Decode].
func Payloads[T any](t testing.TB, engine posthaste.Store, queue string, codecs ...posthaste.Codec) []T {
	t.Helper()
	sent := Sent(t, engine, queue)
	payloads := make([]T, len(sent))
	for i, m := range sent {
		payloads[i] = decoded[T](t, m, codecs)
	}
	return payloads
}

// list returns the messages of a queue, newest first.
func list(t testing.TB, engine posthaste.Store, queue string) (all []posthaste.MessageInfo) {
	t.Helper()
	filter := posthaste.MessageFilter{Queue: queue, Limit: page}
	for {
		found, err := engine.Messages(t.Context(), filter)
		if err != nil {
			t.Fatalf("the messages of queue %s: %v", queue, err)
		}
		all = append(all, found.Items...)
		switch {
		case found.Next != 0:
			filter.Before = found.Next
		case len(found.Items) == page:
			filter.Before = found.Items[page-1].ID
		default:
			return all
		}
	}
}

// Drain runs a worker, which must not have run before, until every message of its queues has
// ended: done, dead or cancelled. This includes messages that handlers send meanwhile, and
// retries. Only messages that are scheduled for later (also by snoozing) remain, and on an engine
// with a [Clock] retries that the clock has not reached. Then it stops the worker.
//
// The test fails if the worker cannot run, or if nothing changes for 30 s: give a queue whose
// handler fails a short backoff.
func Drain(t testing.TB, engine posthaste.Store, w *worker.Worker) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	ran := wait(t, engine, w, ended)
	stop()
	if ran {
		if err := <-ended; err != nil {
			t.Fatalf("the worker: %v", err)
		}
	}
}

// wait waits until no messages are left, and reports whether the worker still runs.
func wait(t testing.TB, engine posthaste.Store, w *worker.Worker, ended <-chan error) (runs bool) {
	t.Helper()
	last, changed := "", time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		what, done := left(t, engine, w.Reads())
		if done {
			return true
		}
		if what != last {
			last, changed = what, time.Now()
		} else if time.Since(changed) > patience {
			t.Errorf("nothing changed for %s, and these messages have not ended:\n%s", patience, what)
			return true
		}
		select {
		case <-time.After(pause):
		case err := <-ended:
			t.Errorf("the worker ended before its messages: %v", err)
			return false
		}
	}
}

// left describes the messages that have not ended. They are examined one after the other, so a
// message that was sent by one that ended meanwhile may be missed. So none are left only if
// none is newer than the examined ones.
func left(t testing.TB, engine posthaste.Store, reads []posthaste.QueueRef) (what string, none bool) {
	t.Helper()
	var lines []string
	newest := map[string]posthaste.MessageID{}
	later := func(posthaste.MessageState) bool { return false }
	if e, ok := engine.(*memory.Engine); ok {
		now, still := e.Now()
		later = func(s posthaste.MessageState) bool { return still && s.DueAt.After(now) }
	}
	for _, ref := range reads {
		messages := list(t, engine, ref.Queue)
		newest[ref.Queue] = newestOf(messages)
		for _, m := range messages {
			for _, s := range m.Subscriptions {
				if s.Subscription == ref.Subscription && waits(s.State) && !later(s) {
					lines = append(lines, describe(m, s))
				}
			}
		}
	}
	if len(lines) > 0 {
		return strings.Join(lines[:min(len(lines), 20)], "\n"), false
	}
	for queue, id := range newest {
		found, err := engine.Messages(t.Context(), posthaste.MessageFilter{Queue: queue, Limit: 1})
		if err != nil {
			t.Fatalf("the messages of queue %s: %v", queue, err)
		}
		if newestOf(found.Items) != id {
			return "", false
		}
	}
	return "", true
}

func newestOf(messages []posthaste.MessageInfo) posthaste.MessageID {
	if len(messages) == 0 {
		return 0
	}
	return messages[0].ID
}

func waits(s posthaste.State) bool {
	return s == posthaste.StateReady || s == posthaste.StateRunning || s == posthaste.StateRetrying
}

func describe(m posthaste.MessageInfo, s posthaste.MessageState) string {
	line := fmt.Sprintf("message %s of queue %s (%s) is %s", m.ID, m.Queue, s.Subscription, s.State)
	if !s.DueAt.IsZero() {
		line += " until " + s.DueAt.Format(time.TimeOnly)
	}
	if n := len(s.Attempts); n > 0 {
		line += fmt.Sprintf(" after attempt %d", s.Attempts[n-1].Attempt)
		if text := s.Attempts[n-1].Error; text != "" {
			line += ": " + text
		}
	}
	return line
}
