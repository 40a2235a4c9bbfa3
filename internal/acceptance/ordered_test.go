//go:build unix

package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/worker"
)

// keyOrder checks the order that handlers of an ordered queue see.
type keyOrder struct {
	t       testing.TB
	mu      sync.Mutex
	next    map[string]int // the number that must come next
	running map[string]bool
	tries   map[string]int
	handled int
	most    int // maximum number of keys that ran at once
}

func newKeyOrder(t testing.TB) *keyOrder {
	return &keyOrder{t: t, next: map[string]int{}, running: map[string]bool{}, tries: map[string]int{}}
}

func (o *keyOrder) begin(key string, n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running[key] {
		o.t.Errorf("two messages of key %s run at once", key)
	}
	if n != o.next[key] {
		o.t.Errorf("key %s: message %d came, and %d must", key, n, o.next[key])
	}
	o.running[key] = true
	o.most = max(o.most, len(o.running))
	o.tries[fmt.Sprint(key, n)]++
}

func (o *keyOrder) end(key string, done bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.running, key)
	if done {
		o.next[key]++
		o.handled++
	}
}

func (o *keyOrder) total() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.handled
}

// Messages of one key of an ordered queue run one after the other, in order, despite failures,
// snoozes, and workers that come and go. Different keys run concurrently.
func TestOrderedQueue_WorkersComeAndGo(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.failing()
	const keys, each = 20, 20
	q := s.queue(posthaste.QueueOptions{Ordered: true, Lanes: 4, MaxAttempts: 100})
	var messages []posthaste.Message
	for n := range each {
		for k := range keys {
			messages = append(messages, posthaste.Message{Queue: q, Key: fmt.Sprint("k", k), Payload: n})
		}
	}
	// One by one, and in batches of two sizes.
	for i, n := 0, 0; i < len(messages); i += n {
		n = min([]int{1, 10, 100}[rand.IntN(3)], len(messages)-i)
		_, err := s.engine.Send(s.ctx, messages[i:i+n]...)
		s.must(err)
	}
	o := newKeyOrder(t)
	handler := func(_ context.Context, d posthaste.RawDelivery) error {
		var n int
		if err := json.Unmarshal(d.Payload, &n); err != nil {
			return err
		}
		o.begin(d.Key, n)
		works(time.Duration(rand.IntN(3)) * time.Millisecond)
		switch k := rand.IntN(20); k {
		case 0, 1:
			o.end(d.Key, false)
			return posthaste.RetryAfter(errors.New("not now"), time.Duration(rand.IntN(20))*time.Millisecond)
		case 2:
			o.end(d.Key, false)
			return posthaste.Snooze(time.Duration(rand.IntN(20)) * time.Millisecond)
		}
		o.end(d.Key, true)
		return nil
	}
	r := s.recorder()
	begin := func() func() {
		return s.work(q, r, worker.Config{Concurrency: 8, Batch: 50, Heartbeat: 100 * time.Millisecond, Lease: 30 * time.Second}, handler)
	}
	stops := []func(){begin(), begin()}
	for turn := 1; turn <= 4; turn++ {
		s.until("some more are handled", func() bool { return o.total() >= turn*keys*each/6 })
		stops[turn%2]()
		stops[turn%2] = begin()
	}
	s.until("all are handled", func() bool { return o.total() == keys*each })
	s.settled(q)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.most < 2 {
		t.Error("no two keys ran at the same time")
	}
}

// A dead letter of an ordered queue blocks its key until an operator acts.
func TestOrderedQueue_DeadStopsItsKey(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.failing()
	q := s.queue(posthaste.QueueOptions{Ordered: true, StopOnDead: true, MaxAttempts: 1})
	var mu sync.Mutex
	broken := true
	handled := map[string]int{}
	handler := func(_ context.Context, d posthaste.RawDelivery) error {
		mu.Lock()
		defer mu.Unlock()
		if broken && d.Kind == "bad" {
			return errors.New("broken")
		}
		handled[d.Key]++
		return nil
	}
	count := func(key string) int {
		mu.Lock()
		defer mu.Unlock()
		return handled[key]
	}
	s.work(q, s.recorder(), worker.Config{}, handler)
	ids, err := posthaste.IDs(s.engine.Send(s.ctx, posthaste.Message{Queue: q, Key: "a", Kind: "bad"}, posthaste.Message{Queue: q, Key: "a"}, posthaste.Message{Queue: q, Key: "b"}))
	s.must(err)
	s.until("the first is dead", func() bool { return s.state(ids[0]).State == posthaste.StateDead })
	s.until("another key goes on", func() bool { return count("b") == 1 })
	_, err = s.engine.Send(s.ctx, posthaste.Message{Queue: q, Key: "a"}, posthaste.Message{Queue: q, Key: "b"})
	s.must(err)
	s.until("another key still goes on", func() bool { return count("b") == 2 })
	if n := count("a"); n != 0 {
		t.Fatalf("%d of the stopped key were handled", n)
	}
	mu.Lock()
	broken = false
	mu.Unlock()
	_, err = s.engine.Replay(posthaste.WithActor(s.ctx, "test"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{ids[0]}})
	s.must(err)
	s.until("its key went on, with the dead one first", func() bool { return count("a") == 3 })
	s.settled(q)
}

// A key with very many messages does not use up a worker's places: other keys continue while
// the first message of that key runs.
func TestOrderedQueue_OneKeyWithManyMessages(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const hot, cold = 600, 40
	q := s.queue(posthaste.QueueOptions{Ordered: true, Lanes: 1})
	var messages []posthaste.Message
	for n := range hot {
		messages = append(messages, posthaste.Message{Queue: q, Key: "hot", Payload: n})
	}
	for n := range cold {
		messages = append(messages, posthaste.Message{Queue: q, Key: fmt.Sprint("cold", n%4), Payload: n / 4})
	}
	_, err := s.engine.Send(s.ctx, messages...)
	s.must(err)
	o := newKeyOrder(t)
	goOn := make(chan struct{})
	handler := func(_ context.Context, d posthaste.RawDelivery) error {
		var n int
		if err := json.Unmarshal(d.Payload, &n); err != nil {
			return err
		}
		o.begin(d.Key, n)
		if d.Key == "hot" && n == 0 {
			<-goOn
		}
		o.end(d.Key, true)
		return nil
	}
	s.work(q, s.recorder(), worker.Config{Concurrency: 4, Batch: 10}, handler)
	s.until("the other keys are handled", func() bool { return o.total() == cold })
	close(goOn)
	s.until("all are handled", func() bool { return o.total() == hot+cold })
	s.settled(q)
}

// Receivers by SQL and HTTP together get one unsettled message of a key, and the next one when
// it is settled.
func TestOrderedQueue_ReceiversBySQLAndHTTP(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	api, conn := s.http(), s.conn()
	q := s.queue(posthaste.QueueOptions{Ordered: true})
	for n := range 4 {
		for _, key := range []string{"ada", "bob"} {
			_, err := s.client.Send(s.ctx, posthaste.Message{Queue: q, Key: key, Payload: n})
			s.must(err)
		}
	}
	type received struct {
		Delivery string `json:"id"`
		Key      string `json:"key"`
		Payload  int    `json:"payload"`
	}
	byHTTP := func() (got []received) {
		t.Helper()
		a := api.want(200, "POST", "/v1/queues/"+q+"/receive", `{"max":10,"lease":"1h"}`)
		s.must(json.Unmarshal(a.entries(t), &got))
		return got
	}
	bySQL := func() (got []received) {
		t.Helper()
		rows, err := conn.Query(s.ctx, "select delivery_id::text, key, payload_json::int from posthaste.receive($1, 10, '1 hour')", q)
		s.must(err)
		got, err = pgx.CollectRows(rows, pgx.RowToStructByPos[received])
		s.must(err)
		return got
	}
	settle := func(g received, number int) {
		t.Helper()
		if number%2 == 0 {
			api.want(200, "POST", "/v1/deliveries/ack", fmt.Sprintf(`{"deliveries":[{"id":%q}]}`, g.Delivery))
		} else if !one[bool](s, conn, "select settled from posthaste.ack(array[$1::text::bigint])", g.Delivery) {
			t.Error("an ack by SQL was refused")
		}
	}
	open := byHTTP()
	if len(open) != 2 || open[0].Payload != 0 || open[1].Payload != 0 {
		t.Fatalf("received %+v, want the first of each key", open)
	}
	for n := range 4 {
		for _, more := range [][]received{byHTTP(), bySQL()} {
			if len(more) > 0 {
				t.Fatalf("received %+v beside an unsettled one of each key", more)
			}
		}
		var next []received
		for i, g := range open {
			settle(g, n+i)
			got := [](func() []received){byHTTP, bySQL}[(n+i)%2]()
			if n < 3 && (len(got) != 1 || got[0].Key != g.Key || got[0].Payload != n+1) {
				t.Fatalf("after message %d of %s: received %+v", n, g.Key, got)
			}
			next = append(next, got...)
		}
		open = next
	}
	s.settled(q)
}

// With many messages waiting, retries of an ordered queue start at their time: within 1 s, and
// with small numbers, on a busy machine, within 5 s, plus the time for which the machine
// stalled. Not parallel, because it measures times.
func TestDS10_OrderedRetriesBesideBacklog(t *testing.T) {
	testrun.Nightly(t, "it measures time beside a backlog; DS10_DueBesideBacklogOfAnOrderedQueue in enginetest runs on each change")
	s := newStage(t)
	s.failing()
	backlog, most := size(20_000, 300_000), size(5*time.Second, time.Second)
	const retried = 200
	q := s.queue(posthaste.QueueOptions{Ordered: true})
	for sent := 0; sent < backlog; {
		messages := make([]posthaste.Message, 1000)
		for i := range messages {
			messages[i] = posthaste.Message{Queue: q, Key: fmt.Sprint("k", (sent+i)%1000), Payload: 1}
		}
		_, err := s.client.Send(s.ctx, messages...)
		s.must(err)
		sent += len(messages)
	}
	var mu sync.Mutex
	due := map[posthaste.MessageID]time.Time{}
	var late []time.Duration
	fresh := 0
	enough := make(chan struct{})
	w := worker.New(s.open(), worker.Config{Concurrency: 20, Logger: s.log})
	worker.HandleRaw(w, q, func(_ context.Context, d posthaste.RawDelivery) error {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		at, again := due[d.MessageID]
		switch {
		case again:
			if late = append(late, now.Sub(at)); len(late) == retried {
				close(enough)
			}
		case len(due) < retried && fresh%10 == 0:
			wait := 500*time.Millisecond + time.Duration(len(due))*5*time.Millisecond
			due[d.MessageID] = now.Add(wait)
			fresh++
			return posthaste.RetryAfter(errors.New("later"), wait)
		default:
			fresh++
		}
		mu.Unlock()
		works(4 * time.Millisecond)
		mu.Lock()
		return nil
	})
	stalled := s.stalls()
	s.run(w)
	select {
	case <-enough:
	case <-s.ctx.Done():
		t.Fatal("not all retries came")
	}
	mu.Lock()
	defer mu.Unlock()
	if fresh > backlog*9/10 {
		t.Fatalf("%d of %d fresh ones were handled meanwhile: there was no backlog any more", fresh, backlog)
	}
	slices.Sort(late)
	stood := stalled()
	if late[0] < 0 || late[len(late)-1] > most+stood {
		t.Errorf("retries started %s to %s after their time, with stalls of %s", late[0], late[len(late)-1], stood)
	}
	t.Logf("beside %d fresh ones: p50 %s, at most %s late; stalls of %s", backlog-fresh, late[len(late)/2], late[len(late)-1], stood)
}
