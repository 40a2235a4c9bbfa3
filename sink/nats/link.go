package nats

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"github.com/posthaste-mq/posthaste/relay"
)

// link is a connection for as long as it lasts. It is used by several batches at
// the same time, and is never repaired: a new one takes its place, so that what
// was published on one is never acknowledged on another.
type link struct {
	relay.Users
	conn *natsgo.Conn
	js   jetstream.JetStream
	// window bounds what is without an ack.
	window *semaphore.Weighted
	// turn is held while a batch is written.
	turn  chan struct{}
	ended chan struct{} // closed at its end
	once  sync.Once     // of that
	// unanswered is how many were denied or given up: the library keeps each for as long
	// as the link lasts, unless its ack still comes.
	unanswered atomic.Int64

	mu     sync.Mutex
	raw    net.Conn
	cause  error // of its end
	flying map[string]*flight
}

// flight is what is in flight to a subject. A server that denies publishing says
// so for the connection, with the subject, and acknowledges nothing.
type flight struct {
	count  int
	denied chan struct{} // closed when words are there
	words  string
}

// dial opens a link. The context bounds it.
func (t *target) dial(ctx context.Context) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, t.DialTimeout)
	defer cancel()
	l := &link{
		window: semaphore.NewWeighted(int64(t.Outstanding)), turn: make(chan struct{}, 1), ended: make(chan struct{}), flying: map[string]*flight{},
	}
	options := []natsgo.Option{
		natsgo.Name(t.Name), natsgo.NoReconnect(), natsgo.Timeout(t.DialTimeout), natsgo.PingInterval(t.Heartbeat), natsgo.MaxPingsOutstanding(2),
		natsgo.SetCustomDialer(&dialer{ctx, l}), natsgo.ErrorHandler(func(_ *natsgo.Conn, _ *natsgo.Subscription, err error) { l.told(err) }),
		natsgo.ClosedHandler(func(conn *natsgo.Conn) { l.end(conn.LastError()) }),
	}
	if t.TLS != nil || strings.HasPrefix(t.URL, "tls:") {
		config := t.TLS.Clone()
		if config == nil {
			config = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		options = append(options, natsgo.Secure(config))
	}
	if t.Credentials != "" {
		options = append(options, natsgo.UserCredentials(t.Credentials))
	}
	if t.InboxPrefix != "" {
		options = append(options, natsgo.CustomInboxPrefix(t.InboxPrefix))
	}
	done := make(chan error, 1)
	go func() {
		var err error
		if l.conn, err = natsgo.Connect(t.URL, options...); err == nil {
			// Its own bound must never be reached, for it waits but for a moment there.
			l.js, err = jetstream.New(l.conn, jetstream.WithPublishAsyncMaxPending(2*t.Outstanding))
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			l.cut()
			return nil, fmt.Errorf("nats at %s: %w", t.address, err)
		}
		return l, nil
	case <-ctx.Done():
		l.cut()
		go func() { // it may have come through at the last moment
			if <-done == nil {
				l.conn.Close()
			}
		}()
		return nil, fmt.Errorf("nats at %s does not answer: %w", t.address, ctx.Err())
	}
}

// dialer keeps the network connection, so that it can be cut.
type dialer struct {
	ctx context.Context
	l   *link
}

// Dial implements the client library's CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(d.ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.l.mu.Lock()
	defer d.l.mu.Unlock()
	if err := d.ctx.Err(); err != nil {
		c.Close()
		return nil, err
	}
	d.l.raw = c
	return c, nil
}

// deniedSubject finds the subject in the server's words.
var deniedSubject = regexp.MustCompile(`(?i)permissions violation for publish to "([^"]+)"`)

// told hears what the server says outside of acks.
func (l *link) told(err error) {
	if !errors.Is(err, natsgo.ErrPermissionViolation) {
		return // what ends the connection is told when it is closed
	}
	m := deniedSubject.FindStringSubmatch(err.Error())
	if m == nil { // to subscribe to acks
		l.end(err)
		l.cut()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.flying[m[1]]; f != nil {
		f.words = err.Error()
		close(f.denied)
		delete(l.flying, m[1]) // who publishes there from now on may be allowed to
	}
}

// take notes a message that is about to be published to a subject.
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

// leave takes back take.
func (l *link) leave(subject string, f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.count--; f.count == 0 && l.flying[subject] == f {
		delete(l.flying, subject)
	}
}

// end notes why the link has ended; the first reason counts.
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

// release takes back use. The last one closes a link that is retired: acks that still
// come are for nobody.
func (l *link) release() {
	if l.Leave() {
		l.Close()
	}
}

// lost is why the link has ended.
func (l *link) lost() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// cut ends the link at once, also one that is stuck writing.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Retire()
	if l.raw != nil {
		_ = l.raw.Close()
	}
}

// Close ends the link. What is in flight stays unknown.
func (l *link) Close() {
	stuck := time.AfterFunc(time.Second, l.cut)
	defer stuck.Stop()
	l.conn.Close()
}
