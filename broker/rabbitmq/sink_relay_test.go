package rabbitmq

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/brokertest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

func TestRelay(t *testing.T) { testRelay(t, "classic") }

func TestRelayIntoQuorumQueue(t *testing.T) {
	testrun.Nightly(t, "TestRelay runs the same into a classic queue on each change")
	testRelay(t, "quorum")
}

func testRelay(t *testing.T, queue string) {
	t.Parallel()
	own := devbroker.Own(t, devbroker.StartRabbitMQ)
	names := 0
	brokertest.RunRelay(t, brokertest.Postgres, brokertest.RelayFixture{
		Server: own,
		Destination: func(t *testing.T) brokertest.Destination {
			names++
			name := fmt.Sprint("place-", names)
			proxy := faultproxy.Start(t, own.Address(), isPublish)
			if _, err := openChannel(t, own).QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": queue}); err != nil {
				t.Fatal(err)
			}
			// A crash must not lose the queue's declaration.
			if err := own.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			return brokertest.Destination{
				Sink: func(t *testing.T) posthaste.Sink {
					return sinktest.Open(t, NewSink, SinkConfig{URL: URL("amqp://guest:guest@" + proxy.Address() + "/"), RoutingKey: name}, nil)
				},
				CutAfter: proxy.CutAfter,
				Arrived:  func(t *testing.T) []brokertest.Arrived { return arrived(t, own, name) },
			}
		},
	})
}

// arrived returns the messages of a queue.
func arrived(t *testing.T, own *devbroker.RabbitMQ, name string) (all []brokertest.Arrived) {
	t.Helper()
	ch := openChannel(t, own)
	q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.ConsumeWithContext(t.Context(), name, "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	for d := range deliveries {
		all = append(all, brokertest.Arrived{ID: d.MessageId, Key: fmt.Sprint(d.Headers[relay.HeaderKey]), Payload: d.Body})
		if len(all) == q.Messages {
			break
		}
	}
	if len(all) != q.Messages {
		t.Fatalf("read %d of %d messages", len(all), q.Messages)
	}
	return all
}
