//go:build unix

package acceptance

import (
	"context"
	"os"
	"strings"
	"sync"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
)

// sharedBroker is the RabbitMQ of the tests that do not damage it.
var sharedBroker = sync.OnceValues(func() (*devbroker.RabbitMQ, error) {
	dir, err := os.MkdirTemp("", "posthaste-broker-")
	if err != nil {
		return nil, err
	}
	startedBroker.dir = dir
	startedBroker.server, err = devbroker.StartRabbitMQ(context.Background(), dir)
	return startedBroker.server, err
})

var startedBroker struct {
	server *devbroker.RabbitMQ
	dir    string
}

func stopBroker() {
	if startedBroker.server != nil {
		startedBroker.server.Stop()
	}
	if startedBroker.dir != "" {
		os.RemoveAll(startedBroker.dir)
	}
}

// mailbox is a queue of a broker and the messages read from it.
type mailbox struct {
	*stage
	url, name string
	conn      *amqp.Connection
	ch        *amqp.Channel
}

// mailbox creates a queue for the test.
func (s *stage) mailbox(broker *devbroker.RabbitMQ, args amqp.Table) *mailbox {
	s.Helper()
	if broker == nil {
		var err error
		broker, err = sharedBroker()
		s.must(err)
	}
	m := &mailbox{stage: s, url: broker.URL(), name: strings.ReplaceAll(s.T.Name(), "/", "-") + s.name("")}
	m.connect()
	_, err := m.ch.QueueDeclare(m.name, true, false, false, false, args)
	s.must(err)
	return m
}

func (m *mailbox) connect() {
	m.Helper()
	var err error
	m.conn, err = amqp.Dial(m.url)
	m.must(err)
	conn := m.conn
	m.Cleanup(func() { conn.Close() })
	m.ch, err = m.conn.Channel()
	m.must(err)
}

// read takes all current messages, and possibly some that arrive in the meantime.
func (m *mailbox) read() (all []amqp.Delivery) {
	m.Helper()
	q, err := m.ch.QueueDeclarePassive(m.name, true, false, false, false, nil)
	m.must(err)
	deliveries, err := m.ch.Consume(m.name, m.name, true, false, false, false, nil)
	m.must(err)
	for len(all) < q.Messages {
		select {
		case d := <-deliveries:
			all = append(all, d)
		case <-m.ctx.Done():
			m.Fatalf("read %d of %d messages", len(all), q.Messages)
		}
	}
	m.must(m.ch.Cancel(m.name, false))
	for d := range deliveries { // closed by Cancel; messages taken off the queue must not be lost
		all = append(all, d)
	}
	return all
}

// counted counts by message id.
func counted(all []amqp.Delivery) map[string]int {
	count := map[string]int{}
	for _, d := range all {
		count[d.MessageId]++
	}
	return count
}

// settledAll waits until the queue is settled, and checks that all of these are done.
func (s *stage) settledAll(queue string, ids []posthaste.MessageID) {
	s.Helper()
	s.settled(queue)
	found, err := s.engine.Queues(s.ctx, queue)
	s.must(err)
	if n := found[0].Subscriptions[0]; n.Done == n.Sent && n.Dead == 0 && n.Sent >= int64(len(ids)) {
		return // reading a message takes milliseconds, and some tests send 100,000
	}
	for _, id := range ids {
		if state := s.state(id); state.State != posthaste.StateDone {
			s.Fatalf("message %s is %s: %+v", id, state.State, state.Attempts)
		}
	}
}

// done counts the queue's messages that are done.
func (m *mailbox) done(queue string) int64 {
	m.Helper()
	_, err := m.engine.Maintain(m.ctx, posthaste.UpkeepSpace) // updates the counts, too
	m.must(err)
	infos, err := m.engine.Queues(m.ctx, queue)
	m.must(err)
	return infos[0].Subscriptions[0].Done
}
