package wire

import (
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Token is a token of the HTTP API, without its hash.
type Token struct {
	Name   string            `json:"name"`
	Scopes []posthaste.Scope `json:"scopes"`
	// Queues is absent if the token allows all queues.
	Queues     []string  `json:"queues,omitempty"`
	CreatedAt  time.Time `json:"created_at"`
	CreatedBy  string    `json:"created_by"`
	ExpiresAt  time.Time `json:"expires_at,omitzero"`
	Expired    bool      `json:"expired"`
	LastUsedAt time.Time `json:"last_used_at,omitzero"`
}

// NewToken converts a token.
func NewToken(t posthaste.Token) Token {
	return Token{Name: t.Name, Scopes: t.Scopes, Queues: t.Queues, CreatedAt: t.CreatedAt, CreatedBy: t.CreatedBy,
		ExpiresAt: t.ExpiresAt, Expired: t.Expired, LastUsedAt: t.LastUsedAt}
}
