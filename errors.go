package posthaste

import (
	"errors"
	"fmt"
	"time"
)

// Code classifies an [Error] by what the caller can do about it.
type Code string

// The codes. They are stable: clients may compare them.
const (
	CodeInvalid        Code = "invalid"         // the request is invalid: fix the named field
	CodeNotFound       Code = "not_found"       // no such queue, message or delivery
	CodeConflict       Code = "conflict"        // no longer held by the caller, or already exists
	CodeKeyReused      Code = "key_reused"      // an idempotency key that was used for another request
	CodeTooLarge       Code = "too_large"       // over a limit that the message names
	CodeUnsupported    Code = "unsupported"     // not supported (yet) by this version or engine
	CodeUnavailable    Code = "unavailable"     // the store cannot be reached: try again
	CodeReadOnly       Code = "read_only"       // the store accepts no writes (standby, read only)
	CodeSchemaOld      Code = "schema_old"      // schema missing or older than this program needs
	CodeSchemaNew      Code = "schema_new"      // schema has a breaking change newer than this program
	CodeDenied         Code = "denied"          // credentials or privileges do not allow it
	CodeRefused        Code = "refused"         // refused for safety, the message says why
	CodeWorkerLost     Code = "worker_lost"     // the worker was declared lost: register again
	CodeUniqueConflict Code = "unique_conflict" // another message holds the unique key of a dead letter
	CodeStale          Code = "stale"           // the message was changed since the version that was given
	CodeOutcomeUnknown Code = "outcome_unknown" // the response was lost: the operation may or may not have happened
)

// ErrCancelled is the cause (see [context.Cause]) with which a handler's context ends when its
// message was cancelled while it ran. Unless the handler returns nil, the message becomes
// cancelled: it is neither retried nor a dead letter.
var ErrCancelled = errors.New("the message was cancelled while it ran")

// Error is an error that a caller can act on. Engines return it, possibly wrapped, for all
// failures that they can classify.
type Error struct {
	Code Code
	// Field names the invalid field, option or argument, if there is one.
	Field string
	// Message says what happened and why, without secrets.
	Message string
	// Hint says what to do about it.
	Hint string
	// Cause is the underlying error, if any.
	Cause error
}

// Error implements error.
func (e *Error) Error() string {
	s := e.Message
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Is reports whether target is an *Error with the same code and no message or field, so that
// errors.Is(err, &Error{Code: CodeNotFound}) works.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Message == "" && t.Field == ""
}

// CodeOf returns the code of the first *Error in err's chain, or "".
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// Invalidf returns a [CodeInvalid] error for one field.
func Invalidf(field, format string, args ...any) error {
	return &Error{Code: CodeInvalid, Field: field, Message: fmt.Sprintf(format, args...)}
}

// Permanent marks a handler's error as one that no retry can fix: the message becomes a dead
// letter without further attempts. The marks of Permanent, [RetryAfter] and [Snooze] are
// found in wrapped and joined errors. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// IsPermanent reports whether err was marked by [Permanent].
func IsPermanent(err error) bool {
	_, ok := errors.AsType[*permanentError](err)
	return ok
}

// RetryAfter sets the wait before the next attempt for a handler's error, in place of the
// backoff of the message, its kind or its queue, and of a retry policy. With zero it is retried at
// once. RetryAfter(nil, d) is nil.
func RetryAfter(err error, d time.Duration) error {
	if err == nil {
		return nil
	}
	return &retryAfterError{err, d}
}

type retryAfterError struct {
	error
	after time.Duration
}

func (e *retryAfterError) Unwrap() error { return e.error }

// Snooze returns an error with which a handler postpones a message: it is redelivered after d
// (immediately if d is not above zero), as the same attempt and with no failure recorded.
// [Permanent] takes precedence over Snooze, and Snooze over [RetryAfter].
func Snooze(d time.Duration) error { return snoozeError(d) }

type snoozeError time.Duration

func (e snoozeError) Error() string { return "snoozed for " + time.Duration(e).String() }

// SnoozeDelay returns the delay of a [Snooze] error, and whether err is one.
func SnoozeDelay(err error) (time.Duration, bool) {
	if s, ok := errors.AsType[snoozeError](err); ok {
		return max(0, time.Duration(s)), true
	}
	return 0, false
}

// RetryDelay returns the wait that [RetryAfter] set on err, and whether it did.
func RetryDelay(err error) (time.Duration, bool) {
	if r, ok := errors.AsType[*retryAfterError](err); ok {
		return r.after, true
	}
	return 0, false
}
