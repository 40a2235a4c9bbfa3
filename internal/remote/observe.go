package remote

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// Workers implements [posthaste.Observer].
func (s *Store) Workers(ctx context.Context) ([]posthaste.WorkerStatus, error) {
	return list(ctx, s, "/v1/workers", wire.Worker.Stored)
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

// HandlerStats implements [posthaste.Charts].
func (s *Store) HandlerStats(ctx context.Context, q posthaste.StatsQuery) ([]posthaste.HandlerStats, error) {
	query := url.Values{"queue": {q.Queue}, "subscription": {q.Subscription}, "kind": {q.Kind}}
	query.Set("by", strings.Join(q.By.Names(), ","))
	return charted(ctx, s, "/v1/stats", steps(query, q.From, q.To, q.Step), wire.Stats.Stored)
}

// Failures implements [posthaste.Charts].
func (s *Store) Failures(ctx context.Context, q posthaste.FailureQuery) ([]posthaste.Failure, error) {
	query := steps(url.Values{"queue": {q.Queue}, "subscription": {q.Subscription}, "kind": {q.Kind}}, q.From, time.Time{}, 0)
	if q.Limit != 0 {
		query.Set("limit", strconv.Itoa(q.Limit))
	}
	return charted(ctx, s, "/v1/failures", query, wire.Failure.Stored)
}

// Samples implements [posthaste.Charts]. It can select one queue or all.
func (s *Store) Samples(ctx context.Context, q posthaste.SampleQuery) ([]posthaste.Sample, error) {
	query := url.Values{}
	if len(q.Queues) > 1 {
		return nil, posthaste.Invalidf("queues", "over HTTP one queue or all can be selected, got %d", len(q.Queues))
	}
	if len(q.Queues) == 1 {
		query.Set("queue", q.Queues[0])
	}
	if q.Total {
		query.Set("total", "true")
	}
	return charted(ctx, s, "/v1/samples", steps(query, q.From, q.To, q.Step), wire.Sample.Stored)
}

// Doctor implements [posthaste.Observer].
func (s *Store) Doctor(ctx context.Context) ([]posthaste.Finding, error) {
	return list(ctx, s, "/v1/doctor", func(f wire.Finding) (posthaste.Finding, error) { return posthaste.Finding(f), nil })
}

// Tokens implements [posthaste.TokenStore].
func (s *Store) Tokens(ctx context.Context) ([]posthaste.Token, error) {
	return list(ctx, s, "/v1/tokens", func(t wire.Token) (posthaste.Token, error) { return t.Stored(), nil })
}
