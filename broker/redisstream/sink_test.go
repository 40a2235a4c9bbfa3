package redisstream

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/configtest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

// broker is shared by tests that use names of their own in it and do not stop it.
var broker *devbroker.Redis

// certificates are those of the broker where it listens with TLS.
var certificates *devbroker.Certificates

func TestMain(m *testing.M) {
	devbroker.MainTLS(m, &broker, &certificates, func(ctx context.Context, dir string, c *devbroker.Certificates) (*devbroker.Redis, error) {
		return devbroker.StartRedis(ctx, dir, append(c.Redis(), "--proto-max-bulk-len", "1mb")...)
	})
}

// newServer starts a server of the test's own.
func newServer(t *testing.T, args ...string) (*devbroker.Redis, *goredis.Client) {
	t.Helper()
	r, err := devbroker.StartRedis(t.Context(), t.TempDir(), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	c := goredis.NewClient(&goredis.Options{Addr: r.Address(), Protocol: 2})
	t.Cleanup(func() { c.Close() })
	return r, c
}

// outside is a stream of the test's own, seen by another client.
type outside struct {
	t      *testing.T
	name   string
	client *goredis.Client
	proxy  *faultproxy.Proxy
}

func newOutside(t *testing.T) *outside {
	t.Helper()
	return outsideOf(t, broker)
}

func outsideOf(t *testing.T, broker *devbroker.Redis) *outside {
	t.Helper()
	o := &outside{t: t, name: fmt.Sprint("s", places.Add(1)), client: goredis.NewClient(&goredis.Options{Addr: broker.Address(), Protocol: 2})}
	t.Cleanup(func() { o.client.Close() })
	var err error
	if o.proxy, err = faultproxy.New(broker.Address(), func(piece []byte) bool { return bytes.Contains(piece, []byte("XADD")) }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.proxy.Close)
	return o
}

func (o *outside) sink(change func(*SinkConfig)) *Sink {
	o.t.Helper()
	c := SinkConfig{URL: URL("redis://" + o.proxy.Address()), Stream: o.name, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(&c)
	}
	s, err := NewSink(c)
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { s.Close() })
	return s
}

// all returns the contents of the stream.
func (o *outside) all() []goredis.XMessage {
	o.t.Helper()
	all, err := o.client.XRange(context.Background(), o.name, "-", "+").Result()
	if err != nil {
		o.t.Fatal(err)
	}
	return all
}

func (o *outside) count(n int) (count int) {
	for _, m := range o.all() {
		if m.Values[FieldMessageID] == fmt.Sprint(n) {
			count++
		}
	}
	return count
}

func delivery(n int) posthaste.RawDelivery {
	return posthaste.RawDelivery{MessageID: posthaste.MessageID(n), Queue: "orders", Attempt: 1, Kind: "order.placed",
		Key: fmt.Sprint("customer-", n%7), Payload: json.RawMessage(fmt.Sprintf(`{"n": %d}`, n)), CreatedAt: time.Unix(1e9, 0)}
}

func deliver(t *testing.T, s *Sink, batch ...posthaste.RawDelivery) []posthaste.SinkResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return s.Deliver(ctx, batch)
}

// wantRetried checks that a result is an error for another attempt, with these words.
func wantRetried(t *testing.T, r posthaste.SinkResult, words string) {
	t.Helper()
	if r.Err == nil || posthaste.IsPermanent(r.Err) || !strings.Contains(r.Err.Error(), words) {
		t.Errorf("got %v, want an error that is retried, with %q", r.Err, words)
	}
}

func TestSink(t *testing.T) {
	sinktest.Run(t, func(t *testing.T) sinktest.Fixture {
		o := newOutside(t)
		s := o.sink(func(c *SinkConfig) {
			c.Mapping.Headers = map[string]string{"x": `{{if eq .Kind "bad"}}{{.Headers.none}}{{end}}`}
		})
		refused := false
		return sinktest.Fixture{
			Sink: s, Delivered: o.count,
			Delivery: func(n int) posthaste.RawDelivery {
				d := delivery(n)
				if refused && n == 1 {
					d.Payload = bytes.Repeat([]byte("x"), 1<<20+1)
				}
				return d
			},
			FailForGood: func() { refused = true },
			Bad: func(n int) posthaste.RawDelivery {
				d := delivery(n)
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
	o := newOutside(t)
	s := o.sink(func(c *SinkConfig) {
		c.Stream = o.name + "{{.Headers.suffix}}"
		c.Mapping.MessageID = "db-{{.MessageID}}"
		c.Mapping.CloudEvents = &relay.CloudEvents{Source: "/büro"}
	})
	o.name += "-eu"
	d := delivery(7)
	d.Attempt, d.ContentType, d.Payload = 2, "application/octet-stream", []byte{0, 1, '\r', '\n', 255}
	d.Headers = map[string]string{"suffix": "-eu", "a b": "Zürich\r\n"}
	if r := deliver(t, s, d); r[0].Err != nil {
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

// Every message has an answer of its own: what the server refuses harms no
// neighbour, and its words are told.
func TestRefusedAmongOthers(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	if err := o.client.Set(t.Context(), o.name+"-text", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s := o.sink(func(c *SinkConfig) { c.Stream = "{{.Reference}}" })
	var batch []posthaste.RawDelivery
	for n := 1; n <= 10_000; n++ {
		d := delivery(n)
		if d.Reference = o.name; n%3 != 0 {
			d.Reference = o.name + "-text"
		}
		batch = append(batch, d)
	}
	batch[0].Reference = ""
	batch[1].Headers = map[string]string{"payload": "another"} // would be lost beside the entry's own
	for i, r := range deliver(t, s, batch...) {
		switch {
		case i < 2:
			if !posthaste.IsPermanent(r.Err) || !strings.Contains(r.Err.Error(), []string{"stream", "payload"}[i]) {
				t.Error(r.Err)
			}
		case (i+1)%3 != 0:
			wantRetried(t, r, "WRONGTYPE")
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

// What the server is out of passes: memory, replicas, the right to write.
func TestServerRefuses(t *testing.T) {
	t.Parallel()
	r, client := newServer(t, "--proto-max-bulk-len", "1mb")
	s, err := NewSink(SinkConfig{URL: URL(r.URL()), Stream: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	set := func(args ...any) {
		t.Helper()
		if err := client.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("config", "set", "maxmemory", "1")
	wantRetried(t, deliver(t, s, delivery(1))[0], "OOM")
	set("config", "set", "maxmemory", "0")
	set("config", "set", "min-replicas-to-write", "1")
	wantRetried(t, deliver(t, s, delivery(2))[0], "NOREPLICAS")
	set("config", "set", "min-replicas-to-write", "0")
	set("replicaof", "127.0.0.1", "1")
	wantRetried(t, deliver(t, s, delivery(3))[0], "READONLY")
	set("replicaof", "no", "one")

	// A message above the server's limit is dead-lettered and repeats no other message.
	big := delivery(5)
	big.Payload = bytes.Repeat([]byte("x"), 1<<20+1)
	fits := delivery(6)
	fits.Payload = bytes.Repeat([]byte("x"), 1<<20)
	got := deliver(t, s, delivery(4), big, fits, delivery(7))
	if got[0].Err != nil || got[2].Err != nil || got[3].Err != nil || !posthaste.IsPermanent(got[1].Err) || posthaste.CodeOf(got[1].Err) != posthaste.CodeTooLarge {
		t.Errorf("got %v", got)
	}
	if n, err := client.XLen(t.Context(), "orders").Result(); n != 3 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestExistingAndMaxLen(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	s := o.sink(func(c *SinkConfig) { c.Existing, c.MaxLen = true, 100 })
	wantRetried(t, deliver(t, s, delivery(1))[0], "no stream")
	if err := o.client.XGroupCreateMkStream(t.Context(), o.name, "g", "$").Err(); err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 1000; n++ {
		if r := deliver(t, s, delivery(n)); r[0].Err != nil {
			t.Fatal(r[0].Err)
		}
	}
	if n := len(o.all()); n < 100 || n > 500 {
		t.Errorf("the stream has %d", n)
	}
}

// What fewer replicas have than asked for is not delivered yet.
func TestReplicas(t *testing.T) {
	t.Parallel()
	primary, _ := newServer(t, "--repl-diskless-sync-delay", "0")
	s, err := NewSink(SinkConfig{URL: URL(primary.URL()), Stream: "orders", Replicas: 1, ReplicaTimeout: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Check(t.Context()); posthaste.CodeOf(err) != posthaste.CodeUnavailable {
		t.Errorf("Check without a replica: %v", err)
	}
	for _, r := range deliver(t, s, delivery(1), delivery(2)) {
		wantRetried(t, r, "0 of 1 replicas")
	}
	host, port, _ := strings.Cut(primary.Address(), ":")
	replica, second := newServer(t, "--replicaof", host+" "+port)
	patient, err := NewSink(SinkConfig{URL: URL(primary.URL()), Stream: "orders", Replicas: 1, ReplicaTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer patient.Close()
	for _, r := range deliver(t, patient, delivery(1), delivery(2)) {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}
	if n, err := second.XLen(t.Context(), "orders").Result(); n != 4 || err != nil {
		t.Errorf("the replica has %d, %v", n, err)
	}
	if err := patient.Check(t.Context()); err != nil {
		t.Errorf("Check with a replica: %v", err)
	}
	on, err := NewSink(SinkConfig{URL: URL(replica.URL())})
	if err != nil {
		t.Fatal(err)
	}
	defer on.Close()
	if err := on.Check(t.Context()); posthaste.CodeOf(err) != posthaste.CodeInvalid || !strings.Contains(err.Error(), "replica") {
		t.Errorf("Check of a replica: %v", err)
	}
}

// The stream has the message and the reply is lost: it is added again, with the
// same id, and never taken for delivered.
func TestReplyLost(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	s := o.sink(nil)
	o.proxy.CutAfter()
	wantRetried(t, deliver(t, s, delivery(1))[0], "before the reply")
	if r := deliver(t, s, delivery(1)); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	if got := o.count(1); got != 2 {
		t.Errorf("it came %d times, want 2", got)
	}
}

// A server that is away or loads its data holds the messages in hand, and has them
// once it is back.
func TestServerAway(t *testing.T) {
	t.Parallel()
	r, client := newServer(t, "--appendfsync", "always")
	s, err := NewSink(SinkConfig{URL: URL(r.URL()), Stream: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if r := deliver(t, s, delivery(1)); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	r.Kill()
	for _, l := range s.servers.at(s.target.address).Current() {
		<-l.ended
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if got := s.Deliver(short, []posthaste.RawDelivery{delivery(2)})[0].Err; !errors.Is(got, context.DeadlineExceeded) || !strings.Contains(got.Error(), r.Address()) {
		t.Errorf("got %v", got)
	}
	done := make(chan error)
	go func() { done <- deliver(t, s, delivery(3))[0].Err }()
	for !s.servers.Away() {
		time.Sleep(time.Millisecond)
	}
	if err := r.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n, err := client.XLen(t.Context(), "orders").Result(); n != 2 || err != nil {
		t.Errorf("the stream has %d, %v", n, err)
	}
}

// A batch whose time is up while the server does not answer leaves the connection
// to those who still wait.
func TestTimeIsUpForOne(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	s := o.sink(func(c *SinkConfig) { c.Connections = 1 })
	if r := deliver(t, s, delivery(1)); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	reached, release := o.proxy.Hang()
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- s.Deliver(ctx, []posthaste.RawDelivery{delivery(2)})[0].Err }()
	<-reached
	go func() { second <- deliver(t, s, delivery(3))[0].Err }()
	for len(s.servers.at(s.target.address).Current()[0].calls) < 2 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	release()
	if err := <-second; err != nil {
		t.Errorf("another batch: %v", err)
	}
}

// A server that has stopped reading lets writes hang: Deliver returns all the same.
func TestWriteHangs(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	s := o.sink(nil)
	reached, release := o.proxy.Hang()
	defer release()
	var batch []posthaste.RawDelivery
	for n := 1; n <= 50; n++ {
		d := delivery(n)
		d.Payload = bytes.Repeat([]byte("x"), 1_000_000)
		batch = append(batch, d)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan []posthaste.SinkResult)
	go func() { done <- s.Deliver(ctx, batch) }()
	<-reached
	cancel()
	select {
	case results := <-done:
		for _, r := range results {
			if !errors.Is(r.Err, context.Canceled) {
				t.Fatal(r.Err)
			}
		}
	case <-time.After(time.Minute):
		t.Fatal("Deliver does not return")
	}
}

func TestSinkCheck(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	if err := o.client.Set(t.Context(), o.name+"-text", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := o.client.Do(t.Context(), "acl", "setuser", o.name, "on", ">s e", "+xadd", "~*").Err(); err != nil {
		t.Fatal(err)
	}
	locked, _ := newServer(t, "--requirepass", "secret")
	for _, test := range []struct {
		name, field string
		code        posthaste.Code
		change      func(*SinkConfig)
	}{
		{"as it is", "", "", nil},
		{"with a password", "", "", func(c *SinkConfig) { c.URL = URL("redis://:secret@" + locked.Address() + "/3") }},
		{"one who may not ask", "", "", func(c *SinkConfig) { c.URL = URL("redis://" + o.name + ":s%20e@" + broker.Address()) }},
		{"without a password", "url", posthaste.CodeInvalid, func(c *SinkConfig) { c.URL = URL(locked.URL()) }},
		{"password", "url", posthaste.CodeInvalid, func(c *SinkConfig) { c.URL = URL("redis://:wrong@" + locked.Address()) }},
		{"database", "url", posthaste.CodeInvalid, func(c *SinkConfig) { c.URL = URL(broker.URL() + "/99") }},
		{"stream", "stream", posthaste.CodeInvalid, func(c *SinkConfig) { c.Existing = true }},
		{"no stream", "stream", posthaste.CodeInvalid, func(c *SinkConfig) { c.Stream += "-text" }},
		{"away", "", posthaste.CodeUnavailable, func(c *SinkConfig) { c.URL = "redis://127.0.0.1:1" }},
		{"stream by template", "", "", func(c *SinkConfig) { c.Stream = "{{.Kind}}" }},
	} {
		configtest.Check(t, test.name, o.sink(test.change), test.code, test.field, ":wrong")
	}
}

func TestSinkTLS(t *testing.T) {
	t.Parallel()
	o := newOutside(t)
	at := func(host string, trust *tls.Config) *Sink {
		return o.sink(func(c *SinkConfig) { c.URL, c.TLS = URL("rediss://"+certificates.Address(host)), trust })
	}
	configtest.TLS(t, certificates.Trust(), at)
	if r := deliver(t, at("localhost", certificates.Trust()), delivery(1)); r[0].Err != nil {
		t.Error(r[0].Err)
	}
	if n := o.count(1); n != 1 {
		t.Errorf("it came %d times", n)
	}
}

func TestSinkConfig(t *testing.T) {
	for field, change := range map[string]func(*SinkConfig){
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
	} {
		c := SinkConfig{URL: "redis://localhost"}
		change(&c)
		_, err := NewSink(c)
		configtest.Refused(t, field, err)
	}
	for _, url := range []string{"redis://a:se%cret@x", "redis://secret:x@[", "", "rediss://", "redis://x/secret", "redis://x?secret=1"} {
		if _, err := NewSink(SinkConfig{URL: URL(url)}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// What no server of Redis says ends the connection, and nothing worse.
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
