package enginetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var backlog = []test{
	{name: "DS10_DueBesideBacklog", needs: features{Exact: true}, run: dueBesideBacklog(nil)},
	{name: "DS10_DueBesideBacklogOfALimitedQueue", needs: features{Limits: true}, run: dueBesideBacklog(func(o *posthaste.QueueOptions) {
		o.Limits.Concurrency = 100_000
	})},
	{name: "DS10_DueBesideBacklogOfAnOrderedQueue", needs: features{Ordered: true, Exact: true}, run: dueBesideBacklog(func(o *posthaste.QueueOptions) {
		o.Ordered = true
	})},
}

// dueBesideBacklog checks that a delayed message that is due and a retry do not wait behind a
// backlog of new messages. An ordered queue accepts no delayed messages.
func dueBesideBacklog(change func(*posthaste.QueueOptions)) func(s *suite) {
	const fresh, most, claims = 1000, 100, 4
	return func(s *suite) {
		o := quick()
		if change != nil {
			change(&o)
		}
		s.create(o)
		message := func(n int, delay time.Duration) posthaste.Message {
			m := posthaste.Message{Queue: s.queue, Payload: n, Delay: delay}
			if o.Ordered {
				m.Key = fmt.Sprint("key ", n)
			}
			return m
		}
		send := func(messages ...posthaste.Message) []posthaste.MessageID {
			ids, err := posthaste.IDs(s.engine.Send(s.ctx, messages...))
			s.must(err)
			return ids
		}
		w := s.register(time.Minute)
		again := send(message(fresh, 0))[0]
		s.settle(failed, s.claimed(w, 1)...)
		due := again
		if !o.Ordered {
			due = send(message(fresh+1, time.Millisecond))[0]
		}
		s.until("the delayed message and the retry are due", func() bool {
			return time.Since(s.state(again).DueAt) > 0 && time.Since(s.state(due).DueAt) > 0
		})
		var all []posthaste.Message
		for n := range fresh {
			all = append(all, message(n, 0))
		}
		send(all...)
		var came []posthaste.MessageID
		for range claims {
			came = append(came, messageIDs(s.claim(w, most))...)
		}
		if len(came) < most || !slices.Contains(came, again) || !slices.Contains(came, due) {
			s.Errorf("beside a backlog of %d, %d claims handed out %d messages; the delayed one was among them: %t, the retry: %t",
				fresh, claims, len(came), slices.Contains(came, due), slices.Contains(came, again))
		}
	}
}
