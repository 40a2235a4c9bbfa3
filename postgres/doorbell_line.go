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
	// bellChannel is where posthaste.ring notifies, with the queue's id.
	bellChannel = "posthaste"
	// lineTimeout bounds each statement and each attempt to connect; none of
	// them waits for anything but the network.
	lineTimeout = 4 * time.Second
	// lineCheck is the longest silence before the line is tried: a proxy may
	// keep a connection open whose server has gone.
	lineCheck = 30 * time.Second
	// Pauses between attempts to connect again.
	firstRedial, slowestRedial = 50 * time.Millisecond, time.Second
)

// lineSetup makes the server notice as well when this end is gone, for it
// keeps the keys until then, and keeps it from ending an idle session.
const lineSetup = `
set tcp_keepalives_idle = 5; set tcp_keepalives_interval = 2; set tcp_keepalives_count = 3; set tcp_user_timeout = 10000;
set idle_session_timeout = 0; set statement_timeout = 0;
listen ` + bellChannel

// line is the doorbell's connection. run owns it; the others only touch what
// doorbell.mu guards.
type line struct {
	config *pgxpool.Config
	log    *slog.Logger
	bell   *doorbell
	check  time.Duration   // lineCheck, but for tests
	ctx    context.Context // ends when the doorbell closes
	cancel context.CancelFunc
	ended  chan struct{} // closed when run has returned

	// Guarded by doorbell.mu.
	up        bool
	gen       int // counts connections
	calls     []*call
	interrupt context.CancelFunc // ends the present wait for notifications
}

// call is a statement for the line. Its answer is there once done is closed.
type call struct {
	s *sleeper

	arm    bool
	dozing bool

	id     int32
	unlock string // "bell" or "doze"
	notify bool   // tell others that they cannot sleep by this key any more

	done  chan struct{}
	state armed
	gen   int
	err   error
}

func newLine(config *pgxpool.Config, log *slog.Logger, bell *doorbell) line {
	ctx, cancel := context.WithCancel(context.Background())
	return line{config: config, log: log, bell: bell, check: lineCheck, ctx: ctx, cancel: cancel, ended: make(chan struct{})}
}

// call queues c. Calls run in the order in which they were made, those that
// gathered meanwhile in one round trip. doorbell.mu is held.
func (l *line) call(c *call) *call {
	c.done = make(chan struct{})
	if !l.up {
		c.state, c.gen = armedGone, l.gen
		close(c.done)
		if c.arm {
			c.s.arming = nil
		}
		return c
	}
	l.calls = append(l.calls, c)
	if l.interrupt != nil {
		l.interrupt()
	}
	return c
}

// hangUp ends run, after what was called for. doorbell.mu is held.
func (l *line) hangUp() {
	if l.interrupt != nil {
		l.interrupt()
	}
	if !l.up {
		l.cancel()
	}
}

// connect opens a listening connection with the pool's settings.
func (l *line) connect(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, lineTimeout)
	defer cancel()
	config := l.config.ConnConfig.Copy()
	config.RuntimeParams["application_name"] = lineName(config.RuntimeParams["application_name"])
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) {
		// Others may use the channel: what is no id is not for us.
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
		_, err = conn.PgConn().Exec(ctx, lineSetup).ReadAll()
	}
	if err != nil {
		closeConn(conn)
		return nil, err
	}
	return conn, nil
}

// lineName is the application name of a line. posthaste.vitals knows lines by its
// end, and the server cuts names off at 63 bytes.
func lineName(of string) string {
	const end = " doorbell"
	return of[:min(len(of), 63-len(end))] + end
}

// run serves one connection after the other until the doorbell is closed.
func (l *line) run(conn *pgx.Conn) {
	defer close(l.ended)
	for conn != nil {
		l.begin()
		err := l.serve(conn)
		l.end()
		closeConn(conn)
		if l.ctx.Err() != nil || err == nil {
			return
		}
		l.log.Warn("the doorbell's connection was lost: workers look each second until it is back", "error", readError(err))
		if conn = l.redial(); conn != nil {
			l.log.Info("the doorbell's connection is back")
		}
	}
}

// redial connects again, and returns nil when the doorbell was closed.
func (l *line) redial() *pgx.Conn {
	for pause := firstRedial; ; pause = min(pause*2, slowestRedial) {
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

func (l *line) begin() {
	d := l.bell
	d.mu.Lock()
	defer d.mu.Unlock()
	l.up = true
	l.gen++
	d.lineChanged()
}

// end lets go of what the connection held and answers what waits for it.
func (l *line) end() {
	d := l.bell
	d.mu.Lock()
	defer d.mu.Unlock()
	l.up, l.interrupt = false, nil
	if d.closed {
		l.cancel()
	}
	for _, c := range l.calls {
		l.drop(c)
	}
	l.calls = nil
	d.lineChanged()
}

// drop answers a call that will not run. doorbell.mu is held.
func (l *line) drop(c *call) {
	if c.arm {
		c.s.arming = nil
	}
	c.state, c.gen = armedGone, l.gen
	close(c.done)
}

// lineChanged makes every Sleep arm anew: no key is held by a new connection.
func (d *doorbell) lineChanged() {
	for _, s := range d.sleepers {
		s.bell, s.doze, s.finds, s.interval = false, false, 0, 0
		s.changed = true
		s.prod()
	}
}

// serve runs calls, and listens while there are none. It returns nil when the
// doorbell was closed, and otherwise why the connection cannot be used.
func (l *line) serve(conn *pgx.Conn) error {
	for {
		calls, wait := l.next()
		switch {
		case wait != nil:
			if err := l.listen(wait, conn); err != nil {
				return err
			}
		case len(calls) == 0:
			return nil
		default:
			if err := l.exec(conn, calls); err != nil {
				return err
			}
		}
	}
}

// next takes the calls that gathered. Without any it returns a context to wait
// with, which the next call ends; with neither, the doorbell was closed.
func (l *line) next() ([]*call, context.Context) {
	d := l.bell
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(l.calls) > 0 {
		calls := l.calls
		l.calls = nil
		return calls, nil
	}
	if d.closed {
		return nil, nil
	}
	wait, cancel := context.WithTimeout(l.ctx, l.check)
	l.interrupt = cancel
	return nil, wait
}

// listen waits for notifications until wait ends. pgx ends such a wait by a
// read deadline and keeps the connection, and what was read of a message.
func (l *line) listen(wait context.Context, conn *pgx.Conn) error {
	err := conn.PgConn().WaitForNotification(wait)
	if err == nil {
		l.bell.mu.Lock()
		l.interrupt() // frees the context's timer
		l.bell.mu.Unlock()
		runtime.Gosched() // to who was woken
		return nil
	}
	if conn.IsClosed() || wait.Err() == nil {
		return err
	}
	if errors.Is(wait.Err(), context.DeadlineExceeded) {
		ctx, cancel := context.WithTimeout(context.Background(), lineTimeout)
		defer cancel()
		return conn.Ping(ctx)
	}
	return nil
}

// exec runs calls in one round trip. An error other than the ledger's own
// leaves it unknown which keys are held, so the connection is given up.
func (l *line) exec(conn *pgx.Conn, calls []*call) error {
	ctx, cancel := context.WithTimeout(context.Background(), lineTimeout)
	defer cancel()
	results := conn.SendBatch(ctx, batchOf(calls))
	for i, c := range calls {
		err := l.finish(c, results)
		if err == nil {
			continue
		}
		_ = results.Close()
		rest := calls[i:]
		known := !conn.IsClosed() && c.arm && posthaste.CodeOf(readError(err)) == posthaste.NotFound
		d := l.bell
		d.mu.Lock()
		if known {
			c.s.arming = nil
			c.err = readError(err)
			close(c.done)
			// The server skipped the rest of the batch.
			rest, err = rest[1:], nil
		}
		l.calls = append(append([]*call{}, rest...), l.calls...)
		d.mu.Unlock()
		return err
	}
	return results.Close()
}

func batchOf(calls []*call) *pgx.Batch {
	b := &pgx.Batch{}
	for _, c := range calls {
		switch {
		case c.arm:
			b.Queue(`select queue_id, armed from posthaste.arm($1, $2)`, c.s.queue, c.dozing)
		case c.notify:
			b.Queue(`select pg_catalog.pg_advisory_unlock(posthaste.lock_key($1, $2)), pg_catalog.pg_notify('`+bellChannel+`', $3)`,
				c.family(), int64(c.id), strconv.Itoa(int(c.id)))
		default:
			b.Queue(`select pg_catalog.pg_advisory_unlock(posthaste.lock_key($1, $2))`, c.family(), int64(c.id))
		}
	}
	return b
}

// family is the lock family of the key that c lets go of, as in lock_key.sql.
func (c *call) family() int32 {
	if c.unlock == "bell" {
		return 3
	}
	return 4
}

// finish reads a call's answer and takes note of it.
func (l *line) finish(c *call, results pgx.BatchResults) error {
	if !c.arm {
		if _, err := results.Exec(); err != nil {
			return err
		}
		close(c.done)
		return nil
	}
	var id int32
	var state string
	if err := results.QueryRow().Scan(&id, &state); err != nil {
		return err
	}
	l.bell.armedAs(c, id, armed(state))
	close(c.done)
	return nil
}

// closeConn closes conn without waiting long for a server that may be gone.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
