package smtp

import (
	"context"
	"errors"
	"sync"
	"time"
)

// maxUses is the number of mails per connection. Many servers have a limit.
const maxUses = 100

var errClosed = errors.New("the sink is closed")

// pool holds open connections for reuse and bounds their number.
type pool struct {
	target *target
	slots  chan struct{} // one token for each connection in use

	mu     sync.Mutex
	idle   []*conn // the last one was used last
	closed bool
}

func newPool(t *target) *pool {
	return &pool{target: t, slots: make(chan struct{}, t.Connections)}
}

// get returns a connection that is alive; reused says that it was used before. The caller must
// return it with put.
func (p *pool) get(ctx context.Context) (c *conn, reused bool, err error) {
	select {
	case p.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, false, explain(ctx, ctx.Err(), 0)
	}
	for {
		c, err := p.pop()
		if err != nil {
			<-p.slots
			return nil, false, err
		}
		if c == nil {
			break
		}
		if c.alive(ctx) {
			return c, true, nil
		}
		c.close()
	}
	c, err = open(ctx, p.target)
	if err != nil {
		<-p.slots
		return nil, false, err
	}
	return c, false, nil
}

// replace opens a new connection instead of a dead one. On error it also does what put does.
func (p *pool) replace(ctx context.Context, dead *conn) (*conn, error) {
	dead.close()
	c, err := open(ctx, p.target)
	if err != nil {
		<-p.slots
	}
	return c, err
}

// put returns a connection. usable says that it can be reused.
func (p *pool) put(c *conn, usable bool) {
	defer func() { <-p.slots }()
	if !usable {
		c.close()
		return
	}
	c.uses++
	if c.uses >= maxUses || !p.push(c) {
		c.quit()
	}
}

// pop returns the idle connection that was used last, or nil.
func (p *pool) pop() (*conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	if len(p.idle) == 0 {
		return nil, nil
	}
	last := len(p.idle) - 1
	c := p.idle[last]
	p.idle = p.idle[:last]
	c.expiry.Stop() // if it has fired, it will not find the connection
	return c, nil
}

func (p *pool) push(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	c.expiry = time.AfterFunc(p.target.IdleTimeout, func() { p.expire(c) })
	p.idle = append(p.idle, c)
	return true
}

// expire closes a connection that is still idle.
func (p *pool) expire(c *conn) {
	p.mu.Lock()
	found := false
	for i, other := range p.idle {
		if found = other == c; found {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			break
		}
	}
	p.mu.Unlock()
	if found {
		c.quit()
	}
}

// close closes the idle connections. Those in use are closed by put.
func (p *pool) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, c := range idle {
		c.expiry.Stop()
		wg.Go(c.quit)
	}
	wg.Wait()
}
