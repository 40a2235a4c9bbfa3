package redisstream

import (
	"fmt"
	"testing"

	posthaste "github.com/posthaste-mq/posthaste"
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
	own, _ := newServer(t, "--appendfsync", "always")
	sinktest.RunRelay(t, ledger, sinktest.Broker{
		Kill: func(*testing.T) { own.Kill() },
		Start: func(t *testing.T) {
			if err := own.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		},
		Place: func(t *testing.T) sinktest.Place {
			o := outsideOf(t, own)
			return sinktest.Place{
				Sink:     func(*testing.T) posthaste.Sink { return o.sink(nil) },
				CutAfter: o.proxy.CutAfter,
				Arrived: func(*testing.T) (all []sinktest.Arrived) {
					for _, m := range o.all() {
						all = append(all, sinktest.Arrived{ID: fmt.Sprint(m.Values[FieldMessageID]), Key: fmt.Sprint(m.Values[relay.HeaderKey]), Payload: []byte(fmt.Sprint(m.Values[FieldPayload]))})
					}
					return all
				},
			}
		},
	})
}
