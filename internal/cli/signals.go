package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// sameSignal is the time in which a further signal counts as a duplicate of the first one.
// Some programs, such as timeout, signal both a process and its process group.
const sameSignal = 20 * time.Millisecond

// signals cancels a context at the first SIGINT, SIGTERM or SIGHUP, and ends the program at
// the second.
type signals struct {
	caught atomic.Int32 // the first signal, or 0
	ch     chan os.Signal
	cancel context.CancelFunc
	// announce enables the message on stderr that the program is stopping.
	announce atomic.Bool
}

// watchSignals returns a context that the first signal cancels.
func watchSignals(parent context.Context, stderr io.Writer) (context.Context, *signals) {
	ctx, cancel := context.WithCancel(parent)
	s := &signals{ch: make(chan os.Signal, 2), cancel: cancel}
	signal.Notify(s.ch, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signal.Notify(s.ch, syscall.SIGHUP)
	}
	go func() {
		for received := range s.ch {
			number, _ := received.(syscall.Signal)
			if !s.caught.CompareAndSwap(0, int32(number)) {
				os.Exit(128 + int(number))
			}
			cancel()
			if !s.settle() {
				return
			}
			// Print after settle, so that a signal in response to the message counts.
			if s.announce.Load() {
				fmt.Fprintln(stderr, "posthaste: stopping; a second signal stops it at once")
			}
		}
	}()
	return ctx, s
}

// settle drops duplicates of the first signal. It returns false if stop was called.
func (s *signals) settle() bool {
	over := time.After(sameSignal)
	for {
		select {
		case _, open := <-s.ch:
			if !open {
				return false
			}
		case <-over:
			return true
		}
	}
}

// code returns the exit code of an interrupted program, or 0 without a signal.
func (s *signals) code() int {
	if n := s.caught.Load(); n != 0 {
		return 128 + int(n)
	}
	return 0
}

// stop is called at the end of the program. After a signal it keeps catching signals, since
// a duplicate would kill the program during its shutdown.
func (s *signals) stop() {
	s.cancel()
	if s.caught.Load() != 0 {
		return
	}
	signal.Stop(s.ch)
	close(s.ch)
}
