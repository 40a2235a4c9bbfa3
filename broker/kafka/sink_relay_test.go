package kafka

import (
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/brokertest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
)

func TestRelay(t *testing.T) {
	t.Parallel()
	own := devbroker.Own(t, devbroker.StartKafka)
	brokertest.RunRelay(t, brokertest.Postgres, brokertest.RelayFixture{
		Server: own,
		Destination: func(t *testing.T) brokertest.Destination {
			o := newSinkTopicOn(t, own, 3)
			return brokertest.Destination{
				Sink:     func(*testing.T) posthaste.Sink { return o.sink(nil) },
				CutAfter: o.proxy.CutAfter, OnceThroughCuts: true,
				Arrived: func(*testing.T) (all []brokertest.Arrived) {
					for _, r := range o.all() {
						all = append(all, brokertest.Arrived{ID: header(r, HeaderMessageID), Key: string(r.Key), Payload: r.Value})
					}
					return all
				},
			}
		},
	})
}
