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

// Proxy is between clients and a server and can make connections half-open: they stay, but all
// data is dropped, as by a firewall that forgot them. It can also cut them when the server
// responds, so that the client does not know the outcome of its statement.
type Proxy struct {
	// URL is the URL of the database through the proxy.
	URL string

	mu    sync.Mutex
	links []*link
	done  bool
	delay atomic.Int64 // of all forwarded data, in nanoseconds
	hold  sync.RWMutex // held for writing while nothing is forwarded
}

// link is one connection of a client.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	hello          []byte // the client's first message, which contains its application_name
	deaf           chan struct{}
	// answers is one more than the number of bytes that the server may still send before the
	// link is cut; 0 is unlimited.
	answers atomic.Int64
}

// NewProxy starts a proxy for the server of databaseURL. It ends with the test.
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

// Swallow makes the current connections half-open whose application_name contains name, and
// returns their number. Later connections work.
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

// Links counts the connections whose application_name contains name, except half-open ones.
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

// hears reports whether a link's application_name contains name and the link is not half-open.
// The proxy's mutex is held.
func (l *link) hears(name string) bool {
	select {
	case <-l.deaf:
		return false
	default:
		return bytes.Contains(l.hello, []byte(name))
	}
}

// CutAnswers cuts the current connections whose application_name contains name at the server's
// next response, which is not forwarded, and returns their number.
func (p *Proxy) CutAnswers(name string) (n int) { return p.CutAnswersAfter(name, 0) }

// CutAnswersAfter is CutAnswers, but forwards some bytes of the response first.
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

// Cut resets all current connections, and returns their number.
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

// Slow delays all data in both directions, until it is called with 0.
func (p *Proxy) Slow(by time.Duration) { p.delay.Store(int64(by)) }

// Stall forwards nothing until resume is called. No data is dropped.
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

// copy forwards data. For a half-open connection it drops everything, including its end.
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
			if left <= n { // otherwise it is cut at the next response
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

// wait waits while the proxy is stalled.
func (p *Proxy) wait() {
	p.hold.RLock()
	defer p.hold.RUnlock()
}
