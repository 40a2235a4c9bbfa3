package testdb

import (
	"bytes"
	"net"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy stands between clients and a server and can make connections half
// open: they stay, and whatever is sent on them is swallowed, as by a firewall
// that forgot them or a proxy whose other end is gone. It can also cut them when
// the server answers, so that the client never knows what became of a statement.
type Proxy struct {
	// URL is the database behind the proxy.
	URL string

	mu    sync.Mutex
	links []*link
	done  bool
	delay atomic.Int64 // of everything that is passed on, in nanoseconds
	hold  sync.RWMutex // held for writing while nothing is passed on
}

// link is one connection of a client.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	hello          []byte // what the client sent first: its name is in it
	deaf           chan struct{}
	// answers is how much more the server may answer before it is cut, and one more;
	// 0 is any number of bytes.
	answers atomic.Int64
}

// NewProxy starts a proxy before the server of databaseURL, which ends with the
// test.
func NewProxy(t testing.TB, databaseURL string) *Proxy {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	server := u.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u.Host = listener.Addr().String()
	p := &Proxy{URL: u.String()}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.serve(client, server) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		p.mu.Lock()
		p.done = true
		for _, l := range p.links {
			l.client.Close()
			l.server.Close()
		}
		p.mu.Unlock()
		all.Wait()
	})
	return p
}

// Swallow makes the connections half open that are there now and whose
// application_name contains name, and returns how many. Later ones are well.
func (p *Proxy) Swallow(name string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		if l.hears(name) {
			close(l.deaf)
			n++
		}
	}
	return n
}

// Links counts the connections whose application_name contains name, without those
// that are half open.
func (p *Proxy) Links(name string) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		if l.hears(name) {
			n++
		}
	}
	return n
}

// hears tells of a link whose application_name contains name and that is not half
// open. The proxy's mutex is held.
func (l *link) hears(name string) bool {
	select {
	case <-l.deaf:
		return false
	default:
		return bytes.Contains(l.hello, []byte(name))
	}
}

// CutAnswers makes the connections that are there now and whose application_name
// contains name end with the server's next answer, which is not passed on, and
// returns how many.
func (p *Proxy) CutAnswers(name string) (n int) { return p.CutAnswersAfter(name, 0) }

// CutAnswersAfter is CutAnswers, but passes some bytes of the answer on first.
func (p *Proxy) CutAnswersAfter(name string, bytesLeft int) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		if bytes.Contains(l.hello, []byte(name)) {
			l.answers.Store(int64(bytesLeft) + 1)
			n++
		}
	}
	return n
}

// Cut resets all connections that are there now, and returns how many.
func (p *Proxy) Cut() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		if tcp, ok := l.client.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		if l.client.Close() == nil {
			n++
		}
		l.server.Close()
	}
	p.links = nil
	return n
}

// Slow delays whatever is passed on in either direction, until it is called with 0.
func (p *Proxy) Slow(by time.Duration) { p.delay.Store(int64(by)) }

// Stall passes nothing on until resume is called; nothing is dropped.
func (p *Proxy) Stall() (resume func()) {
	p.hold.Lock()
	return p.hold.Unlock
}

func (p *Proxy) serve(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer server.Close()
	hello := make([]byte, 4096)
	n, err := client.Read(hello)
	if err != nil {
		return
	}
	l := &link{proxy: p, client: client, server: server, hello: hello[:n], deaf: make(chan struct{})}
	p.mu.Lock()
	if p.done {
		p.mu.Unlock()
		return
	}
	p.links = append(p.links, l)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.links = slices.DeleteFunc(p.links, func(other *link) bool { return other == l })
	}()
	if _, err := server.Write(l.hello); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.copy(server, client) })
	both.Go(func() { l.copy(client, server) })
	both.Wait()
}

// copy passes on what comes, and of a half open connection nothing, its end
// included.
func (l *link) copy(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-l.deaf:
			if err != nil {
				return
			}
			continue
		default:
		}
		time.Sleep(time.Duration(l.proxy.delay.Load()))
		l.proxy.wait()
		if left := int(l.answers.Load()) - 1; n > 0 && from == l.server && left >= 0 {
			if left <= n { // or it ends with the next answer
				_, _ = to.Write(buffer[:left])
				l.client.Close()
				l.server.Close()
				return
			}
			l.answers.Store(int64(left-n) + 1)
		}
		if n > 0 {
			if _, werr := to.Write(buffer[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			to.Close()
			return
		}
	}
}

// wait waits while everything is held.
func (p *Proxy) wait() {
	p.hold.RLock()
	defer p.hold.RUnlock()
}
