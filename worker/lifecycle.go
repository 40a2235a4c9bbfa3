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

// callTimeout bounds calls at the start and the end of a worker.
const callTimeout = 10 * time.Second

// service is the life of one background task.
type service struct {
	once   sync.Once
	cancel context.CancelFunc
	done   chan struct{}
}

// start runs f on a goroutine of its own until f returns or stop is called.
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

// stop cancels the service's context and waits until f has returned. It is safe to call
// twice and without a start. A later start does nothing.
func (s *service) stop() {
	s.once.Do(func() {})
	if s.done != nil {
		s.cancel()
		<-s.done
	}
}

// backoff is the wait between tries of one task: 50 ms, doubled with each failure up to
// 2 s, with jitter of half of it.
type backoff struct {
	report *reporter
	task   string
	tries  int
	logged time.Time
}

// failed reports a failure and waits before the next try. It logs the first of several
// failures in a row, then one in 30 s. It returns false if ctx ended.
func (b *backoff) failed(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	b.report.tell(posthaste.Event{Kind: posthaste.EventError, Task: b.task, Err: err})
	wait := min(50*time.Millisecond<<min(b.tries, 10), time.Second)
	wait = wait/2 + rand.N(wait)
	b.tries++
	if time.Since(b.logged) > 30*time.Second {
		b.logged = time.Now()
		b.report.log.Warn("the call to the store failed, retrying", slog.String("task", b.task), slog.Any("error", err),
			slog.String("code", string(posthaste.CodeOf(err))), slog.Int("tries", b.tries))
	}
	return pause(ctx, wait)
}

// worked ends a series of failures.
func (b *backoff) worked() {
	if b.tries > 0 {
		b.report.log.Info("the store answers again", slog.String("task", b.task), slog.Int("failures", b.tries))
		b.tries, b.logged = 0, time.Time{}
	}
}

// pause waits for d. It returns false if ctx ended first.
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

// uncertain reports whether a call that failed with err may have taken effect, or may
// succeed when it is retried.
func uncertain(err error) bool {
	switch posthaste.CodeOf(err) {
	case "", posthaste.CodeOutcomeUnknown, posthaste.CodeUnavailable, posthaste.CodeReadOnly:
		return true
	}
	return false
}

// hopeless reports whether retrying cannot help, so that a worker that meets err at its
// start returns it. posthaste.CodeRefused is not among these codes: it means that the database
// is a copy, and the worker waits until an operator has decided about it.
func hopeless(err error) bool {
	switch posthaste.CodeOf(err) {
	case posthaste.CodeInvalid, posthaste.CodeNotFound, posthaste.CodeUnsupported, posthaste.CodeSchemaOld, posthaste.CodeSchemaNew,
		posthaste.CodeDenied:
		return true
	}
	return false
}

// bounded calls f with a context that ends after limit, so that a half-open connection
// cannot block the caller for longer.
func bounded(ctx context.Context, limit time.Duration, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errSlow)
	defer cancel()
	return f(ctx)
}

var errSlow = errors.New("the store did not answer in time")

// token puts a token into a channel of capacity one unless it has one already.
func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
