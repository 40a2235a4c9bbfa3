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

// sameSignal is within how long a signal is taken for the first one once more:
// some that run programs (timeout, for one) signal both the program and its
// process group.
const sameSignal = 20 * time.Millisecond

// signals turns SIGINT, SIGTERM and the terminal's SIGHUP into the end of a
// context, and the second one into the end of the program.
type signals struct {
	caught atomic.Int32 // the first signal, 0 before
	ch     chan os.Signal
	cancel context.CancelFunc
	// announce says on stderr that the program is stopping.
	announce atomic.Bool
}

// watchSignals returns a context that ends at the first signal.
func watchSignals(parent context.Context, stderr io.Writer) (context.Context, *signals) {
	ctx, cancel := context.WithCancel(parent)
	s := &signals{ch: make(chan os.Signal, 2), cancel: cancel}
	signal.Notify(s.ch, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
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
			// Only now, so that who reacts to these words is not ignored.
			if s.announce.Load() {
				fmt.Fprintln(stderr, "posthaste: stopping; a second signal ends it at once")
			}
		}
	}()
	return ctx, s
}

// settle drops signals that belong to the one that came. It returns false if
// the program has ended meanwhile.
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

// code is the exit code of a program that the first signal cut short, or 0 if
// there was none.
func (s *signals) code() int {
	if n := s.caught.Load(); n != 0 {
		return 128 + int(n)
	}
	return 0
}

// stop is for the end of the program. Where a signal ended it, signals are still
// caught: one that comes doubled would kill it on its way out.
func (s *signals) stop() {
	s.cancel()
	if s.caught.Load() != 0 {
		return
	}
	signal.Stop(s.ch)
	close(s.ch)
}
