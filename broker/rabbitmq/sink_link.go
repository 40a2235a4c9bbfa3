package rabbitmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/semaphore"

	"github.com/posthaste-mq/posthaste/relay"
)

// link is a connection with one channel that several batches use concurrently. It is
// never repaired but replaced.
type link struct {
	conn *amqp.Connection
	ch   *amqp.Channel
	wire *wire
	// window bounds the unconfirmed messages, and thereby the returned messages in the
	// channel returns. The library drops those for which it has no room.
	window *semaphore.Weighted
	// turn is held while a batch is written.
	turn    chan struct{}
	returns chan amqp.Return
	ended   chan *amqp.Error // of the channel
	gone    chan *amqp.Error // of the connection

	relay.Users
	over    chan struct{} // closed when the link is retired
	endOver func()
	dropped atomic.Bool

	mu      sync.Mutex
	flying  map[route]*flight
	blocked string        // why the broker blocks publishers; empty if it does not
	opened  chan struct{} // closed when it no longer blocks
	cause   error         // why the link has ended
}

// route identifies a returned message. All messages with the same route are routed alike.
type route struct{ id, exchange, key string }

// flight counts the messages in flight of a route.
type flight struct {
	count    int
	returned string // the broker's words, if it returned one of them
}

// dial opens a link. The context bounds it.
func (t *target) dial(ctx context.Context) (*link, error) {
	return t.dialBy(ctx, func(c net.Conn) net.Conn { return c })
}

// dialBy opens a link on a network connection that by wraps.
func (t *target) dialBy(ctx context.Context, by func(net.Conn) net.Conn) (*link, error) {
	l := &link{
		window: semaphore.NewWeighted(int64(t.Outstanding)), turn: make(chan struct{}, 1),
		flying: map[route]*flight{}, returns: make(chan amqp.Return, t.Outstanding), over: make(chan struct{}),
	}
	l.endOver = sync.OnceFunc(func() { close(l.over) })
	err := t.endpoint.dial(ctx, func(c net.Conn) net.Conn {
		l.wire = &wire{Conn: by(c)}
		return l.wire
	}, func(conn *amqp.Connection) error {
		l.conn = conn
		return l.open(t)
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// open opens the channel and creates the configured queue.
func (l *link) open(t *target) error {
	var err error
	if l.ch, err = l.conn.Channel(); err != nil {
		return err
	}
	l.ended = l.ch.NotifyClose(make(chan *amqp.Error, 1))
	l.gone = l.conn.NotifyClose(make(chan *amqp.Error, 1))
	l.ch.NotifyReturn(l.returns)
	go l.watch(t, l.conn.NotifyBlocked(make(chan amqp.Blocking, 8)))
	if t.declare != "" {
		if err := declareQueue(l.conn, t.declare, t.Declare); err != nil {
			return err
		}
	}
	if t.Unsafe {
		return nil
	}
	return l.ch.Confirm(false)
}

// watch records whether the broker blocks publishers.
func (l *link) watch(t *target, blockings <-chan amqp.Blocking) {
	for b := range blockings {
		l.mu.Lock()
		switch {
		case b.Active && l.blocked == "":
			l.blocked, l.opened = cmp.Or(b.Reason, "no reason given"), make(chan struct{})
			t.block(l.blocked)
		case !b.Active && l.blocked != "":
			l.blocked = ""
			close(l.opened)
			t.block("")
		}
		l.mu.Unlock()
	}
}

// block records why the broker blocks publishers, or with an empty reason that it does
// not. A connection that ends while it is blocked reports nothing more; the next one does
// when it publishes.
func (t *target) block(reason string) {
	switch blocks := reason != ""; {
	case t.blocked.Swap(blocks) == blocks:
	case blocks:
		t.Logger.Warn("the broker blocks publishers: messages wait until it has resources", "broker", t.endpoint.address, "reason", reason)
	default:
		t.Logger.Info("the broker accepts messages again", "broker", t.endpoint.address)
	}
}

// ready waits while the broker blocks publishers.
func (l *link) ready(ctx context.Context) error {
	for {
		l.mu.Lock()
		blocked, opened := l.blocked, l.opened
		l.mu.Unlock()
		if blocked == "" {
			return nil
		}
		select {
		case <-opened:
		case <-ctx.Done():
			return fmt.Errorf("the broker blocks publishers (%s): %w", blocked, ctx.Err())
		case err := <-l.gone:
			l.end(err)
			return l.lost()
		}
	}
}

// lost returns why the link can no longer be used, or nil while it can.
func (l *link) lost() error {
	if !l.ch.IsClosed() {
		if l.dropped.Load() {
			return errClosed
		}
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// The channel first, because its error says more than that of the connection.
	for _, told := range [...]chan *amqp.Error{l.ended, l.gone} {
		select {
		case err := <-told:
			if err != nil && l.cause == nil {
				l.cause = err
			}
		default:
		}
	}
	if l.cause != nil {
		return l.cause
	}
	return errClosed
}

var errClosed = errors.New("the connection was closed")

func (l *link) end(err *amqp.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && l.cause == nil {
		l.cause = err
	}
}

// take counts a message that is about to be published. conclude undoes it and returns
// whether the broker returned the message. A broker returns a message before it confirms
// it, and the library passes both on in that order. A confirmed message that was not
// returned yet will not be.
func (l *link) take(r route) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.flying[r]
	if f == nil {
		f = &flight{}
		l.flying[r] = f
	}
	f.count++
}

func (l *link) conclude(r route) (returned string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for more := true; more; {
		select {
		case ret, ok := <-l.returns:
			if !ok {
				more = false
				break
			}
			if f := l.flying[route{ret.MessageId, ret.Exchange, ret.RoutingKey}]; f != nil {
				f.returned = fmt.Sprintf("%d %s", ret.ReplyCode, ret.ReplyText)
			}
		default:
			more = false
		}
	}
	f := l.flying[r]
	if f.count--; f.count == 0 {
		delete(l.flying, r)
	}
	return f.returned
}

// drop ends the link at once, for all its users.
func (l *link) drop() {
	l.dropped.Store(true)
	l.retire()
	l.wire.cut()
}

// retire lets the current users wait for their confirms, and admits no more.
func (l *link) retire() {
	l.Retire()
	l.endOver()
}

// release undoes Use. The last user ends a retired link.
func (l *link) release() {
	if l.Leave() {
		l.drop()
	}
}

// Use implements [relay.Connection].
func (l *link) Use() bool {
	if l.lost() == nil {
		return l.Users.Use()
	}
	l.drop()
	return false
}

// errRetired is the error of waiting for room on a retired link.
var errRetired = errors.New("the connection was retired")

// acquire waits for room in the window. The unconfirmed messages of a retired link keep
// their room, so acquire fails with errRetired instead of waiting for it.
func (l *link) acquire(ctx context.Context, n int64) error {
	if l.window.TryAcquire(n) {
		return nil
	}
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-l.over:
			cancel()
		case <-wait.Done():
		}
	}()
	err := l.window.Acquire(wait, n)
	if err != nil && ctx.Err() == nil {
		return errRetired
	}
	return err
}

// Close closes the link in order. Messages in flight may or may not be stored.
func (l *link) Close() {
	l.retire()
	_ = l.conn.CloseDeadline(time.Now().Add(time.Second))
	l.wire.cut()
}

// wire is the network connection below. It gathers small writes into few large ones.
type wire struct {
	net.Conn
	mu     sync.Mutex
	held   bool
	buffer []byte
	err    error
}

// maxHeld is the maximum number of bytes that are held back.
const maxHeld = 64 << 10

// hold holds writes back until release, or until maxHeld bytes are gathered. Fewer and
// larger writes cost the broker less for each message.
func (w *wire) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = true
}

func (w *wire) release() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = false
	return w.flush()
}

// Write implements net.Conn.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	if !w.held && len(w.buffer) == 0 {
		return w.Conn.Write(p)
	}
	w.buffer = append(w.buffer, p...)
	if w.held && len(w.buffer) < maxHeld {
		return len(p), nil
	}
	if err := w.flush(); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w *wire) flush() error {
	if w.err != nil || len(w.buffer) == 0 {
		return w.err
	}
	_, w.err = w.Conn.Write(w.buffer)
	w.buffer = w.buffer[:0]
	return w.err
}

// cut closes the connection at once, even if a write hangs.
func (w *wire) cut() { _ = w.Conn.Close() }
