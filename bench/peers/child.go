package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// roleEnv makes a process of this program a sender or a worker. Its orders come on standard
// input.
const roleEnv = "POSTHASTE_PEERS_CHILD"

// telling is the interval at which a worker reports its number of handled messages.
const telling = 20 * time.Millisecond

// serve runs such a process.
func serve(in io.Reader, out io.Writer) int {
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c := &child{lines: make(chan line), encoder: json.NewEncoder(out)}
	decoder := json.NewDecoder(in)
	if err := decoder.Decode(&c.order); err != nil {
		c.tell(report{Error: "the order cannot be read: " + err.Error()})
		return 1
	}
	go func() {
		defer cancel()
		defer close(c.lines)
		for {
			var l line
			if decoder.Decode(&l) != nil {
				return
			}
			c.lines <- l
		}
	}()
	if err := c.run(ctx); err != nil && ctx.Err() == nil {
		c.tell(report{Error: err.Error()})
		return 1
	}
	return 0
}

type child struct {
	order order
	lines chan line

	mu      sync.Mutex
	encoder *json.Encoder
}

func (c *child) tell(r report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.encoder.Encode(r) // if the parent is gone, this process ends
}

func (c *child) run(ctx context.Context) error {
	p, err := peerNamed(c.order.Product)
	if err != nil {
		return err
	}
	product, ok := p.(goPeer)
	if !ok {
		return fmt.Errorf("%s does not run in Go", c.order.Product)
	}
	switch c.order.Role {
	case roleSend:
		return c.send(ctx, product)
	case roleWork:
		return c.work(ctx, product)
	}
	return fmt.Errorf("unknown role %q; expected send or work", c.order.Role)
}

func (c *child) send(ctx context.Context, product goPeer) error {
	s, err := product.sender(ctx, c.order)
	if err != nil {
		return err
	}
	defer s.close()
	t, err := newTraffic(ctx, c.order, s)
	if err != nil {
		return err
	}
	defer t.close()
	c.tell(report{Ready: true})
	failed := make(chan error, 1)
	for {
		select {
		case err := <-failed:
			return err
		case l, more := <-c.lines:
			if !more {
				return nil
			}
			t.heard(l.Handled)
			if l.Report {
				c.tell(report{CPU: ownCPU()})
			}
			if l.Run > 0 {
				go func() {
					sent, err := t.run(ctx, time.Duration(l.Run*float64(time.Millisecond)))
					if err != nil {
						failed <- err
						return
					}
					c.tell(report{Sent: &sent})
				}()
			}
		}
	}
}

func (c *child) work(ctx context.Context, product goPeer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &tally{timed: c.order.Scenario == latency}
	ended, ready := make(chan error, 1), make(chan struct{})
	go func() { ended <- product.work(ctx, c.order, t, sync.OnceFunc(func() { close(ready) })) }()
	select {
	case err := <-ended:
		return errors.Join(errors.New("the worker ended before it was ready"), err)
	case <-ready:
		c.tell(report{Ready: true})
	}
	ticker := time.NewTicker(telling)
	defer ticker.Stop()
	if t.timed || c.order.Scenario == idle {
		ticker.Stop() // no count is reported
	}
	told := int64(0)
	for {
		select {
		case err := <-ended:
			return errors.Join(errors.New("the worker ended early"), err)
		case <-ticker.C:
			if n := t.count.Load(); n != told {
				told = n
				c.tell(report{Handled: &n})
			}
		case l, more := <-c.lines:
			if !more {
				cancel()
				return <-ended
			}
			if l.Report {
				n := t.count.Load()
				c.tell(report{Handled: &n, CPU: ownCPU(), Samples: t.take()})
			}
		}
	}
}

// ownCPU returns the CPU time of this process in µs.
func ownCPU() *float64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	used := float64(u.Utime.Nano()+u.Stime.Nano()) / 1000
	return &used
}

// monotonic returns the time of a clock that all processes of the machine share, Node's
// included.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // cannot fail
	return t.Nano()
}
