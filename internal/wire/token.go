package wire

import (
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Token is a token of the HTTP API, without its hash.
type Token struct {
	Name   string            `json:"name"`
	Scopes []posthaste.Scope `json:"scopes"`
	// Queues are absent where the token is good for all.
	Queues     []string  `json:"queues,omitempty"`
	CreatedAt  time.Time `json:"created_at"`
	CreatedBy  string    `json:"created_by"`
	ExpiresAt  time.Time `json:"expires_at,omitzero"`
	Expired    bool      `json:"expired"`
	LastUsedAt time.Time `json:"last_used_at,omitzero"`
}

// NewToken shows a token.
func NewToken(t posthaste.Token) Token {
	return Token{Name: t.Name, Scopes: t.Scopes, Queues: t.Queues, CreatedAt: t.CreatedAt, CreatedBy: t.CreatedBy,
		ExpiresAt: t.ExpiresAt, Expired: t.Expired, LastUsedAt: t.LastUsedAt}
}
