package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"github.com/posthaste-mq/posthaste/relay"
)

// link is a connection that several batches use concurrently. It is never repaired but
// replaced, so that a message is never acknowledged on another connection than the one
// that published it.
type link struct {
	relay.Users
	conn *natsgo.Conn
	js   jetstream.JetStream
	// window bounds the unacknowledged messages.
	window *semaphore.Weighted
	// turn is held while a batch is written.
	turn  chan struct{}
	ended chan struct{} // closed at its end
	once  sync.Once     // of that
	// unanswered counts the messages that were denied or timed out. The library keeps each
	// of them until its acknowledgment arrives or the link ends.
	unanswered atomic.Int64

	mu     sync.Mutex
	raw    net.Conn
	cause  error // why the link has ended
	flying map[string]*flight
}

// flight counts the messages in flight to a subject. A server that denies publishing
// reports the subject on the connection, and acknowledges nothing.
type flight struct {
	count  int
	denied chan struct{} // closed once words is set
	words  string
}

// dial opens a link. The context bounds it.
func (t *target) dial(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, t.endpoint.DialTimeout)
	defer cancel()
	l := &link{
		window: semaphore.NewWeighted(int64(t.Outstanding)), turn: make(chan struct{}, 1), ended: make(chan struct{}), flying: map[string]*flight{},
	}
	options := t.endpoint.options(natsgo.SetCustomDialer(dialer(func(network, address string) (net.Conn, error) { return l.connect(ctx, network, address) })), natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) { l.handleError(err) }),
		natsgo.ClosedHandler(func(conn *natsgo.Conn) { l.end(conn.LastError()) }))
	done := make(chan error, 1)
	go func() {
		var err error
		if l.conn, err = natsgo.Connect(string(t.URL), options...); err == nil {
			// The library's bound must never be reached, because it waits only briefly there.
			l.js, err = jetstream.New(l.conn, jetstream.WithPublishAsyncMaxPending(2*t.Outstanding))
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			l.cut()
			return nil, fmt.Errorf("nats at %s: %w", t.endpoint.address, err)
		}
		return l, nil
	case <-ctx.Done():
		l.cut()
		go func() { // the connection may still be opened
			if <-done == nil {
				l.conn.Close()
			}
		}()
		return nil, fmt.Errorf("nats at %s does not answer: %w", t.endpoint.address, ctx.Err())
	}
}

// dialer is a function as the client library's CustomDialer.
type dialer func(network, address string) (net.Conn, error)

// Dial implements the client library's CustomDialer.
func (d dialer) Dial(network, address string) (net.Conn, error) { return d(network, address) }

// connect opens the network connection, and keeps it so that it can be closed at any time.
func (l *link) connect(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := ctx.Err(); err != nil {
		c.Close()
		return nil, err
	}
	l.raw = c
	return c, nil
}

// deniedSubject matches the subject in the server's text, which is the only place that has it.
var deniedSubject = regexp.MustCompile(`(?i)permissions violation for publish to "([^"]+)"`)

// handleError handles errors that the server reports on the connection.
func (l *link) handleError(err error) {
	if !errors.Is(err, natsgo.ErrPermissionViolation) {
		return // the ClosedHandler handles errors that end the connection
	}
	m := deniedSubject.FindStringSubmatch(err.Error())
	if m == nil { // the user may not subscribe to acknowledgments
		l.end(err)
		l.cut()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.flying[m[1]]; f != nil {
		f.words = err.Error()
		close(f.denied)
		delete(l.flying, m[1]) // later messages may be allowed
	}
}

// take counts a message that is about to be published to a subject.
func (l *link) take(subject string) *flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.flying[subject]
	if f == nil {
		f = &flight{denied: make(chan struct{})}
		l.flying[subject] = f
	}
	f.count++
	return f
}

// leave undoes take.
func (l *link) leave(subject string, f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.count--; f.count == 0 && l.flying[subject] == f {
		delete(l.flying, subject)
	}
}

// end records why the link has ended. The first reason counts.
func (l *link) end(err error) {
	l.once.Do(func() {
		if err == nil {
			err = errors.New("the connection was closed")
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.cause = err
		l.Retire()
		close(l.ended)
	})
}

// release undoes Use. The last user closes a retired link, because nothing waits for its
// acknowledgments any more.
func (l *link) release() {
	if l.Leave() {
		l.Close()
	}
}

// lost returns why the link has ended.
func (l *link) lost() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// cut closes the network connection at once, even if a write hangs.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Retire()
	if l.raw != nil {
		_ = l.raw.Close()
	}
}

// Close closes the link. Messages in flight may or may not be stored.
func (l *link) Close() {
	stuck := time.AfterFunc(time.Second, l.cut)
	defer stuck.Stop()
	l.conn.Close()
}
