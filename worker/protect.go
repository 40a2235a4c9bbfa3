package worker

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/posthaste-mq/posthaste"
)

// panicError is a failed attempt of a handler that panicked.
type panicError struct {
	value any
	stack []byte
	told  bool // the stack is in the log; used by the acknowledger only
}

func (e *panicError) Error() string { return fmt.Sprintf("the handler panicked: %v", e.value) }

// errExit is a failed attempt of a handler that ended its goroutine.
type errExit struct{}

func (errExit) Error() string { return "the handler ended its goroutine (runtime.Goexit)" }

// protect calls f and turns a panic into an error. If f ends the goroutine, protect calls
// exited, because it does not return then.
func protect(f func() error, exited func(error)) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if value := recover(); value != nil {
			err = &panicError{value: value, stack: debug.Stack()}
			return
		}
		exited(errExit{})
	}()
	err = f()
	returned = true
	return err
}

// deliver calls a sink or batch handler and makes sure that each delivery has an answer.
func deliver(ctx context.Context, to many, note func(int, error), batch []posthaste.RawDelivery, exited func(error)) []posthaste.SinkResult {
	var results []posthaste.SinkResult
	err := protect(func() error {
		results = to.deliver(ctx, note, batch)
		return nil
	}, exited)
	if err == nil && len(results) != len(batch) {
		err = fmt.Errorf("the sink answered %d of %d deliveries, so that none of its answers counts", len(results), len(batch))
	}
	if err != nil {
		results = make([]posthaste.SinkResult, len(batch))
		for i := range results {
			results[i].Err = err
		}
	}
	return results
}
