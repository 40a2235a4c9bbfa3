package rabbitmq

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

// A message above the broker's limit is dead-lettered and repeats no other message.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	small := devbroker.Own(t, devbroker.StartRabbitMQ, "max_message_size = 300000")
	s := sinktest.Open(t, NewSink, SinkConfig{URL: URL(small.URL()), RoutingKey: "small", Declare: "classic"}, nil)
	big := sinktest.Delivery(2)
	big.Payload = bytes.Repeat([]byte("x"), 400_000)
	fits := sinktest.Delivery(4)
	fits.Payload = bytes.Repeat([]byte("x"), 290_000)
	r := sinktest.Deliver(t, s, sinktest.Delivery(1), big, sinktest.Delivery(3), fits)
	if r[0].Err != nil || r[2].Err != nil || r[3].Err != nil || !posthaste.IsPermanent(r[1].Err) || !strings.Contains(r[1].Err.Error(), "406 PRECONDITION_FAILED") {
		t.Errorf("got %v", r)
	}
	testTooLargeInFlight(t, s, big, fits)
	if q, err := openChannel(t, small).QueueDeclarePassive("small", true, false, false, false, nil); err != nil || q.Messages != 3+tooLargeBatches*tooLargeEach/2 {
		t.Errorf("%+v, %v", q, err)
	}
	// With a lower limit, the message that is too large is found at its second attempt.
	if out, err := small.Control(t.Context(), "eval", "application:set_env(rabbit, max_message_size, 1000)."); err != nil {
		t.Fatal(err, out)
	}
	s = sinktest.Open(t, NewSink, SinkConfig{URL: URL(small.URL()), RoutingKey: "small"}, nil)
	big.Payload = big.Payload[:2000]
	r = sinktest.Deliver(t, s, big)
	if r[0].Err == nil || posthaste.IsPermanent(r[0].Err) {
		t.Fatalf("in a batch: %v", r[0].Err)
	}
	if r := sinktest.Deliver(t, s, sinktest.Next(big, r[0]), sinktest.Delivery(5)); !posthaste.IsPermanent(r[0].Err) || !strings.Contains(r[0].Err.Error(), "406 PRECONDITION_FAILED") || r[1].Err != nil {
		t.Errorf("alone: %v", r)
	}
}

// The batches of testTooLargeInFlight.
const tooLargeBatches, tooLargeEach = 8, 5

// testTooLargeInFlight delivers batches in which each second message is too large. The others
// are not affected.
func testTooLargeInFlight(t *testing.T, s *Sink, big, fits posthaste.RawDelivery) {
	var all sync.WaitGroup
	for b := range tooLargeBatches {
		all.Go(func() {
			var batch []posthaste.RawDelivery
			for n := range tooLargeEach {
				d := fits
				d.MessageID = posthaste.MessageID(100 + b*tooLargeEach + n)
				if n%2 == b%2 {
					d.Payload = big.Payload
				}
				batch = append(batch, d)
			}
			for n, r := range sinktest.Deliver(t, s, batch...) {
				if guilty := n%2 == b%2; guilty != posthaste.IsPermanent(r.Err) || !guilty && r.Err != nil {
					t.Errorf("batch %d, message %d, too large: %v, got %v", b, n, guilty, r.Err)
				}
			}
		})
	}
	all.Wait()
}

// While the broker is short of disk or memory, it accepts nothing, and the sink reports the
// broker's reason. Afterwards the sink continues by itself.
func TestAlarms(t *testing.T) {
	testrun.Nightly(t, "it waits for alarms of a broker")
	t.Parallel()
	short := devbroker.Own(t, devbroker.StartRabbitMQ)
	n := 0
	for _, alarm := range []struct {
		reason     string
		set, clear []string
	}{
		{"low on disk", []string{"set_disk_free_limit", "100000GB"}, []string{"set_disk_free_limit", "50MB"}},
		{"low on memory", []string{"set_vm_memory_high_watermark", "0"}, []string{"set_vm_memory_high_watermark", "absolute", "2GB"}},
	} {
		log := &testrun.Log{}
		s := sinktest.Open(t, NewSink, SinkConfig{URL: URL(short.URL()), RoutingKey: "short", Declare: "classic", Connections: 1, Logger: slog.New(slog.NewTextHandler(log, nil))}, nil)
		control := func(args []string) {
			t.Helper()
			if _, err := short.Control(t.Context(), args...); err != nil {
				t.Fatal(err)
			}
		}
		next := func() posthaste.RawDelivery { n++; return sinktest.Delivery(n) }
		if r := sinktest.Deliver(t, s, next()); r[0].Err != nil || s.Away() {
			t.Errorf("before the alarm: %v, away: %v", r[0].Err, s.Away())
		}
		control(alarm.set)
		// The broker tells only publishers. It does not read messages published before that.
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		r := s.Deliver(ctx, []posthaste.RawDelivery{next()})
		cancel()
		if r[0].Err == nil || posthaste.IsPermanent(r[0].Err) || !strings.Contains(r[0].Err.Error(), alarm.reason) {
			t.Errorf("%s: during the alarm: %v", alarm.reason, r[0].Err)
		}
		if said := log.String(); !s.Away() || !strings.Contains(said, "blocks publishers") || !strings.Contains(said, alarm.reason) {
			t.Errorf("%s: away: %v, logged: %s", alarm.reason, s.Away(), said)
		}
		done := make(chan error)
		go func() { done <- sinktest.Deliver(t, s, next())[0].Err }()
		control(alarm.clear)
		if err := <-done; err != nil {
			t.Errorf("%s: after the alarm: %v", alarm.reason, err)
		}
		if said := log.String(); !strings.Contains(said, "accepts messages again") || s.Away() {
			t.Errorf("%s: away: %v, logged: %s", alarm.reason, s.Away(), said)
		}
		s.Close()
	}
}
