package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
)

// CreateToken implements [posthaste.TokenStore]. The store generates the secret, so that no statement
// contains it that the server may log.
func (e *Engine) CreateToken(ctx context.Context, token posthaste.Token) (secret string, err error) {
	options := map[string]any{}
	if len(token.Queues) > 0 {
		options["queues"] = token.Queues
	}
	if !token.ExpiresAt.IsZero() {
		options["expires_at"] = token.ExpiresAt.Format(time.RFC3339Nano)
	}
	if token.ExpiresIn != 0 {
		options["expires_in"] = fmt.Sprintf("%.6f seconds", token.ExpiresIn.Seconds())
	}
	text, err := json.Marshal(options)
	if err != nil {
		return "", err
	}
	scopes := make([]string, len(token.Scopes))
	for i, scope := range token.Scopes {
		scopes[i] = string(scope)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	err = e.pool.QueryRow(ctx, "select posthaste.token_add($1::text, $2::text[], $3::text::jsonb, nullif($4::text, ''))", token.Name, scopes, string(text), posthaste.ActorOf(ctx)).Scan(&secret)
	return secret, writeError(err)
}

// RevokeToken implements [posthaste.TokenStore].
func (e *Engine) RevokeToken(ctx context.Context, name string) error {
	return e.exec(ctx, writeError, "select posthaste.token_drop($1::text, nullif($2::text, ''))", name, posthaste.ActorOf(ctx))
}

// Tokens implements [posthaste.TokenStore] with the view posthaste.tokens.
func (e *Engine) Tokens(ctx context.Context) ([]posthaste.Token, error) {
	var tokens []posthaste.Token
	err := e.query(ctx, func(rows pgx.Rows) error {
		var t posthaste.Token
		var scopes []string
		var expires, used *time.Time
		if err := rows.Scan(&t.Name, &scopes, &t.Queues, &t.CreatedAt, &t.CreatedBy, &expires, &t.Expired, &used); err != nil {
			return err
		}
		t.Scopes, t.CreatedAt = scopesOf(scopes), t.CreatedAt.UTC()
		if expires != nil {
			t.ExpiresAt = expires.UTC()
		}
		if used != nil {
			t.LastUsedAt = used.UTC()
		}
		tokens = append(tokens, t)
		return nil
	}, "select name, scopes, queues, created_at, created_by, expires_at, expired, last_used_at from posthaste.tokens order by name")
	return tokens, err
}

func scopesOf(texts []string) []posthaste.Scope {
	scopes := make([]posthaste.Scope, len(texts))
	for i, text := range texts {
		scopes[i] = posthaste.Scope(text)
	}
	return scopes
}

// TokensInForce implements [posthaste.TokenStore].
func (e *Engine) TokensInForce(ctx context.Context, used ...string) (tokens []posthaste.Token, ever bool, err error) {
	if used == nil {
		used = []string{}
	}
	err = e.query(ctx, func(rows pgx.Rows) error {
		var t posthaste.Token
		var name *string
		var hash []byte
		var scopes []string
		if err := rows.Scan(&name, &hash, &scopes, &t.Queues); err != nil {
			return err
		}
		if name == nil {
			ever = true
			return nil
		}
		t.Name, t.Scopes = *name, scopesOf(scopes)
		copy(t.Hash[:], hash)
		tokens = append(tokens, t)
		return nil
	}, "select name, hash, scopes, queues from posthaste.token_hashes($1::text[])", used)
	return tokens, ever, err
}

// DeliveryQueues implements [posthaste.TokenStore].
func (e *Engine) DeliveryQueues(ctx context.Context, deliveries ...posthaste.DeliveryID) ([]string, error) {
	ids := make([]int64, len(deliveries))
	for i, d := range deliveries {
		ids[i] = int64(d)
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	var names []*string
	if err := e.pool.QueryRow(ctx, "select posthaste.delivery_queues($1::bigint[])", ids).Scan(&names); err != nil {
		return nil, readError(err)
	}
	queues := make([]string, len(names))
	for i, name := range names {
		queues[i] = textOf(name)
	}
	return queues, nil
}
