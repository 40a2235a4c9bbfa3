package memory

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

// CreateToken implements [posthaste.TokenStore].
func (e *Engine) CreateToken(ctx context.Context, token posthaste.Token) (secret string, err error) {
	if err := posthaste.CheckName("name", token.Name); err != nil {
		return "", err
	}
	if err := token.CheckStored(); err != nil {
		return "", err
	}
	now := e.now()
	if token.ExpiresIn > 0 {
		token.ExpiresAt, token.ExpiresIn = now.Add(token.ExpiresIn), 0
	}
	if !token.ExpiresAt.IsZero() && !token.ExpiresAt.After(now) {
		return "", posthaste.Invalidf("expires_at", "a token must expire in the future")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.token(token.Name) != nil {
		return "", &posthaste.Error{Code: posthaste.CodeConflict, Field: "name", Message: "token " + quote.Name(token.Name) + " already exists"}
	}
	secret = "ph_" + rand.Text() + rand.Text()
	token.Hash, token.CreatedAt, token.CreatedBy = sha256.Sum256([]byte(secret)), now, cmp.Or(posthaste.ActorOf(ctx), "memory")
	e.tokens, e.tokenMade = append(e.tokens, &token), true
	e.recordToken(ctx, "token_add", token.Name)
	return secret, ctx.Err()
}

func (e *Engine) token(name string) *posthaste.Token {
	for _, t := range e.tokens {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// RevokeToken implements [posthaste.TokenStore].
func (e *Engine) RevokeToken(ctx context.Context, name string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.token(name) == nil {
		return notFound("name", "token %s does not exist", quote.Name(name))
	}
	e.tokens = slices.DeleteFunc(e.tokens, func(t *posthaste.Token) bool { return t.Name == name })
	e.recordToken(ctx, "token_drop", name)
	return ctx.Err()
}

// recordToken records a change of a token. e.mu is held.
func (e *Engine) recordToken(ctx context.Context, action, name string) {
	details, _ := json.Marshal(map[string]string{"token": name}) // strings always encode
	e.record(ctx, posthaste.Action{Action: action, Details: details})
}

// Tokens implements [posthaste.TokenStore].
func (e *Engine) Tokens(ctx context.Context) ([]posthaste.Token, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []posthaste.Token
	for _, t := range e.tokens {
		told := *t
		told.Expired = !t.ExpiresAt.IsZero() && !t.ExpiresAt.After(e.now())
		all = append(all, told)
	}
	slices.SortFunc(all, func(a, b posthaste.Token) int { return strings.Compare(a.Name, b.Name) })
	return all, ctx.Err()
}

// TokensInForce implements [posthaste.TokenStore].
func (e *Engine) TokensInForce(ctx context.Context, used ...string) ([]posthaste.Token, bool, error) {
	e.mu.Lock()
	for _, name := range used {
		if t := e.token(name); t != nil {
			t.LastUsedAt = e.now()
		}
	}
	made := e.tokenMade
	e.mu.Unlock()
	tokens, err := e.Tokens(ctx)
	return slices.DeleteFunc(tokens, func(t posthaste.Token) bool { return t.Expired }), made, err
}

// DeliveryQueues implements [posthaste.TokenStore].
func (e *Engine) DeliveryQueues(ctx context.Context, deliveries ...posthaste.DeliveryID) ([]string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	queues := make([]string, len(deliveries))
	for i, id := range deliveries {
		if id > 0 && int(id) <= len(e.deliveries) {
			queues[i] = e.deliveries[id-1].q.name
		}
	}
	return queues, ctx.Err()
}
