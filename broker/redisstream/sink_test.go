package redisstream

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/brokertest"
	"github.com/posthaste-mq/posthaste/internal/configtest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

// broker is shared by tests that use names of their own in it and do not stop it.
var broker *devbroker.Redis

// certificates are the certificates of broker.
var certificates *devbroker.Certificates

func TestMain(m *testing.M) {
	devbroker.MainTLS(m, &broker, &certificates, func(ctx context.Context, dir string, c *devbroker.Certificates) (*devbroker.Redis, error) {
		return devbroker.StartRedis(ctx, dir, append(c.Redis(), "--proto-max-bulk-len", "1mb")...)
	})
}

// newServer starts a server of one test.
func newServer(t *testing.T, args ...string) (*devbroker.Redis, *goredis.Client) {
	t.Helper()
	r := devbroker.Own(t, devbroker.StartRedis, args...)
	return r, newClient(t, r)
}

// newClient returns a client of a server.
func newClient(t *testing.T, r *devbroker.Redis) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: r.Address(), Protocol: 2})
	t.Cleanup(func() { c.Close() })
	return c
}

// sinkStream is a stream of one test and a client that reads it.
type sinkStream struct {
	t      *testing.T
	name   string
	client *goredis.Client
	proxy  *faultproxy.Proxy
}

func newSinkStream(t *testing.T) *sinkStream {
	t.Helper()
	return newSinkStreamOn(t, broker)
}

func newSinkStreamOn(t *testing.T, broker *devbroker.Redis) *sinkStream {
	t.Helper()
	return &sinkStream{t: t, name: fmt.Sprint("s", names.Add(1)), client: newClient(t, broker),
		proxy: faultproxy.Start(t, broker.Address(), func(piece []byte) bool { return bytes.Contains(piece, []byte("XADD")) })}
}

func (o *sinkStream) sink(change func(*SinkConfig)) *Sink {
	o.t.Helper()
	return sinktest.Open(o.t, NewSink, SinkConfig{URL: URL("redis://" + o.proxy.Address()), Stream: o.name}, change)
}

// all returns the contents of the stream.
func (o *sinkStream) all() []goredis.XMessage {
	o.t.Helper()
	all, err := o.client.XRange(context.Background(), o.name, "-", "+").Result()
	if err != nil {
		o.t.Fatal(err)
	}
	return all
}

func (o *sinkStream) count(n int) int {
	return brokertest.Count(o.all(), n, func(m goredis.XMessage) string { return fmt.Sprint(m.Values[FieldMessageID]) })
}

func TestSink(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		o := newSinkStream(t)
		s := o.sink(func(c *SinkConfig) {
			c.Mapping.Headers = map[string]string{"x": `{{if eq .Kind "bad"}}{{.Headers.none}}{{end}}`}
		})
		delivery, failForGood := sinktest.LargeFirst(1<<20 + 1)
		return sinktest.Fixture{
			Sink: s, Delivered: o.count,
			Delivery: delivery, FailForGood: failForGood,
			Bad: func(n int) posthaste.RawDelivery {
				d := sinktest.Delivery(n)
				d.Kind = "bad"
				return d
			},
			FailTemporarily: func() { o.proxy.CutBefore() },
			Hang:            o.proxy.Hang,
			BreakConnections: func() {
				o.proxy.CutAll()
				for _, l := range s.servers.at(s.target.address).Current() {
					<-l.ended
				}
			},
		}
	})
}

func TestWhatGoesAlong(t *testing.T) {
	t.Parallel()
	o := newSinkStream(t)
	s := o.sink(func(c *SinkConfig) {
		c.Stream = o.name + "{{.Headers.suffix}}"
		c.Mapping.MessageID = "db-{{.MessageID}}"
		c.Mapping.CloudEvents = &relay.CloudEvents{Source: "/büro"}
	})
	o.name += "-eu"
	d := sinktest.Delivery(7)
	d.Attempt, d.ContentType, d.Payload = 2, "application/octet-stream", []byte{0, 1, '\r', '\n', 255}
	d.Headers = map[string]string{"suffix": "-eu", "a b": "Zürich\r\n"}
	if r := sinktest.Deliver(t, s, d); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	got := o.all()[0].Values
	want := map[string]any{"message_id": "db-7", "content_type": d.ContentType, "payload": string(d.Payload), "suffix": "-eu", "a b": "Zürich\r\n",
		"posthaste-queue": "orders", "posthaste-kind": "order.placed", "posthaste-key": "customer-0", "posthaste-attempt": "2",
		"ce_id": "db-7", "ce_source": "/büro", "ce_type": "order.placed", "ce_specversion": "1.0", "ce_subject": "customer-0", "ce_time": "2001-09-09T01:46:40Z"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// Each message has its own reply. A refused message does not affect its neighbors, and its
// error contains the server's words.
func TestRefusedAmongOthers(t *testing.T) {
	t.Parallel()
	o := newSinkStream(t)
	if err := o.client.Set(t.Context(), o.name+"-text", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s := o.sink(func(c *SinkConfig) { c.Stream = "{{.Reference}}" })
	var batch []posthaste.RawDelivery
	for n := 1; n <= 10_000; n++ {
		d := sinktest.Delivery(n)
		if d.Reference = o.name; n%3 != 0 {
			d.Reference = o.name + "-text"
		}
		batch = append(batch, d)
	}
	batch[0].Reference = ""
	batch[1].Headers = map[string]string{"payload": "another"} // would conflict with the entry's own field
	for i, r := range sinktest.Deliver(t, s, batch...) {
		switch {
		case i < 2:
			if !posthaste.IsPermanent(r.Err) || !strings.Contains(r.Err.Error(), []string{"stream", "payload"}[i]) {
				t.Error(r.Err)
			}
		case (i+1)%3 != 0:
			sinktest.WantRetried(t, r, "WRONGTYPE")
		case r.Err != nil:
			t.Fatalf("message %d: %v", i+1, r.Err)
		}
	}
	all := o.all()
	for i, m := range all {
		if m.Values[FieldMessageID] != fmt.Sprint(3*(i+1)) {
			t.Fatalf("entry %d is message %v", i, m.Values[FieldMessageID])
		}
	}
	if len(all) != 3333 {
		t.Errorf("the stream has %d", len(all))
	}
}

// Errors for lack of memory, replicas or write permission are retried.
func TestServerRefuses(t *testing.T) {
	t.Parallel()
	r, client := newServer(t, "--proto-max-bulk-len", "1mb")
	s := sinktest.Open(t, NewSink, SinkConfig{URL: URL(r.URL()), Stream: "orders"}, nil)
	set := func(args ...any) {
		t.Helper()
		if err := client.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("config", "set", "maxmemory", "1")
	sinktest.WantRetried(t, sinktest.Deliver(t, s, sinktest.Delivery(1))[0], "OOM")
	set("config", "set", "maxmemory", "0")
	set("config", "set", "min-replicas-to-write", "1")
	sinktest.WantRetried(t, sinktest.Deliver(t, s, sinktest.Delivery(2))[0], "NOREPLICAS")
	set("config", "set", "min-replicas-to-write", "0")
	set("replicaof", "127.0.0.1", "1")
	sinktest.WantRetried(t, sinktest.Deliver(t, s, sinktest.Delivery(3))[0], "READONLY")
	set("replicaof", "no", "one")

	// A message above the server's limit is dead-lettered and repeats no other message.
	big := sinktest.Delivery(5)
	big.Payload = bytes.Repeat([]byte("x"), 1<<20+1)
	fits := sinktest.Delivery(6)
	fits.Payload = bytes.Repeat([]byte("x"), 1<<20)
	got := sinktest.Deliver(t, s, sinktest.Delivery(4), big, fits, sinktest.Delivery(7))
	if got[0].Err != nil || got[2].Err != nil || got[3].Err != nil || !posthaste.IsPermanent(got[1].Err) || posthaste.CodeOf(got[1].Err) != posthaste.CodeTooLarge {
		t.Errorf("got %v", got)
	}
	if n, err := client.XLen(t.Context(), "orders").Result(); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestExistingAndMaxLen(t *testing.T) {
	t.Parallel()
	o := newSinkStream(t)
	s := o.sink(func(c *SinkConfig) { c.Existing, c.MaxLen = true, 100 })
	sinktest.WantRetried(t, sinktest.Deliver(t, s, sinktest.Delivery(1))[0], "not found")
	if err := o.client.XGroupCreateMkStream(t.Context(), o.name, "g", "$").Err(); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 1000; n++ {
		if r := sinktest.Deliver(t, s, sinktest.Delivery(n)); r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
	}
	if n := len(o.all()); n < 100 || n > 500 {
		t.Errorf("the stream has %d", n)
	}
}

// A message that fewer replicas have than required is not delivered.
func TestReplicas(t *testing.T) {
	t.Parallel()
	primary, _ := newServer(t, "--repl-diskless-sync-delay", "0")
	s := sinktest.Open(t, NewSink, SinkConfig{URL: URL(primary.URL()), Stream: "orders", Replicas: 1, ReplicaTimeout: 10 * time.Millisecond}, nil)
	if err := s.Check(t.Context()); posthaste.CodeOf(err) != posthaste.CodeUnavailable {
		t.Errorf("Check without a replica: %v", err)
	}
	for _, r := range sinktest.Deliver(t, s, sinktest.Delivery(1), sinktest.Delivery(2)) {
		sinktest.WantRetried(t, r, "0 of 1 replicas")
	}
	host, port, _ := strings.Cut(primary.Address(), ":")
	replica, second := newServer(t, "--replicaof", host+" "+port)
	patient := sinktest.Open(t, NewSink, SinkConfig{URL: URL(primary.URL()), Stream: "orders", Replicas: 1, ReplicaTimeout: time.Minute}, nil)
	for _, r := range sinktest.Deliver(t, patient, sinktest.Delivery(1), sinktest.Delivery(2)) {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}
	if n, err := second.XLen(t.Context(), "orders").Result(); n != 4 || err != nil {
		t.Errorf("the replica has %d entries, %v", n, err)
	}
	if err := patient.Check(t.Context()); err != nil {
		t.Errorf("Check with a replica: %v", err)
	}
	on := sinktest.Open(t, NewSink, SinkConfig{URL: URL(replica.URL())}, nil)
	if err := on.Check(t.Context()); posthaste.CodeOf(err) != posthaste.CodeInvalid || !strings.Contains(err.Error(), "replica") {
		t.Errorf("Check of a replica: %v", err)
	}
}

// If the reply is lost, the message is added again with the same id, and the attempt does not
// count as delivered.
func TestReplyLost(t *testing.T) {
	t.Parallel()
	o := newSinkStream(t)
	brokertest.RunAnswerLost(t, o.sink(nil), o.proxy.CutAfter, "before the reply", o.count, 2)
}

// While a server is down or loads its data, messages wait; they are delivered once it is
// back.
func TestServerAway(t *testing.T) {
	t.Parallel()
	r, client := newServer(t, "--appendfsync", "always")
	s := sinktest.Open(t, NewSink, SinkConfig{URL: URL(r.URL()), Stream: "orders"}, nil)
	if r := sinktest.Deliver(t, s, sinktest.Delivery(1)); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	r.Kill()
	for _, l := range s.servers.at(s.target.address).Current() {
		<-l.ended
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if got := s.Deliver(short, []posthaste.RawDelivery{sinktest.Delivery(2)})[0].Err; !errors.Is(got, context.DeadlineExceeded) || !strings.Contains(got.Error(), r.Address()) {
		t.Errorf("got %v", got)
	}
	done := make(chan error)
	go func() { done <- sinktest.Deliver(t, s, sinktest.Delivery(3))[0].Err }()
	testrun.Until(t, time.Minute, "the sink reports that the server is away", s.Away)
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n, err := client.XLen(t.Context(), "orders").Result(); n != 2 || err != nil {
		t.Errorf("the stream has %d entries, %v", n, err)
	}
}

// A batch that times out while the server does not answer leaves the connection to the
// batches that still wait.
func TestTimeIsUpForOne(t *testing.T) {
	t.Parallel()
	o := newSinkStream(t)
	s := o.sink(func(c *SinkConfig) { c.Connections = 1 })
	if r := sinktest.Deliver(t, s, sinktest.Delivery(1)); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	reached, release := o.proxy.Hang()
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- s.Deliver(ctx, []posthaste.RawDelivery{sinktest.Delivery(2)})[0].Err }()
	<-reached
	go func() { second <- sinktest.Deliver(t, s, sinktest.Delivery(3))[0].Err }()
	testrun.Until(t, time.Minute, "both batches are written", func() bool { return len(s.servers.at(s.target.address).Current()[0].calls) >= 2 })
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	release()
	if err := <-second; err != nil {
		t.Errorf("another batch: %v", err)
	}
}

func TestWriteHangs(t *testing.T) {
	t.Parallel()
	o := newSinkStream(t)
	sinktest.RunWriteHangs(t, o.sink(nil), o.proxy.Hang, 50, 1_000_000)
}

func TestSinkCheck(t *testing.T) {
	t.Parallel()
	o := newSinkStream(t)
	if err := o.client.Set(t.Context(), o.name+"-text", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := o.client.Do(t.Context(), "acl", "setuser", o.name, "on", ">s e", "+xadd", "~*").Err(); err != nil {
		t.Fatal(err)
	}
	locked, _ := newServer(t, "--requirepass", "secret")
	configtest.Checks(t, ":wrong", o.sink,
		configtest.Valid("with a password", func(c *SinkConfig) { c.URL = URL("redis://:secret@" + locked.Address() + "/3") }),
		configtest.Valid("a user who may not ask", func(c *SinkConfig) { c.URL = URL("redis://" + o.name + ":s%20e@" + broker.Address()) }),
		configtest.Invalid("without a password", "url", func(c *SinkConfig) { c.URL = URL(locked.URL()) }),
		configtest.Invalid("password", "url", func(c *SinkConfig) { c.URL = URL("redis://:wrong@" + locked.Address()) }),
		configtest.Invalid("database", "url", func(c *SinkConfig) { c.URL = URL(broker.URL() + "/99") }),
		configtest.Invalid("stream", "stream", func(c *SinkConfig) { c.Existing = true }),
		configtest.Invalid("not a stream", "stream", func(c *SinkConfig) { c.Stream += "-text" }),
		configtest.Unavailable("away", func(c *SinkConfig) { c.URL = "redis://127.0.0.1:1" }),
		configtest.Valid("stream by template", func(c *SinkConfig) { c.Stream = "{{.Kind}}" }))
}

func TestSinkTLS(t *testing.T) {
	t.Parallel()
	o := newSinkStream(t)
	at := func(host string, trust *tls.Config) *Sink {
		return o.sink(func(c *SinkConfig) { c.URL, c.TLS = URL("rediss://"+certificates.Address(host)), trust })
	}
	brokertest.RunSinkTLS(t, certificates.Trust(), at, o.count)
}

func TestSinkConfig(t *testing.T) {
	configtest.Fields(t, NewSink, SinkConfig{URL: "redis://localhost"}, map[string]func(*SinkConfig){
		"url":                func(c *SinkConfig) { c.URL = "http://secret@x" },
		"connections":        func(c *SinkConfig) { c.Connections = -1 },
		"outstanding":        func(c *SinkConfig) { c.Outstanding = 1 << 20 },
		"max_len":            func(c *SinkConfig) { c.MaxLen = -1 },
		"replicas":           func(c *SinkConfig) { c.Replicas = -1 },
		"replica_timeout":    func(c *SinkConfig) { c.ReplicaTimeout = -1 },
		"name":               func(c *SinkConfig) { c.Name = "a b" },
		"stream":             func(c *SinkConfig) { c.Stream = "{{.Nothing}}" },
		"message_id":         func(c *SinkConfig) { c.Mapping.MessageID = "{{.X}}" },
		"headers.payload":    func(c *SinkConfig) { c.Mapping.Headers = map[string]string{"payload": "x"} },
		"cloudevents.source": func(c *SinkConfig) { c.Mapping.CloudEvents = &relay.CloudEvents{} },
	})
	for _, url := range []string{"redis://a:se%cret@x", "redis://secret:x@[", "", "rediss://", "redis://x/secret", "redis://x?secret=1"} {
		if _, err := NewSink(SinkConfig{URL: URL(url)}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// Data that is not of the Redis protocol gives an error, without a panic.
func FuzzReadReply(f *testing.F) {
	for _, text := range []string{"+OK\r\n", "$3\r\nabc\r\n", "*2\r\n:1\r\n$-1\r\n", "-ERR x\r\n", "*1000000\r\n", "$999999999999\r\n", "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := bufio.NewReader(bytes.NewReader(text))
		for {
			if _, err := readReply(r, 4); err != nil {
				return
			}
		}
	})
}
