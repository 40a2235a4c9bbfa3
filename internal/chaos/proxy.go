//go:build unix

package chaos

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// proxy stands between all processes and PostgreSQL, and disturbs the
// connections of some. It knows them by the application_name in their first
// message, and of the protocol just that messages have a type and a length.
type proxy struct {
	listener net.Listener
	server   string
	mu       sync.Mutex
	links    map[*link]bool
	closed   bool
	all      sync.WaitGroup
}

// link is one connection of a client.
type link struct {
	client, server net.Conn
	hello          []byte
	deaf           atomic.Bool
	delay          atomic.Int64 // nanoseconds before anything is passed on
	// sever cuts it at the next occasion: see the constants.
	sever   atomic.Int32
	severed chan struct{} // closed when it was
	once    sync.Once
}

// When a link is cut.
const (
	severStatement int32 = iota + 1 // a statement was passed on in part
	severAnswer                     // the server has committed, and the client was not told
)

func newProxy(server string) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, server: server, links: map[*link]bool{}}
	p.all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.serve(client) })
		}
	})
	return p, nil
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for l := range p.links {
		l.cut()
	}
	p.mu.Unlock()
	p.all.Wait()
}

// of returns the links of a process that are there now.
func (p *proxy) of(name string) (links []*link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		// The name ends with the text, or goes on with " doorbell".
		if bytes.Contains(l.hello, []byte(name+"\x00")) || bytes.Contains(l.hello, []byte(name+" doorbell\x00")) {
			links = append(links, l)
		}
	}
	return links
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.DialTimeout("tcp", p.server, 5*time.Second)
	if err != nil {
		return
	}
	defer server.Close()
	hello, err := firstMessage(client)
	if err != nil {
		return
	}
	l := &link{client: client, server: server, hello: hello, severed: make(chan struct{})}
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
	if _, err := server.Write(hello); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.copy(server, client, l.forward) })
	both.Go(func() { l.copy(client, server, l.back) })
	both.Wait()
}

// firstMessage is the only one without a type. Encryption is not asked for.
func firstMessage(client net.Conn) ([]byte, error) {
	length := make([]byte, 4)
	if _, err := io.ReadFull(client, length); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length)
	if n < 8 || n > 10_000 {
		return nil, io.ErrUnexpectedEOF
	}
	rest := make([]byte, n-4)
	_, err := io.ReadFull(client, rest)
	return append(length, rest...), err
}

// cut ends both sides at once.
func (l *link) cut() {
	l.once.Do(func() { close(l.severed) })
	for _, c := range []net.Conn{l.client, l.server} {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // a reset, and what is on its way is gone
		}
		c.Close()
	}
}

// copy passes on what comes, as pass allows: how many of the bytes, and whether
// the link is cut then. Of one that is half open nothing gets through, its end
// included.
func (l *link) copy(to, from net.Conn, pass func([]byte) (n int, sever bool)) {
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
			if _, werr := to.Write(buffer[:some]); werr != nil {
				err = werr
			}
			if sever {
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

// back passes the server's answers on. An answer that says that the server is
// ready, and in no transaction, comes after the commit of what was asked.
func (l *link) back(b []byte) (int, bool) {
	// Type, length and "idle" together make it certain enough.
	if l.sever.Load() == severAnswer && bytes.Contains(b, []byte("Z\x00\x00\x00\x05I")) {
		return 0, true
	}
	return len(b), false
}
