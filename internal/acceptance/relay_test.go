//go:build unix

package acceptance

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/rabbitmq"
	"github.com/posthaste-mq/posthaste/inbox"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/worker"
)

// relay runs a worker with its own connections that relays a queue to the mailbox.
func (m *mailbox) relay(queue string, c rabbitmq.SinkConfig, w worker.Config, options ...worker.Option) (stop func()) {
	m.Helper()
	if c.URL == "" {
		c.URL = rabbitmq.URL(m.url)
	}
	c.RoutingKey = m.name
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	sink, err := rabbitmq.NewSink(c)
	m.must(err)
	m.Cleanup(func() { sink.Close() })
	w.Logger = m.log
	run := worker.New(m.open(), w)
	worker.HandleSink(run, queue, sink, options...)
	return m.stage.run(run)
}

// relayRole relays until it is told to stop.
func relayRole(ctx context.Context, t task, ready func()) error {
	engine, err := openStore(ctx, t.URL)
	if err != nil {
		return err
	}
	defer engine.Close()
	sink, err := rabbitmq.NewSink(rabbitmq.SinkConfig{URL: rabbitmq.URL(t.Broker), RoutingKey: t.Target})
	if err != nil {
		return err
	}
	defer sink.Close()
	w := worker.New(engine, worker.Config{Name: t.Name, Lease: t.Lease})
	worker.HandleSink(w, t.Queue, sink, worker.WithBatchSize(t.Count), worker.WithConcurrency(t.Concurrency))
	return runReady(ctx, w, ready)
}

// Payloads of 10 kB and 1 MB are relayed like small ones, and never make the business
// transaction fail.
func TestOR1_LargePayloads(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.mailbox(nil, nil)
	queue := s.queue(posthaste.QueueOptions{MaxPayload: 2 << 20})
	want := map[string][]byte{}
	conn := s.conn()
	for i := range 60 {
		size := []int{200, 10_000, 1_000_000}[i%3]
		payload := bytes.Repeat([]byte{byte(i), 0, 255, byte(i >> 1)}, size/4)
		tx, err := conn.Begin(s.ctx)
		s.must(err)
		_, err = tx.Exec(s.ctx, "create temp table business on commit drop as select 1")
		s.must(err)
		ids, err := posthaste.IDs(postgres.In(tx).Send(s.ctx, posthaste.Message{Queue: queue, Payload: payload, ContentType: "application/octet-stream"}))
		s.must(err)
		s.must(tx.Commit(s.ctx))
		want[ids[0].String()] = payload
	}
	m.relay(queue, rabbitmq.SinkConfig{}, worker.Config{})
	s.settled(queue)
	all := m.read()
	for _, d := range all {
		if !bytes.Equal(d.Body, want[d.MessageId]) || d.ContentType != "application/octet-stream" {
			t.Errorf("message %s came with %d bytes of %s", d.MessageId, len(d.Body), d.ContentType)
		}
	}
	if len(all) != len(want) || len(counted(all)) != len(want) {
		t.Errorf("%d messages came, %d ids, of %d", len(all), len(counted(all)), len(want))
	}
}

// 5 relays share messages: all arrive at the broker, none twice.
func TestOR3_RelaysShare(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.mailbox(nil, nil)
	queue := s.queue(posthaste.QueueOptions{Lanes: 5})
	n := size(20_000, 2_000_000)
	for range 5 {
		m.relay(queue, rabbitmq.SinkConfig{}, worker.Config{}, worker.WithBatchSize(500), worker.WithConcurrency(2))
	}
	for sent := 0; sent < n; sent += 10_000 {
		s.send(queue, 10_000)
	}
	s.settled(queue)
	all := m.read()
	if ids := counted(all); len(all) != n || len(ids) != n {
		t.Errorf("the broker has %d messages with %d ids, of %d", len(all), len(ids), n)
	}
}

// A message that the broker rejects is retried, and is a dead letter after max_attempts with
// the broker's error. No unsent message is settled.
func TestOR4_BrokerTrouble(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.failing()
	broker := devbroker.Own(s, devbroker.StartRabbitMQ)

	t.Run("nack and unroutable", func(t *testing.T) { rejectedByBroker(t, s, broker) })
	t.Run("restart", func(t *testing.T) {
		testrun.Nightly(t, "sinktest kills the broker of a relay on each change")
		brokerRestarts(t, s, broker)
	})
	for reason, control := range map[string][2][]string{
		"low on disk":   {{"set_disk_free_limit", "100000GB"}, {"set_disk_free_limit", "50MB"}},
		"low on memory": {{"set_vm_memory_high_watermark", "0"}, {"set_vm_memory_high_watermark", "absolute", "2GB"}},
	} {
		t.Run(reason, func(t *testing.T) {
			testrun.Nightly(t, "it waits for alarms of a broker")
			brokerBlocks(t, s, broker, reason, control[0], control[1])
		})
	}
}

func rejectedByBroker(t *testing.T, s *stage, broker *devbroker.RabbitMQ) {
	m := s.mailbox(broker, amqp.Table{"x-max-length": 5, "x-overflow": "reject-publish"})
	queue := s.queue(posthaste.QueueOptions{MaxAttempts: 2, BackoffBase: time.Millisecond, BackoffMax: time.Millisecond})
	ids := s.send(queue, 30)
	stop := m.relay(queue, rabbitmq.SinkConfig{}, worker.Config{}, worker.WithBatchSize(1), worker.WithConcurrency(1))
	s.settled(queue)
	stop()
	came := counted(m.read())
	dead := 0
	for _, id := range ids {
		state := s.state(id)
		switch {
		case state.State == posthaste.StateDone && came[id.String()] == 0:
			t.Errorf("message %s is done and never came", id)
		case state.State == posthaste.StateDead:
			dead++
			if last := state.Attempts[len(state.Attempts)-1]; len(state.Attempts) != 2 || !strings.Contains(last.Error, "basic.nack") {
				t.Errorf("message %s: %+v", id, state.Attempts)
			}
		}
	}
	if dead == 0 || dead+len(came) < len(ids) {
		t.Errorf("%d dead and %d came, of %d", dead, len(came), len(ids))
	}
	_, err := m.ch.QueueDelete(m.name, false, false, false)
	s.must(err)
	id := s.send(queue, 1)[0]
	m.relay(queue, rabbitmq.SinkConfig{}, worker.Config{})
	s.settled(queue)
	if state := s.state(id); state.State != posthaste.StateDead || !strings.Contains(state.Attempts[1].Error, "NO_ROUTE") {
		t.Errorf("%+v", state)
	}
}

func brokerRestarts(t *testing.T, s *stage, broker *devbroker.RabbitMQ) {
	m := s.mailbox(broker, nil)
	queue := s.queue(posthaste.QueueOptions{BackoffBase: time.Millisecond, BackoffMax: 100 * time.Millisecond})
	n := size(1000, 100_000)
	m.relay(queue, rabbitmq.SinkConfig{Connections: 1}, worker.Config{}, worker.WithBatchSize(50))
	ids := s.send(queue, n/3)
	// The queue's declaration must be on disk before a crash.
	s.must(broker.Sync(s.ctx))
	broker.Kill()
	ids = append(ids, s.send(queue, n/3)...)
	s.must(broker.Start(s.ctx))
	ids = append(ids, s.send(queue, n-2*(n/3))...)
	s.settledAll(queue, ids)
	m.connect()
	came := counted(m.read())
	for _, id := range ids {
		if came[id.String()] == 0 {
			t.Fatalf("message %s is done and never came", id)
		}
	}
}

// While the broker is short of disk or memory, the relay publishes nothing more and settles no
// unsent message. Afterwards it resumes by itself.
func brokerBlocks(t *testing.T, s *stage, broker *devbroker.RabbitMQ, reason string, set, clear []string) {
	m := s.mailbox(broker, nil)
	queue := s.queue(posthaste.QueueOptions{BackoffBase: time.Millisecond, BackoffMax: 100 * time.Millisecond})
	n := size(1000, 30_000)
	said := &testrun.Log{}
	m.relay(queue, rabbitmq.SinkConfig{Connections: 1, Logger: slog.New(slog.NewTextHandler(said, nil))}, worker.Config{}, worker.WithBatchSize(50))
	s.settledAll(queue, s.send(queue, 10))
	_, err := broker.Control(s.ctx, set...)
	s.must(err)
	ids := s.send(queue, n)
	s.until("the broker blocks the relay", func() bool { return said.Has("the broker blocks publishers") && said.Has(reason) })
	late := s.send(queue, 1)[0]
	ids = append(ids, late)
	m.connect()
	done := m.done(queue)
	q, err := m.ch.QueueDeclarePassive(m.name, true, false, false, false, nil)
	s.must(err)
	if state := s.state(late).State; state == posthaste.StateDone || done > int64(q.Messages) || said.Has("accepts messages again") {
		t.Errorf("during the alarm %d of %d messages are done and %d came; one that was sent meanwhile is %s", done, len(ids), q.Messages, state)
	}
	_, err = broker.Control(s.ctx, clear...)
	s.must(err)
	s.settledAll(queue, ids)
	if !said.Has("accepts messages again") {
		t.Error("the relay does not say that the broker accepts messages again")
	}
	came := counted(m.read())
	for _, id := range ids {
		if came[id.String()] == 0 {
			t.Fatalf("message %s is done and never came", id)
		}
	}
}

// effectsOnce checks that behind an inbox each of n messages has its effect once, whose deliveries
// of a broker are all.
func (s *stage) effectsOnce(all []amqp.Delivery, n int) {
	s.Helper()
	pool := s.pool()
	_, err := pool.Exec(s.ctx, inbox.Schema())
	s.must(err)
	_, err = pool.Exec(s.ctx, "create table effects (id text not null)")
	s.must(err)
	handle := inbox.Handler(pool.Begin, "test", func(ctx context.Context, tx pgx.Tx, d posthaste.RawDelivery) error {
		_, err := tx.Exec(ctx, "insert into effects values ($1)", inbox.ID(d))
		return err
	})
	next := make(chan string)
	var consumers sync.WaitGroup
	for range 4 {
		consumers.Go(func() {
			for id := range next {
				if err := handle(s.ctx, posthaste.RawDelivery{Headers: map[string]string{posthaste.HeaderMessageID: id}}); err != nil {
					s.Error(err)
				}
			}
		})
	}
	for _, d := range all {
		next <- d.MessageId
	}
	close(next)
	consumers.Wait()
	if effects, distinct := one[int](s, pool, "select count(*) from effects"), one[int](s, pool, "select count(distinct id) from effects"); effects != n || distinct != n {
		s.Errorf("%d effects of %d messages, want %d", effects, distinct, n)
	}
}

// A relay is killed between publishing and settling: nothing is lost, and only messages in
// flight come twice, with the same id.
func TestOR5_RelayKilled(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.mailbox(nil, nil)
	queue := s.queue(posthaste.QueueOptions{})
	n, kills := size(2000, 200_000), size(2, 20)
	const batch, concurrency = 100, 4
	ids := s.send(queue, n)
	relay := func() *child {
		return s.spawn(task{Role: "relay", Queue: queue, Broker: m.url, Target: m.name, Count: batch, Concurrency: concurrency, Lease: 2 * time.Second})
	}
	var all []amqp.Delivery
	settled, inFlight := map[string]bool{}, 0
	read := func() {
		for _, d := range m.read() {
			if settled[d.MessageId] {
				t.Fatalf("message %s comes again, though it was settled before the latest kill", d.MessageId)
			}
			all = append(all, d)
		}
	}
	for kill := range kills {
		c := relay()
		// During its work: when more messages have come than before, or all are there.
		var before int
		s.until("the relay publishes", func() bool {
			q, err := m.ch.QueueDeclarePassive(m.name, true, false, false, false, nil)
			s.must(err)
			if before == 0 {
				before = q.Messages + 1 + kill*7
			}
			return q.Messages >= before || len(all)+q.Messages >= n
		})
		if kill%2 == 1 { // with some messages settled, too
			s.until("enough is settled", func() bool { return m.done(queue) >= int64(kill*n/20) })
		}
		c.kill()
		read()
		// Settled messages do not come again. The other messages that have come were in
		// flight. Only some are checked, because asking for the state of all takes long.
		for i := 0; i < len(all); i += 1 + len(all)/100 {
			d := all[i]
			id, err := strconv.ParseInt(d.MessageId, 10, 64)
			s.must(err)
			if s.state(posthaste.MessageID(id)).State == posthaste.StateDone {
				settled[d.MessageId] = true
			} else {
				inFlight++
			}
		}
	}
	if len(settled) == 0 {
		t.Error("nothing was settled before a kill: this test sees nothing")
	}
	relay()
	s.settled(queue)
	read()
	came := counted(all)
	twice := 0
	for _, id := range ids {
		switch c := came[id.String()]; {
		case c == 0:
			t.Fatalf("message %s is lost", id)
		default:
			twice += c - 1
		}
	}
	if most := kills * batch * concurrency; twice > most {
		t.Errorf("%d came again, and %d were in flight at most", twice, most)
	}
	if len(came) != n {
		t.Errorf("%d ids came, of %d", len(came), n)
	}
	t.Logf("%d kills, %d of %d came twice; of some that had come at each kill %d were settled and %d were not", kills, twice, n, len(settled), inFlight)

	s.effectsOnce(all, n)
}

// The order of each key holds at the broker, with several relays and even if one dies.
func TestOR6_OrderAtTheBroker(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.mailbox(nil, nil)
	queue := s.queue(posthaste.QueueOptions{Ordered: true})
	n, keys := size(2000, 100_000), 100
	var relays []*child
	for range 4 {
		relays = append(relays, s.spawn(task{Role: "relay", Queue: queue, Broker: m.url, Target: m.name, Count: 100, Concurrency: 4, Lease: 2 * time.Second}))
	}
	for from := 0; from < n; from += 1000 {
		var batch []posthaste.Message
		for i := from; i < from+1000; i++ {
			batch = append(batch, posthaste.Message{Queue: queue, Key: fmt.Sprint("k", i%keys), Payload: i})
		}
		_, err := s.client.Send(s.ctx, batch...)
		s.must(err)
		if from+1000 == n/2 {
			// While they publish: some messages have come, and more wait.
			s.until("the relays publish", func() bool {
				q, err := m.ch.QueueDeclarePassive(m.name, true, false, false, false, nil)
				s.must(err)
				return q.Messages > 0
			})
			relays[1].kill()
		}
	}
	if !relays[1].killed() {
		t.Fatal("no relay was killed")
	}
	s.settled(queue)
	seen, last := map[string]bool{}, map[string]int{}
	for _, d := range m.read() {
		if seen[d.MessageId] {
			continue // published again: the first one counts
		}
		seen[d.MessageId] = true
		key := fmt.Sprint(d.Headers["posthaste-key"])
		var i int
		s.must(json.Unmarshal(d.Body, &i))
		if before, ok := last[key]; ok && i < before {
			t.Errorf("key %s: %d came after %d", key, i, before)
		}
		last[key] = i
	}
	if len(seen) != n {
		t.Errorf("%d of %d came", len(seen), n)
	}
}

// Connections are cut repeatedly between publishing and the confirm: all messages come, with
// the same ids, and each cut is a recorded attempt.
func TestOR5_CutBeforeTheConfirm(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.failing()
	m := s.mailbox(nil, nil)
	broker, err := sharedBroker()
	s.must(err)
	proxy, err := faultproxy.New(broker.Address(), func(piece []byte) bool { return bytes.Contains(piece, []byte{0, 60, 0, 40}) })
	s.must(err)
	t.Cleanup(proxy.Close)
	queue := s.queue(posthaste.QueueOptions{BackoffBase: time.Millisecond, BackoffMax: time.Millisecond})
	m.relay(queue, rabbitmq.SinkConfig{URL: rabbitmq.URL("amqp://guest:guest@" + proxy.Address() + "/"), Connections: 1}, worker.Config{}, worker.WithBatchSize(10), worker.WithConcurrency(1))
	cuts := 0
	var ids []posthaste.MessageID
	for range 20 {
		cut := proxy.CutAfter()
		ids = append(ids, s.send(queue, 10)...)
		select {
		case <-cut:
			cuts++
		case <-s.ctx.Done():
			t.Fatal("nothing was cut")
		}
	}
	s.settled(queue)
	came := counted(m.read())
	attempts := 0
	for _, id := range ids {
		if came[id.String()] == 0 {
			t.Errorf("message %s is lost", id)
		}
		state := s.state(id)
		if state.State != posthaste.StateDone {
			t.Errorf("message %s: %+v", id, state)
		}
		attempts += len(state.Attempts)
	}
	if len(came) != len(ids) || attempts < cuts {
		t.Errorf("%d ids of %d, %d attempts for %s cuts", len(came), len(ids), attempts, strconv.Itoa(cuts))
	}
}
