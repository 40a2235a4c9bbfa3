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

// link is a connection with one channel, for as long as it lasts. It is used by
// several batches at the same time, and is never repaired: a new one takes its place.
type link struct {
	conn *amqp.Connection
	ch   *amqp.Channel
	wire *wire
	// window bounds what is without a confirm, and with it the returns that the
	// client library may have for us: it drops those that nobody takes.
	window *semaphore.Weighted
	// turn is held while a batch is written.
	turn    chan struct{}
	returns chan amqp.Return
	ended   chan *amqp.Error // of the channel
	gone    chan *amqp.Error // of the connection

	relay.Users
	over    context.Context // ends when nobody shall use it any more
	endOver context.CancelFunc
	dropped atomic.Bool

	mu      sync.Mutex
	flying  map[route]*flight
	blocked string        // why the broker blocks publishers; empty if it does not
	opened  chan struct{} // closed when it no longer does
	cause   error         // of its end
}

// route is by what a returned message is known again: all of them that are the
// same in it are routed alike.
type route struct{ id, exchange, key string }

// flight is what is in flight of a route.
type flight struct {
	count    int
	returned string // the broker's words, if it returned one of them
}

// dial opens a link. The context bounds it.
func (t *target) dial(ctx context.Context) (*link, error) {
	return t.dialBy(ctx, func(c net.Conn) net.Conn { return c })
}

// dialBy opens a link on a network connection that by makes of one to the broker.
func (t *target) dialBy(ctx context.Context, by func(net.Conn) net.Conn) (*link, error) {
	l := &link{
		window: semaphore.NewWeighted(int64(t.Outstanding)), turn: make(chan struct{}, 1),
		flying: map[route]*flight{}, returns: make(chan amqp.Return, t.Outstanding),
	}
	l.over, l.endOver = context.WithCancel(context.Background())
	err := t.broker.Dial(ctx, func(c net.Conn) net.Conn {
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

// open makes the channel, and declares what shall be there.
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
		if err := l.declare(t); err != nil {
			return err
		}
	}
	if t.Unsafe {
		return nil
	}
	return l.ch.Confirm(false)
}

// declare makes the queue, if there is none of that name: on a channel of its own,
// for one of another kind is no reason to publish nothing.
func (l *link) declare(t *target) error {
	ch, err := l.conn.Channel()
	if err != nil {
		return err
	}
	if _, err = ch.QueueDeclarePassive(t.declare, true, false, false, false, nil); err == nil {
		return ch.Close()
	}
	if ch, err = l.conn.Channel(); err != nil {
		return err
	}
	if _, err = ch.QueueDeclare(t.declare, true, false, false, false, amqp.Table{"x-queue-type": t.Declare}); err != nil {
		return err
	}
	return ch.Close()
}

// watch follows whether the broker blocks publishers.
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

// block notes why the broker blocks publishers, or that it does not. A connection that
// ends while it is blocked says no more of it; the next one does, once it publishes.
func (t *target) block(reason string) {
	switch blocks := reason != ""; {
	case t.blocked.Swap(blocks) == blocks:
	case blocks:
		t.Logger.Warn("the broker blocks publishers: messages wait until it has room", "broker", t.broker.Address(), "reason", reason)
	default:
		t.Logger.Info("the broker takes messages again", "broker", t.broker.Address())
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

// lost is why the link can no longer be used; nil while it can.
func (l *link) lost() error {
	if !l.ch.IsClosed() {
		if l.dropped.Load() {
			return errClosed
		}
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// The channel first: why it was closed says more than the connection's end after it.
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

// take notes messages that are about to be published, and conclude tells of each
// whether the broker returned it. A broker returns a message before it confirms
// it, and the client library hands both on in that order: so what was confirmed
// and not returned by now will not be.
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

// drop ends the link at once, for whoever uses it.
func (l *link) drop() {
	l.dropped.Store(true)
	l.retire()
	l.wire.cut()
}

// retire lets who has something in flight wait for the confirms, and nobody come.
func (l *link) retire() {
	l.Retire()
	l.endOver()
}

// release takes back Use. The last one ends a link that is retired.
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

// errRetired is that of who waited for room on a link that nobody shall use any more.
var errRetired = errors.New("the connection was given up")

// acquire waits for room in the window. What a retired link has without a confirm
// keeps its room, so that nobody waits for that.
func (l *link) acquire(ctx context.Context, n int64) error {
	if l.window.TryAcquire(n) {
		return nil
	}
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.over, cancel)()
	err := l.window.Acquire(wait, n)
	if err != nil && ctx.Err() == nil {
		return errRetired
	}
	return err
}

// Close ends the link in order. What is in flight stays unknown.
func (l *link) Close() {
	l.retire()
	_ = l.conn.CloseDeadline(time.Now().Add(time.Second))
	l.wire.cut()
}

// wire is the network connection below: many small writes become few.
type wire struct {
	net.Conn
	mu     sync.Mutex
	held   bool
	buffer []byte
	err    error
}

// maxHeld is how much is held back at most.
const maxHeld = 64 << 10

// hold gathers what is written from now on, until release or until there is much
// of it. A broker that gets many messages in one piece has less work with each.
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

// cut ends the connection at once, also one that is stuck writing.
func (w *wire) cut() { _ = w.Conn.Close() }
