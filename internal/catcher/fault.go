package catcher

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/emersion/go-smtp"
)

// Stage is the point of the protocol at which a fault strikes.
type Stage string

// The stages of an SMTP connection.
const (
	StageConnect Stage = "connect" // instead of the greeting
	StageHello   Stage = "hello"   // at EHLO or HELO
	StageAuth    Stage = "auth"    // after the password
	StageMail    Stage = "mail"    // at MAIL FROM
	StageRcpt    Stage = "rcpt"    // at RCPT TO
	StageData    Stage = "data"    // at DATA, before the mail; closes the connection; not with TLS
	StageEnd     Stage = "end"     // after the mail's final dot
)

// Fault describes a failure. Without Code, Hang, Drop or DropAfter nothing fails, and the
// fault only counts.
type Fault struct {
	Stage Stage
	// Recipient restricts a fault of StageRcpt to one envelope address.
	Recipient string
	// Times is the number of times it strikes (default once; negative: always).
	Times int
	// Code, Enhanced and Text are sent instead of success.
	Code     int
	Enhanced smtp.EnhancedCode
	Text     string
	// Hang sends no answer until the fault is removed or the catcher is closed, and then
	// closes the connection.
	Hang bool
	// Drop closes the connection instead of answering.
	Drop bool
	// DropAfter closes the connection after the answer.
	DropAfter bool
	// Kept keeps the mail at StageEnd although the answer is not success: the answer is lost,
	// the mail is not.
	Kept bool

	released chan struct{}
}

// Injected is an active fault.
type Injected struct {
	faults *faults
	fault  *Fault
	left   int

	reached chan struct{}
	hits    int
	removed bool
}

// faults are the injected faults, in order.
type faults struct {
	mu   sync.Mutex
	list []*Injected
}

// Inject makes the catcher fail. If several faults match, the one that was injected first
// strikes until it is used up.
func (c *Catcher) Inject(f Fault) *Injected {
	if f.Times == 0 {
		f.Times = 1
	}
	if f.Text == "" {
		f.Text = fmt.Sprintf("injected at %s", f.Stage)
	}
	f.released = make(chan struct{})
	in := &Injected{faults: &c.faults, fault: &f, left: f.Times, reached: make(chan struct{})}
	c.faults.mu.Lock()
	defer c.faults.mu.Unlock()
	c.faults.list = append(c.faults.list, in)
	return in
}

// Reached is closed when the fault strikes for the first time.
func (in *Injected) Reached() <-chan struct{} { return in.reached }

// Hits returns how often the fault struck.
func (in *Injected) Hits() int {
	in.faults.mu.Lock()
	defer in.faults.mu.Unlock()
	return in.hits
}

// Remove ends the fault and releases the clients that it left hanging. It may be called again.
func (in *Injected) Remove() {
	in.faults.mu.Lock()
	defer in.faults.mu.Unlock()
	if !in.removed {
		in.removed = true
		close(in.fault.released)
	}
}

// take returns the fault that strikes now, if any, and counts it.
func (f *faults) take(stage Stage, recipient string) *Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, in := range f.list {
		if in.removed || in.left == 0 || in.fault.Stage != stage ||
			in.fault.Recipient != "" && in.fault.Recipient != recipient {
			continue
		}
		if in.left > 0 {
			in.left--
		}
		if in.hits++; in.hits == 1 {
			close(in.reached)
		}
		return in.fault
	}
	return nil
}

// listener applies the faults of StageConnect and wraps connections.
type listener struct {
	net.Listener
	catcher *Catcher
}

// Accept implements [net.Listener].
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.catcher.count(func(n *Stats) { n.Connections++ })
		f := l.catcher.faults.take(StageConnect, "")
		if f == nil {
			return l.catcher.hook(conn), nil
		}
		go l.catcher.refuse(conn, f)
	}
}

// refuse applies a fault that closes the connection.
func (c *Catcher) refuse(conn net.Conn, f *Fault) {
	defer conn.Close()
	switch {
	case f.Hang:
		select {
		case <-f.released:
		case <-c.stop:
		}
	case f.Code != 0:
		_, _ = fmt.Fprintf(conn, "%d %s\r\n", f.Code, f.Text)
	}
}

// hookConn sees the server's output line by line, and can change output that the SMTP library
// does not let a session change.
type hookConn struct {
	net.Conn
	catcher *Catcher

	closed sync.Once

	mu   sync.Mutex
	last bool
}

func (c *Catcher) hook(conn net.Conn) *hookConn {
	h := &hookConn{Conn: conn, catcher: c}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conns[h] = struct{}{}
	c.stats.Open = len(c.conns)
	return h
}

// Close implements [net.Conn].
func (h *hookConn) Close() error {
	h.closed.Do(func() {
		h.catcher.mu.Lock()
		defer h.catcher.mu.Unlock()
		delete(h.catcher.conns, h)
		h.catcher.stats.Open = len(h.catcher.conns)
	})
	return h.Conn.Close()
}

// closeAfterWrite closes the connection after the next line.
func (h *hookConn) closeAfterWrite() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = true
}

// Write implements [net.Conn].
func (h *hookConn) Write(b []byte) (int, error) {
	if len(b) > 4 && bytes.HasPrefix(b, []byte("250")) && slices.Contains(h.catcher.cfg.Without, strings.Fields(string(b[4:]) + " -")[0]) {
		if b[3] == '-' {
			return len(b), nil
		}
		_, err := h.Conn.Write([]byte("250 HELP\r\n")) // the last line, which ends the list
		return len(b), err
	}
	if bytes.HasPrefix(b, []byte("354 ")) {
		if f := h.catcher.faults.take(StageData, ""); f != nil {
			h.catcher.refuse(h, f)
			return 0, net.ErrClosed
		}
	}
	n, err := h.Conn.Write(b)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last {
		h.Close()
	}
	return n, err
}
