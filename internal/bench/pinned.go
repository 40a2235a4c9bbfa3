package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/cpumeter"
	"github.com/posthaste-mq/posthaste/postgres"
)

const (
	// pinnedKeys is the number of keys that the messages of the keyed form have in turn.
	pinnedKeys = 1000
	// pinnedSubscriptions is the number of subscriptions of the keyed form.
	pinnedSubscriptions = 3
)

// keyedQueues are the queues of the keyed form. Their limits are never reached.
var keyedQueues = map[string]posthaste.QueueOptions{
	keyedLimits: {Limits: posthaste.QueueLimits{
		Concurrency: 100_000, RateLimit: posthaste.Rate{Limit: 1_000_000},
		KeyConcurrency: 10_000, KeyRateLimit: posthaste.Rate{Limit: 10_000, Burst: 100_000},
	}},
	keyedOrdered: {Ordered: true, Limits: posthaste.QueueLimits{Concurrency: 100_000, RateLimit: posthaste.Rate{Limit: 1_000_000}}},
}

// pinned is flow while a reader holds a snapshot and a transaction id, so that vacuum cannot
// remove rows that die during the run.
func pinned(ctx context.Context, r *run) (err error) {
	url, err := r.server.database(ctx, "pinned")
	if err != nil {
		return err
	}
	t, err := pinnedTraffic(ctx, r, home{URL: url})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.stop()) }()
	r.begin()
	if err := t.warm(ctx); err != nil {
		return err
	}
	release, err := pin(ctx, url)
	if err != nil {
		return err
	}
	defer release()

	r.phase("flow under an open snapshot")
	before, err := tableSizes(ctx, url)
	if err != nil {
		return err
	}
	during := r.part(1 - warming)
	sampled := sample(ctx, t, during, r.server.meter)
	own := cost{meter: r.server.meter}
	var s stretch
	err = r.profiled(true, func() error {
		end := own.span()
		s, err = t.batches(ctx, during, r.o.Batch, r.outstanding(), true)
		end(s.messages)
		return err
	})
	sixths := <-sampled
	if err != nil {
		return err
	}
	t.audit(r, s.complete)
	after, err := tableSizes(ctx, url)
	if err != nil {
		return err
	}
	res := r.result
	rates, cpu := sixths.rates, sixths.cpu
	first, last := rates[0], rates[len(rates)-1]
	res.PinnedResult = &PinnedResult{FirstPerSecond: *known(first), LastPerSecond: *known(last), Sixths: rounded(rates), SixthsCPU: rounded(cpu),
		Subscriptions: int(t.copies), PinnedKeys: len(t.keys), Keyed: r.o.Keyed, Grown: grown(before, after)}
	if n := len(cpu); n > 0 {
		res.PinnedResult.CPURatio = quotient(cpu[n-1], cpu[0])
	}
	res.PerSecond, res.Ratio = known(rate(s.messages, s.whole)), quotient(last, first)
	res.Batch, res.Senders, res.Messages = r.o.Batch, r.o.Senders, s.messages
	own.into(res)
	return nil
}

// pinnedTraffic returns traffic through a plain queue, or through a queue with keys, limits and
// several subscriptions.
func pinnedTraffic(ctx context.Context, r *run, at home) (*traffic, error) {
	if r.o.Keyed == "" {
		return startTraffic(ctx, r, at, "pinned", posthaste.QueueOptions{})
	}
	t, err := newTraffic(ctx, r, at, "pinned", keyedQueues[r.o.Keyed])
	if err != nil {
		return nil, err
	}
	t.keys, t.copies = keysInTurn(pinnedKeys), pinnedSubscriptions
	for i := range pinnedSubscriptions - 1 {
		name := fmt.Sprint("reader-", i+2)
		if err := t.engine.Subscribe(posthaste.WithActor(ctx, "bench"), t.queue, name, posthaste.SubscriptionOptions{}); err != nil {
			return nil, errors.Join(err, t.stop())
		}
		t.also = append(t.also, posthaste.QueueRef{Queue: t.queue, Subscription: name})
	}
	if err := t.work(ctx); err != nil {
		return nil, errors.Join(err, t.stop())
	}
	return t, nil
}

// pin opens a transaction that holds a snapshot and an id until release is called.
func pin(ctx context.Context, url string) (release func(), err error) {
	conn, err := postgres.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	release = func() { _ = conn.Close(context.WithoutCancel(ctx)) }
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err == nil {
		_, err = tx.Exec(ctx, "select pg_catalog.pg_current_xact_id(), count(*) from posthaste.queue_settings")
	}
	if err != nil {
		release()
		return nil, fmt.Errorf("the snapshot cannot be held: %w", err)
	}
	return release, nil
}

// parts are the rates of the parts of a run, and the server's CPU time per message in each,
// in microseconds; nil if it is unknown.
type parts struct {
	rates, cpu []float64
}

// sample measures the settled messages and their CPU time in each sixth of the time.
func sample(ctx context.Context, t *traffic, during time.Duration, m cpumeter.Meter) <-chan parts {
	out := make(chan parts, 1)
	go func() {
		const n = 6
		var p parts
		begun, at, count := time.Now(), time.Now(), t.done()
		used, known := m.Total()
		for i := range n {
			select {
			case <-time.After(time.Until(begun.Add(during * time.Duration(i+1) / n))):
			case <-ctx.Done():
			}
			now, settled := time.Now(), t.done()
			total, still := m.Total()
			p.rates = append(p.rates, rate(settled-count, now.Sub(at)))
			p.cpu = append(p.cpu, float64((total-used).Microseconds())/float64(max(settled-count, 1)))
			known = known && still
			at, count, used = now, settled, total
		}
		if !known {
			p.cpu = nil
		}
		out <- p
	}()
	return out
}
