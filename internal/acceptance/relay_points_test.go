//go:build unix

package acceptance

import (
	"bytes"
	"net/url"
	"regexp"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
)

// A relay is killed at every point between two steps of a batch: before and after a request to
// the database, the broker and the database again was executed, with the response in flight.
// Nothing is lost. Only messages that the broker had before the ledger settled them come
// twice, with the same message id, and the repetition is a recorded attempt.
func TestOR5_RelayKilledAtEveryPoint(t *testing.T) {
	t.Parallel()
	broker, err := sharedBroker()
	if err != nil {
		t.Fatal(err)
	}
	// A prepared statement is run by a message Bind: its type, its length, an empty portal and
	// the statement's name.
	bind := func(statement string) func([]byte) bool {
		return regexp.MustCompile(`(?s)B....\x00` + statement + `\x00`).Match
	}
	const batch = 8 // size of one claim here
	claim, settle := bind("posthaste_claim"), bind("posthaste_settle")
	publish := func(piece []byte) bool { return bytes.Contains(piece, []byte{0, 60, 0, 40}) }
	for _, point := range []struct {
		name            string
		database        func([]byte) bool // the request to kill at; nil: that to the broker
		answered        bool              // the request was executed, and the response is lost
		twice, attempts bool              // it comes twice; a lost attempt is recorded
	}{
		{name: "claiming", database: claim},
		{name: "claimed", database: claim, answered: true, attempts: true},
		{name: "publishing", attempts: true},
		{name: "published", answered: true, twice: true, attempts: true},
		{name: "settling", database: settle, twice: true, attempts: true},
		{name: "settled", database: settle, answered: true},
	} {
		t.Run(point.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			s.failing()
			m := s.mailbox(nil, nil)
			queue := s.queue(posthaste.QueueOptions{})
			store, err := url.Parse(s.url)
			s.must(err)
			database, err := faultproxy.New(store.Host, point.database)
			s.must(err)
			t.Cleanup(database.Close)
			store.Host = database.Address()
			brokers, err := faultproxy.New(broker.Address(), publish)
			s.must(err)
			t.Cleanup(brokers.Close)
			proxied, err := url.Parse(m.url)
			s.must(err)
			proxied.Host = brokers.Address()

			relay := task{Role: "relay", Queue: queue, URL: store.String(), Broker: proxied.String(), Target: m.name, Count: batch, Concurrency: 1, Lease: 2 * time.Second}
			met := brokers
			if point.database != nil {
				met = database
			}
			strike := met.KillBefore
			if point.answered {
				strike = met.KillAfter
			}
			ids := s.send(queue, batch) // first, so that it is in the first claim
			relays := make(chan *child, 1)
			struck := strike(func() { (<-relays).kill() })
			relays <- s.spawn(relay)
			select {
			case <-struck:
			case <-s.ctx.Done():
				t.Fatal("the relay never came to this point")
			}

			// Only the killed relay's lease must end soon: if this one stalled for as long,
			// there would be more attempts.
			again := relay
			again.Lease = time.Minute
			s.spawn(again)
			s.settledAll(queue, ids)
			came := counted(m.read())
			total := 0
			for _, id := range ids {
				n, attempts := came[id.String()], len(s.state(id).Attempts)
				total += n
				if n == 0 {
					t.Errorf("message %s is lost", id)
				}
				if n > 1 && attempts < n {
					t.Errorf("message %s came %d times, with %d attempts on record", id, n, attempts)
				}
				if point.attempts != (attempts > 1) {
					t.Errorf("message %s has %d attempts", id, attempts)
				}
			}
			if len(came) != batch || point.twice != (total > batch) || total > 2*batch {
				t.Errorf("%d messages with %d ids came, of %d; twice is expected: %v", total, len(came), batch, point.twice)
			}
		})
	}
}
