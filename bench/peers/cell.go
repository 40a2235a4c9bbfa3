package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	senders       = 32 // of the scenarios single and transactional
	batch         = 1000
	latencyRate   = 50
	warming       = 1500 * time.Millisecond
	warmPatience  = 5 * time.Second
	drainPatience = 10 * time.Second
	settling      = 3 * time.Second // of an idle worker
)

// cell measures one product in one setting.
type cell struct {
	bench    *bench
	peer     peer
	scenario string
	row      string

	database   string
	url        string
	send, work *process // nil if the product has none
	sent       int64    // since the processes started
	samples    []int64
	result     Cell
}

// measure measures a cell. Errors are part of the result.
func (b *bench) measure(ctx context.Context, p peer, scenario, row string, round int) Cell {
	c := &cell{bench: b, peer: p, scenario: scenario, row: row}
	c.result = Cell{Scenario: scenario, Product: p.about().name, Version: p.about().version, Row: row, Round: round}
	if err := c.whole(ctx); err != nil {
		c.result.Error = err.Error()
	}
	return c.result
}

func (c *cell) whole(ctx context.Context) (err error) {
	if c.database, c.url, err = c.bench.server.database(ctx); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, c.send.end(), c.work.end(), c.bench.server.drop(ctx, c.database))
	}()
	if err := c.begin(ctx); err != nil {
		return err
	}
	if c.scenario == idle {
		return c.idle(ctx)
	}
	return c.traffic(ctx)
}

func (c *cell) order(role string) order {
	o := order{Product: c.result.Product, Role: role, Scenario: c.scenario, Row: c.row, URL: c.url, Queue: queue,
		Text: payload.Text, Batch: batch, Senders: senders, Limit: int64(c.peer.about().limit), Rate: latencyRate}
	switch c.scenario {
	case flow:
		o.Senders = c.peer.about().producers
	case latency:
		o.Text = text(len(`{"text":"","sent":100000000000000}`))
	}
	return o
}

// begin installs the product and starts its processes.
func (c *cell) begin(ctx context.Context) error {
	if err := c.peer.install(ctx, c.order(roleInstall)); err != nil {
		return fmt.Errorf("%s cannot be installed: %w", c.result.Product, err)
	}
	var err error
	switch c.scenario {
	case transactional:
		err = execute(ctx, c.url, "create table public.peers_business (id bigint generated always as identity primary key, body text not null)")
	case idle:
		err = c.bench.server.count(ctx, c.database)
	}
	if err != nil {
		return err
	}
	if !c.peer.about().noWorker {
		if c.work, err = start(ctx, c.peer, c.order(roleWork)); err != nil {
			return err
		}
	}
	if c.scenario != idle {
		if c.send, err = start(ctx, c.peer, c.order(roleSend)); err != nil {
			return err
		}
		if c.work != nil && c.scenario == flow {
			c.work.follow.Store(c.send)
		}
	}
	return nil
}

func (c *cell) traffic(ctx context.Context) error {
	if err := c.warm(ctx); err != nil {
		return err
	}
	before, err := c.read(ctx)
	if err != nil {
		return err
	}
	c.samples = nil
	begun, had := monotonic(), c.handled()
	sent, err := c.run(ctx, c.bench.o.duration)
	if err != nil {
		return err
	}
	sending := seconds(monotonic() - begun)
	if err := c.drain(ctx, drainPatience); err != nil {
		return err
	}
	after, err := c.read(ctx)
	if err != nil {
		return err
	}
	handled := c.handled() - had
	r := &c.result
	r.Sent, r.Handled, r.SentPerSecond = sent, handled, per(float64(sent), sending)
	if c.work != nil {
		r.HandledPerSecond = c.work.rate(had, begun, handled)
		c.remark()
	}
	used := after.since(before)
	r.Client, r.Others = per(used.client*1e6, float64(handled)), used.others(c.bench.server.machine.Cores)
	if used.serverKnown {
		r.Server = per(used.server*1e6, float64(handled))
	}
	if c.scenario == latency {
		slices.Sort(c.samples)
		r.P50, r.P99, r.Max = percentile(c.samples, 0.5), percentile(c.samples, 0.99), percentile(c.samples, 1)
		r.SentPerSecond, r.HandledPerSecond = per(float64(sent), c.bench.o.duration.Seconds()), nil
	}
	return nil
}

// warm lets connections, statements and tables warm up.
func (c *cell) warm(ctx context.Context) error {
	analyzed := make(chan error, 1)
	go func() {
		time.Sleep(warming / 2)
		if c.scenario == latency {
			analyzed <- nil
			return
		}
		analyzed <- execute(ctx, c.url, "analyze")
	}()
	if _, err := c.run(ctx, warming); err != nil {
		return err
	}
	if err := <-analyzed; err != nil {
		return err
	}
	return c.drain(ctx, warmPatience)
}

func (c *cell) run(ctx context.Context, during time.Duration) (int64, error) {
	r, err := c.send.ask(ctx, line{Run: float64(during.Milliseconds())})
	if err != nil {
		return 0, err
	}
	c.sent += *r.Sent
	return *r.Sent, nil
}

// handled returns the number of handled messages. For a product without a worker it is the
// number of sent messages.
func (c *cell) handled() int64 {
	if c.work == nil {
		return c.sent
	}
	return c.work.handled.Load()
}

// drain waits until all sent messages are handled, or until patience is over.
func (c *cell) drain(ctx context.Context, patience time.Duration) error {
	for until := time.Now().Add(patience); c.handled() < c.sent && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
		if c.scenario == latency { // its worker does not report by itself
			if _, err := c.report(ctx); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// report returns the worker's CPU time in µs and takes the samples.
func (c *cell) report(ctx context.Context) (float64, error) {
	if c.work == nil {
		return 0, nil
	}
	r, err := c.work.ask(ctx, line{Report: true})
	if err != nil {
		return 0, err
	}
	c.samples = append(c.samples, r.Samples...)
	return *r.CPU, nil
}

func (c *cell) remark() {
	switch handled := c.handled(); {
	case handled < c.sent:
		c.result.Remark = fmt.Sprintf("%d of %d messages were not handled %s after the last was sent", c.sent-handled, c.sent, drainPatience)
	case handled > c.sent:
		c.result.Remark = fmt.Sprintf("%d messages were sent and the handler was called %d times", c.sent, handled)
	}
}

// idle measures a worker without messages.
func (c *cell) idle(ctx context.Context) error {
	if err := pause(ctx, settling); err != nil {
		return err
	}
	statements, transactions, err := c.bench.server.counted(ctx, c.database)
	if err != nil {
		return err
	}
	before, err := c.read(ctx)
	if err != nil {
		return err
	}
	if err := pause(ctx, c.bench.o.duration); err != nil {
		return err
	}
	after, err := c.read(ctx)
	if err != nil {
		return err
	}
	moreStatements, moreTransactions, err := c.bench.server.counted(ctx, c.database)
	if err != nil {
		return err
	}
	used := after.since(before)
	r := &c.result
	r.IdleClient, r.Others = per(100*used.client, used.elapsed), used.others(c.bench.server.machine.Cores)
	if used.serverKnown {
		r.IdleServer = per(100*used.server, used.elapsed)
	}
	r.Transactions = per(float64(moreTransactions-transactions), used.elapsed)
	if c.bench.server.counts {
		r.Statements = per(float64(moreStatements-statements), used.elapsed)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// percentile returns a percentile of sorted samples by nearest rank, in ms.
func percentile(sorted []int64, q float64) *float64 {
	if len(sorted) == 0 {
		return nil
	}
	return known(float64(sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]) / 1e6)
}
