package nats

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste/broker/brokertest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

// broker is shared by tests that use names of their own in it and do not stop it.
var broker *devbroker.NATS

func TestMain(m *testing.M) {
	devbroker.Main(m, &broker, func(ctx context.Context, dir string) (*devbroker.NATS, error) {
		return devbroker.StartNATS(ctx, dir, "max_payload: 300000", "no_auth_user: all", `authorization: {users: [
			{user: all, password: secret}
			{user: little, password: secret, permissions: {publish: {allow: ["*.allowed"]}}}
			{user: deaf, password: secret, permissions: {subscribe: {allow: ["nothing"]}}}
		]}`)
	})
}

// names numbers the streams of tests.
var names atomic.Int64

// testStream is a stream of one test, which takes subjects that begin with its name.
type testStream struct {
	name string
	conn *natsgo.Conn
	js   jetstream.JetStream
}

// newTestStream creates a stream on the server at a URL.
func newTestStream(t *testing.T, url string, change func(*jetstream.StreamConfig), options ...natsgo.Option) testStream {
	t.Helper()
	conn, err := natsgo.Connect(url, append(options, natsgo.MaxReconnects(-1), natsgo.ReconnectWait(10*time.Millisecond))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	s := testStream{name: fmt.Sprint("s", names.Add(1)), conn: conn}
	if s.js, err = jetstream.New(conn); err != nil {
		t.Fatal(err)
	}
	c := jetstream.StreamConfig{Name: s.name, Subjects: []string{s.name + ".>"}, Storage: jetstream.MemoryStorage}
	if change != nil {
		change(&c)
	}
	if _, err := s.js.CreateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return s
}

// newSecureStream creates a stream on a server of its own that accepts only TLS.
func newSecureStream(t *testing.T) (testStream, *devbroker.Certificates) {
	t.Helper()
	certificates, err := devbroker.NewCertificates(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	server, err := devbroker.StartNATSTLS(t.Context(), t.TempDir(), certificates)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	return newTestStream(t, "tls://"+certificates.Address("localhost"), nil, natsgo.Secure(certificates.Trust())), certificates
}

// sinkStream is a stream to which a sink publishes.
type sinkStream struct {
	testStream
	t     *testing.T
	proxy *faultproxy.Proxy
}

func newSinkStream(t *testing.T, change func(*jetstream.StreamConfig)) *sinkStream {
	t.Helper()
	return newSinkStreamOn(t, broker.Address(), change)
}

func newSinkStreamOn(t *testing.T, address string, change func(*jetstream.StreamConfig)) *sinkStream {
	t.Helper()
	return &sinkStream{testStream: newTestStream(t, "nats://"+address, change), t: t,
		proxy: faultproxy.Start(t, address, func(data []byte) bool { return bytes.Contains(data, []byte("HPUB ")) })}
}

func (o *sinkStream) sink(change func(*SinkConfig)) *Sink {
	o.t.Helper()
	return sinktest.Open(o.t, NewSink, SinkConfig{URL: URL("nats://" + o.proxy.Address()), Subject: o.name + ".orders"}, change)
}

// all returns the contents of the stream.
func (o *sinkStream) all() (received []*jetstream.RawStreamMsg) {
	o.t.Helper()
	s, err := o.js.Stream(context.Background(), o.name)
	if err != nil {
		o.t.Fatal(err)
	}
	for n := max(1, s.CachedInfo().State.FirstSeq); n <= s.CachedInfo().State.LastSeq; n++ {
		m, err := s.GetMsg(context.Background(), n)
		if err != nil {
			o.t.Fatal(err)
		}
		received = append(received, m)
	}
	return received
}

func (o *sinkStream) count(n int) int {
	return brokertest.Count(o.all(), n, func(m *jetstream.RawStreamMsg) string { return m.Header.Get(natsgo.MsgIdHdr) })
}
