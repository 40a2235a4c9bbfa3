package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// A sender that knows a queue from before it was dropped stores nothing in it: sending fails
// with not_found.
func TestDroppedQueueTakesNothing(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		send(t, e, 1)
		other, err := New(t.Context(), e.client, WithPrefix(e.keys.prefix))
		if err != nil {
			t.Fatal(err)
		}
		if err := other.DropQueue(t.Context(), jobs, posthaste.DropOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err = e.Send(t.Context(), posthaste.Message{Queue: jobs})
		if posthaste.CodeOf(err) != posthaste.CodeNotFound {
			return fmt.Sprintf("sending ended with %v", err)
		}
		return ""
	}, patch{&sendScript, "if meta[1] ~= numbers[q] then return {'gone', q} end", "meta[2] = meta[2] or 0"})
}

// A slow drop or creation of a queue does not touch a queue of the same name that another
// program has created meanwhile.
func TestSlowDropAndMake(t *testing.T) {
	anew := func(t *testing.T, e *Engine) {
		if err := e.DropQueue(t.Context(), jobs, posthaste.DropOptions{}); err != nil {
			t.Fatal(err)
		}
		create(t, e, posthaste.QueueOptions{})
		send(t, e, 3)
	}
	lost := func(t *testing.T, e *Engine, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		reply, err := e.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 10, Lease: time.Minute})
		if err != nil || len(reply.Deliveries) != 3 {
			return fmt.Sprintf("%d of 3 were handed out: %v", len(reply.Deliveries), err)
		}
		return ""
	}
	drop := func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		created, err := dropScript.run(t.Context(), e.client, e.dropKeys(), arguments{{"name", jobs}, {"created", ""}})
		if err != nil {
			t.Fatal(err)
		}
		anew(t, e)
		if _, err = clearScript.run(t.Context(), e.client, e.keys.queue(jobs, true), arguments{{"created", created}, {"readers", ""}}); err == nil {
			_, err = dropScript.run(t.Context(), e.client, e.dropKeys(), arguments{{"name", jobs}, {"created", created}})
		}
		return lost(t, e, err)
	}
	removed := func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		created, err := dropScript.run(t.Context(), e.client, e.dropKeys(), arguments{{"name", jobs}, {"created", ""}})
		if err != nil {
			t.Fatal(err)
		}
		anew(t, e)
		_, err = dropScript.run(t.Context(), e.client, e.dropKeys(), arguments{{"name", jobs}, {"created", ""}}) // another program drops the new one
		if err == nil {
			_, err = dropScript.run(t.Context(), e.client, e.dropKeys(), arguments{{"name", jobs}, {"created", created}})
		}
		if err != nil {
			t.Fatal(err)
		}
		if is, err := e.client.HExists(t.Context(), e.keys.queues(), jobs).Result(); err != nil || !is {
			return fmt.Sprintf("another's drop was taken for done: %v", err)
		}
		return ""
	}
	made := func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		old, err := e.registry.queue(t.Context(), jobs)
		if err != nil {
			t.Fatal(err)
		}
		anew(t, e)
		return lost(t, e, e.make(t.Context(), old))
	}
	t.Run("drop", func(t *testing.T) {
		rule(t, drop, patch{&clearScript, "if not made or tonumber(made) <= tonumber(created) then", "if true then"})
	})
	t.Run("removed", func(t *testing.T) {
		rule(t, removed, patch{&dropScript, "mark == '-' and made == created", "mark == '-'"})
	})
	t.Run("make", func(t *testing.T) {
		rule(t, made, patch{&makeScript, " and tonumber(meta[2] or 0) <= tonumber(created)", ""})
	})
}

// A program that creates the keys of a queue that was dropped meanwhile leaves none of them
// behind. Otherwise senders that still know the queue would store messages that no reader
// finds.
func TestMadeWhileItIsDropped(t *testing.T) {
	t.Parallel()
	e, other := open(t, server.URL()), open(t, server.URL())
	other.keys = e.keys
	create(t, e, posthaste.QueueOptions{})
	q, err := e.registry.queue(t.Context(), jobs)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.DropQueue(t.Context(), jobs, posthaste.DropOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := e.make(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	left, err := e.client.Keys(t.Context(), "{"+e.keys.prefix+":"+jobs+"}*").Result()
	if err != nil || len(left) > 0 {
		t.Errorf("left are %v: %v", left, err)
	}
	if ids, err := posthaste.IDs(e.Send(t.Context(), posthaste.Message{Queue: jobs})); posthaste.CodeOf(err) != posthaste.CodeNotFound {
		t.Errorf("sent as %v: %v", ids, err)
	}
}

// Messages that an interrupted purge has put aside and not cancelled are not handed out, and
// the next purge cancels them.
func TestPurgeCutShort(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{})
	ids := send(t, e, 30)
	for _, args := range []arguments{nil, {{"most", 10}}} {
		s := asideScript
		if args != nil {
			s = purgeScript
		}
		if _, _, err := e.on(t.Context(), s, posthaste.QueueRef{Queue: jobs}, func(q *queue) arguments {
			return append(arguments{{"number", q.numberArg}, {"rules", q.rules}}, args...)
		}); err != nil {
			t.Fatal(err)
		}
	}
	later := send(t, e, 5)
	w := register(t, e)
	if d := claim(t, e, w, 1, 2); len(d) != 2 || d[0].MessageID != later[0] {
		t.Errorf("handed out %+v, want the first that were sent after the purge", d)
	}
	if told, err := e.Cancel(posthaste.WithActor(t.Context(), "ada"), ids[20]); err != nil || !told[0].InTime {
		t.Errorf("cancelling a message that is being purged: %+v, %v", told, err)
	}
	purged, err := e.PurgeQueue(posthaste.WithActor(t.Context(), "ada"), jobs)
	if err != nil || purged[0].Messages != 22 {
		t.Errorf("the next purge took %+v, want the 19 left over and 3: %v", purged, err)
	}
	for _, id := range ids {
		if m, err := e.Message(t.Context(), id); err != nil || m.Subscriptions[0].State != posthaste.StateCancelled {
			t.Fatalf("message %d is told as %+v: %v", id, m, err)
		}
	}
	infos, err := e.Queues(t.Context(), jobs)
	if s := infos[0].Subscriptions[0]; err != nil || s.Depth != 0 || s.InFlight != 2 || s.Withdrawn != 33 {
		t.Errorf("%+v: %v", s, err)
	}
}

// A message that is rescheduled twice, before and during a purge, is not purged.
func TestRescheduledDuringAPurge(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{Retention: time.Hour})
		id := send(t, e, 1)[0]
		later := func(in time.Duration) bool {
			t.Helper()
			moved, err := e.Reschedule(posthaste.WithActor(t.Context(), "ada"), id, time.Now().Add(in))
			if err != nil || len(moved) != 1 {
				t.Fatal(moved, err)
			}
			return moved[0].InTime
		}
		if !later(time.Hour) {
			return "it was not rescheduled"
		}
		if reply, _, err := e.together(t.Context(), asideScript, jobs); err != nil || reply != int64(1) {
			t.Fatal(reply, err)
		}
		in := later(2 * time.Hour)
		if _, err := e.cancelAside(t.Context(), jobs); err != nil {
			t.Fatal(err)
		}
		info, err := e.Message(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if state := info.Subscriptions[0].State; in != (state == posthaste.StateScheduled) || !in && state != posthaste.StateCancelled {
			return fmt.Sprintf("in time: %v, and it is %s", in, state)
		}
		return ""
	}, patch{&withdrawScript, " + call('ZREM', ASIDE_DUE, member) + call('ZREM', ASIDE_ALONE, member)", ""})
}
