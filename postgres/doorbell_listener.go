package postgres

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthaste-mq/posthaste"
)

const (
	// bellChannel is the channel on which posthaste.ring notifies, with the queue's id.
	bellChannel = "posthaste"
	// listenerTimeout bounds each statement and each attempt to connect; none of them
	// waits for anything but the network.
	listenerTimeout = 4 * time.Second
	// checkInterval is the longest silence before the connection is checked: a proxy may
	// keep it open after the server is gone.
	checkInterval = 30 * time.Second
	// Pauses between attempts to reconnect.
	firstReconnect, slowestReconnect = 50 * time.Millisecond, time.Second
)

// listenerSetup makes the server detect a lost client, since it keeps the client's keys until
// then, and prevents it from ending an idle session.
const listenerSetup = `
set tcp_keepalives_idle = 5; set tcp_keepalives_interval = 2; set tcp_keepalives_count = 3; set tcp_user_timeout = 10000;
set idle_session_timeout = 0; set statement_timeout = 0;
listen ` + bellChannel

// listener is the doorbell's connection. run owns it; other goroutines use only the fields
// that doorbell.mu guards.
type listener struct {
	config *pgxpool.Config
	log    *slog.Logger
	bell   *doorbell
	check  time.Duration   // checkInterval, except in tests
	ctx    context.Context // ends when the doorbell closes
	cancel context.CancelFunc
	ended  chan struct{} // closed when run has returned

	// Guarded by doorbell.mu.
	up        bool
	gen       int // the number of connections so far
	requests  []*request
	interrupt context.CancelFunc // ends the current wait for notifications
}

// request is a statement for the listener: arm a queue, or release one of its keys. Its
// result is valid once done is closed.
type request struct {
	waiter *waiter

	arm    bool
	dozing bool // the session holds the doze key

	id     int32
	unlock string // "bell" or "doze"
	notify bool   // notify other sessions that rely on the key

	done  chan struct{}
	state armed
	gen   int
	err   error
}

func newListener(config *pgxpool.Config, log *slog.Logger, bell *doorbell) listener {
	ctx, cancel := context.WithCancel(context.Background())
	return listener{config: config, log: log, bell: bell, check: checkInterval, ctx: ctx, cancel: cancel, ended: make(chan struct{})}
}

// enqueue queues r. Requests run in order; all that are queued at the time share a round trip.
// The caller holds doorbell.mu.
func (l *listener) enqueue(r *request) *request {
	r.done = make(chan struct{})
	if !l.up {
		r.state, r.gen = armedGone, l.gen
		close(r.done)
		if r.arm {
			r.waiter.arming = nil
		}
		return r
	}
	l.requests = append(l.requests, r)
	if l.interrupt != nil {
		l.interrupt()
	}
	return r
}

// stop ends run after the queued requests. The caller holds doorbell.mu.
func (l *listener) stop() {
	if l.interrupt != nil {
		l.interrupt()
	}
	if !l.up {
		l.cancel()
	}
}

// connect opens a listening connection with the pool's settings.
func (l *listener) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, listenerTimeout)
	defer cancel()
	config := l.config.ConnConfig.Copy()
	config.RuntimeParams["application_name"] = listenerName(config.RuntimeParams["application_name"])
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) {
		// Other programs may use the channel: ignore payloads that are not ids.
		if id, err := strconv.ParseInt(n.Payload, 10, 32); err == nil {
			l.bell.heard(int32(id))
		}
	}
	if before := l.config.BeforeConnect; before != nil {
		if err := before(ctx, config); err != nil {
			return nil, err
		}
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if after := l.config.AfterConnect; after != nil {
		err = after(ctx, conn)
	}
	if err == nil {
		_, err = conn.PgConn().Exec(ctx, listenerSetup).ReadAll()
	}
	if err != nil {
		closeConn(conn)
		return nil, err
	}
	return conn, nil
}

// listenerName returns the application name of a listener. posthaste.vitals recognizes
// listeners by its suffix, and the server truncates names to 63 bytes.
func listenerName(of string) string {
	const end = " doorbell"
	return of[:min(len(of), 63-len(end))] + end
}

// run serves one connection after another until the doorbell is closed.
func (l *listener) run(conn *pgx.Conn) {
	defer close(l.ended)
	for conn != nil {
		l.connected()
		err := l.serve(conn)
		l.disconnected()
		closeConn(conn)
		if l.ctx.Err() != nil || err == nil {
			return
		}
		l.log.Warn("the doorbell's connection was lost: workers look once per second until it is restored", "error", readError(err))
		if conn = l.reconnect(); conn != nil {
			l.log.Info("the doorbell's connection is restored")
		}
	}
}

// reconnect opens a new connection. It returns nil if the doorbell was closed.
func (l *listener) reconnect() *pgx.Conn {
	for pause := firstReconnect; ; pause = min(pause*2, slowestReconnect) {
		conn, err := l.connect(l.ctx)
		if err == nil {
			return conn
		}
		l.log.Debug("the doorbell cannot connect", "error", readError(err))
		select {
		case <-l.ctx.Done():
			return nil
		case <-time.After(jittered(pause)):
		}
	}
}

func (l *listener) connected() {
	d := l.bell
	d.mu.Lock()
	defer d.mu.Unlock()
	l.up = true
	l.gen++
	d.connectionChanged()
}

// disconnected drops the keys that the connection held and fails the queued requests.
func (l *listener) disconnected() {
	d := l.bell
	d.mu.Lock()
	defer d.mu.Unlock()
	l.up, l.interrupt = false, nil
	if d.closed {
		l.cancel()
	}
	for _, r := range l.requests {
		l.fail(r)
	}
	l.requests = nil
	d.connectionChanged()
}

// fail completes a request that will not run. The caller holds doorbell.mu.
func (l *listener) fail(r *request) {
	if r.arm {
		r.waiter.arming = nil
	}
	r.state, r.gen = armedGone, l.gen
	close(r.done)
}

// connectionChanged makes each Sleep arm again, because a new connection holds no keys.
func (d *doorbell) connectionChanged() {
	for _, w := range d.waiters {
		w.bell, w.doze, w.finds, w.interval = false, false, 0, 0
		w.reconnected = true
		w.wake()
	}
}

// serve runs requests, and listens while there are none. It returns nil if the doorbell was
// closed, and otherwise the error that made the connection unusable.
func (l *listener) serve(conn *pgx.Conn) error {
	for {
		requests, wait := l.next()
		switch {
		case wait != nil:
			if err := l.listen(wait, conn); err != nil {
				return err
			}
		case len(requests) == 0:
			return nil
		default:
			if err := l.exec(conn, requests); err != nil {
				return err
			}
		}
	}
}

// next takes the queued requests. If there are none it returns a context to wait with, which
// the next request ends. If it returns neither, the doorbell was closed.
func (l *listener) next() ([]*request, context.Context) {
	d := l.bell
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(l.requests) > 0 {
		requests := l.requests
		l.requests = nil
		return requests, nil
	}
	if d.closed {
		return nil, nil
	}
	wait, cancel := context.WithTimeout(l.ctx, l.check)
	l.interrupt = cancel
	return nil, wait
}

// listen waits for notifications until wait ends. pgx ends the wait with a read deadline and
// keeps the connection and any message that was read in part.
func (l *listener) listen(wait context.Context, conn *pgx.Conn) error {
	err := conn.PgConn().WaitForNotification(wait)
	if err == nil {
		l.bell.mu.Lock()
		l.interrupt() // frees the context's timer
		l.bell.mu.Unlock()
		runtime.Gosched() // let the Sleep run that was woken
		return nil
	}
	if conn.IsClosed() || wait.Err() == nil {
		return err
	}
	if errors.Is(wait.Err(), context.DeadlineExceeded) {
		ctx, cancel := context.WithTimeout(context.Background(), listenerTimeout)
		defer cancel()
		return conn.Ping(ctx)
	}
	return nil
}

// exec runs requests in one round trip. After an error that the schema's functions did not
// raise, it is unknown which keys the session holds, so exec returns it to end the connection.
func (l *listener) exec(conn *pgx.Conn, requests []*request) error {
	ctx, cancel := context.WithTimeout(context.Background(), listenerTimeout)
	defer cancel()
	results := conn.SendBatch(ctx, batchOf(requests))
	for i, r := range requests {
		err := l.finish(r, results)
		if err == nil {
			continue
		}
		_ = results.Close()
		rest := requests[i:]
		known := !conn.IsClosed() && r.arm && posthaste.CodeOf(readError(err)) == posthaste.CodeNotFound
		d := l.bell
		d.mu.Lock()
		if known {
			r.waiter.arming = nil
			r.err = readError(err)
			close(r.done)
			// The server skipped the rest of the batch.
			rest, err = rest[1:], nil
		}
		l.requests = append(append([]*request{}, rest...), l.requests...)
		d.mu.Unlock()
		return err
	}
	return results.Close()
}

func batchOf(requests []*request) *pgx.Batch {
	b := &pgx.Batch{}
	for _, r := range requests {
		switch {
		case r.arm:
			b.Queue(`select queue_id, armed from posthaste.arm($1, $2)`, r.waiter.queue, r.dozing)
		case r.notify:
			b.Queue(`select pg_catalog.pg_advisory_unlock(posthaste.lock_key($1, $2)), pg_catalog.pg_notify('`+bellChannel+`', $3)`,
				r.family(), int64(r.id), strconv.Itoa(int(r.id)))
		default:
			b.Queue(`select pg_catalog.pg_advisory_unlock(posthaste.lock_key($1, $2))`, r.family(), int64(r.id))
		}
	}
	return b
}

// family returns the lock family of the key that r releases, as in lock_key.sql.
func (r *request) family() int32 {
	if r.unlock == "bell" {
		return 3
	}
	return 4
}

// finish reads the response to a request and records it.
func (l *listener) finish(r *request, results pgx.BatchResults) error {
	if !r.arm {
		if _, err := results.Exec(); err != nil {
			return err
		}
		close(r.done)
		return nil
	}
	var id int32
	var state string
	if err := results.QueryRow().Scan(&id, &state); err != nil {
		return err
	}
	l.bell.recordArmed(r, id, armed(state))
	close(r.done)
	return nil
}
