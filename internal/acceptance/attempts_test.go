//go:build unix

package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/worker"
)

// impatient returns options of a queue with immediate retries.
func impatient(attempts int) posthaste.QueueOptions { return kind{}.impatient(attempts).QueueOptions }

func (k kind) impatient(attempts int) kind {
	k.MaxAttempts, k.BackoffBase, k.BackoffMax = attempts, time.Millisecond, 2*time.Millisecond
	return k
}

// runs counts how often each message started.
func (s *stage) runs() map[posthaste.MessageID]int {
	s.Helper()
	n := map[posthaste.MessageID]int{}
	for _, e := range s.history() {
		if e.Kind == history.Started {
			n[e.ID]++
		}
	}
	return n
}

func (s *stage) letters(queue string) []posthaste.DeadLetter {
	s.Helper()
	letters, err := s.engine.DeadLetters(s.ctx, posthaste.DeadLetterFilter{Queue: queue})
	s.must(err)
	return letters.Items
}

// max_attempts = n means n attempts: with a handler that always fails, a message runs n times,
// and then is a dead letter that can be listed, replayed and discarded.
func TestDS5_MaxAttempts(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, k kind) {
		for _, n := range []int{1, 2, 5} {
			t.Run(fmt.Sprint(n), func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				q := s.queueOf(k.impatient(n))
				s.failing()
				r := s.recorder()
				s.work(q, r, worker.Config{}, func(_ context.Context, d posthaste.RawDelivery) error {
					return fmt.Errorf("attempt %d fails", d.Attempt)
				})
				ids := s.send(q, 10)
				s.until("all are dead", func() bool { return len(s.letters(q)) == len(ids) })
				for _, id := range ids {
					if runs := s.runs()[id]; runs != n {
						t.Errorf("message %s ran %d times instead of %d", id, runs, n)
					}
					if state := s.state(id); state.State != posthaste.StateDead || len(state.Attempts) != n {
						t.Errorf("message %s is %s after %d attempts", id, state.State, len(state.Attempts))
					}
				}
				for _, l := range s.letters(q) {
					if want := fmt.Sprintf("attempt %d fails", n); l.Error != want {
						t.Errorf("dead letter %s says %q instead of %q", l.ID, l.Error, want)
					}
				}
				s.must(history.Merge(history.Attempts(s.history(), n)))

				replayed, err := s.engine.Replay(posthaste.WithActor(s.ctx, "a test"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{ids[0]}})
				s.must(err)
				if !slices.Equal(replayed.Items, ids[:1]) {
					t.Errorf("replayed %v", replayed.Items)
				}
				s.until("the replayed one is dead again", func() bool { return s.runs()[ids[0]] > n && len(s.letters(q)) == len(ids) })
				if runs := s.runs()[ids[0]]; runs != 2*n {
					t.Errorf("the replayed message ran %d times in all instead of %d", runs, 2*n)
				}
				discarded, err := s.engine.Discard(posthaste.WithActor(s.ctx, "a test"), posthaste.DeadLetterFilter{IDs: ids})
				s.must(err)
				slices.Sort(discarded.Items)
				if !slices.Equal(discarded.Items, ids) || len(s.letters(q)) != 0 {
					t.Errorf("discarded %v, left %d", discarded.Items, len(s.letters(q)))
				}
				if again, err := s.engine.Replay(posthaste.WithActor(s.ctx, "a test"), posthaste.DeadLetterFilter{IDs: ids}); len(again.Items) > 0 || posthaste.CodeOf(err) != posthaste.CodeNotFound {
					t.Errorf("discarded ones were replayed: %v, %v", again.Items, err)
				}
			})
		}
	})
}

// A message with a permanent error runs once.
func TestDS5_PermanentErrorRunsOnce(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, k kind) {
		s := newStage(t)
		q := s.queueOf(k.impatient(10))
		s.failing()
		r := s.recorder()
		s.work(q, r, worker.Config{}, func(context.Context, posthaste.RawDelivery) error {
			return posthaste.Permanent(errors.New("no such customer"))
		})
		ids := s.send(q, 20)
		s.until("all are dead", func() bool { return len(s.letters(q)) == len(ids) })
		s.settled(q)
		for id, n := range s.runs() {
			if n != 1 {
				t.Errorf("message %s ran %d times", id, n)
			}
		}
	})
}

// Attempts are counted per message: each message of a batch fails a different number of times,
// and those that never fail run once.
func TestDS5_AttemptsPerMessageOfABatch(t *testing.T) {
	t.Parallel()
	const attempts = 4
	fails := func(d posthaste.RawDelivery) error {
		var n int
		if err := json.Unmarshal(d.Payload, &n); err != nil {
			return posthaste.Permanent(err)
		}
		if d.Attempt <= n%(attempts+1) {
			return fmt.Errorf("attempt %d of %d to fail", d.Attempt, n%(attempts+1))
		}
		return nil
	}
	check := func(s *stage, q string, ids []posthaste.MessageID) {
		s.settled(q)
		runs := s.runs()
		for i, id := range ids {
			want := min(i%(attempts+1)+1, attempts)
			if runs[id] != want {
				s.Errorf("message %d ran %d times instead of %d", i, runs[id], want)
			}
		}
		if n := len(s.letters(q)); n != len(ids)/(attempts+1) {
			s.Errorf("%d dead letters", n)
		}
	}
	kinds(t, func(t *testing.T, k kind) {
		t.Run("handler", func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			q := s.queueOf(k.impatient(attempts))
			s.failing()
			ids := s.send(q, 100)
			r := s.recorder()
			s.work(q, r, worker.Config{}, func(_ context.Context, d posthaste.RawDelivery) error { return fails(d) })
			check(s, q, ids)
		})
		t.Run("sink", func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			q := s.queueOf(k.impatient(attempts))
			s.failing()
			ids := s.send(q, 100)
			sink := &recordingSink{r: s.recorder(), deliver: func(d posthaste.RawDelivery) posthaste.SinkResult {
				return posthaste.SinkResult{Err: fails(d)}
			}}
			w := worker.New(s.open(), worker.Config{Logger: s.log})
			worker.HandleSink(w, q, sink)
			s.run(w)
			check(s, q, ids)
			if sink.largest < 10 {
				t.Errorf("the largest batch was of %d", sink.largest)
			}
		})
	})
}

// recordingSink is a sink that answers each message separately.
type recordingSink struct {
	r       *history.Recorder
	deliver func(posthaste.RawDelivery) posthaste.SinkResult
	mu      sync.Mutex
	largest int
}

func (k *recordingSink) Deliver(_ context.Context, batch []posthaste.RawDelivery) []posthaste.SinkResult {
	k.mu.Lock()
	k.largest = max(k.largest, len(batch))
	k.mu.Unlock()
	results := make([]posthaste.SinkResult, len(batch))
	for i, d := range batch {
		k.r.Record(history.Event{Kind: history.Started, ID: d.MessageID, Attempt: d.Attempt})
		results[i] = k.deliver(d)
	}
	return results
}

func (k *recordingSink) Close() error { return nil }

// A settled attempt cannot be settled again or differently. The caller gets an error, and
// nothing changes.
func TestDS7_SettledIsSettled(t *testing.T) {
	t.Parallel()
	kinds(t, func(t *testing.T, k kind) {
		outcomes := map[posthaste.Outcome]posthaste.Settlement{
			posthaste.OutcomeDone:     {Outcome: posthaste.OutcomeDone},
			posthaste.OutcomeRetried:  {Outcome: posthaste.OutcomeRetried, Error: "x", RetryAfter: time.Hour},
			posthaste.OutcomeDead:     {Outcome: posthaste.OutcomeDead, Error: "x"},
			posthaste.OutcomeReleased: {Outcome: posthaste.OutcomeReleased},
		}
		for first, settlement := range outcomes {
			t.Run(string(first), func(t *testing.T) {
				t.Parallel()
				s := newStage(t)
				api := s.serve(s.engine)
				q := s.queueOf(k)
				id := s.send(q, 1)[0]
				reply, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: q}, Max: 1, Lease: time.Hour})
				got := reply.Deliveries
				s.must(err)
				settlement.Delivery = got[0].ID
				results, err := s.engine.Settle(s.ctx, []posthaste.Settlement{settlement})
				s.must(err)
				if !results[0].Settled {
					t.Fatal("it was not settled")
				}
				story := func() string {
					text, err := json.Marshal(s.state(id))
					s.must(err)
					return string(text)
				}
				before := story()
				for second, again := range outcomes {
					again.Delivery = got[0].ID
					results, err := s.engine.Settle(s.ctx, []posthaste.Settlement{again})
					s.must(err)
					if results[0].Settled || results[0].Outcome != "" {
						t.Errorf("%s after %s was taken: %+v", second, first, results[0])
					}
				}
				delivery := int64(got[0].ID)
				if !s.redis() {
					s.refusedBySQL(delivery)
				}
				for path, more := range map[string]string{"ack": "", "release": "", "fail": `,"error":"x"`, "extend": `,"lease":"1h"`} {
					a := api.call("POST", "/v1/deliveries/"+path, fmt.Sprintf(`{"deliveries":[{"id":"%d"%s}]}`, delivery, more))
					if a.status != 409 || !strings.Contains(string(a.body), fmt.Sprint(delivery)) {
						t.Errorf("HTTP's %s was answered by %d %s", path, a.status, a.body)
					}
				}
				if after := story(); after != before {
					t.Errorf("its story was\n%s\nand is\n%s", before, after)
				}
			})
		}
	})
}

// refusedBySQL checks that a settled delivery cannot be settled by SQL.
func (s *stage) refusedBySQL(delivery int64) {
	s.Helper()
	conn := s.conn()
	if one[bool](s, conn, "select settled from posthaste.ack(array[$1::bigint])", delivery) {
		s.Error("SQL's ack was taken")
	}
	_, err := conn.Exec(s.ctx, `select posthaste.ack(array[$1::bigint], '{"strict": true}')`, delivery)
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "PH409" {
		s.Errorf("SQL's strict ack was answered by %v", err)
	}
	if one[bool](s, conn, "select settled from posthaste.extend(array[$1::bigint], '1 hour')", delivery) {
		s.Error("SQL's extend was taken")
	}
}

// For any id: the time of creation, each attempt with worker, times, error and receipt, and
// the final state, with the same values in Go, SQL and HTTP.
func TestTR3_WholeStory(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	api := s.serve(s.engine)
	q := s.queue(s.keeping(impatient(20)))
	s.failing()
	before := time.Now().Truncate(time.Microsecond) // the store runs on this machine and uses the same clock
	ids, err := posthaste.IDs(s.client.Send(s.ctx, posthaste.Message{Queue: q, Payload: map[string]int{"n": 1}, Key: "k", Kind: "order", Reference: "A-1",
		Terms: []string{"ada"}, Headers: map[string]string{"h": "v"}}))
	s.must(err)
	id := ids[0]
	// 1: received and lost with its lease; 2 and 3: failed by a sink, with a receipt and
	// without; 4: done with a receipt.
	reply, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: q}, Max: 1, Lease: 10 * time.Millisecond})
	got := reply.Deliveries
	s.must(err)
	if len(got) != 1 {
		t.Fatal("nothing was received")
	}
	sink := &recordingSink{r: s.recorder(), deliver: func(d posthaste.RawDelivery) posthaste.SinkResult {
		receipt := json.RawMessage(fmt.Sprintf(`{"answer": %d}`, d.Attempt))
		switch d.Attempt {
		case 2:
			return posthaste.SinkResult{Err: errors.New("no route"), Receipt: receipt}
		case 3:
			return posthaste.SinkResult{Err: errors.New("no answer")}
		}
		return posthaste.SinkResult{Receipt: receipt}
	}}
	w := worker.New(s.open(), worker.Config{Name: "the sink", Heartbeat: 300 * time.Millisecond, Logger: s.log})
	worker.HandleSink(w, q, sink)
	s.run(w)
	s.until("it is done", func() bool { return s.state(id).State == posthaste.StateDone })
	after := time.Now()

	m, err := s.engine.Message(s.ctx, id)
	s.must(err)
	if m.ID != id || m.Queue != q || m.Key != "k" || m.Kind != "order" || m.Reference != "A-1" || m.Headers["h"] != "v" ||
		!slices.Equal(m.Terms, []string{"ada"}) || string(m.Payload) != `{"n":1}` || m.CreatedAt.Before(before) || m.CreatedAt.After(after) {
		t.Errorf("the message is reported as %+v", m)
	}
	want := []posthaste.Attempt{
		{Attempt: 1, Outcome: posthaste.OutcomeLost},
		{Attempt: 2, Outcome: posthaste.OutcomeRetried, Worker: "the sink", Error: "no route", Receipt: json.RawMessage(`{"answer": 2}`)},
		{Attempt: 3, Outcome: posthaste.OutcomeRetried, Worker: "the sink", Error: "no answer"},
		{Attempt: 4, Outcome: posthaste.OutcomeDone, Worker: "the sink", Receipt: json.RawMessage(`{"answer": 4}`)},
	}
	attempts := m.Subscriptions[0].Attempts
	if len(attempts) != len(want) {
		t.Fatalf("%d attempts: %+v", len(attempts), attempts)
	}
	last := m.CreatedAt
	for i, a := range attempts {
		w := want[i]
		if a.Attempt != w.Attempt || a.Outcome != w.Outcome || a.Worker != w.Worker || !equalJSON(a.Receipt, w.Receipt) ||
			(w.Error != "" && a.Error != w.Error) || (a.Outcome == posthaste.OutcomeLost && a.Error == "") {
			t.Errorf("attempt %d is reported as %+v", i+1, a)
		}
		if a.ClaimedAt.Before(last) || a.EndedAt.Before(a.ClaimedAt) || a.EndedAt.After(after) || (a.Worker != "" && a.DurationMS <= 0) {
			t.Errorf("attempt %d has times that cannot be: %+v", i+1, a)
		}
		last = a.EndedAt
	}
	// SQL and HTTP return the same.
	var viaSQL, viaHTTP []posthaste.Attempt
	if !s.redis() {
		s.must(json.Unmarshal([]byte(one[string](s, s.conn(), "select attempts::text from posthaste.message($1)", int64(id))), &viaSQL))
	}
	var page struct {
		CreatedAt     time.Time `json:"created_at"`
		Subscriptions []struct {
			State    posthaste.State
			Attempts []posthaste.Attempt
		}
	}
	a := api.call("GET", "/v1/messages/"+id.String(), "")
	s.must(json.Unmarshal(a.body, &page))
	viaHTTP = page.Subscriptions[0].Attempts
	if page.Subscriptions[0].State != posthaste.StateDone || !page.CreatedAt.Equal(m.CreatedAt) {
		t.Errorf("HTTP tells %s", a.body)
	}
	for name, told := range map[string][]posthaste.Attempt{"SQL": viaSQL, "HTTP": viaHTTP} {
		if name == "SQL" && s.redis() {
			continue
		}
		x, err := json.Marshal(attempts)
		s.must(err)
		y, err := json.Marshal(told)
		s.must(err)
		if !equalJSON(x, y) {
			t.Errorf("Go tells\n%s\nand %s tells\n%s", x, name, y)
		}
	}
}
