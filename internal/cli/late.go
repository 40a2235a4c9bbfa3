package cli

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// late is an engine whose store may be away when the program starts, so that a
// server can answer for its health meanwhile. Until it is open every method
// returns why it is not.
type late struct {
	engine atomic.Pointer[posthaste.Engine]
	mu     sync.Mutex
	err    error // why it is not open
}

var _ posthaste.Engine = (*late)(nil)

// connect opens the engine, trying again while the store cannot be reached. It
// returns when it is open or when there is no sense in trying, and logs each
// reason once.
func (l *late) connect(ctx context.Context, log *slog.Logger, open func(context.Context) (posthaste.Engine, error)) error {
	for last := posthaste.Code(""); ; {
		engine, err := open(ctx)
		if err == nil {
			l.engine.Store(&engine)
			if last != "" {
				log.Info("the database can be reached now")
			}
			return nil
		}
		code := posthaste.CodeOf(err)
		if ctx.Err() != nil || last == "" && code != posthaste.Unavailable {
			return err
		}
		l.mu.Lock()
		l.err = err
		l.mu.Unlock()
		// Once it waits, it waits for whoever mends the database too.
		if code != last {
			last = code
			log.Warn("the database cannot be used yet, waiting for it", "error", err)
		}
		select {
		case <-time.After(retryOpen):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *late) get() (posthaste.Engine, error) {
	if engine := l.engine.Load(); engine != nil {
		return *engine, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return nil, l.err
	}
	return nil, &posthaste.Error{Code: posthaste.Unavailable, Message: "the database was not reached yet", Hint: "try again"}
}

// lately calls f on the engine once it is there.
func lately[T any](l *late, f func(posthaste.Engine) (T, error)) (zero T, err error) {
	engine, err := l.get()
	if err != nil {
		return zero, err
	}
	return f(engine)
}

func (l *late) do(f func(posthaste.Engine) error) error {
	engine, err := l.get()
	if err != nil {
		return err
	}
	return f(engine)
}

func (l *late) Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.MessageID, error) {
	return lately(l, func(e posthaste.Engine) ([]posthaste.MessageID, error) { return e.Send(ctx, messages...) })
}

func (l *late) Register(ctx context.Context, info posthaste.WorkerInfo) (posthaste.WorkerID, error) {
	return lately(l, func(e posthaste.Engine) (posthaste.WorkerID, error) { return e.Register(ctx, info) })
}

func (l *late) Heartbeat(ctx context.Context, beat posthaste.Heartbeat) (posthaste.HeartbeatReply, error) {
	return lately(l, func(e posthaste.Engine) (posthaste.HeartbeatReply, error) { return e.Heartbeat(ctx, beat) })
}

func (l *late) Unregister(ctx context.Context, worker posthaste.WorkerID) error {
	return l.do(func(e posthaste.Engine) error { return e.Unregister(ctx, worker) })
}

func (l *late) Claim(ctx context.Context, req posthaste.ClaimRequest) (posthaste.ClaimReply, error) {
	return lately(l, func(e posthaste.Engine) (posthaste.ClaimReply, error) { return e.Claim(ctx, req) })
}

func (l *late) Unsettled(ctx context.Context, worker posthaste.WorkerID, upTo int64) ([]posthaste.DeliveryID, error) {
	return lately(l, func(e posthaste.Engine) ([]posthaste.DeliveryID, error) { return e.Unsettled(ctx, worker, upTo) })
}

func (l *late) Settle(ctx context.Context, settlements []posthaste.Settlement) ([]posthaste.SettleResult, error) {
	return lately(l, func(e posthaste.Engine) ([]posthaste.SettleResult, error) { return e.Settle(ctx, settlements) })
}

func (l *late) Receive(ctx context.Context, req posthaste.ReceiveRequest) ([]posthaste.RawDelivery, error) {
	return lately(l, func(e posthaste.Engine) ([]posthaste.RawDelivery, error) { return e.Receive(ctx, req) })
}

func (l *late) Extend(ctx context.Context, deliveries []posthaste.DeliveryID, lease time.Duration) ([]posthaste.SettleResult, error) {
	return lately(l, func(e posthaste.Engine) ([]posthaste.SettleResult, error) { return e.Extend(ctx, deliveries, lease) })
}

func (l *late) QueueCreate(ctx context.Context, name string, options posthaste.QueueOptions) error {
	return l.do(func(e posthaste.Engine) error { return e.QueueCreate(ctx, name, options) })
}

func (l *late) QueueDrop(ctx context.Context, name string) error {
	return l.do(func(e posthaste.Engine) error { return e.QueueDrop(ctx, name) })
}

func (l *late) Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error) {
	return lately(l, func(e posthaste.Engine) ([]posthaste.QueueInfo, error) { return e.Queues(ctx, names...) })
}

func (l *late) Message(ctx context.Context, id posthaste.MessageID) (posthaste.MessageInfo, error) {
	return lately(l, func(e posthaste.Engine) (posthaste.MessageInfo, error) { return e.Message(ctx, id) })
}

func (l *late) Messages(ctx context.Context, filter posthaste.MessageFilter) ([]posthaste.MessageInfo, error) {
	return lately(l, func(e posthaste.Engine) ([]posthaste.MessageInfo, error) { return e.Messages(ctx, filter) })
}

func (l *late) DeadLetters(ctx context.Context, filter posthaste.DeadLetterFilter) ([]posthaste.DeadLetter, error) {
	return lately(l, func(e posthaste.Engine) ([]posthaste.DeadLetter, error) { return e.DeadLetters(ctx, filter) })
}

func (l *late) Replay(ctx context.Context, by string, ids ...posthaste.MessageID) ([]posthaste.MessageID, error) {
	return lately(l, func(e posthaste.Engine) ([]posthaste.MessageID, error) { return e.Replay(ctx, by, ids...) })
}

func (l *late) Discard(ctx context.Context, by string, ids ...posthaste.MessageID) ([]posthaste.MessageID, error) {
	return lately(l, func(e posthaste.Engine) ([]posthaste.MessageID, error) { return e.Discard(ctx, by, ids...) })
}

func (l *late) Workers(ctx context.Context) ([]posthaste.WorkerStatus, error) {
	return lately(l, func(e posthaste.Engine) ([]posthaste.WorkerStatus, error) { return e.Workers(ctx) })
}

func (l *late) Doorbell(ctx context.Context) (posthaste.Doorbell, error) {
	return lately(l, func(e posthaste.Engine) (posthaste.Doorbell, error) { return e.Doorbell(ctx) })
}

func (l *late) Maintain(ctx context.Context) (bool, error) {
	return lately(l, func(e posthaste.Engine) (bool, error) { return e.Maintain(ctx) })
}

func (l *late) Rescue(ctx context.Context) (int, error) {
	return lately(l, func(e posthaste.Engine) (int, error) { return e.Rescue(ctx) })
}

func (l *late) Ready(ctx context.Context) error {
	return l.do(func(e posthaste.Engine) error { return e.Ready(ctx) })
}

// Close closes the engine if it was opened.
func (l *late) Close() {
	if engine := l.engine.Load(); engine != nil {
		(*engine).Close()
	}
}
