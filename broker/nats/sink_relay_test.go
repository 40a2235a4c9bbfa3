package nats

import (
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/brokertest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/relay"
)

func TestRelay(t *testing.T) {
	t.Parallel()
	own := devbroker.Own(t, devbroker.StartNATS)
	brokertest.RunRelay(t, brokertest.Postgres, brokertest.RelayFixture{
		Server: own,
		Destination: func(t *testing.T) brokertest.Destination {
			o := newSinkStreamOn(t, own.Address(), func(c *jetstream.StreamConfig) { c.Storage = jetstream.FileStorage })
			return brokertest.Destination{
				Sink:     func(*testing.T) posthaste.Sink { return o.sink(nil) },
				CutAfter: o.proxy.CutAfter, OnceThroughCuts: true, OnceThroughKills: true, // within the duplicate window
				Arrived: func(*testing.T) (all []brokertest.Arrived) {
					for _, m := range o.all() {
						all = append(all, brokertest.Arrived{ID: m.Header.Get(natsgo.MsgIdHdr), Key: m.Header.Get(relay.HeaderKey), Payload: m.Data})
					}
					return all
				},
			}
		},
	})
}
