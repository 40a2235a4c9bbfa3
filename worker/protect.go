package worker

import (
	"fmt"
	"runtime/debug"
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

// wrongCount returns an error if a sink or batch handler did not answer each delivery.
func wrongCount(answered, deliveries int) error {
	if answered == deliveries {
		return nil
	}
	return fmt.Errorf("the sink answered %d of %d deliveries, so that none of its answers counts", answered, deliveries)
}
