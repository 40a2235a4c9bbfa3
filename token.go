package posthaste

import (
	"context"
	"crypto/sha256"
	"slices"
	"time"
)

// Scope is a permission of a token.
type Scope string

// The scopes. [Scope.Includes] reports whether one includes another.
const (
	ScopeRead        Scope = "read"         // list and show everything but the content of messages
	ScopeReadPayload Scope = "read:payload" // read, with payloads, headers and terms of messages
	ScopeSend        Scope = "send"         // send messages and e-mails, and show those
	ScopeReceive     Scope = "receive"      // receive and settle deliveries
	ScopeOperate     Scope = "operate"      // read, and pause, cancel, reschedule, replay, discard and purge
	ScopeAdmin       Scope = "admin"        // everything
)

// Scopes returns all scopes, narrow ones first.
func Scopes() []Scope {
	return []Scope{ScopeRead, ScopeReadPayload, ScopeSend, ScopeReceive, ScopeOperate, ScopeAdmin}
}

// Includes reports whether the scope allows what other allows: admin includes all scopes, and
// operate and read:payload include read.
func (s Scope) Includes(other Scope) bool {
	return s == other || s == ScopeAdmin || other == ScopeRead && (s == ScopeReadPayload || s == ScopeOperate)
}

// scopeList lists the scopes for messages.
const scopeList = "read, read:payload, send, receive, operate or admin"

// TokenStore stores the tokens with which callers of the HTTP API authenticate.
type TokenStore interface {
	// CreateToken creates a token with the name, scopes, queues and expiry given, and returns
	// its secret, which cannot be read again. The error is a [CodeConflict] if a token with
	// that name exists.
	CreateToken(ctx context.Context, token Token) (secret string, err error)
	// RevokeToken revokes a token. Servers reject it within seconds.
	RevokeToken(ctx context.Context, name string) error
	// Tokens lists the tokens that were not revoked, by name.
	Tokens(ctx context.Context) ([]Token, error)
	// TokensInForce returns name, hash, scopes and queues of the tokens that are neither
	// revoked nor expired, and whether a token was ever created. used has the names of
	// tokens used since the last call. A server calls it about once a second under load.
	TokensInForce(ctx context.Context, used ...string) (tokens []Token, ever bool, err error)
	// DeliveryQueues returns the queue of each delivery, in order; "" if it is unknown or
	// no longer stored.
	DeliveryQueues(ctx context.Context, deliveries ...DeliveryID) ([]string, error)
}

// Token authorizes its bearer to call the HTTP API. Only the bearer has its secret. A plain
// SHA-256 protects it, because the store generates secrets of 256 random bits, which cannot
// be guessed however fast the hash is.
type Token struct {
	// Name has 1 to 63 of a-z, 0-9, _, - and "."
	Name string
	// Hash is the SHA-256 of the secret. The store sets it.
	Hash [sha256.Size]byte
	// Scopes are what the bearer may do; at least one.
	Scopes []Scope
	// Queues are the only queues for which the bearer may use the scopes; none means all.
	// A token with the scope admin cannot be restricted.
	Queues []string
	// ExpiresAt is when the token expires; zero means never.
	ExpiresAt time.Time
	// ExpiresIn sets the expiry relative to now, for CreateToken, in place of ExpiresAt.
	ExpiresIn time.Duration
	// Expired says that the token has expired by the store's clock.
	Expired bool
	// CreatedAt and CreatedBy are the time and operator of its creation.
	CreatedAt time.Time
	CreatedBy string
	// LastUsedAt is when it was last used, to about five minutes; zero means never.
	LastUsedAt time.Time
}

// Allows reports whether the token has a scope, or one that includes it.
func (t Token) Allows(scope Scope) bool {
	return slices.ContainsFunc(t.Scopes, func(has Scope) bool { return has.Includes(scope) })
}

// AllowsQueue reports whether the token may be used for a queue.
func (t Token) AllowsQueue(name string) bool {
	return len(t.Queues) == 0 || slices.Contains(t.Queues, name)
}

// maxTokenQueues is the maximum number of queues of a stored token, as in posthaste.token_add.
const maxTokenQueues = 100

// CheckStored is [Token.Check] for a token that a store keeps. It also returns an error for over 100
// queues.
func (t Token) CheckStored() error {
	if len(t.Queues) > maxTokenQueues {
		return Invalidf("queues", "token %q is limited to %d queues; at most %d are allowed, or none for all", t.Name, len(t.Queues), maxTokenQueues)
	}
	return t.Check()
}

// Check returns an error for unknown scopes, invalid queue names, an invalid expiry, and queues
// beside the scope admin.
func (t Token) Check() error {
	if len(t.Scopes) == 0 {
		return Invalidf("scopes", "token %q has no scope: give %s", t.Name, scopeList)
	}
	for _, scope := range t.Scopes {
		if !slices.Contains(Scopes(), scope) {
			return Invalidf("scopes", "token %q: scope %q is unknown: give %s", t.Name, scope, scopeList)
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
		return Invalidf("queues", "token %q: a token with the scope admin cannot be restricted to queues", t.Name)
	}
	return nil
}
