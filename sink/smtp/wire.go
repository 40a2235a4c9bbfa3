package smtp

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// maxAnswerBytes bounds the bytes that are read until the next command is sent, so that a server
// that never stops sending fills no memory. A TLS handshake counts.
const maxAnswerBytes = 256 << 10

var errAnswerTooLong = errors.New("the server's reply is too long")

// wire is a network connection below TLS on which every step has a deadline and that can be cut
// at any time.
type wire struct {
	net.Conn
	budget int // bytes that may still be read; of the goroutine that reads

	mu  sync.Mutex
	cut bool
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)

// allow sets the deadline and the byte limit of the next step.
func (w *wire) allow(d time.Duration) {
	w.budget = maxAnswerBytes
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.cut {
		// Fails only on a closed connection, which the step notices itself.
		_ = w.SetDeadline(time.Now().Add(d))
	}
}

// cutWith ends the current step and all later ones as soon as ctx ends, until stop is called.
func (w *wire) cutWith(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.cut = true
		_ = w.SetDeadline(longAgo)
	})
}

// Read implements [net.Conn].
func (w *wire) Read(b []byte) (int, error) {
	if w.budget <= 0 {
		return 0, errAnswerTooLong
	}
	n, err := w.Conn.Read(b[:min(len(b), w.budget)])
	w.budget -= n
	return n, err
}
