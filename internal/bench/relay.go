package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/brokers"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/worker"
)

const (
	// Shares of the duration.
	relayCeiling, relayLatency = 0.45, 0.2
	// mostRelayed is the maximum of the messages that wait beforehand.
	mostRelayed = 1_000_000
)

// openPlaces holds the function that opens the place in a broker of each kind.
var openPlaces = map[*brokers.Kind]func(ctx context.Context, r *run, url string) (place, error){
	brokers.RabbitMQ: openRabbitMQ, brokers.Kafka: openKafka, brokers.NATS: openNATS, brokers.Redis: openRedisStream,
}

// timedSink notes when messages are confirmed.
type timedSink struct {
	posthaste.Sink
	watch *stopwatch
}

// Deliver implements [posthaste.Sink].
func (s timedSink) Deliver(ctx context.Context, batch []posthaste.RawDelivery) []posthaste.SinkResult {
	results := s.Sink.Deliver(ctx, batch)
	if len(batch) < relay.DefaultBatch/10 { // large batches are those of the throughput
		for i := range results {
			if results[i].Err == nil {
				s.watch.confirm(int64(batch[i].MessageID))
			}
		}
	}
	return results
}

// relayed is flow from the ledger into a broker, with confirms, compared with publishing by
// the broker's client alone.
func relayed(ctx context.Context, r *run) (err error) {
	kind, _, err := kindOf(r.o.Broker)
	if err != nil {
		return err
	}
	broker, stop, err := openBroker(ctx, r)
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
		return fmt.Errorf("%s: %s cannot be created: %w", kind.Name, relayPlace, err)
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
	m := relaying{traffic: t, at: at, cost: cost{meter: r.server.meter}, watch: &stopwatch{}}
	if err := m.measure(ctx, int(min(mostRelayed, 0.8*best.perSecond*r.part(1-relayCeiling-relayLatency).Seconds()))); err != nil {
		return err
	}
	throughput := rate(m.messages, m.took)
	res := r.result
	res.PerSecond, res.Ratio, res.Messages = known(throughput), quotient(throughput, best.perSecond), m.messages
	m.into(res)
	res.RelayResult = &RelayResult{Broker: kind.Name, CeilingPerSecond: *known(best.perSecond), CeilingOutstanding: best.outstanding, CeilingConnections: best.connections,
		ConfirmP50: *known(m.watch.percentile(0.5)), ConfirmP99: *known(m.watch.percentile(0.99))}
	if kind == brokers.RabbitMQ {
		res.QueueType = r.o.QueueType
	}
	return nil
}

// relaying measures a relay.
type relaying struct {
	*traffic
	at place
	cost
	took  time.Duration // for the messages that waited
	watch *stopwatch
}

// measure sends n messages and relays them, and then relays single messages.
func (m *relaying) measure(ctx context.Context, n int) (err error) {
	r, log := m.run, quiet(m.run.o.Log)
	r.phase("sending messages to relay")
	filled, err := m.fill(ctx, n, fillPatience)
	if err != nil {
		return err
	}
	r.phase("relaying")
	sink, err := m.at.sink(log)
	if err != nil {
		return err
	}
	defer sink.Close()
	w := worker.New(m.settled, worker.Config{Logger: log})
	worker.HandleSink(w, m.queue, timedSink{sink, m.watch}, worker.WithBatchSize(relay.DefaultBatch), worker.WithConcurrency(relay.DefaultConcurrency))
	end := m.span()
	began := time.Since(epoch)
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(running) }()
	defer func() { cancel(); err = errors.Join(err, <-ended) }()
	if err := r.profiled(true, func() error { return m.settled.until(ctx, int64(filled)) }); err != nil {
		return err
	}
	end(int64(filled))
	m.took = time.Duration(m.settled.last.Load()) - began

	r.phase("relaying single messages")
	if err := relaySingly(ctx, m.traffic, m.watch, r.part(relayLatency)); err != nil {
		return err
	}
	arrived, err := m.at.count(ctx)
	if err != nil {
		return err
	}
	if total := m.settled.count.Load(); arrived < total {
		r.invalid("the broker has %d messages of %d that were settled", arrived, total)
	}
	if len(m.watch.took) < 50 {
		r.invalid("only %d messages for the latency: set a longer --duration", len(m.watch.took))
	}
	return nil
}

// relaySingly sends single messages, and times each from its commit to its confirm.
func relaySingly(ctx context.Context, t *traffic, watch *stopwatch, during time.Duration) error {
	watch.mu.Lock()
	watch.confirmed = map[int64]time.Time{}
	watch.mu.Unlock()
	tick := time.NewTicker(time.Second / confirmRate)
	defer tick.Stop()
	for until := time.Now().Add(during); time.Now().Before(until); <-tick.C {
		ids, err := posthaste.IDs(t.client.Send(ctx, posthaste.Message{Queue: t.queue, Payload: payload}))
		if err != nil {
			return err
		}
		if err := watch.await(ctx, int64(ids[0]), time.Now()); err != nil {
			return err
		}
	}
	return nil
}
