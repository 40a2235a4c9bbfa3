package redisstream

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/posthaste-mq/posthaste/relay"
)

// link is a connection that several batches use concurrently. It is never repaired but
// replaced.
type link struct {
	relay.Users
	address string
	conn    net.Conn
	// turn is held while a batch is written, w with it.
	turn chan struct{}
	w    *bufio.Writer
	// window bounds the messages without a reply, and thereby the length of calls.
	window *semaphore.Weighted
	calls  chan *call // the written calls, in order
	ended  chan struct{}
	limit  int     // of a field of a message, in bytes
	layout *layout // of the server's cluster; nil if it is not part of one

	mu    sync.Mutex
	cause error // why the link has ended
}

// call holds commands that were written together, and their replies.
type call struct {
	replies []reply
	got     atomic.Int64 // number of replies received
	done    chan struct{}
}

// defaultLimit is the limit if the user may not read the server's proto-max-bulk-len.
const defaultLimit = 512 << 20

// dial opens a link to the server at an address. The context bounds it.
func (t *target) dial(ctx context.Context, address string) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, t.DialTimeout)
	defer cancel()
	l, err := t.open(ctx, address)
	switch {
	case err == nil:
		return l, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("redis at %s does not answer: %w", address, ctx.Err())
	}
	return nil, fmt.Errorf("redis at %s: %w", address, err)
}

// connect is a [redis.Dialer].
func (t *target) connect(ctx context.Context, network, address string) (net.Conn, error) {
	if t.TLS != nil {
		return (&tls.Dialer{Config: t.TLS}).DialContext(ctx, network, address)
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

func (t *target) open(ctx context.Context, address string) (*link, error) {
	conn, err := t.takeovers.Dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	l := &link{address: address, conn: conn, turn: make(chan struct{}, 1), w: bufio.NewWriterSize(conn, 64<<10), window: semaphore.NewWeighted(int64(t.Outstanding)),
		calls: make(chan *call, t.Outstanding+1), ended: make(chan struct{}), limit: defaultLimit}
	go l.read()
	if err := l.greet(ctx, t); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// greet logs in and checks that the server is ready.
func (l *link) greet(ctx context.Context, t *target) error {
	var commands []command
	switch {
	case t.user != "":
		commands = append(commands, words("AUTH", t.user, t.password))
	case t.password != "":
		commands = append(commands, words("AUTH", t.password))
	}
	if t.database != 0 {
		commands = append(commands, words("SELECT", strconv.Itoa(t.database)))
	}
	must := len(commands) + 1
	commands = append(commands, words("PING"), words("CLIENT", "SETNAME", t.Name), words("CONFIG", "GET", "proto-max-bulk-len"), words("CLUSTER", "SLOTS"))
	replies, err := l.ask(ctx, commands...)
	if err != nil {
		return err
	}
	for i, r := range replies[:must] {
		if r.fault != "" && (i < must-1 || !denied(r.fault)) {
			return r.fault
		}
	}
	// The user may lack the permissions for the rest.
	if limit := replies[must+1].list; len(limit) == 2 && limit[1].int() > 0 {
		l.limit = limit[1].int()
	}
	if l.layout = newLayout(replies[must+2], l.address); l.layout == nil && len(t.addresses) > 1 {
		return fmt.Errorf("%w (%w)", errAlone, replies[must+2].fault)
	}
	if l.layout != nil {
		t.takeovers.Told(l.layout.servers...)
	}
	return nil
}

// ask writes commands and waits for their replies.
func (l *link) ask(ctx context.Context, commands ...command) ([]reply, error) {
	stop := context.AfterFunc(ctx, l.Close)
	defer stop()
	c, err := l.send(ctx, commands)
	if err != nil {
		return nil, err
	}
	select {
	case <-c.done:
		return c.replies, nil
	case <-l.ended:
		return nil, l.lost()
	}
}

// send writes commands. A returned call ends with its replies or with the link. An error
// means that nothing was written.
func (l *link) send(ctx context.Context, commands []command) (*call, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if err := l.lost(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c := &call{replies: make([]reply, len(commands)), done: make(chan struct{})}
	select {
	case l.calls <- c:
	default: // the calls that timed out have no reply yet
		return nil, errSlow
	}
	// A write hangs if the server has stopped reading.
	stop := context.AfterFunc(ctx, l.Close)
	defer stop()
	for _, command := range commands {
		if _, err := l.w.Write(command); err != nil {
			break
		}
	}
	if err := l.w.Flush(); err != nil {
		l.fail(err)
		l.Close()
	}
	return c, nil
}

// read reads replies until the link ends.
func (l *link) read() {
	defer close(l.ended)
	r := bufio.NewReaderSize(l.conn, 64<<10)
	for {
		// Peek notices the end of the connection even while no reply is expected.
		if _, err := r.Peek(1); err != nil {
			l.fail(err)
			return
		}
		var c *call
		select {
		case c = <-l.calls:
		default: // usually the reason why the server refuses the connection
			r, err := readReply(r, 1)
			if err = cmp.Or(err, errProtocol); r.fault != "" {
				err = r.fault
			}
			l.fail(err)
			l.Close()
			return
		}
		for i := range c.replies {
			var err error
			if c.replies[i], err = readReply(r, 5); err != nil {
				l.fail(err)
				l.Close()
				return
			}
			c.got.Store(int64(i + 1))
		}
		close(c.done)
	}
}

// fail records why the link has ended. The first reason counts.
func (l *link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		l.cause = err
	}
	l.Retire()
}

// lost returns why the link has ended, or nil while it has not.
func (l *link) lost() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

var errSlow = errors.New("the server is slow to reply to earlier commands")

// release undoes Use. The last user closes a retired link.
func (l *link) release() {
	if l.Leave() {
		l.Close()
	}
}

// Close closes the connection at once, even if a write hangs. Messages in flight may or may
// not be stored.
func (l *link) Close() {
	l.Retire()
	_ = l.conn.Close()
}
