package remote

import (
	"context"
	"maps"
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
	var by []string
	for _, known := range wire.StatsBy {
		if q.By&known.By != 0 {
			by = append(by, known.Name)
		}
	}
	query.Set("by", strings.Join(by, ","))
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

// steps sets the parameters of a query about the past.
func steps(query url.Values, from, to time.Time, step time.Duration) url.Values {
	for name, t := range map[string]time.Time{"from": from, "to": to} {
		if !t.IsZero() {
			query.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	if step != 0 {
		query.Set("step", step.String())
	}
	return query
}

// charted reads figures about the past.
func charted[Shown, T any](ctx context.Context, s *Store, path string, query url.Values, stored func(Shown) (T, error)) ([]T, error) {
	maps.DeleteFunc(query, func(_ string, values []string) bool { return values[0] == "" })
	var shown wire.Charted[Shown]
	if err := s.get(ctx, path, query, &shown); err != nil {
		return nil, err
	}
	all := make([]T, len(shown.Data))
	for i, x := range shown.Data {
		var err error
		if all[i], err = stored(x); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Doctor implements [posthaste.Observer].
func (s *Store) Doctor(ctx context.Context) ([]posthaste.Finding, error) {
	return list(ctx, s, "/v1/doctor", func(f wire.Finding) (posthaste.Finding, error) { return posthaste.Finding(f), nil })
}

// Tokens implements [posthaste.TokenStore].
func (s *Store) Tokens(ctx context.Context) ([]posthaste.Token, error) {
	return list(ctx, s, "/v1/tokens", func(t wire.Token) (posthaste.Token, error) { return t.Stored(), nil })
}
