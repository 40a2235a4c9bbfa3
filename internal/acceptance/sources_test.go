//go:build unix

package acceptance

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/rabbitmq"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/source"
	"github.com/posthaste-mq/posthaste/worker"
)

// take reads messages of the mailbox into a queue until stop is called.
func (m *mailbox) take(queue string) (stop func()) {
	m.Helper()
	s, err := rabbitmq.NewSource(m.open(), rabbitmq.SourceConfig{Config: source.Config{Queue: queue, Logger: m.log}, URL: rabbitmq.URL(m.url), FromQueue: m.name})
	m.must(err)
	return testrun.Background(m, s.Run)
}

// The broker is killed and restarted while messages are published to it, and with all of them
// queued: none is lost, and each is handled once.
func TestNP5_BrokerRestarted(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "restarts a broker twice; TestNP5_BrokerKilled and TestRelay in broker/rabbitmq run on each change")
	s := newStage(t)
	s.failing()
	broker := devbroker.Own(s, devbroker.StartRabbitMQ)
	m := s.mailbox(broker, nil)
	restart := func() {
		broker.Kill()
		s.must(broker.Start(s.ctx))
		m.connect()
	}
	// The queue's declaration must be on disk before a crash.
	s.must(broker.Sync(s.ctx))

	out, in := s.queue(posthaste.QueueOptions{}), s.queue(posthaste.QueueOptions{})
	n := size(1000, 100_000)
	queued := func() int {
		q, err := m.ch.QueueDeclarePassive(m.name, true, false, false, false, nil)
		s.must(err)
		return q.Messages
	}
	s.send(out, n)
	stop := m.relay(out, rabbitmq.SinkConfig{}, worker.Config{}, worker.WithBatchSize(100))
	s.until("a part is published", func() bool { return queued() > n/10 })
	restart()
	s.settled(out)
	stop()
	restart()
	if got := queued(); got < n {
		t.Fatalf("the broker has %d of %d messages", got, n)
	}

	handled := make(map[int]int)
	var mu sync.Mutex
	w := worker.New(s.open(), worker.Config{Logger: s.log})
	worker.Handle(w, in, func(_ context.Context, d posthaste.Delivery[json.RawMessage]) error {
		var i int
		if err := json.Unmarshal(d.Payload, &i); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		handled[i]++
		return nil
	})
	s.run(w)
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(handled)
	}
	stop = m.take(in)
	s.until("all are handled", func() bool { return count() == n })
	s.until("the broker has none", func() bool { return queued() == 0 })
	stop()
	s.settled(in)
	for i, times := range handled {
		if times != 1 {
			t.Errorf("message %d was handled %d times", i, times)
		}
	}
	if got := queued(); got != 0 {
		t.Errorf("the broker still has %d messages", got)
	}
}
