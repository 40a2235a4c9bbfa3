//go:build unix

package chaos

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// proxy stands between all processes and a server, and disturbs the connections
// of some. Each process has an address of its own, by which it is known.
type proxy struct {
	server string
	// tellsEnd reports whether what the server sent says that something was done.
	tellsEnd func(sent []byte) bool
	// witness sees what a connection of a process passes on. Nil: nobody does.
	witness func(process string) witness
	// delay is what every piece takes on its way, twice as long at most.
	delay  time.Duration
	mu     sync.Mutex
	doors  map[string]net.Listener // by process
	links  map[*link]bool
	closed bool
	all    sync.WaitGroup
}

// witness sees what is passed on. It is asked for each direction by one goroutine.
type witness interface {
	// asked sees what the process sent, before the server gets it.
	asked(sent []byte)
	// answered sees what the server sent, once the process was given it.
	answered(sent []byte)
	// over is called when the connection has ended.
	over()
}

// nobody sees nothing.
type nobody struct{}

func (nobody) asked([]byte)    {}
func (nobody) answered([]byte) {}
func (nobody) over()           {}

// link is one connection of a process.
type link struct {
	client, server net.Conn
	process        string
	tellsEnd       func([]byte) bool
	deaf           atomic.Bool
	delay          atomic.Int64 // nanoseconds before anything is passed on
	// sever cuts it at the next occasion: see the constants.
	sever atomic.Int32
}

// When a link is cut.
const (
	severStatement int32 = iota + 1 // a statement was passed on in part
	severAnswer                     // the server has done what was asked, and the client was not told
	severReply                      // the client was told in part
	severed                         // it was
)

func newProxy(server string, tellsEnd func(sent []byte) bool) *proxy {
	return &proxy{server: server, tellsEnd: tellsEnd, doors: map[string]net.Listener{}, links: map[*link]bool{}}
}

// open gives a process an address.
func (p *proxy) open(process string) (address string, err error) {
	door, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doors[process] = door
	p.all.Go(func() {
		for {
			client, err := door.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.serve(client, process) })
		}
	})
	return door.Addr().String(), nil
}

// forget takes the address of a process that is gone away.
func (p *proxy) forget(process string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if door := p.doors[process]; door != nil {
		door.Close()
		delete(p.doors, process)
	}
}

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	for _, door := range p.doors {
		door.Close()
	}
	for l := range p.links {
		l.cut()
	}
	p.mu.Unlock()
	p.all.Wait()
}

// of returns the links of a process that are there now; those of all if it is "".
func (p *proxy) of(process string) (links []*link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.process == process || process == "" {
			links = append(links, l)
		}
	}
	return links
}

func (p *proxy) serve(client net.Conn, process string) {
	defer client.Close()
	server, err := net.DialTimeout("tcp", p.server, 5*time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	l := &link{client: client, server: server, process: process, tellsEnd: p.tellsEnd}
	l.delay.Store(int64(p.delay))
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.links[l] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.links, l)
		p.mu.Unlock()
	}()
	var sees witness = nobody{}
	if p.witness != nil {
		sees = p.witness(process)
	}
	defer sees.over()
	var both sync.WaitGroup
	both.Go(func() { l.copy(server, client, l.forward, sees.asked, func([]byte) {}) })
	both.Go(func() { l.copy(client, server, l.back, func([]byte) {}, sees.answered) })
	both.Wait()
}

// cut ends both sides at once.
func (l *link) cut() {
	for _, c := range []net.Conn{l.client, l.server} {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset, and what is on its way is gone
		}
		c.Close()
	}
}

// copy passes on what comes, as pass allows: how many of the bytes, and whether
// the link is cut then. Of one that is half open nothing gets through, its end
// included. before and after see what is passed on.
func (l *link) copy(to, from net.Conn, pass func([]byte) (n int, sever bool), before, after func([]byte)) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if l.deaf.Load() {
			if err != nil {
				return
			}
			continue
		}
		if delay := time.Duration(l.delay.Load()); delay > 0 && n > 0 {
			time.Sleep(rand.N(2 * delay))
		}
		if n > 0 {
			some, sever := pass(buffer[:n])
			before(buffer[:some])
			if _, werr := to.Write(buffer[:some]); werr != nil {
				err = werr
			} else {
				after(buffer[:some])
			}
			if sever {
				l.sever.Store(severed)
				if some > 0 { // what is passed on shall arrive
					time.Sleep(time.Millisecond)
				}
				l.cut()
				return
			}
		}
		if err != nil {
			to.Close()
			return
		}
	}
}

// forward passes a client's statements on.
func (l *link) forward(b []byte) (int, bool) {
	if l.sever.Load() == severStatement && len(b) > 10 {
		return len(b) / 2, true
	}
	return len(b), false
}

// back passes the server's answers on.
func (l *link) back(b []byte) (int, bool) {
	switch when := l.sever.Load(); {
	case when == severAnswer && l.tellsEnd(b):
		return 0, true
	case when == severReply && len(b) > 1:
		return len(b) / 2, true
	}
	return len(b), false
}
