package nats

import (
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

// ledger makes an empty one.
func ledger(t *testing.T) posthaste.Engine {
	t.Helper()
	e, err := postgres.Open(t.Context(), testpg.New(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func TestRelay(t *testing.T) {
	t.Parallel()
	own, err := devbroker.StartNATS(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Stop)
	sinktest.RunRelay(t, ledger, sinktest.Broker{
		Kill: func(*testing.T) { own.Kill() },
		Start: func(t *testing.T) {
			if err := own.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		Place: func(t *testing.T) sinktest.Place {
			o := outsideOf(t, own.Address(), func(c *jetstream.StreamConfig) { c.Storage = jetstream.FileStorage })
			return sinktest.Place{
				Sink:     func(*testing.T) posthaste.Sink { return o.sink(nil) },
				CutAfter: o.proxy.CutAfter, OnceThroughCuts: true, OnceThroughKills: true, // within the duplicate window
				Arrived: func(*testing.T) (all []sinktest.Arrived) {
					for _, m := range o.all() {
						all = append(all, sinktest.Arrived{ID: m.Header.Get(natsgo.MsgIdHdr), Key: m.Header.Get(relay.HeaderKey), Payload: m.Data})
					}
					return all
				},
			}
		},
	})
}
