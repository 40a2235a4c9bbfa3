package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/brokers"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/worker"
)

const (
	// Shares of the duration.
	relayCeiling, relayLatency = 0.45, 0.2
	// relayRate is how many messages a second are sent for the latency.
	relayRate = 50
	// mostRelayed bounds what waits beforehand.
	mostRelayed = 1_000_000
)

// timedSink tells when messages are confirmed.
type timedSink struct {
	posthaste.Sink
	watch *stopwatch
}

// Deliver implements [posthaste.Sink].
func (s timedSink) Deliver(ctx context.Context, batch []posthaste.RawDelivery) []posthaste.SinkResult {
	results := s.Sink.Deliver(ctx, batch)
	if len(batch) < relay.DefaultBatch/10 { // throughput is measured otherwise
		for i := range results {
			if results[i].Err == nil {
				s.watch.confirm(int64(batch[i].MessageID))
			}
		}
	}
	return results
}

// relayed is flow from the ledger into a broker, with confirms, against what the
// broker's client publishes alone.
func relayed(ctx context.Context, r *run) (err error) {
	kind, _, err := kindOf(r.o.Broker)
	if err != nil {
		return err
	}
	broker, stop, err := r.broker(ctx)
	if err != nil {
		return err
	}
	defer stop()
	at, err := openPlaces[kind](ctx, r, broker)
	if err != nil {
		return err
	}
	defer at.close()
	if err := at.fresh(ctx); err != nil {
		return fmt.Errorf("%s: %s cannot be made: %w", kind.Name, relayPlace, err)
	}
	url, err := r.server.database(ctx, "relay")
	if err != nil {
		return err
	}
	t, err := newTraffic(ctx, r, home{URL: url}, "relay", posthaste.QueueOptions{})
	if err != nil {
		return err
	}
	defer t.engine.Close()

	r.begin()
	r.phase("the broker's client alone")
	best, err := measureCeiling(ctx, at, r.part(relayCeiling))
	if err != nil {
		return err
	}
	if err := at.fresh(ctx); err != nil {
		return err
	}
	r.phase("sending what shall be relayed")
	filled, err := t.fill(ctx, int(min(mostRelayed, 0.8*best.perSecond*r.part(1-relayCeiling-relayLatency).Seconds())), fillPatience)
	if err != nil {
		return err
	}
	waiting := int64(filled)
	r.phase("relaying")
	sink, err := at.sink(quiet(r.o.Log))
	if err != nil {
		return err
	}
	defer sink.Close()
	watch := &stopwatch{}
	w := worker.New(t.settled, worker.Config{Logger: quiet(r.o.Log)})
	worker.HandleSink(w, t.queue, timedSink{sink, watch}, worker.WithBatchSize(relay.DefaultBatch), worker.WithConcurrency(relay.DefaultConcurrency))
	own := cost{meter: r.server.meter}
	end := own.span()
	began := time.Since(epoch)
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(running) }()
	defer func() { cancel(); err = errors.Join(err, <-ended) }()
	err = r.profiled(true, func() error { return t.until(ctx, waiting) })
	if err != nil {
		return err
	}
	end(waiting)
	took := time.Duration(t.settled.last.Load()) - began

	r.phase("relaying single messages")
	if err := t.timed(ctx, watch, r.part(relayLatency)); err != nil {
		return err
	}
	arrived, err := at.count(ctx)
	if err != nil {
		return err
	}
	if total := t.settled.count.Load(); arrived < total {
		r.invalid("the broker has %d messages of %d that were settled", arrived, total)
	}
	if len(watch.took) < 50 {
		r.invalid("only %d messages for the latency: give more --duration", len(watch.took))
	}
	throughput := rate(waiting, took)
	res := r.result
	res.PerSecond, res.Ratio, res.Messages = known(throughput), quotient(throughput, best.perSecond), waiting
	res.ServerCPU, res.ClientCPU = own.serverPerMessage(), own.clientPerMessage()
	res.RelayResult = &RelayResult{Broker: kind.Name, CeilingPerSecond: *known(best.perSecond), CeilingOutstanding: best.outstanding, CeilingConnections: best.connections,
		ConfirmP50: *known(watch.percentile(0.5)), ConfirmP99: *known(watch.percentile(0.99))}
	if kind == brokers.RabbitMQ {
		res.QueueType = r.o.QueueType
	}
	return nil
}

// broker is the one that was named, or one of the run's own.
func (r *run) broker(ctx context.Context) (url string, stop func(), err error) {
	kind, own, err := kindOf(r.o.Broker)
	if err != nil || !own {
		return r.o.Broker, func() {}, err
	}
	return r.startOwn(ctx, kind)
}

// startOwn starts one of this machine for the run.
func (r *run) startOwn(ctx context.Context, kind *brokers.Kind) (url string, stop func(), err error) {
	r.phase("starting " + kind.Name)
	dir, err := os.MkdirTemp(r.o.DataDir, "posthaste-bench-broker-")
	if err != nil {
		return "", nil, err
	}
	url, end, err := startBroker(ctx, kind.Word, dir)
	if err != nil {
		os.RemoveAll(dir)
		return "", nil, &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "broker", Message: err.Error(), Hint: "install it (" + kind.Install + "), or name a broker with --broker", Cause: err}
	}
	return url, func() {
		end()
		if err := os.RemoveAll(dir); err != nil {
			r.o.Log.Warn("bench could not clear up", slog.Any("error", err))
		}
	}, nil
}

// until waits until n messages are settled.
func (t *traffic) until(ctx context.Context, n int64) error {
	for t.settled.count.Load() < n {
		select {
		case <-t.settled.changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// timed sends single messages, and times each from its commit to its confirm.
func (t *traffic) timed(ctx context.Context, watch *stopwatch, during time.Duration) error {
	watch.mu.Lock()
	watch.confirmed = map[int64]time.Time{}
	watch.mu.Unlock()
	tick := time.NewTicker(time.Second / relayRate)
	defer tick.Stop()
	for until := time.Now().Add(during); time.Now().Before(until); <-tick.C {
		ids, err := t.client.Send(ctx, posthaste.Message{Queue: t.queue, Payload: payload})
		if err != nil {
			return err
		}
		if err := watch.await(ctx, int64(ids[0]), time.Now()); err != nil {
			return err
		}
	}
	return nil
}
