package redisstream

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/brokertest"
	"github.com/posthaste-mq/posthaste/internal/configtest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
	"github.com/posthaste-mq/posthaste/source"
)

// names numbers the streams of tests.
var names atomic.Int64

// sourceStream is a stream that a source reads.
type sourceStream struct {
	name   string
	client *goredis.Client
	proxy  *faultproxy.Proxy
}

func newSourceStream(t *testing.T) *sourceStream {
	t.Helper()
	return newSourceStreamOn(t, broker)
}

func newSourceStreamOn(t *testing.T, broker *devbroker.Redis) *sourceStream {
	t.Helper()
	p := &sourceStream{name: fmt.Sprint(strings.ReplaceAll(t.Name(), "/", "-"), names.Add(1)), client: newClient(t, broker), proxy: faultproxy.Start(t, broker.Address(), nil)}
	if err := p.client.XGroupCreateMkStream(t.Context(), p.name, "posthaste", "0").Err(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *sourceStream) source(t *testing.T, ledger source.Ledger, c source.Config, change func(*SourceConfig)) *source.Source {
	t.Helper()
	return brokertest.OpenSource(t, NewSource, ledger, SourceConfig{Config: c, URL: URL("redis://" + p.proxy.Address()), Stream: p.name}, change)
}

// fixture returns the stream for the suites of sources, which are the consumer of this name; an
// empty one is a new consumer for each of them.
func (p *sourceStream) fixture(consumer string) brokertest.SourceFixture {
	return brokertest.SourceFixture{
		Source: func(t *testing.T, ledger source.Ledger, c source.Config) *source.Source {
			return p.source(t, ledger, c, func(c *SourceConfig) { c.Consumer = consumer })
		},
		Publish: p.publish, Left: p.left, Refused: p.refused, Cut: p.proxy.CutAll, Refuse: p.proxy.Refuse,
		Sink: func(t *testing.T, m relay.Mapping) posthaste.Sink {
			return sinktest.Open(t, NewSink, SinkConfig{URL: URL(broker.URL()), Stream: p.name, Mapping: m}, nil)
		},
	}
}

func (p *sourceStream) publish(t *testing.T, messages ...relay.Incoming) {
	t.Helper()
	for _, m := range messages {
		fields := []any{FieldMessageID, m.MessageID, FieldContentType, m.ContentType, FieldPayload, m.Payload, relay.HeaderKind, m.Kind, relay.HeaderKey, m.Key}
		for name, value := range m.Headers {
			fields = append(fields, name, value)
		}
		if err := p.client.XAdd(t.Context(), &goredis.XAddArgs{Stream: p.name, Values: fields}).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

func (p *sourceStream) left(t *testing.T) int {
	t.Helper()
	groups, err := p.client.XInfoGroups(t.Context(), p.name).Result()
	if err != nil || len(groups) != 1 {
		t.Fatal(groups, err)
	}
	return int(groups[0].Pending + groups[0].Lag)
}

func (p *sourceStream) refused(t *testing.T) (all []relay.Incoming) {
	t.Helper()
	entries, err := p.client.XRange(t.Context(), p.name+".refused", "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		m := read(e)
		all = append(all, relay.Incoming{MessageID: m.ID, ContentType: m.ContentType, Payload: m.Payload, Headers: m.Headers})
	}
	return all
}

func TestSource(t *testing.T) { brokertest.RunSource(t, brokertest.Postgres, sourceFixture) }

func TestSourceOnRedis(t *testing.T) {
	brokertest.RunSource(t, brokertest.Redis, sourceFixture)
}

func sourceFixture(t *testing.T) brokertest.SourceFixture {
	return newSourceStream(t).fixture("one") // a consumer of the same name finds the pending entries of the one before
}

// open opens a session of a consumer.
func (p *sourceStream) open(ctx context.Context, t *testing.T, consumer string) source.Session {
	t.Helper()
	b := newBroker(SourceConfig{Stream: p.name, Group: "posthaste", Consumer: consumer, ClaimAfter: 5 * time.Minute}, &goredis.Options{PoolSize: 1, MaxRetries: -1}, []string{broker.Address()})
	return brokertest.OpenSession(ctx, t, b)
}

// Another consumer claims the entries that a consumer returned, or that were pending when it
// crashed, but not those of a live consumer.
func TestTakenOver(t *testing.T) {
	t.Parallel()
	p := newSourceStream(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	open := func(consumer string) source.Session {
		t.Helper()
		return p.open(ctx, t, consumer)
	}
	read := func(s source.Session, n int) []source.Arrival {
		t.Helper()
		return brokertest.ReadSession(ctx, t, s, n)
	}
	for n := range 6 {
		p.publish(t, relay.Incoming{MessageID: fmt.Sprint(n)})
	}
	stopped, dead, lives := open("stopped"), open("dead"), open("lives")
	given := read(stopped, 2)
	if err := stopped.Acknowledge(ctx, given[:1]); err != nil {
		t.Fatal(err)
	}
	lost := read(dead, 2)
	held := read(lives, 1)
	stopped.Close()
	// As if it had crashed long ago.
	id := func(a source.Arrival) string { return a.Token.(goredis.XMessage).ID }
	if err := p.client.Do(ctx, "XCLAIM", p.name, "posthaste", "dead", 0, id(lost[0]), id(lost[1]), "IDLE", 600_000, "JUSTID").Err(); err != nil {
		t.Fatal(err)
	}
	next := open("heir")
	defer next.Close()
	got := map[string]bool{}
	for _, a := range read(next, 4) {
		got[a.Message.DedupeKey] = true
	}
	if fmt.Sprint(got) != fmt.Sprint(map[string]bool{"1": true, "2": true, "3": true, "5": true}) {
		t.Errorf("the new consumer has %v, next to %q", got, held[0].Message.DedupeKey)
	}
	// Entries that were deleted meanwhile do not block others.
	if err := p.client.XDel(ctx, p.name, id(held[0])).Err(); err != nil {
		t.Fatal(err)
	}
	p.publish(t, relay.Incoming{MessageID: "7"})
	again := open("lives")
	defer again.Close()
	if a := read(again, 1); a[0].Message.DedupeKey != "7" {
		t.Errorf("read %q", a[0].Message.DedupeKey)
	}
}

// An entry of another program than a relay.
func TestForeignEntry(t *testing.T) {
	t.Parallel()
	s := &session{sourceBroker: &sourceBroker{SourceConfig: SourceConfig{Stream: "events"}}}
	m := s.arrival(goredis.XMessage{ID: "17-1", Values: map[string]any{"name": "ada", "n": "7"}}).Message
	if m.DedupeKey != "redis/events/17-1" || m.ContentType != posthaste.ContentTypeJSON || string(m.Payload.([]byte)) != `{"n":"7","name":"ada"}` || m.Headers != nil {
		t.Errorf("%+v", m)
	}
}

func TestBrokerKilled(t *testing.T) {
	t.Parallel()
	own := devbroker.Own(t, devbroker.StartRedis, "--appendfsync", "always")
	brokertest.RunSourceKilled(t, brokertest.Postgres, newSourceStreamOn(t, own).fixture(""), own)
}

func TestSourceCheck(t *testing.T) {
	t.Parallel()
	p, e := newSourceStream(t), brokertest.Orders(t)
	if err := p.client.Set(t.Context(), p.name+"-text", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	open := func(change func(*SourceConfig)) *source.Source {
		return p.source(t, e, source.Config{Queue: "orders"}, change)
	}
	configtest.Checks(t, "me:wrong", open,
		configtest.Valid("a group of its own", func(c *SourceConfig) { c.Group = "another" }),
		configtest.Invalid("password", "url", func(c *SourceConfig) { c.URL = URL("redis://me:wrong@" + broker.Address()) }),
		configtest.Invalid("database", "url", func(c *SourceConfig) { c.URL = URL("redis://" + broker.Address() + "/99") }),
		configtest.Invalid("no stream", "stream", func(c *SourceConfig) { c.Stream = "nowhere" }),
		configtest.Invalid("another type", "stream", func(c *SourceConfig) { c.Stream += "-text" }),
		configtest.Invalid("queue", "queue", func(c *SourceConfig) { c.Queue = "nowhere" }),
		configtest.Unavailable("away", func(c *SourceConfig) { c.URL = "redis://127.0.0.1:1" }))
}

func TestSourceTLS(t *testing.T) {
	t.Parallel()
	p, e := newSourceStream(t), brokertest.Orders(t)
	configtest.TLS(t, certificates.Trust(), func(host string, trust *tls.Config) *source.Source {
		return p.source(t, e, source.Config{Queue: "orders"}, func(c *SourceConfig) { c.URL, c.TLS = URL("rediss://"+certificates.Address(host)), trust })
	})
}

func TestSourceConfig(t *testing.T) {
	open := func(c SourceConfig) (*source.Source, error) { return NewSource(nil, c) }
	configtest.Fields(t, open, SourceConfig{URL: "redis://localhost", Stream: "in", Config: source.Config{Queue: "orders"}}, map[string]func(*SourceConfig){
		"url":         func(c *SourceConfig) { c.URL = "http://secret@x" },
		"queue":       func(c *SourceConfig) { c.Queue = "No" },
		"stream":      func(c *SourceConfig) { c.Stream = "" },
		"refused":     func(c *SourceConfig) { c.Refused = c.Stream },
		"claim_after": func(c *SourceConfig) { c.ClaimAfter = time.Second },
	})
}
