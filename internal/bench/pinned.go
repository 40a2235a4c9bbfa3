package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/postgres"
)

// pinned is flow while a reader holds a snapshot and a transaction id: nothing
// that dies meanwhile can be cleaned away.
func pinned(ctx context.Context, r *run) (err error) {
	url, err := r.server.database(ctx, "pinned")
	if err != nil {
		return err
	}
	t, err := startTraffic(ctx, r, url, "pinned")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.stop()) }()
	r.begin()
	if err := r.warm(ctx, t); err != nil {
		return err
	}
	release, err := pin(ctx, url)
	if err != nil {
		return err
	}
	defer release()

	r.phase("flow under an open snapshot")
	during := r.part(1 - warming)
	sampled := sample(ctx, t, during)
	own := cost{meter: r.server.meter}
	var s stretch
	err = r.profiled(true, func() error {
		end := own.span()
		s, err = t.batches(ctx, during, r.o.Batch, outstanding(r.o.Batch), true)
		end(s.messages)
		return err
	})
	sixths := <-sampled
	if err != nil {
		return err
	}
	t.audit(r, s.complete)
	res := r.result
	first, last := sixths[0], sixths[len(sixths)-1]
	res.PinnedResult = &PinnedResult{FirstPerSecond: *known(first), LastPerSecond: *known(last), Sixths: rounded(sixths)}
	res.PerSecond, res.Ratio = known(rate(s.messages, s.whole)), quotient(last, first)
	res.Batch, res.Messages = r.o.Batch, s.messages
	res.ServerCPU, res.ClientCPU = own.serverPerMessage(), own.clientPerMessage()
	return nil
}

// pin opens a transaction that holds a snapshot and an id until it is released.
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

// sample measures what is settled in each sixth of the time.
func sample(ctx context.Context, t *traffic, during time.Duration) <-chan []float64 {
	out := make(chan []float64, 1)
	go func() {
		const parts = 6
		rates := make([]float64, 0, parts)
		begun, at, count := time.Now(), time.Now(), t.settled.count.Load()
		for i := range parts {
			select {
			case <-time.After(time.Until(begun.Add(during * time.Duration(i+1) / parts))):
			case <-ctx.Done():
			}
			now, n := time.Now(), t.settled.count.Load()
			rates = append(rates, rate(n-count, now.Sub(at)))
			at, count = now, n
		}
		out <- rates
	}()
	return out
}
