package redisstream

import (
	"fmt"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/brokertest"
	"github.com/posthaste-mq/posthaste/relay"
)

func TestRelay(t *testing.T) {
	t.Parallel()
	own, _ := newServer(t, "--appendfsync", "always")
	brokertest.RunRelay(t, brokertest.Postgres, brokertest.RelayFixture{
		Server: own,
		Destination: func(t *testing.T) brokertest.Destination {
			o := newSinkStreamOn(t, own)
			return brokertest.Destination{
				Sink:     func(*testing.T) posthaste.Sink { return o.sink(nil) },
				CutAfter: o.proxy.CutAfter,
				Arrived: func(*testing.T) (all []brokertest.Arrived) {
					for _, m := range o.all() {
						all = append(all, brokertest.Arrived{ID: fmt.Sprint(m.Values[FieldMessageID]), Key: fmt.Sprint(m.Values[relay.HeaderKey]), Payload: []byte(fmt.Sprint(m.Values[FieldPayload]))})
					}
					return all
				},
			}
		},
	})
}
