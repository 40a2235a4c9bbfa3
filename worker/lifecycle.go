package worker

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// service is the life of one background task: it is started once, and stopped
// as often as anybody likes.
type service struct {
	once   sync.Once
	cancel context.CancelFunc
	done   chan struct{}
}

// start runs f on a goroutine of its own until it returns or stop is called.
// Further calls do nothing.
func (s *service) start(ctx context.Context, f func(ctx context.Context)) {
	s.once.Do(func() {
		ctx, s.cancel = context.WithCancel(ctx)
		s.done = make(chan struct{})
		go func() {
			defer close(s.done)
			f(ctx)
		}()
	})
}

// stop ends the service and waits until it has ended. It is safe to call twice
// and without a start, and no start has an effect after it.
func (s *service) stop() {
	s.once.Do(func() {})
	if s.done != nil {
		s.cancel()
		<-s.done
	}
}

// backoff is the wait between tries of one task, 50 ms growing to 2 s.
type backoff struct {
	rt     *runtime
	task   string
	tries  int
	logged time.Time
}

// failed tells of a failure and waits before the next try. It logs the first
// of a row and then one in 30 s. It returns false if ctx ended.
func (b *backoff) failed(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	b.rt.tell(posthaste.Event{Kind: posthaste.EventError, Task: b.task, Err: err})
	wait := min(50*time.Millisecond<<min(b.tries, 10), 2*time.Second)
	wait = wait/2 + rand.N(wait)
	b.tries++
	if time.Since(b.logged) > 30*time.Second {
		b.logged = time.Now()
		b.rt.log.Warn("trouble with the store, trying again", slog.String("task", b.task), slog.Any("error", err),
			slog.String("code", string(posthaste.CodeOf(err))), slog.Int("tries", b.tries))
	}
	return pause(ctx, wait)
}

// worked ends a row of failures.
func (b *backoff) worked() {
	if b.tries > 0 {
		b.rt.log.Info("the store answers again", slog.String("task", b.task), slog.Int("failures", b.tries))
		b.tries, b.logged = 0, time.Time{}
	}
}

// pause returns false if ctx ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// uncertain reports whether a call that failed with err may have had its
// effect, or may have it when it is tried again.
func uncertain(err error) bool {
	switch posthaste.CodeOf(err) {
	case "", posthaste.OutcomeUnsure, posthaste.Unavailable, posthaste.ReadOnly:
		return true
	}
	return false
}

// hopeless reports whether err will not go away by itself, so that a worker
// that meets it at its start should say so and end. Refused is a copy of a database,
// where a person has the say: the worker waits for that.
func hopeless(err error) bool {
	switch posthaste.CodeOf(err) {
	case posthaste.Invalid, posthaste.NotFound, posthaste.Unsupported, posthaste.SchemaOld, posthaste.SchemaNew,
		posthaste.Denied:
		return true
	}
	return false
}

// bounded calls f with a context that ends after limit, so that a connection
// that is cut half-open holds nothing up for longer.
func bounded(ctx context.Context, limit time.Duration, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errSlow)
	defer cancel()
	return f(ctx)
}

var errSlow = errors.New("the store did not answer in time")

// token puts a token into a channel of one, if there is room.
func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
