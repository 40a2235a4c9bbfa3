//go:build unix

package chaos

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// proxy is between all processes and a server, and injects faults into some connections. Each
// process has its own address, which identifies it.
type proxy struct {
	server string
	// tellsEnd reports whether data from the server says that a request was done.
	tellsEnd func(sent []byte) bool
	// witness observes the data of a process's connection. May be nil.
	witness func(process string) witness
	// delay is the delay of every piece of data, at most twice as long.
	delay  time.Duration
	mu     sync.Mutex
	doors  map[string]net.Listener // by process
	links  map[*link]bool
	closed bool
	all    sync.WaitGroup
}

// witness observes forwarded data. Each direction is called by one goroutine.
type witness interface {
	// asked sees the data of the process before the server gets it.
	asked(sent []byte)
	// answered sees the data of the server after the process got it.
	answered(sent []byte)
	// over is called when the connection has ended.
	over()
}

// blindWitness is a witness that does nothing.
type blindWitness struct{}

func (blindWitness) asked([]byte)    {}
func (blindWitness) answered([]byte) {}
func (blindWitness) over()           {}

// link is one connection of a process.
type link struct {
	client, server net.Conn
	process        string
	tellsEnd       func([]byte) bool
	deaf           atomic.Bool
	delay          atomic.Int64 // nanoseconds before data is forwarded
	// sever cuts it at the next occasion: see the constants.
	sever atomic.Int32
}

// When a link is cut.
const (
	severStatement int32 = iota + 1 // a part of a statement was forwarded
	severAnswer                     // the server has executed the request, and the client got no answer
	severReply                      // the client got a part of the answer
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

// forget removes the address of a process that has ended.
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

// of returns the current links of a process, or all links for "".
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
	var sees witness = blindWitness{}
	if p.witness != nil {
		sees = p.witness(process)
	}
	defer sees.over()
	var both sync.WaitGroup
	both.Go(func() { l.copy(server, client, l.forward, sees.asked, func([]byte) {}) })
	both.Go(func() { l.copy(client, server, l.back, func([]byte) {}, sees.answered) })
	both.Wait()
}

// cut ends both sides immediately.
func (l *link) cut() {
	for _, c := range []net.Conn{l.client, l.server} {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset, which discards data in flight
		}
		c.Close()
	}
}

// copy forwards data as far as pass allows. pass returns how many of the bytes to forward, and
// whether to cut the link then. A half-open link forwards nothing, including its end. before
// and after see the forwarded data.
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
				if some > 0 { // forwarded data must arrive
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

// forward forwards a client's statements.
func (l *link) forward(b []byte) (int, bool) {
	if l.sever.Load() == severStatement && len(b) > 10 {
		return len(b) / 2, true
	}
	return len(b), false
}

// back forwards the server's answers.
func (l *link) back(b []byte) (int, bool) {
	switch when := l.sever.Load(); {
	case when == severAnswer && l.tellsEnd(b):
		return 0, true
	case when == severReply && len(b) > 1:
		return len(b) / 2, true
	}
	return len(b), false
}
