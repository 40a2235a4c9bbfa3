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

// pinned is flow while a reader holds a snapshot and a transaction id: nothing
// that dies meanwhile can be cleaned away.
func pinned(ctx context.Context, r *run) (err error) {
	url, err := r.server.database(ctx, "pinned")
	if err != nil {
		return err
	}
	t, err := startTraffic(ctx, r, home{URL: url}, "pinned", posthaste.QueueOptions{})
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
	sampled := sample(ctx, t, during, r.server.meter)
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
	rates, cpu := sixths.rates, sixths.cpu
	first, last := rates[0], rates[len(rates)-1]
	res.PinnedResult = &PinnedResult{FirstPerSecond: *known(first), LastPerSecond: *known(last), Sixths: rounded(rates), SixthsCPU: rounded(cpu)}
	res.PerSecond, res.Ratio = known(rate(s.messages, s.whole)), quotient(last, first)
	res.Batch, res.Senders, res.Messages = r.o.Batch, r.o.Senders, s.messages
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

// parts are the rates of parts of a run, and the server's CPU per message in
// them, in microseconds; nil if that is out of reach.
type parts struct {
	rates, cpu []float64
}

// sample measures what is settled in each sixth of the time, and what it costs.
func sample(ctx context.Context, t *traffic, during time.Duration, m cpumeter.Meter) <-chan parts {
	out := make(chan parts, 1)
	go func() {
		const n = 6
		var p parts
		begun, at, count := time.Now(), time.Now(), t.settled.count.Load()
		used, known := m.Total()
		for i := range n {
			select {
			case <-time.After(time.Until(begun.Add(during * time.Duration(i+1) / n))):
			case <-ctx.Done():
			}
			now, settled := time.Now(), t.settled.count.Load()
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
