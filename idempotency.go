package posthaste

import "time"

// Idempotency identifies a request that may be repeated and must take effect once.
type Idempotency struct {
	// Scope separates callers and kinds of request: keys are unique within a scope.
	Scope string
	// Key is chosen by the caller, 1 to [MaxWordBytes] bytes.
	Key string
	// Digest identifies the request's content: the same key with another digest is
	// rejected.
	Digest []byte
	// Window is how long the result is kept; above zero.
	Window time.Duration
}

// Check returns an error if it is invalid, as [Message.Check] does.
func (i Idempotency) Check() error {
	const field = "Idempotency-Key"
	if i.Key == "" {
		return Invalidf(field, "the key must not be empty")
	}
	if i.Window <= 0 {
		return Invalidf(field, "the window must be above zero, got %s", i.Window)
	}
	return checkWord(field, i.Key, MaxWordBytes)
}
