package nats

import (
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
)

// firedJob lets the schedule of a message fire, of its first attempt or of a retry, and returns what a
// second leader would publish for it.
func firedJob(t *testing.T, e *Engine, retry bool) (id posthaste.MessageID, second *natsgo.Msg) {
	t.Helper()
	q := e.queues.known("jobs")
	m := posthaste.Message{Payload: "once"}
	if !retry {
		m.Delay = 100 * time.Millisecond
	}
	id = sendJobs(t, e, m)[0]
	schedule, target := q.subjects.under("s", id.String()), q.subjects.under("q", "0")
	if retry {
		var got []posthaste.RawDelivery
		until(t, t.Context(), "it comes", func() bool { got = receiveJobs(t, e, 1); return len(got) == 1 })
		settleJob(t, e, got[0], posthaste.Settlement{Outcome: posthaste.OutcomeRetried, RetryAfter: 100 * time.Millisecond, Error: "no"})
		schedule, target = q.subjects.under("s", id.String(), posthaste.DefaultSubscription), q.subjects.under("r", posthaste.DefaultSubscription, "0")
	}
	var first *rawEntry
	until(t, t.Context(), "the schedule fires", func() (is bool) {
		var err error
		first, err = e.lastOn(t.Context(), q.stream, target)
		must(t, err)
		return first != nil && first.Header.Get(headerScheduler) == schedule
	})
	for _, of := range [...]string{headerBatch, headerBatchPlace, headerBatchCommits} { // only a server can publish these alone
		first.Header.Del(of)
	}
	return id, &natsgo.Msg{Subject: target, Header: first.Header, Data: first.Data}
}

func publishAgain(t *testing.T, e *Engine, m *natsgo.Msg) {
	t.Helper()
	_, err := e.js.PublishMsg(t.Context(), m)
	must(t, err)
}

func settleJob(t *testing.T, e *Engine, d posthaste.RawDelivery, s posthaste.Settlement) {
	t.Helper()
	s.Delivery = d.ID
	if r, err := e.Settle(t.Context(), []posthaste.Settlement{s}); err != nil || !r[0].Settled {
		t.Fatalf("%s: settled as %+v, %v", d.MessageID, r, err)
	}
}

// A schedule that fires twice, when its stream changes the leader, gives two entries. Two processes run
// both, and the message is continued once.
func TestFiredTwiceIsContinuedOnce(t *testing.T) {
	t.Parallel()
	for name, retry := range map[string]bool{"first attempt": false, "retry": true} {
		for _, how := range []posthaste.Outcome{posthaste.OutcomeRetried, posthaste.OutcomeReleased, posthaste.OutcomeDead} {
			t.Run(name+" "+string(how), func(t *testing.T) {
				t.Parallel()
				all := several(t, 2, posthaste.QueueOptions{})
				a, b := all[0], all[1]
				id, second := firedJob(t, a, retry)
				publishAgain(t, a, second)
				one, two := receiveJobs(t, a, 1), receiveJobs(t, b, 1)
				if len(one) != 1 || len(two) != 1 || one[0].MessageID != id || two[0].MessageID != id || one[0].Attempt != two[0].Attempt {
					t.Fatalf("the entries came as %+v and %+v", one, two)
				}
				end := posthaste.Settlement{Outcome: how, Error: "no"}
				if how == posthaste.OutcomeRetried {
					end.RetryAfter = 100 * time.Millisecond
				}
				settleJob(t, a, one[0], end)
				if how == posthaste.OutcomeDead { // the letter is gone before the second entry is settled
					page, err := a.Replay(t.Context(), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{id}})
					if err != nil || len(page.Items) != 1 {
						t.Fatal(page, err)
					}
				}
				var next []posthaste.RawDelivery
				until(t, t.Context(), "it comes again", func() bool { next = receiveJobs(t, a, 1); return len(next) == 1 })
				settleJob(t, a, next[0], posthaste.Settlement{Outcome: posthaste.OutcomeDone})
				settleJob(t, b, two[0], end)
				if letters, err := a.DeadLetters(t.Context(), posthaste.DeadLetterFilter{Queue: "jobs"}); err != nil || len(letters.Items) > 0 {
					t.Errorf("dead letters are left: %+v, %v", letters.Items, err)
				}
				if got := receiveJobs(t, a, 1); len(got) > 0 {
					t.Errorf("it came once more: %+v", got)
				}
				q := a.queues.known("jobs")
				if left, err := a.countFrom(t.Context(), q.stream, q.subjects.under("s.>"), 1); err != nil || left > 0 {
					t.Errorf("%d retries are scheduled, %v", left, err)
				}
			})
		}
	}
}

// Of a schedule that fires twice, a process runs one entry, whether it comes before or after the other one
// is settled.
func TestFiredTwiceRunsOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mode           posthaste.Mode
		retry, settled bool
	}{
		"first attempt runs": {}, "first attempt has run": {settled: true}, "retry runs": {retry: true}, "retry has run": {retry: true, settled: true},
		"at most once": {mode: posthaste.AtMostOnce},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := several(t, 1, posthaste.QueueOptions{Mode: c.mode})[0]
			id, second := firedJob(t, e, c.retry)
			var got []posthaste.RawDelivery
			until(t, t.Context(), "it comes", func() bool { got = receiveJobs(t, e, 1); return len(got) == 1 })
			if got[0].MessageID != id {
				t.Fatalf("%+v came", got)
			}
			if c.settled {
				settleJob(t, e, got[0], posthaste.Settlement{Outcome: posthaste.OutcomeDone})
			}
			publishAgain(t, e, second)
			until(t, t.Context(), "the second entry is acknowledged", func() bool {
				if again := receiveJobs(t, e, 1); len(again) > 0 {
					t.Fatalf("it ran again: %+v", again)
				}
				left, err := e.countFrom(t.Context(), e.queues.known("jobs").stream, second.Subject, 1)
				must(t, err)
				return left <= 1 && (left == 0 || !c.settled)
			})
		})
	}
}

// A process remembers the entries of schedules for a while, and no others.
func TestFiredEntriesAreRemembered(t *testing.T) {
	t.Parallel()
	var f fired
	q, sub := &queue{}, &subscription{}
	at := time.Now()
	comes := func(from, seq uint64, schedule string) bool {
		return f.isSecond(q, sub, &arrival{Msg: &natsgo.Msg{Header: natsgo.Header{headerScheduler: {schedule}}}, meta: &meta{ID: 1, From: from}, seq: seq}, at)
	}
	first, redelivered := comes(1, 10, "s"), comes(1, 10, "s")
	if first || redelivered || !comes(1, 11, "s") || comes(2, 12, "s") {
		t.Error("an entry is not recognized by the one that it continues, and by its sequence")
	}
	if comes(1, 13, "") {
		t.Error("an entry without a schedule counts")
	}
	for n := range uint64(2*firedMost - 2) {
		comes(100+n, 1000+n, "s")
	}
	if n := len(f.last) + len(f.before); n != 2*firedMost || !comes(2, 14, "s") {
		t.Errorf("%d entries are remembered, want %d", n, 2*firedMost)
	}
	at = at.Add(time.Minute)
	if comes(100+firedMost, 15, "s") || !comes(100+firedMost, 16, "s") {
		t.Error("an entry that is stored much later, as after a loss of power, counts as a second one")
	}
	at = at.Add(-time.Minute)
	if comes(1e6, 1e6, "s"); comes(2, 14, "s") {
		t.Errorf("an old entry is remembered for ever")
	}
}
