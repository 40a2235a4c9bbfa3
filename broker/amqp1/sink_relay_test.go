package amqp1

import (
	"fmt"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/brokertest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/relay"
)

func TestRelay(t *testing.T) {
	t.Parallel()
	own := devbroker.Own(t, devbroker.StartRabbitMQ)
	brokertest.RunRelay(t, brokertest.Postgres, brokertest.RelayFixture{
		Server: own,
		Destination: func(t *testing.T) brokertest.Destination {
			o := newSinkQueue(t, own)
			// A crash must not find the queue's own declaration unwritten.
			if err := own.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			return brokertest.Destination{
				Sink:     func(*testing.T) posthaste.Sink { return o.sink(nil) },
				CutAfter: o.proxy.CutAfter,
				Arrived: func(t *testing.T) (all []brokertest.Arrived) {
					o.open(own)
					for _, m := range o.all() {
						all = append(all, brokertest.Arrived{ID: m.Properties.MessageID.(string), Key: fmt.Sprint(m.ApplicationProperties[relay.HeaderKey]), Payload: m.GetData()})
					}
					return all
				},
			}
		},
	})
}
