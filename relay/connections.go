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

// Connection is one to a broker, as [Connections] keeps it: it is used by several
// batches at the same time, and is never repaired, for a new one takes its place.
type Connection interface {
	// Use says that a batch uses it. False: it shall not be used again.
	Use() bool
	// Close ends it, whoever uses it.
	Close()
}

// Connections keeps a number of connections to a broker, and opens those anew that
// were lost. It is safe for concurrent use.
type Connections[C Connection] struct {
	kind, address string
	dial          func(ctx context.Context) (C, error)
	log           *slog.Logger
	slots         []*slot[C]
	next          atomic.Uint64
	down          atomic.Bool // whether the broker was told to be away
	done          chan struct{}
	closing       sync.Once
}

// slot holds a connection and opens it anew.
type slot[C Connection] struct {
	turn    chan struct{} // held to look at current
	current C
	there   bool
}

// Pauses between attempts to connect.
const (
	firstPause = 50 * time.Millisecond
	longPause  = 2 * time.Second
)

// ErrElsewhere is that of a dial which knows that messages have to go by another
// connection: it is not tried again.
var ErrElsewhere = errors.New("another server has it")

// NewConnections keeps n connections that dial opens, none of them before it is
// needed. kind and address name the broker in errors and to the logger, which is told
// when it was lost and when it is back.
func NewConnections[C Connection](n int, kind, address string, log *slog.Logger, dial func(ctx context.Context) (C, error)) *Connections[C] {
	c := &Connections[C]{kind: kind, address: address, dial: dial, log: log, done: make(chan struct{})}
	for range n {
		c.slots = append(c.slots, &slot[C]{turn: make(chan struct{}, 1)})
	}
	return c
}

// Next is the number of the connection whose turn it is, among the first n.
func (c *Connections[C]) Next(n int) int { return int(c.next.Add(1) % uint64(n)) }

// Get returns the i-th connection, which works as far as is known and has said that it
// is used. It waits for the broker as long as ctx lasts.
func (c *Connections[C]) Get(ctx context.Context, i int) (none C, err error) {
	s := c.slots[i]
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return none, fmt.Errorf("no connection to %s at %s: %w", c.kind, c.address, ctx.Err())
	}
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		select {
		case <-c.done:
			return none, fmt.Errorf("the relay to %s was closed", c.kind)
		default:
		}
		if s.there && s.current.Use() {
			return s.current, nil
		}
		if s.current, err = c.dial(ctx); err == nil {
			if s.there = true; c.down.Swap(false) {
				c.log.Info("the broker is back", "broker", c.address)
			}
			if s.current.Use() {
				return s.current, nil
			}
			err = fmt.Errorf("%s at %s ended the connection as soon as it was open", c.kind, c.address)
		}
		if errors.Is(err, ErrElsewhere) {
			s.there = false
			return none, err
		}
		if s.there = false; ctx.Err() == nil && !c.down.Swap(true) {
			c.log.Warn("the broker cannot be used: messages wait, and it is tried again", "broker", c.address, "error", err)
		}
		select {
		case <-ctx.Done():
			if errors.Is(err, ctx.Err()) {
				return none, err
			}
			return none, fmt.Errorf("%w (waited for it: %w)", err, ctx.Err())
		case <-c.done:
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
	}
}

// Away says whether the broker could not be used when it was tried last.
func (c *Connections[C]) Away() bool { return c.down.Load() }

// Current are the connections that are there, whether they still work or not.
func (c *Connections[C]) Current() (all []C) {
	for _, s := range c.slots {
		s.turn <- struct{}{}
		if s.there {
			all = append(all, s.current)
		}
		<-s.turn
	}
	return all
}

// Close ends the connections; Get fails from now on. It may be called again.
func (c *Connections[C]) Close() {
	c.closing.Do(func() {
		close(c.done)
		for _, one := range c.Current() {
			one.Close()
		}
	})
}

// Users counts who uses a connection that shall be closed once it is lost and nobody
// uses it any more. It is safe for concurrent use.
type Users struct {
	mu      sync.Mutex
	count   int
	retired bool
}

// Use counts one more, unless it was retired.
func (u *Users) Use() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.retired {
		return false
	}
	u.count++
	return true
}

// Leave takes back Use, and says whether that was the last one of what was retired.
func (u *Users) Leave() (last bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.count--
	return u.retired && u.count == 0
}

// Retire lets those who are counted finish, and nobody come.
func (u *Users) Retire() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.retired = true
}
