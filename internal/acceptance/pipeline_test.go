//go:build unix

package acceptance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.opentelemetry.io/otel/trace"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/rabbitmq"
	"github.com/posthaste-mq/posthaste/codec/msgpack"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/source"
	"github.com/posthaste-mq/posthaste/worker"
)

var chunks = relay.Chunks{Size: 10, Codec: msgpack.Codec}

// publish relays due messages of a queue to the mailbox, in chunks.
func (m *mailbox) publish(queue string, w worker.Config) (stop func()) {
	m.Helper()
	sink, err := rabbitmq.NewSink(rabbitmq.SinkConfig{URL: rabbitmq.URL(m.url), RoutingKey: m.name, Logger: slog.New(slog.DiscardHandler)})
	m.must(err)
	m.Cleanup(func() { sink.Close() })
	w.Logger = m.log
	run := worker.New(m.open(), w)
	worker.HandleSink(run, queue, chunks.Sink(sink), worker.WithBatchSize(100), worker.WithConcurrency(1))
	return m.stage.run(run)
}

// takeIn runs a source that splits chunks of the mailbox into a queue.
func (m *mailbox) takeIn(queue string) {
	m.Helper()
	from, err := rabbitmq.NewSource(m.open(), rabbitmq.SourceConfig{URL: rabbitmq.URL(m.url), FromQueue: m.name, Config: source.Config{Queue: queue, Unpack: chunks.Unpack}})
	m.must(err)
	m.Cleanup(func() { _, _ = m.ch.QueueDelete(m.name+".refused", false, false, false) })
	testrun.Background(m, from.Run)
}

// references returns the references of the messages in a chunk.
func references(t *testing.T, body []byte) (all []string) {
	t.Helper()
	messages, err := chunks.Unpack(t.Context(), posthaste.Message{Payload: body})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range messages {
		all = append(all, m.Reference)
	}
	return all
}

// notify sends notifications that are due at a time, with their numbers as references.
func (s *stage) notify(queue string, from, to int, at time.Time) (ids []posthaste.MessageID) {
	s.Helper()
	var all []posthaste.Message
	for i := from; i < to; i++ {
		all = append(all, posthaste.Message{Queue: queue, SendAt: at, Payload: i, Reference: fmt.Sprint(i)})
	}
	ids, err := posthaste.IDs(s.client.Send(s.ctx, all...))
	s.must(err)
	return ids
}

// Due messages are sent in chunks, ten per broker message. Messages that are not due stay.
func TestNP1_DueMessagesLeaveInChunks(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.mailbox(nil, nil)
	queue := s.queue(posthaste.QueueOptions{})
	n := size(100, 10_000)
	later := s.notify(queue, n, n+20, time.Now().Add(24*time.Hour))
	due := s.notify(queue, 0, n, time.Now().Add(time.Second))
	for _, id := range due { // otherwise a slow relay takes them one by one
		s.until("all are due", func() bool { return s.state(id).State == posthaste.StateReady })
	}
	m.publish(queue, worker.Config{})
	for _, id := range due {
		s.until("due messages leave", func() bool { return s.state(id).State == posthaste.StateDone })
	}
	came, tens, published := map[string]int{}, 0, 0
	for _, d := range m.read() {
		all := references(t, d.Body)
		if len(all) > 10 || d.ContentType != msgpack.ContentType {
			t.Errorf("a chunk of %d, %s", len(all), d.ContentType)
		}
		published++
		if len(all) == 10 {
			tens++
		}
		for _, r := range all {
			came[r]++
		}
	}
	for i := range n {
		if came[fmt.Sprint(i)] != 1 {
			t.Errorf("notification %d came %d times", i, came[fmt.Sprint(i)])
		}
	}
	// All become due at once, so only the last chunk of a claim has fewer than ten messages.
	// The size of a claim depends on the machine.
	if len(came) != n || tens == 0 || published > n/3 {
		t.Errorf("%d notifications came of %d due, in %d chunks, %d of ten", len(came), n, published, tens)
	}
	for _, id := range later {
		if state := s.state(id).State; state != posthaste.StateScheduled {
			t.Errorf("message %s, due tomorrow, is %s", id, state)
		}
	}
}

// The sixth of ten in a chunk fails: the first five are not repeated. A message that never
// succeeds is a dead letter, an invalid chunk is set aside, and neither is retried in a tight
// loop.
func TestNP3_OneOfAChunkFails(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.failing()
	m := s.mailbox(nil, nil)
	due := s.queue(posthaste.QueueOptions{})
	sending := s.queue(posthaste.QueueOptions{MaxAttempts: 3, BackoffBase: time.Millisecond, BackoffMax: 10 * time.Millisecond})
	var mu sync.Mutex
	calls := map[string]int{}
	s.work(sending, s.recorder(), worker.Config{}, func(_ context.Context, d posthaste.RawDelivery) error {
		mu.Lock()
		defer mu.Unlock()
		calls[d.Reference]++
		switch {
		case d.Reference == "5" && calls["5"] == 1:
			return errors.New("the provider is busy")
		case d.Reference == "16":
			return errors.New("poisoned")
		}
		return nil
	})
	s.notify(due, 0, 20, time.Time{})
	stop := m.publish(due, worker.Config{})
	s.settled(due)
	stop()

	// The same chunks again with other ids, as after a lost acknowledgment: the second time,
	// messages may be divided differently. And an invalid one.
	for _, d := range m.read() {
		for _, id := range []string{d.MessageId, "other-" + d.MessageId} {
			s.must(m.ch.PublishWithContext(s.ctx, "", m.name, false, false, amqp.Publishing{MessageId: id, ContentType: d.ContentType, Body: d.Body, DeliveryMode: amqp.Persistent}))
		}
	}
	s.must(m.ch.PublishWithContext(s.ctx, "", m.name, false, false, amqp.Publishing{MessageId: "poison", ContentType: msgpack.ContentType, Body: []byte{0xc1}}))
	m.takeIn(sending)
	s.until("an invalid chunk is set aside", func() bool {
		ch, err := m.conn.Channel() // an error closes it
		s.must(err)
		defer ch.Close()
		q, err := ch.QueueDeclarePassive(m.name+".refused", true, false, false, false, nil)
		return err == nil && q.Messages == 1
	})
	s.until("all are settled", func() bool {
		return s.count(sending, posthaste.StateDone) == 19 && s.count(sending, posthaste.StateDead) == 1
	})
	mu.Lock()
	defer mu.Unlock()
	for i := range 20 {
		reference := fmt.Sprint(i)
		if want := map[string]int{"5": 2, "16": 3}[reference]; calls[reference] != max(want, 1) {
			t.Errorf("notification %d was handled %d times, want %d", i, calls[reference], max(want, 1))
		}
	}
	if q, err := m.ch.QueueDeclarePassive(m.name, true, false, false, false, nil); err != nil || q.Messages != 0 {
		t.Errorf("the broker has %d messages left, %v", q.Messages, err)
	}
}

// One trace leads from the sender's span through queue, relay, broker and source to the
// handler, including in chunks, in which each message has its own trace.
func TestTR1_OneTraceThroughTheBroker(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	tr := newTraces(s)
	m := s.mailbox(nil, nil)
	due, sending := s.queue(posthaste.QueueOptions{}), s.queue(posthaste.QueueOptions{})
	tr.work(func(w *worker.Worker) {
		worker.HandleRaw(w, sending, func(ctx context.Context, _ posthaste.RawDelivery) error {
			_, span := tr.provider.Tracer("test").Start(ctx, "notified")
			span.End()
			return nil
		})
	})
	var sent []trace.SpanContext
	for range 12 {
		ctx, begun := tr.sender()
		_, err := tr.tracing.Sender(s.client).Send(ctx, posthaste.Message{Queue: due, Payload: 1})
		s.must(err)
		begun.End()
		sent = append(sent, begun.SpanContext())
	}
	m.publish(due, worker.Config{Tracing: tr.tracing})
	m.takeIn(sending)
	for _, begun := range sent {
		id := begun.TraceID()
		s.until("the handler is called", func() bool { return len(tr.named(id, "notified")) == 1 && len(tr.named(id, "process "+sending)) == 1 })
		first := tr.only(id, "send "+due)
		tr.childOf(first, begun)
		handled := tr.only(id, "process "+sending)
		tr.childOf(handled, first.SpanContext)
		tr.childOf(tr.only(id, "notified"), handled.SpanContext)
	}
}

// The example runs as its README says, sent messages can be looked up, and redelivered ones
// are not sent again, in whatever form they come.
func TestPipelineExample(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	m := s.mailbox(nil, nil) // for the broker
	program := filepath.Join(t.TempDir(), "pipeline")
	if out, err := exec.CommandContext(s.ctx, "go", "build", "-o", program, "../../examples/pipeline").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(s.ctx, program, args...)
		cmd.Env, cmd.WaitDelay = append(os.Environ(), "DATABASE_URL="+s.url, "AMQP_URL="+m.url), time.Second
		return cmd
	}
	out, err := command().CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const says = "Your appointment is tomorrow"
	if n := strings.Count(string(out), says); n != 25 {
		t.Errorf("%d notifications, want 25:\n%s", n, out)
	}
	if n := one[int](s, s.conn(), "select count(*) from posthaste.messages where queue = 'sending' and reference = 'appointment-7' and state = 'done'"); n != 1 {
		t.Errorf("the log has it %d times", n)
	}

	// As after the source's window: the same ids, and a new one.
	var again []posthaste.Message
	for i := range 25 {
		id := one[string](s, s.conn(), "select headers->>'message-id' from posthaste.messages where queue = 'sending' and reference = $1", fmt.Sprint("appointment-", i))
		again = append(again, posthaste.Message{Queue: "sending", Payload: map[string]string{"to": "+4930", "text": says}, Headers: map[string]string{posthaste.HeaderMessageID: id}})
	}
	again = append(again, posthaste.Message{Queue: "sending", Payload: map[string]string{"to": "+4931", "text": says}, Headers: map[string]string{posthaste.HeaderMessageID: "new"}})
	ids, err := posthaste.IDs(s.client.Send(s.ctx, again...))
	s.must(err)
	consumer, said := command("-role", "consume"), &testrun.Log{}
	consumer.Stdout, consumer.Stderr = said, said
	s.must(consumer.Start())
	for _, id := range ids {
		s.until("all are handled", func() bool { return s.state(id).State == posthaste.StateDone })
	}
	s.must(consumer.Process.Signal(os.Interrupt))
	if err := consumer.Wait(); err != nil {
		t.Errorf("%v: %s", err, said.String())
	}
	if n := strings.Count(said.String(), says); n != 1 || !said.Has("+4931: "+says) {
		t.Errorf("%d notifications were sent, want the new one alone: %s", n, said.String())
	}
}
