package remote

import (
	"context"
	"net/url"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// Workers implements [posthaste.Observer].
func (s *Store) Workers(ctx context.Context) ([]posthaste.WorkerStatus, error) {
	return list(ctx, s, "/v1/workers", func(w wire.Worker) (posthaste.WorkerStatus, error) { return posthaste.WorkerStatus(w), nil })
}

// Actions implements [posthaste.Observer].
func (s *Store) Actions(ctx context.Context, f posthaste.ActionFilter) ([]posthaste.Action, error) {
	query := url.Values{"queue": {f.Queue}}
	if f.MessageID != 0 {
		query.Set("message", f.MessageID.String())
	}
	found, err := page(ctx, s, "/v1/actions", wire.ListActions, query, posthaste.MessageID(f.Before), f.Limit, wire.Action.Stored)
	return found.Items, err
}

// Doctor implements [posthaste.Observer].
func (s *Store) Doctor(ctx context.Context) ([]posthaste.Finding, error) {
	return list(ctx, s, "/v1/doctor", func(f wire.Finding) (posthaste.Finding, error) { return posthaste.Finding(f), nil })
}

// Tokens implements [posthaste.TokenStore].
func (s *Store) Tokens(ctx context.Context) ([]posthaste.Token, error) {
	return list(ctx, s, "/v1/tokens", func(t wire.Token) (posthaste.Token, error) { return t.Stored(), nil })
}
