package redis

import (
	"cmp"
	"context"
	"errors"
	"net"
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

// Dialer opens a connection.
type Dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// Takeovers hangs up on servers of a cluster that do not answer once another has taken their
// place. A server that stands still, or is cut off, closes no connection: without this each
// call would wait for the client's timeout, several of them one after the other, and so would
// the question who serves which slot, if that server is asked first. Calls wait as long as
// ever where no other server has taken over: the answer may still come. It is safe for
// concurrent use.
type Takeovers struct {
	// Blocks is how long a command may wait at the server for data. It is added to the time
	// that an answer may take. It is set before the first Dial.
	Blocks time.Duration

	options goredis.Options // but for the address
	dial    Dialer
	reload  func() // nil: nothing is to be done
	first   sync.Once

	mu     sync.Mutex
	known  map[string]bool
	conns  map[*watched]bool
	seeds  map[string]bool      // as the URL names servers
	were   map[string]bool      // servers of the cluster, as it names them
	gone   map[string]time.Time // servers that were replaced, and when that was heard
	asking bool
}

// WatchTakeovers watches the connections that [Takeovers.Dial] opens by dial. The options
// say how the servers are asked, but for where: their Dialer, if there is one, connects for
// that, too. Seeds are servers as the URL names them.
func WatchTakeovers(dial Dialer, options goredis.Options, seeds ...string) *Takeovers {
	options.OnConnect = nil
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout = askOthers, askOthers, askOthers
	options.PoolSize, options.MaxRetries, options.DialerRetries, options.ContextTimeoutEnabled = 1, -1, 1, true
	t := &Takeovers{dial: dial, options: options, known: map[string]bool{}, conns: map[*watched]bool{}, seeds: map[string]bool{}, were: map[string]bool{}, gone: map[string]time.Time{}}
	for _, address := range seeds {
		t.known[address], t.seeds[address] = true, true
	}
	return t
}

// ClusterClient returns a client of a cluster whose connections are watched. It changes o.
func ClusterClient(o *goredis.ClusterOptions) *goredis.ClusterClient {
	client, _ := clusterClient(o)
	return client
}

func clusterClient(o *goredis.ClusterOptions) (*goredis.ClusterClient, *Takeovers) {
	dial := o.Dialer
	if dial == nil {
		dial = goredis.NewDialer(&goredis.Options{DialTimeout: cmp.Or(o.DialTimeout, 5*time.Second), TLSConfig: o.TLSConfig})
	}
	t := WatchTakeovers(dial, goredis.Options{Dialer: o.Dialer, Username: o.Username, Password: o.Password, CredentialsProvider: o.CredentialsProvider,
		CredentialsProviderContext: o.CredentialsProviderContext, StreamingCredentialsProvider: o.StreamingCredentialsProvider,
		TLSConfig: o.TLSConfig, Protocol: o.Protocol, ClientName: o.ClientName}, o.Addrs...)
	o.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := t.Dial(ctx, network, address)
		if err == nil {
			t.first.Do(t.ask) // who the masters are before one of them is replaced
		}
		return conn, err
	}
	client := goredis.NewClusterClient(o)
	t.reload = func() { client.ReloadState(context.Background()) }
	return client, t
}

// Told says which servers the cluster has, as one of them told.
func (t *Takeovers) Told(servers ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, address := range servers {
		t.known[address], t.were[address] = true, true
	}
}

// Dial dials a server, unless it was replaced a moment ago.
func (t *Takeovers) Dial(ctx context.Context, network, address string) (net.Conn, error) {
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
		t.known[address], t.were[address] = true, true // the cluster told of it
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
	of      *Takeovers
	address string
	timer   *time.Timer
	// When something was last written, and when last read, in nanoseconds.
	wrote, read atomic.Int64
}

// silent reports whether the last write has had no answer for too long.
func (w *watched) silent() bool {
	wrote := w.wrote.Load()
	return wrote > w.read.Load() && time.Duration(time.Now().UnixNano()-wrote) >= unanswered+w.of.Blocks
}

// Write implements [net.Conn].
func (w *watched) Write(b []byte) (int, error) {
	n, err := w.Conn.Write(b)
	// After the write, which may itself take long: until now the server cannot have answered
	// it.
	w.wrote.Store(time.Now().UnixNano())
	w.timer.Reset(unanswered + w.of.Blocks + time.Millisecond)
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
	if w.silent() && w.of.others() {
		w.of.ask()
	}
}

// others reports whether there is more than one server: a single one, which may be of no
// cluster, cannot say that another has taken its place.
func (t *Takeovers) others() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.known) > 1
}

// ask asks the servers who the masters are, again and again while an answer is missing.
func (t *Takeovers) ask() {
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
			if len(hungUp) > 0 && t.reload != nil {
				t.reload()
			}
			time.Sleep(askAgain)
			again = t.goOn()
		}
	}()
}

// goOn reports whether an answer is missing still, and ends the asking if none is.
func (t *Takeovers) goOn() bool {
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
func (t *Takeovers) hangUp(masters map[string]bool) (all []*watched) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(masters) == 0 { // no server has answered
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
func (t *Takeovers) masters() map[string]bool {
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
		select {
		case masters := <-answers:
			if len(masters) > 0 {
				return masters
			}
		case <-ctx.Done(): // a caller's dialer may take longer
			return nil
		}
	}
	return nil
}

// slotsBy asks one server, which tells of the others, too. Nil: it did not answer.
func (t *Takeovers) slotsBy(ctx context.Context, address string) (masters map[string]bool) {
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
			at := Absolute(server.Addr, address)
			t.known[at] = true
			if i == 0 {
				masters[at] = true
			}
		}
	}
	return masters
}
