package posthaste

import "time"

// Idempotency names a request that may come again, so that it is done once.
type Idempotency struct {
	// Scope says who asked for what: the same key in another scope is another
	// key.
	Scope string
	// Key is the caller's, 1 to [MaxWordBytes] bytes.
	Key string
	// Digest tells requests apart: the same key with another digest is refused.
	Digest []byte
	// Window is how long the answer is kept; above zero.
	Window time.Duration
}

// Check reports what is wrong with it, as [Message.Check] does.
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
