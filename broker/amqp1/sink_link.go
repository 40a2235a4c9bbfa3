package amqp1

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"net"
	"sync/atomic"
	"time"

	amqp "github.com/Azure/go-amqp"
	"golang.org/x/sync/semaphore"

	"github.com/posthaste-mq/posthaste/relay"
)

// connection is a connection that several batches use concurrently. It is never repaired
// but replaced.
type connection struct {
	relay.Users
	conn   *amqp.Conn
	raw    net.Conn            // below TLS
	window *semaphore.Weighted // bounds the unsettled messages
	used   atomic.Int64        // when a batch last ended, in Unix nanoseconds

	turn  chan struct{} // held to read and change links
	links map[string]*link
}

// link is a sender for an address, in a session of its own.
type link struct {
	session *amqp.Session
	sender  *amqp.Sender
	err     error       // why it could not be attached
	ended   atomic.Bool // whether it must be replaced
}

const (
	// maxLinks is the maximum number of addresses of a connection. A connection that needs
	// more is replaced.
	maxLinks = 100
	// maxIdle is how long a connection may be unused. Azure Service Bus detaches links
	// after 10 idle minutes, and the library does not tell before the next message is lost.
	maxIdle = 5 * time.Minute
	// hangs is how long a write may last after the attempt has timed out.
	hangs = time.Second
)

// errFull is the error of a connection with maxLinks links.
var errFull = errors.New("the connection has no room for another link")

// dial opens a connection, bounded by ctx and DialTimeout.
func (t *target) dial(ctx context.Context) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, t.DialTimeout)
	defer cancel()
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.address)
	if err != nil {
		return nil, t.brokerError(err)
	}
	through := raw
	if t.TLS != nil {
		secured := tls.Client(raw, t.TLS)
		if err := secured.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, t.brokerError(err)
		}
		through = secured
	}
	conn, err := amqp.NewConn(ctx, through, &amqp.ConnOptions{ContainerID: "posthaste-relay-" + rand.Text(), HostName: t.host, SASLType: t.login,
		Properties: map[string]any{"product": "posthaste"}})
	if err != nil {
		raw.Close()
		return nil, t.brokerError(err)
	}
	c := &connection{conn: conn, raw: raw, window: semaphore.NewWeighted(int64(t.Outstanding)), turn: make(chan struct{}, 1), links: map[string]*link{}}
	c.used.Store(time.Now().UnixNano())
	return c, nil
}

// Use implements [relay.Connection].
func (c *connection) Use() bool {
	if !c.Users.Use() {
		return false
	}
	select {
	case <-c.conn.Done():
	default:
		if time.Since(time.Unix(0, c.used.Load())) < maxIdle {
			return true
		}
	}
	c.Retire()
	c.release()
	return false
}

// release undoes Use. The last user closes a retired connection.
func (c *connection) release() {
	c.used.Store(time.Now().UnixNano())
	if c.Leave() {
		c.Close()
	}
}

// Close closes the connection. Messages in flight may or may not be stored.
func (c *connection) Close() {
	c.Retire()
	defer time.AfterFunc(hangs, c.cut).Stop()
	_ = c.conn.Close()
}

// cut closes the connection at once, even if a write hangs.
func (c *connection) cut() { _ = c.raw.Close() }

// attach returns the link to an address, which has an err if it cannot be attached.
func (c *connection) attach(ctx context.Context, address string) *link {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return &link{err: ctx.Err()}
	}
	if l := c.links[address]; l != nil {
		if !l.ended.Load() {
			return l
		}
		delete(c.links, address)
		go l.session.Close(context.Background()) // ends with the connection at the latest
	}
	if len(c.links) >= maxLinks {
		return &link{err: errFull}
	}
	session, err := c.conn.NewSession(ctx, nil)
	if err != nil {
		return &link{err: err}
	}
	sender, err := session.NewSender(ctx, address, nil)
	if err != nil {
		go session.Close(context.Background())
		return &link{err: err}
	}
	l := &link{session: session, sender: sender}
	c.links[address] = l
	return l
}
