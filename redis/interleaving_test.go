package redis

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// walk does at random what can be done to an ordered queue, and knows what may come.
type walk struct {
	t       *testing.T
	e       *Engine
	rand    *rand.Rand
	stop    bool
	workers []posthaste.WorkerID
	number  int64
	sent    map[string][]posthaste.MessageID // by key, in order
	state   map[posthaste.MessageID]string   // "" waits, "held", "dead" or "ended"
	holds   map[string][]posthaste.RawDelivery
	by      map[string]posthaste.WorkerID // the worker that holds a key; 0: a receiver
	paused  map[string]bool
}

func (w *walk) key() string { return string(rune('a' + w.rand.IntN(6))) }

func (w *walk) must(err error) {
	if err != nil {
		w.t.Helper()
		w.t.Fatal(err)
	}
}

// take checks deliveries as they are handed out. It returns the violation, or "".
func (w *walk) take(by posthaste.WorkerID, got []posthaste.RawDelivery) string {
	now := map[string]bool{}
	for _, d := range got {
		switch {
		case len(w.holds[d.Key]) > 0 && (!now[d.Key] || by == 0):
			return fmt.Sprintf("message %d came while %d of key %s are handed out", d.MessageID, len(w.holds[d.Key]), d.Key)
		case w.state[d.MessageID] != "":
			return fmt.Sprintf("message %d came, which is %s", d.MessageID, w.state[d.MessageID])
		case w.paused[d.Key]:
			return fmt.Sprintf("message %d of the paused key %s came", d.MessageID, d.Key)
		}
		for _, id := range w.sent[d.Key] {
			if id == d.MessageID {
				break
			}
			if s := w.state[id]; s == "" || s == "dead" && w.stop {
				return fmt.Sprintf("message %d of key %s came before %d, which is %q", d.MessageID, d.Key, id, s)
			}
		}
		now[d.Key] = true
		w.state[d.MessageID] = "held"
		w.holds[d.Key], w.by[d.Key] = append(w.holds[d.Key], d), by
	}
	return ""
}

// settle ends all that is held of a key as a worker does: some are done, one is not,
// and those behind it are handed back. finish ends all well.
func (w *walk) settle(key string, finish bool) string {
	held := w.holds[key]
	if len(held) == 0 {
		return ""
	}
	bad := w.rand.IntN(len(held) + 1)
	if finish {
		bad = len(held)
	}
	var all []posthaste.Settlement
	var after []string // what each is then
	for i, d := range held {
		one, is := posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeDone}, "ended"
		switch {
		case i < bad:
			if w.rand.IntN(2) == 0 {
				one.Duration = time.Microsecond // not settled plainly
			}
		case i > bad:
			one.Outcome, is = posthaste.OutcomeReleased, ""
		default:
			one.Outcome, is = []posthaste.Outcome{posthaste.OutcomeRetried, posthaste.OutcomeRetried, posthaste.OutcomeReleased, posthaste.OutcomeDead}[w.rand.IntN(4)], ""
			if one.Outcome != posthaste.OutcomeReleased {
				one.Error = "at random"
			}
			if one.Outcome == posthaste.OutcomeDead {
				is = "dead"
			}
		}
		all, after = append(all, one), append(after, is)
	}
	if finish || w.rand.IntN(2) == 0 {
		for i, d := range held {
			w.state[d.MessageID] = after[i]
		}
		delete(w.holds, key)
		w.result(w.e.Settle(w.t.Context(), all))
		return ""
	}
	for n, i := range w.rand.Perm(len(all)) { // in any order, one by one: none of them lets go the next
		w.result(w.e.Settle(w.t.Context(), all[i:i+1]))
		w.state[held[i].MessageID] = after[i]
		if n == len(all)-1 {
			delete(w.holds, key)
		} else if w.rand.IntN(3) == 0 {
			if _, broken := w.claim(false); broken != "" {
				return broken
			}
		}
	}
	return ""
}

func (w *walk) result(results []posthaste.SettleResult, err error) {
	w.must(err)
	for _, r := range results {
		if !r.Settled {
			w.t.Fatalf("delivery %d was not settled", r.Delivery)
		}
	}
}

// lose lets a worker be lost, and all that it holds come again.
func (w *walk) lose(i int) {
	gone := w.workers[i]
	w.must(w.e.Unregister(w.t.Context(), gone))
	for {
		lost, err := w.e.Maintain(w.t.Context(), posthaste.UpkeepRescue)
		w.must(err)
		if lost.Rescued == 0 {
			break
		}
	}
	for key, by := range w.by {
		if by == gone && len(w.holds[key]) > 0 {
			for _, d := range w.holds[key] {
				w.state[d.MessageID] = ""
			}
			delete(w.holds, key)
		}
	}
	w.workers[i] = register(w.t, w.e)
}

// claim claims, and looks at what comes.
func (w *walk) claim(idle bool) (posthaste.ClaimReply, string) {
	i := w.rand.IntN(len(w.workers))
	w.number++
	reply, err := w.e.Claim(w.t.Context(), posthaste.ClaimRequest{Worker: w.workers[i], Number: w.number, QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 1 + w.rand.IntN(12), AllowAlone: idle})
	w.must(err)
	if w.rand.IntN(10) == 0 { // its reply was lost
		again, err := w.e.Claim(w.t.Context(), posthaste.ClaimRequest{Worker: w.workers[i], Number: w.number, QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 5})
		if len(reply.Deliveries) > 0 {
			w.must(err)
			if len(again.Deliveries) != len(reply.Deliveries) {
				return reply, fmt.Sprintf("the same number gave %d, then %d", len(reply.Deliveries), len(again.Deliveries))
			}
			reply.Deliveries = again.Deliveries
		}
	}
	return reply, w.take(w.workers[i], reply.Deliveries)
}

func (w *walk) step() string {
	switch n := w.rand.IntN(100); {
	case n < 20:
		var keys []string
		for range 1 + w.rand.IntN(8) {
			keys = append(keys, w.key())
		}
		for i, id := range sendKeys(w.t, w.e, keys...) {
			w.sent[keys[i]] = append(w.sent[keys[i]], id)
		}
	case n < 50:
		_, broken := w.claim(w.rand.IntN(2) == 0)
		return broken
	case n < 60:
		reply, err := w.e.Receive(w.t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 1 + w.rand.IntN(12), Lease: time.Hour})
		w.must(err)
		return w.take(0, reply.Deliveries)
	case n < 85:
		return w.settle(w.key(), false)
	case n < 88:
		w.lose(w.rand.IntN(len(w.workers)))
	case n < 92:
		key := w.key()
		w.paused[key] = !w.paused[key]
		if w.paused[key] {
			w.must(w.e.Pause(posthaste.WithActor(w.t.Context(), "ada"), posthaste.OfKey{Queue: jobs, Key: key}, posthaste.PauseOptions{}))
		} else {
			w.must(w.e.Resume(posthaste.WithActor(w.t.Context(), "ada"), posthaste.OfKey{Queue: jobs, Key: key}))
		}
	case n < 96:
		key := w.key()
		for _, id := range w.sent[key] {
			if w.state[id] == "" && w.rand.IntN(3) == 0 {
				told, err := w.e.Cancel(posthaste.WithActor(w.t.Context(), "ada"), id)
				w.must(err)
				if !told[0].InTime {
					return fmt.Sprintf("message %d waits, and was not cancelled", id)
				}
				w.state[id] = "ended"
				break
			}
		}
	default:
		for _, id := range w.sent[w.key()] {
			if w.state[id] != "dead" {
				continue
			}
			w.state[id] = "ended"
			act := w.e.Discard
			if w.rand.IntN(2) == 0 {
				act, w.state[id] = w.e.Replay, ""
			}
			were, err := act(posthaste.WithActor(w.t.Context(), "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{id}})
			w.must(err)
			if len(were.Items) != 1 {
				return fmt.Sprintf("message %d is dead, and was not found", id)
			}
			break
		}
	}
	return ""
}

// end lets everything come to its end, and checks that nothing is left.
func (w *walk) end() string {
	for key, is := range w.paused {
		if is {
			w.must(w.e.Resume(posthaste.WithActor(w.t.Context(), "ada"), posthaste.OfKey{Queue: jobs, Key: key}))
			w.paused[key] = false
		}
	}
	for key, ids := range w.sent {
		w.settle(key, true)
		for _, id := range ids {
			if w.state[id] == "dead" {
				_, err := w.e.Discard(posthaste.WithActor(w.t.Context(), "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{id}})
				w.must(err)
				w.state[id] = "ended"
			}
		}
	}
	left := func() (n int) {
		for _, s := range w.state {
			if s == "held" {
				n++
			}
		}
		for _, ids := range w.sent {
			for _, id := range ids {
				if w.state[id] == "" {
					n++
				}
			}
		}
		return n
	}
	for began, vain := time.Now(), 0; left() > 0; vain++ {
		if vain > 300 && time.Since(began) > 3*time.Second { // far above any backoff
			return fmt.Sprintf("%d messages are left and do not come", left())
		}
		reply, broken := w.claim(true)
		if broken != "" {
			return broken
		}
		if len(reply.Deliveries) == 0 && reply.NextDue < 0 {
			return fmt.Sprintf("%d messages are left, and none is going to come", left())
		}
		if len(reply.Deliveries) > 0 {
			began, vain = time.Now(), 0
		}
		for key := range w.sent {
			w.settle(key, true)
		}
	}
	infos, err := w.e.Queues(w.t.Context(), jobs)
	w.must(err)
	if s := infos[0].Subscriptions[0]; s.Depth != 0 || s.InFlight != 0 {
		return fmt.Sprintf("at the end are told %+v", s)
	}
	for _, what := range []string{"wait", "held", "stopped", "due", "alone", "run"} {
		if n := w.e.client.Exists(w.t.Context(), w.e.keys.of(jobs, what)).Val(); n != 0 {
			return "at the end something is left in " + what
		}
	}
	return ""
}

// interleave walks through an ordered queue. It returns the first violation, or "".
func interleave(t *testing.T, e *Engine, seed uint64, steps int) string {
	t.Helper()
	w := &walk{t: t, e: e, rand: rand.New(rand.NewPCG(seed, 7)), stop: seed%2 == 1, sent: map[string][]posthaste.MessageID{}, state: map[posthaste.MessageID]string{},
		holds: map[string][]posthaste.RawDelivery{}, by: map[string]posthaste.WorkerID{}, paused: map[string]bool{}}
	create(t, e, posthaste.QueueOptions{Ordered: true, StopOnDead: w.stop, MaxAttempts: 1000, BackoffBase: time.Microsecond, BackoffMax: 300 * time.Microsecond})
	for range 3 {
		w.workers = append(w.workers, register(t, e))
	}
	for n := range steps {
		if broken := w.step(); broken != "" {
			return fmt.Sprintf("step %d: %s", n, broken)
		}
		if n%20 == 0 && repairAll(t, e) > 0 {
			return fmt.Sprintf("step %d: a delivery had no holder or a message was in no list", n)
		}
	}
	return w.end()
}

// Whatever happens to messages, workers and keys, each key keeps its order, and nothing
// is lost. POSTHASTE_TEST_SECONDS says how long it walks, POSTHASTE_TEST_SEED from where.
func TestOR_OrderThroughInterleaving(t *testing.T) {
	walks, seconds := 6, 0
	if n, err := strconv.Atoi(os.Getenv("POSTHASTE_TEST_SECONDS")); err == nil {
		seconds = n
	}
	seed, err := strconv.ParseUint(os.Getenv("POSTHASTE_TEST_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64N(1e9)
	}
	began := time.Now()
	for n := uint64(0); n < uint64(walks) || time.Since(began) < time.Duration(seconds)*time.Second; n++ {
		if broken := interleave(t, open(t, server.URL()), seed+n, 400); broken != "" {
			t.Fatalf("POSTHASTE_TEST_SEED=%d: %s", seed+n, broken)
		}
	}
}

// Each protection of the order is missed by the walk.
func TestOR_OrderIsProtected(t *testing.T) {
	for name, patches := range map[string][]patch{
		"its place":          {{&settleScript, "placed(key, id)) end -- its", "placed(key, now)) end -- its"}},
		"its place, lost":    {{&rescueScript, "placed(key, id)) end -- its", "placed(key, now)) end -- its"}},
		"its place, dead":    {{&buryScript, "placed(key, id))", "placed(key, now))"}},
		"one holder":         {{&claimKeyedScript, "m = n[i] > 0 and 0 or worker", "m = worker"}},
		"one of a receiver":  {{&claimKeyedScript, "worker == '' and 1 or m", "m"}},
		"in one reply":       {{&claimKeyedScript, "if st or due or rules.o then", "if st or due then"}},
		"goes on":            {{&settleScript, "line(TURN, turn)", ""}},
		"goes on, resumed":   {{&pauseKeyScript, "if goOn(key) then wake", "if nil then wake"}},
		"goes on, discarded": {{&buryScript, "key and goOn(key)", "nil"}},
		"its count":          {{&settleScript, "local left = tonumber(held[i] or 0) - freed[key]", "local left = 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			breaks(t, func(t *testing.T, _ *Engine) string {
				for seed := range uint64(50) {
					if broken := interleave(t, open(t, server.URL()), seed, 400); broken != "" {
						return broken
					}
				}
				return ""
			}, patches...)
		})
	}
}

// The runtime keeps the order, too: with two workers, retries, and a worker that ends.
func TestOR_Worker(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{Ordered: true, BackoffBase: time.Millisecond, BackoffMax: 2 * time.Millisecond})
	var mu sync.Mutex
	next := map[string]int{}
	broken := ""
	handle := func(d posthaste.RawDelivery) error {
		n, _ := strconv.Atoi(string(d.Payload))
		mu.Lock()
		defer mu.Unlock()
		if n != next[d.Key] && broken == "" {
			broken = fmt.Sprintf("of key %s came %d, want %d", d.Key, n, next[d.Key])
		}
		if n%7 == 3 && d.Attempt == 1 {
			return errors.New("not at once")
		}
		next[d.Key] = n + 1
		return nil
	}
	for range 2 {
		work(t, e, worker.Config{}, handle)
	}
	const keys, each = 20, 50
	for n := range each {
		messages := make([]posthaste.Message, keys)
		for k := range messages {
			messages[k] = posthaste.Message{Queue: jobs, Key: strconv.Itoa(k), Payload: n}
		}
		if _, err := e.Send(t.Context(), messages...); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all are settled", settledAll(t, e))
	mu.Lock()
	defer mu.Unlock()
	if broken != "" {
		t.Error(broken)
	}
	for k, n := range next {
		if n != each {
			t.Errorf("of key %s %d were handled", k, n)
		}
	}
}
