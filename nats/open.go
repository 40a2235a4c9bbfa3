package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
)

// layoutVersion is the version of streams, subjects and headers.
const layoutVersion = "1"

// Open connects to the servers at a URL and prepares the store. The URL names the servers,
// separated by commas (nats://user:password@host:4222, nats://token@host or tls://host). After
// the last server it can have the parameters credentials (the path of a .creds file), ca (the path
// of a certificate authority in PEM), prefix, replicas and ack_wait; options go before them. The
// caller closes the engine.
func Open(ctx context.Context, url string, options ...Option) (*Engine, error) {
	servers, s, further, err := parse(url)
	if err != nil {
		return nil, err
	}
	if s, err = s.with(options); err != nil {
		return nil, err
	}
	s.owned, s.denials = true, &denials{}
	conn, err := natsgo.Connect(servers, append(further,
		natsgo.Name("posthaste"), natsgo.Timeout(5*time.Second), natsgo.RetryOnFailedConnect(s.lazy),
		natsgo.MaxReconnects(-1), natsgo.ReconnectWait(200*time.Millisecond), natsgo.ReconnectJitter(100*time.Millisecond, 100*time.Millisecond),
		natsgo.PingInterval(2*time.Second), natsgo.MaxPingsOutstanding(2), natsgo.IgnoreAuthErrorAbort(),
		// What waits for a connection could be an acknowledgment whose lease ends meanwhile.
		natsgo.ReconnectBufSize(-1),
		natsgo.ErrorHandler(s.denials.handleError))...)
	if err != nil {
		return nil, connectError(err)
	}
	e, err := newEngine(conn, s)
	if err == nil && !s.lazy {
		err = e.prepareStore(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return e, nil
}

// New is [Open] for a connection of the caller, which the caller closes. The connection must have
// been made with ReconnectBufSize(-1): otherwise an acknowledgment can be sent after its lease
// has ended.
func New(ctx context.Context, conn *natsgo.Conn, options ...Option) (*Engine, error) {
	if conn.Opts.ReconnectBufSize >= 0 {
		return nil, &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "conn", Message: "the connection buffers messages while it is interrupted, so that an acknowledgment could be sent after its lease has ended",
			Hint: "make the connection with nats.ReconnectBufSize(-1)"}
	}
	s, err := settings{}.with(options)
	if err != nil {
		return nil, err
	}
	e, err := newEngine(conn, s)
	if err == nil && !s.lazy {
		err = e.prepareStore(ctx)
	}
	if err != nil {
		return nil, err
	}
	return e, nil
}

func newEngine(conn *natsgo.Conn, s settings) (*Engine, error) {
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(callTimeout))
	if err != nil {
		return nil, err
	}
	e := &Engine{settings: s, conn: conn, js: js, ended: make(chan struct{})}
	e.ids.sequence = e.sequence
	e.queues.init()
	e.holding.init()
	e.bells.init()
	e.workers.init("worker.")
	e.tokens.init("token.")
	e.schedules.init("schedule.")
	return e, nil
}

// ready prepares the store when it is first used.
func (e *Engine) ready(ctx context.Context) error {
	if e.prepared.Load() {
		return nil
	}
	return e.prepareStore(ctx)
}

// prepareStore prepares the streams that all queues share, and checks the server.
func (e *Engine) prepareStore(ctx context.Context) error {
	e.preparing.Lock()
	defer e.preparing.Unlock()
	if e.prepared.Load() {
		return nil
	}
	if !e.conn.IsConnected() {
		return e.notConnected()
	}
	if err := e.checkServer(); err != nil {
		return err
	}
	if e.replicas == 0 {
		e.replicas = 1
		if e.conn.ConnectedClusterName() != "" {
			e.replicas = 3
		}
	}
	for _, c := range e.commonStreams() {
		if err := e.ensureStream(ctx, c); err != nil {
			return err
		}
	}
	var err error
	if e.kv, err = e.js.KeyValue(ctx, e.prefix+"-store"); err != nil {
		return e.readError(err)
	}
	if err := e.checkLayout(ctx); err != nil {
		return err
	}
	if err := e.setClock(ctx); err != nil {
		return err
	}
	if err := e.startBackground(ctx); err != nil {
		return err
	}
	e.prepared.Store(true)
	return nil
}

// notConnected returns the error of a connection that is interrupted, or was never made.
func (e *Engine) notConnected() error {
	if err := e.conn.LastError(); err != nil && !errors.Is(err, natsgo.ErrNoServers) {
		return connectError(err)
	}
	return unavailable("NATS cannot be reached", nil)
}

// checkServer rejects a server that lacks functions.
func (e *Engine) checkServer() error {
	version := e.conn.ConnectedServerVersion()
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 3 {
		return nil // a build without a version
	}
	major, _ := strconv.Atoi(parts[0])
	minor, _ := strconv.Atoi(parts[1])
	patch, _ := strconv.Atoi(parts[2])
	// Earlier ones can skip or remove messages of consumers with several filters (nats-server #8571).
	if major < 2 || major == 2 && (minor < 14 || minor == 14 && patch < 10 || minor == 15 && patch < 1) {
		return &posthaste.Error{Code: posthaste.CodeUnsupported, Message: "nats-server " + version + " is older than 2.14.10 and 2.15.1", Hint: "use nats-server 2.14.10, 2.15.1 or newer"}
	}
	return nil
}

// checkLayout records the version of the layout, or rejects another.
func (e *Engine) checkLayout(ctx context.Context) error {
	if _, err := e.kv.Create(ctx, "layout", []byte(layoutVersion)); err != nil && !errors.Is(err, jetstream.ErrKeyExists) {
		return e.readError(err)
	}
	have, err := e.kv.Get(ctx, "layout")
	if err != nil {
		return e.readError(err)
	}
	if string(have.Value()) != layoutVersion {
		return &posthaste.Error{Code: posthaste.CodeSchemaNew, Message: fmt.Sprintf("the streams with prefix %q have layout %.20q, and this program expects %s", e.prefix, have.Value(), layoutVersion),
			Hint: "use a program of the version that created them, or another prefix"}
	}
	return nil
}

// Ready implements [posthaste.Engine].
func (e *Engine) Ready(ctx context.Context) error {
	if err := e.ready(ctx); err != nil {
		return err
	}
	_, err := e.kv.Get(ctx, "layout")
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return &posthaste.Error{Code: posthaste.CodeSchemaOld, Message: "NATS has lost the streams with prefix " + e.prefix, Hint: "restore them, then restart this program"}
	}
	return e.readError(err)
}
