package brokertest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/worker"
)

// RelayFixture is a broker of the test's own that fails while a relay publishes to it.
type RelayFixture struct {
	// Server is the broker.
	Server Server
	// Destination creates a queue, topic or stream.
	Destination func(t *testing.T) Destination
}

// Server is a broker that can be killed and started again with its data.
type Server interface {
	Kill()
	Start(ctx context.Context) error
}

// Destination is a queue, topic or stream to which a relay publishes.
type Destination struct {
	// Sink returns a sink that publishes to it.
	Sink func(t *testing.T) posthaste.Sink
	// CutAfter closes the connection of the next message after the broker's answer and
	// before the sink has it. Then it closes cut.
	CutAfter func() (cut <-chan struct{})
	// Arrived returns the stored messages, those of each key in order.
	Arrived func(t *testing.T) []Arrived
	// OnceThroughCuts and OnceThroughKills say that the broker deduplicates messages that
	// are published again after such a fault.
	OnceThroughCuts, OnceThroughKills bool
}

// Arrived is a message as the broker has it.
type Arrived struct {
	ID, Key string
	Payload []byte
}

// The settings of the relays under test.
const (
	relayBatch       = 50
	relayConcurrency = 4
	relayKeys        = 20
)

// RunRelay tests that a relay loses no message and settles none that the broker does not
// have, even if the broker fails. A message that the broker has twice was in flight at a
// fault, has a failed attempt on record, and has the same message id. In an ordered queue,
// the order of keys is kept. engine returns an empty ledger.
func RunRelay(t *testing.T, engine func(t *testing.T) posthaste.Store, b RelayFixture) {
	for _, test := range []struct {
		name    string
		ordered bool
		disturb func(r *relayTest) (faults int)
	}{
		{"AnswersLost", false, cutAnswers},
		{"AnswersLostInOrder", true, cutAnswers},
		{"BrokerKilled", false, b.killed},
		{"BrokerKilledInOrder", true, b.killed},
	} {
		t.Run(test.name, func(t *testing.T) {
			if !test.ordered {
				testrun.Nightly(t, "the same faults in an ordered queue compare the order as well")
			}
			r := &relayTest{T: t, engine: engine(t), destination: b.Destination(t), payloads: map[posthaste.MessageID]int{}}
			// A broker deduplicates what a client repeats within one attempt.
			options := posthaste.QueueOptions{Ordered: test.ordered, MaxAttempts: 1000, BackoffBase: time.Millisecond, BackoffMax: 100 * time.Millisecond, Timeout: 2 * time.Minute}
			if err := r.engine.CreateQueue(t.Context(), relayQueue, options); err != nil {
				t.Fatal(err)
			}
			r.ahead.Store(2000)
			for range 2 {
				r.relay()
			}
			stop := r.send()
			faults := test.disturb(r)
			stop()
			r.settled()
			once := r.destination.OnceThroughKills
			if r.cuts {
				once = r.destination.OnceThroughCuts
			}
			r.compare(faults, once, test.ordered)
		})
	}
}

// relayQueue is the name of the queue.
const relayQueue = "outbox"

// relayTest is a relay under test.
type relayTest struct {
	*testing.T
	engine      posthaste.Store
	destination Destination
	cuts        bool
	ahead       atomic.Int64 // how many messages may wait

	mu       sync.Mutex
	payloads map[posthaste.MessageID]int // of the messages sent
}

// relay runs a relay with connections of its own until the test ends.
func (r *relayTest) relay() {
	r.Helper()
	sink := r.destination.Sink(r.T)
	w := worker.New(r.engine, worker.Config{Logger: slog.New(slog.DiscardHandler)})
	worker.HandleSink(w, relayQueue, sink, worker.WithBatchSize(relayBatch), worker.WithConcurrency(relayConcurrency))
	r.Cleanup(func() {
		if err := sink.Close(); err != nil {
			r.Error(err)
		}
	})
	testrun.Background(r, w.Run)
}

// send sends messages until stop is called, at most some thousands ahead of the settled
// ones.
func (r *relayTest) send() (stop func()) {
	return testrun.Background(r, func(ctx context.Context) error {
		for n := 0; ; n += relayKeys {
			if n%500 == 0 {
				testrun.Happens(5*time.Minute, func() bool { return int64(n-r.done()) <= r.ahead.Load() || ctx.Err() != nil })
			}
			if ctx.Err() != nil {
				return nil
			}
			var batch []posthaste.Message
			for i := range relayKeys {
				batch = append(batch, posthaste.Message{Queue: relayQueue, Key: fmt.Sprint("key-", i), Payload: json.RawMessage(fmt.Sprint(n + i))})
			}
			ids, err := posthaste.IDs(r.engine.Send(context.Background(), batch...))
			if err != nil {
				return err
			}
			r.mu.Lock()
			for i, id := range ids {
				r.payloads[id] = n + i
			}
			r.mu.Unlock()
		}
	})
}

func (r *relayTest) sent() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.payloads)
}

// done returns the number of messages settled as done.
func (r *relayTest) done() int {
	_, err := r.engine.Maintain(context.Background(), posthaste.UpkeepSpace) // updates the counters
	found, err2 := r.engine.Queues(context.Background(), relayQueue)
	if err != nil || err2 != nil || len(found) != 1 {
		r.Errorf("the queue's counters cannot be read: %v, %v", err, err2)
		return 0
	}
	return int(found[0].Subscriptions[0].Done)
}

// until waits for a condition.
func (r *relayTest) until(what string, met func() bool) {
	r.Helper()
	testrun.Until(r, 5*time.Minute, what, met)
}

func (r *relayTest) settled() {
	r.Helper()
	r.until("all are settled", func() bool { return r.done() >= r.sent() })
	if done, sent := r.done(), r.sent(); done != sent {
		r.Errorf("%d messages are counted as settled, and %d were sent", done, sent)
	}
}

// cutAnswers repeatedly closes connections between a message and its confirmation.
func cutAnswers(r *relayTest) (faults int) {
	r.cuts = true
	for range 20 {
		cut := r.destination.CutAfter()
		r.until("something is published and its confirmation is lost", func() bool {
			select {
			case <-cut:
				return true
			default:
				return false
			}
		})
	}
	return 20
}

// killed kills the broker while messages are relayed, and starts it again.
func (b RelayFixture) killed(r *relayTest) (faults int) {
	for range 2 {
		before := r.done()
		r.until("messages are delivered", func() bool { return r.done() > before+500 })
		b.Server.Kill()
		r.ahead.Add(2000) // because nothing is settled meanwhile
		away := r.sent()
		r.until("more is sent meanwhile", func() bool { return r.sent() > away+200 })
		if err := b.Server.Start(r.Context()); err != nil {
			r.Fatal(err)
		}
	}
	before := r.done()
	r.until("messages are delivered again", func() bool { return r.done() > before+500 })
	return 2
}

// checkLost checks that all messages have arrived, and logs what the engine has of the others.
func (r *relayTest) checkLost(arrivals map[posthaste.MessageID]int) {
	r.Helper()
	lost := 0
	for id := range r.payloads {
		if arrivals[id] == 0 {
			lost++
			m, err := r.engine.Message(r.Context(), id)
			r.Logf("message %s did not arrive: %+v, %v", id, m.Subscriptions, err)
		}
	}
	if lost > 0 {
		r.Errorf("%d of %d messages are settled and did not arrive", lost, len(r.payloads))
	}
}

// compare checks that all messages have arrived, and which of them arrived twice.
func (r *relayTest) compare(faults int, once, ordered bool) {
	r.Helper()
	arrivals, last := map[posthaste.MessageID]int{}, map[string]int{}
	for _, a := range r.destination.Arrived(r.T) {
		var n int
		number, err := strconv.ParseInt(a.ID, 10, 64)
		id := posthaste.MessageID(number)
		if err == nil {
			err = json.Unmarshal(a.Payload, &n)
		}
		if sent, ok := r.payloads[id]; err != nil || !ok || n != sent || a.Key != fmt.Sprint("key-", n%relayKeys) {
			r.Errorf("message %q, of key %q, with %q, was never sent: %v", a.ID, a.Key, a.Payload, err)
			continue
		}
		if arrivals[id]++; arrivals[id] > 1 {
			continue // because the first one counts
		}
		if before, ok := last[a.Key]; ordered && ok && n < before {
			r.Errorf("of key %s, %d came after %d", a.Key, n, before)
		}
		last[a.Key] = n
	}
	r.checkLost(arrivals)
	twice, unsaid := 0, 0
	for id := range r.payloads {
		if arrivals[id] < 2 {
			continue
		}
		twice += arrivals[id] - 1
		m, err := r.engine.Message(r.Context(), id)
		if err != nil {
			r.Fatal(err)
		}
		failed := 0
		for _, a := range m.Subscriptions[0].Attempts {
			if a.Outcome == posthaste.OutcomeRetried && a.Error != "" {
				failed++
			}
		}
		if failed < arrivals[id]-1 {
			unsaid++
		}
	}
	r.Logf("%d messages, %d faults, %d duplicates", len(r.payloads), faults, twice)
	if unsaid > 0 {
		r.Errorf("%d duplicates have no failed attempt on record", unsaid)
	}
	most := faults * relayBatch * relayConcurrency // messages in flight of one relay
	if !r.cuts {
		most *= 2
	}
	if twice > most || once && twice > 0 {
		r.Errorf("%d duplicates; %d faults explain at most %d, and deduplication is promised: %v", twice, faults, most, once)
	}
}
