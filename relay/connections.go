package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Connection is a connection of [Connections]. Several batches use it at the same time. It
// is never repaired: a new connection replaces it.
type Connection interface {
	// Use registers a user of the connection. It returns false if the connection must not
	// be used anymore.
	Use() bool
	// Close closes it, even if it is in use.
	Close()
}

// Server names a broker in errors and logs, such as "kafka" at "host:port". It must not contain
// secrets.
type Server struct{ Kind, Address string }

// Connections keeps a number of connections to a broker and replaces the ones that are
// lost. It is safe for concurrent use.
type Connections[C Connection] struct {
	server  Server
	dial    func(ctx context.Context) (C, error)
	log     *slog.Logger
	slots   []*slot[C]
	next    atomic.Uint64
	down    atomic.Bool // the outage was logged
	done    chan struct{}
	closing sync.Once
}

// slot holds one connection and reopens it.
type slot[C Connection] struct {
	turn    chan struct{} // lock of the fields below, with room for its holder
	current C
	opened  bool // current is open, as far as is known
}

// Pauses between attempts to connect.
const (
	firstPause = 50 * time.Millisecond
	longPause  = 2 * time.Second
)

// ErrElsewhere is the error of a dial that found that another connection has to be used
// for the messages. Get does not retry it.
var ErrElsewhere = errors.New("another server has it")

// NewConnections returns n connections, which dial opens when they are first needed. It logs
// the loss and the return of the server.
func NewConnections[C Connection](n int, server Server, log *slog.Logger, dial func(ctx context.Context) (C, error)) *Connections[C] {
	c := &Connections[C]{server: server, dial: dial, log: log, done: make(chan struct{})}
	for range n {
		c.slots = append(c.slots, &slot[C]{turn: make(chan struct{}, 1)})
	}
	return c
}

// Next returns the index of one of the first n connections, each in turn.
func (c *Connections[C]) Next(n int) int { return int(c.next.Add(1) % uint64(n)) }

// Get returns the i-th connection, after a successful call of its Use. It retries until ctx
// ends.
func (c *Connections[C]) Get(ctx context.Context, i int) (none C, err error) {
	s := c.slots[i]
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return none, fmt.Errorf("no connection to %s at %s: %w", c.server.Kind, c.server.Address, ctx.Err())
	}
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		select {
		case <-c.done:
			return none, fmt.Errorf("the relay to %s was closed", c.server.Kind)
		default:
		}
		if s.opened && s.current.Use() {
			return s.current, nil
		}
		if s.current, err = c.dial(ctx); err == nil {
			if s.opened = true; c.down.Swap(false) {
				c.log.Info("the broker is back", "broker", c.server.Address)
			}
			if s.current.Use() {
				return s.current, nil
			}
			err = fmt.Errorf("%s at %s closed the new connection immediately", c.server.Kind, c.server.Address)
		}
		if errors.Is(err, ErrElsewhere) {
			s.opened = false
			return none, err
		}
		if s.opened = false; ctx.Err() == nil && !c.down.Swap(true) {
			c.log.Warn("the broker cannot be used: messages wait, and connecting is retried", "broker", c.server.Address, "error", err)
		}
		select {
		case <-ctx.Done():
			if errors.Is(err, ctx.Err()) {
				return none, err
			}
			return none, fmt.Errorf("%w (retried until: %w)", err, ctx.Err())
		case <-c.done:
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
	}
}

// Away reports whether the last attempt to use the broker failed.
func (c *Connections[C]) Away() bool { return c.down.Load() }

// Current returns the connections that are open, even if they are broken.
func (c *Connections[C]) Current() (all []C) {
	for _, s := range c.slots {
		s.turn <- struct{}{}
		if s.opened {
			all = append(all, s.current)
		}
		<-s.turn
	}
	return all
}

// Close closes the connections. Get fails from then on. Close is idempotent.
func (c *Connections[C]) Close() {
	c.closing.Do(func() {
		close(c.done)
		for _, one := range c.Current() {
			one.Close()
		}
	})
}

// Users counts the users of a connection that must be closed after it is lost and its last
// user has left. It is safe for concurrent use.
type Users struct {
	mu      sync.Mutex
	count   int
	retired bool
}

// Use adds a user. It returns false after Retire.
func (u *Users) Use() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.retired {
		return false
	}
	u.count++
	return true
}

// Leave removes a user. It reports whether that was the last one after Retire.
func (u *Users) Leave() (last bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.count--
	return u.retired && u.count == 0
}

// Retire makes Use fail from now on. Current users can finish.
func (u *Users) Retire() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.retired = true
}
