package nats

import "context"

// begins starts what runs as long as the engine.
func (e *Engine) begins(ctx context.Context) error {
	no, err := e.sequence(ctx)
	if err != nil {
		return err
	}
	e.holding.mu.Lock()
	e.holding.no = no
	e.holding.mu.Unlock()
	for _, keep := range []func(context.Context, *Engine) error{e.tokens.keep, e.schedules.keep, e.workers.keep} {
		if err := keep(ctx, e); err != nil {
			return err
		}
	}
	return e.watchQueues(ctx)
}

type taps struct{}

func (*taps) init() {}

type acks struct{}

func (*acks) init(*Engine) {}
