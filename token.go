package posthaste

import (
	"crypto/sha256"
	"slices"
	"time"
)

// Scope is what a token may do.
type Scope string

// The scopes. ScopeAdmin includes the other two.
const (
	ScopeSend    Scope = "send"    // send messages and e-mails
	ScopeReceive Scope = "receive" // receive and settle deliveries
	ScopeAdmin   Scope = "admin"   // everything
)

// Token lets its bearer call the HTTP API. Nobody keeps its secret but the
// bearer. The SHA-256 is enough: a secret that the store makes is 256 random
// bits, which nobody finds by trying, however fast the hash is.
type Token struct {
	// Name says whose token it is: 1 to 63 of a-z, 0-9, _, - and "."
	Name string
	// Hash is the SHA-256 of the secret. The store makes it.
	Hash [sha256.Size]byte
	// Scopes are what the bearer may do; at least one.
	Scopes []Scope
	// Queues are those that the bearer may send to and receive from; none means
	// all. A token with the scope admin cannot be limited.
	Queues []string
	// ExpiresAt is when the token ends to be one; zero means never.
	ExpiresAt time.Time
	// ExpiresIn says it from now on, for TokenAdd, in place of ExpiresAt.
	ExpiresIn time.Duration
	// Expired says that this time has come. The store decides it by its own clock.
	Expired bool
	// CreatedAt and CreatedBy say when it was made, and by whom.
	CreatedAt time.Time
	CreatedBy string
	// LastUsedAt is when it was last used, to about five minutes; zero means never.
	LastUsedAt time.Time
}

// Allows reports whether the token has a scope, be it by the scope admin.
func (t Token) Allows(scope Scope) bool {
	return slices.Contains(t.Scopes, scope) || slices.Contains(t.Scopes, ScopeAdmin)
}

// AllowsQueue reports whether the token is good for a queue.
func (t Token) AllowsQueue(name string) bool {
	return len(t.Queues) == 0 || slices.Contains(t.Queues, name)
}

// Check reports what of a token nobody can have: scopes that are none, queues
// that cannot be named so, and queues beside the scope admin.
func (t Token) Check() error {
	if len(t.Scopes) == 0 {
		return Invalidf("scopes", "token %q has no scope: give send, receive or admin", t.Name)
	}
	for _, scope := range t.Scopes {
		if scope != ScopeSend && scope != ScopeReceive && scope != ScopeAdmin {
			return Invalidf("scopes", "token %q: scope %q is unknown: give send, receive or admin", t.Name, scope)
		}
	}
	for _, queue := range t.Queues {
		if err := CheckName("queues", queue); err != nil {
			return err
		}
	}
	if t.ExpiresIn < 0 || t.ExpiresIn > 0 && !t.ExpiresAt.IsZero() {
		return Invalidf("expires_in", "token %q: expires_in must be above zero, and excludes expires_at", t.Name)
	}
	if err := CheckTime("expires_at", t.ExpiresAt); err != nil {
		return err
	}
	if len(t.Queues) > 0 && t.Allows(ScopeAdmin) {
		return Invalidf("queues", "token %q: one with the scope admin cannot be limited to queues, for it may do everything", t.Name)
	}
	return nil
}
