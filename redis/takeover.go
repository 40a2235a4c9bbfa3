package redis

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

const (
	// unanswered is how long a server of a cluster may leave a command without an answer
	// before the others are asked whether it still is a master.
	unanswered = 700 * time.Millisecond
	// askAgain is the pause before they are asked again, while there is no answer.
	askAgain = 400 * time.Millisecond
	// askOthers bounds one such question.
	askOthers = time.Second
	// leaveAlone is how long a server that was replaced is not connected to, unless the
	// others say within that time that it is a master again.
	leaveAlone = 10 * time.Second
)

// errTakenOver is why a server of a cluster is not connected to.
var errTakenOver = errors.New("another server of the cluster has taken its place")

// takeovers hangs up on servers of a cluster that do not answer once another has taken their
// place. A server that stands still, or is cut off, closes no connection: without this each
// call would wait for the client's timeout, several of them one after the other, and so would
// the question who serves which slot, if that server is asked first. Calls wait as long as
// ever where no other server has taken over: the answer may still come.
type takeovers struct {
	options goredis.Options // but for the address
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	reload  func()

	mu     sync.Mutex
	known  map[string]bool
	conns  map[*watched]bool
	seeds  map[string]bool      // as the URL names servers
	were   map[string]bool      // servers of the cluster, as it names them
	gone   map[string]time.Time // servers that were replaced, and when that was heard
	asking bool
}

// watchTakeovers gives o a dialer that does so, and returns what needs the client made of o.
func watchTakeovers(o *goredis.ClusterOptions) *takeovers {
	t := &takeovers{known: map[string]bool{}, conns: map[*watched]bool{}, seeds: map[string]bool{}, were: map[string]bool{}, gone: map[string]time.Time{}, options: goredis.Options{
		Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig, Protocol: o.Protocol, ClientName: o.ClientName,
		DialTimeout: askOthers, ReadTimeout: askOthers, WriteTimeout: askOthers, PoolSize: 1, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
	}}
	for _, address := range o.Addrs {
		t.known[address], t.seeds[address] = true, true
	}
	timeout := o.DialTimeout
	if timeout == 0 {
		timeout = 5 * time.Second
	}
	t.dial = goredis.NewDialer(&goredis.Options{DialTimeout: timeout, TLSConfig: o.TLSConfig})
	o.Dialer = t.connect
	return t
}

// of lets client look who serves which slot whenever a server was hung up on.
func (t *takeovers) of(client *goredis.ClusterClient) *goredis.ClusterClient {
	t.reload = func() { client.ReloadState(context.Background()) }
	return client
}

// connect dials a server, unless it was replaced a moment ago.
func (t *takeovers) connect(ctx context.Context, network, address string) (net.Conn, error) {
	t.mu.Lock()
	heard, gone := t.gone[address]
	gone = gone && time.Since(heard) < leaveAlone
	t.mu.Unlock()
	if gone {
		t.ask()
		return nil, &net.OpError{Op: "dial", Net: network, Err: errTakenOver}
	}
	conn, err := t.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w := &watched{Conn: conn, of: t, address: address}
	w.timer = time.AfterFunc(time.Hour, w.waits)
	w.timer.Stop()
	t.mu.Lock()
	t.conns[w] = true
	if !t.seeds[address] {
		t.were[address] = true // the cluster told of it
	}
	t.mu.Unlock()
	if s, ok := conn.(syscall.Conn); ok {
		return struct {
			*watched
			syscall.Conn
		}{w, s}, nil
	}
	return w, nil
}

// watched is a connection that tells when a command is left without an answer.
type watched struct {
	net.Conn
	of      *takeovers
	address string
	timer   *time.Timer
	// When something was last written, and when last read, in nanoseconds.
	wrote, read atomic.Int64
}

// silent reports whether what was written last is without any answer for too long.
func (w *watched) silent() bool {
	wrote := w.wrote.Load()
	return wrote > w.read.Load() && time.Duration(time.Now().UnixNano()-wrote) >= unanswered
}

// Write implements [net.Conn].
func (w *watched) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	// Behind the write, which may itself take long: by now nobody can have answered it.
	w.wrote.Store(time.Now().UnixNano())
	w.timer.Reset(unanswered + time.Millisecond)
	return n, err
}

// Read implements [net.Conn].
func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n > 0 {
		w.read.Store(time.Now().UnixNano())
	}
	return n, err
}

// Close implements [net.Conn].
func (w *watched) Close() error {
	w.timer.Stop()
	w.of.mu.Lock()
	delete(w.of.conns, w)
	w.of.mu.Unlock()
	return w.Conn.Close()
}

// waits begins to ask the others, if there is no answer still.
func (w *watched) waits() {
	if w.silent() {
		w.of.ask()
	}
}

// ask asks the servers who the masters are, again and again while an answer is missing.
func (t *takeovers) ask() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asking {
		return
	}
	t.asking = true
	go func() {
		for again := true; again; {
			masters := t.masters()
			hungUp := t.hangUp(masters)
			for _, w := range hungUp {
				_ = w.Close()
			}
			if len(hungUp) > 0 {
				t.reload()
			}
			time.Sleep(askAgain)
			again = t.goOn()
		}
	}()
}

// goOn reports whether an answer is missing still, and ends the asking if none is.
func (t *takeovers) goOn() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := range t.conns {
		if w.silent() {
			return true
		}
	}
	t.asking = false
	return false
}

// hangUp notes who was replaced, and returns the connections to servers that were, and from
// which an answer is missing. Only whom the cluster named can be told to be replaced: it
// need not call a server what a URL does.
func (t *takeovers) hangUp(masters map[string]bool) (all []*watched) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(masters) == 0 { // nobody said
		return nil
	}
	for address := range masters {
		t.were[address] = true
		delete(t.gone, address)
	}
	for w := range t.conns {
		if w.silent() && t.were[w.address] && !masters[w.address] {
			t.gone[w.address] = time.Now()
		}
	}
	for w := range t.conns {
		if heard, gone := t.gone[w.address]; gone && time.Since(heard) < leaveAlone {
			all = append(all, w)
		}
	}
	return all
}

// masters asks all servers that are known at once who the masters are, and returns what the
// first to answer says.
func (t *takeovers) masters() map[string]bool {
	ctx, cancel := context.WithTimeout(context.Background(), askOthers)
	defer cancel()
	t.mu.Lock()
	answers := make(chan map[string]bool, len(t.known))
	for address := range t.known {
		go func() { answers <- t.slotsBy(ctx, address) }()
	}
	asked := len(t.known)
	t.mu.Unlock()
	for range asked {
		if masters := <-answers; len(masters) > 0 {
			return masters
		}
	}
	return nil
}

// slotsBy asks one server, which tells of the others, too. Nil: it did not answer.
func (t *takeovers) slotsBy(ctx context.Context, address string) (masters map[string]bool) {
	o := t.options
	o.Addr = address
	c := goredis.NewClient(&o)
	defer c.Close()
	//lint:ignore SA1019 the client asks by it as well, and users have the right to it
	slots, err := c.ClusterSlots(ctx).Result()
	if err != nil {
		return nil
	}
	masters = map[string]bool{}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, slot := range slots {
		for i, server := range slot.Nodes {
			at := asSeen(server.Addr, address)
			t.known[at] = true
			if i == 0 {
				masters[at] = true
			}
		}
	}
	return masters
}

// asSeen is a server's address as the client has it: what another one says of it may lack
// the host or the port, or be the other's loopback.
func asSeen(said, by string) string {
	host, port, err := net.SplitHostPort(said)
	byHost, byPort, err2 := net.SplitHostPort(by)
	if err != nil || err2 != nil {
		return said
	}
	loopback := func(host string) bool {
		ip := net.ParseIP(host)
		return ip != nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
	}
	if host == "" || loopback(host) && !loopback(byHost) {
		host = byHost
	}
	if port == "0" {
		port = byPort
	}
	return net.JoinHostPort(host, port)
}
