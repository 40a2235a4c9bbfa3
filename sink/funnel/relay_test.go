package funnel

import (
	"bytes"
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/brokertest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/posthastetest"
	"github.com/posthaste-mq/posthaste/redis"
)

// The origin of the tests' messages, which is part of each request that sends one.
const origin = "tests-origin"

// throughFaults runs the suite of relays from PostgreSQL into another engine. openTarget opens an
// engine through a proxy before the server.
func throughFaults(t *testing.T, server brokertest.Server, serverURL string, openTarget func(ctx context.Context, url string) (posthaste.Store, error)) {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	direct := func(t *testing.T) posthaste.Store {
		t.Helper()
		e, err := openTarget(t.Context(), serverURL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		return e
	}
	brokertest.RunRelay(t, brokertest.Postgres, brokertest.RelayFixture{
		Server: server,
		Destination: func(t *testing.T) brokertest.Destination {
			proxy := faultproxy.Start(t, u.Host, func(piece []byte) bool { return bytes.Contains(piece, []byte(origin)) })
			at := *u
			at.Host = proxy.Address()
			queue := strings.ToLower(strings.NewReplacer("/", ".", "_", "-").Replace(t.Name()))
			if err := direct(t).CreateQueue(t.Context(), queue, posthaste.QueueOptions{}); err != nil {
				t.Fatal(err)
			}
			return brokertest.Destination{
				Sink: func(t *testing.T) posthaste.Sink {
					e, err := openTarget(context.WithoutCancel(t.Context()), at.String())
					if err != nil {
						t.Fatal(err)
					}
					s, err := New(Config{Target: e, Name: "target", Origin: origin, Queue: queue})
					if err != nil {
						t.Fatal(err)
					}
					return s
				},
				CutAfter: proxy.CutAfter, OnceThroughCuts: true, OnceThroughKills: true,
				Arrived: func(t *testing.T) (all []brokertest.Arrived) {
					for _, m := range posthastetest.Sent(t, direct(t), queue) {
						all = append(all, brokertest.Arrived{ID: strings.TrimPrefix(m.Headers[posthaste.HeaderMessageID], origin+"-"), Key: m.Key, Payload: m.Payload})
					}
					return all
				},
			}
		},
	})
}

func TestRelayIntoRedis(t *testing.T) {
	t.Parallel()
	own := devbroker.Own(t, devbroker.StartRedis, "--appendonly", "yes", "--appendfsync", "always")
	throughFaults(t, own, own.URL(), func(ctx context.Context, url string) (posthaste.Store, error) {
		return redis.Open(ctx, url, redis.WithLazyConnect())
	})
}

// database is a PostgreSQL that a test kills.
type database struct {
	*devpg.Server
	t *testing.T
}

func (d database) Kill() {
	if err := d.Server.Kill(); err != nil {
		d.t.Error(err)
	}
}

func (d database) Start(ctx context.Context) error { return d.Restart(ctx) }

func TestRelayIntoPostgres(t *testing.T) {
	t.Parallel()
	own := testpg.Server(t)
	throughFaults(t, database{own, t}, own.URL(), func(ctx context.Context, url string) (posthaste.Store, error) {
		return postgres.Open(ctx, url, postgres.WithLazyConnect())
	})
}
