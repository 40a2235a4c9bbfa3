package telemetry

import (
	"context"
	"sort"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthaste-mq/posthaste"
)

// Prometheus counts events. It is a [posthaste.Telemetry] for the runtime and a
// [prometheus.Collector] for a registry. Safe for concurrent use.
//
// The metrics are those of this process. Counts of the whole store (depth, oldest age) are
// returned by Queues of posthaste.Store.
type Prometheus struct {
	claimed, settled, duplicates, woken, errors *prometheus.CounterVec
	rescued, lost, clock, ticked, missed        prometheus.Counter
	durations, steps, takes                     durations
	waits, runs                                 attempts
	batches, taken                              *prometheus.CounterVec
	brokers                                     brokers
}

// NewPrometheus returns a collector, which the caller registers.
func NewPrometheus() *Prometheus {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	p := &Prometheus{
		claimed:    vec("posthaste_deliveries_claimed_total", "Deliveries that were handed out to this process.", "queue", "subscription"),
		settled:    vec("posthaste_deliveries_settled_total", "Deliveries that ended in this process, by outcome: done, retried, dead, released, cancelled; at most once: failed, lost (not started when the process stopped).", "queue", "subscription", "outcome"),
		duplicates: vec("posthaste_possible_duplicates_total", "Outcomes that the store rejected because this process no longer held the delivery: the message may have been handled twice.", "queue", "subscription"),
		woken:      vec("posthaste_wakeups_total", "Sleeps of fetchers that the doorbell ended.", "queue", "subscription"),
		errors:     vec("posthaste_task_errors_total", "Failures of background tasks, which are retried.", "task"),
		rescued:    counter("posthaste_deliveries_rescued_total", "Deliveries of lost workers and expired leases that this process made available again."),
		lost:       counter("posthaste_worker_lost_total", "Number of times this process was declared lost and registered again."),
		clock:      counter("posthaste_clock_set_back_total", "Number of times a round of upkeep of this process found that the store's clock was set back."),
		ticked:     counter("posthaste_ticks_sent_total", "Messages of schedules that this process sent."),
		missed:     counter("posthaste_ticks_missed_total", "Missed ticks of schedules that this process found, for which no message was sent."),
		durations: durations{
			desc:   prometheus.NewDesc("posthaste_handler_duration_seconds", "Duration of handlers in seconds, by outcome of their deliveries.", []string{"queue", "subscription", "outcome"}, nil),
			series: map[[3]string]*histogram{},
		},
		steps: durations{
			desc:   prometheus.NewDesc("posthaste_batch_duration_seconds", "Duration of the steps of calls with several messages in seconds: claim, handle, settle, total.", []string{"queue", "subscription", "step"}, nil),
			series: map[[3]string]*histogram{},
		},
		batches: vec("posthaste_batch_messages_total", "Messages of calls with several messages, as of sinks and relays. The calls are counted by posthaste_batch_duration_seconds.", "queue", "subscription"),
	}
	p.takes = durations{
		desc:   prometheus.NewDesc("posthaste_source_duration_seconds", "Duration of the steps of reading messages from a broker in seconds: read (includes waiting for them), send, acknowledge, total.", []string{"queue", "broker", "step"}, nil),
		series: map[[3]string]*histogram{},
	}
	p.waits = newAttempts("posthaste_attempt_wait_seconds", "Time from when messages were due to the start of their handlers in seconds, by kind.")
	p.runs = newAttempts("posthaste_attempt_run_seconds", "Duration of handlers in seconds, by kind.")
	p.brokers = brokers{
		desc: prometheus.NewDesc("posthaste_broker_up", "Whether the broker that a queue is relayed to or filled from was available (1) or not (0) at the last attempt.", []string{"queue", "broker"}, nil),
		away: map[[2]string][]func() bool{},
	}
	p.taken = vec("posthaste_source_messages_total", "Messages that sources read from a broker, by outcome: sent into the queue, known (the queue already had their ids), or refused and set aside.", "queue", "broker", "result")
	for _, task := range tasks {
		p.errors.WithLabelValues(task)
	}
	return p
}

// tasks are the background tasks of a worker that may fail. Another one, claim, is reported
// with its queue.
var tasks = []string{"heartbeat", "maintain", "reconcile", "rescue", "settle", "start", "tick"}

// Expect creates the counters of a worker's queues with value zero, because the first increase
// of a counter that did not exist before cannot be seen. Call it with the worker's Reads.
func (p *Prometheus) Expect(reads ...posthaste.QueueRef) {
	for _, ref := range reads {
		for _, vec := range []*prometheus.CounterVec{p.claimed, p.duplicates, p.woken, p.batches} {
			vec.WithLabelValues(ref.Queue, ref.Subscription)
		}
		for _, outcome := range []posthaste.Outcome{posthaste.OutcomeDone, posthaste.OutcomeRetried, posthaste.OutcomeDead, posthaste.OutcomeReleased, posthaste.OutcomeFailed, posthaste.OutcomeLost} {
			p.settled.WithLabelValues(ref.Queue, ref.Subscription, string(outcome))
		}
		p.errors.WithLabelValues("claim " + ref.Queue)
	}
}

// ExpectSource creates the counters of a source with value zero, as [Prometheus.Expect] does
// for a worker. broker is the source's Address.
func (p *Prometheus) ExpectSource(queue, broker string) {
	for _, result := range []string{"sent", "known", "refused"} {
		p.taken.WithLabelValues(queue, broker, result)
	}
}

// Broker adds the gauge posthaste_broker_up for a broker to which a queue is relayed, or from
// which it is filled. Each scrape calls away, for example the Away method of a sink or a
// source. If several are added for the same queue and address, the gauge is 0 if one of them
// is away. address must not contain secrets.
func (p *Prometheus) Broker(queue, address string, away func() bool) {
	p.brokers.mu.Lock()
	defer p.brokers.mu.Unlock()
	labels := [2]string{queue, address}
	p.brokers.away[labels] = append(p.brokers.away[labels], away)
}

// Event implements [posthaste.Telemetry].
func (p *Prometheus) Event(_ context.Context, e posthaste.Event) {
	count := float64(max(1, e.Count))
	switch e.Kind {
	case posthaste.EventClaimed:
		p.claimed.WithLabelValues(e.Queue, e.Subscription).Add(count)
	case posthaste.EventSettled:
		p.settled.WithLabelValues(e.Queue, e.Subscription, string(e.Outcome)).Add(count)
		if e.Outcome != posthaste.OutcomeReleased && e.Outcome != posthaste.OutcomeLost || e.Duration > 0 { // otherwise no handler ran
			p.durations.observe([3]string{e.Queue, e.Subscription, string(e.Outcome)}, e.Duration.Seconds(), uint64(count))
		}
	case posthaste.EventBatch:
		p.batches.WithLabelValues(e.Queue, e.Subscription).Add(count)
		for step, took := range map[string]time.Duration{"claim": e.Claim, "handle": e.Duration, "settle": e.Settle, "total": e.Total} {
			p.steps.observe([3]string{e.Queue, e.Subscription, step}, took.Seconds(), 1)
		}
	case posthaste.EventCounted:
		p.waits.add(e, &e.Stats.Wait, e.WaitSum)
		p.runs.add(e, &e.Stats.Run, e.RunSum)
	case posthaste.EventTaken:
		p.taken.WithLabelValues(e.Queue, e.Broker, "sent").Add(float64(e.Count - e.Failed - e.Known))
		p.taken.WithLabelValues(e.Queue, e.Broker, "known").Add(float64(e.Known))
		p.taken.WithLabelValues(e.Queue, e.Broker, "refused").Add(float64(e.Failed))
		for step, took := range map[string]time.Duration{"read": e.Claim, "send": e.Duration, "acknowledge": e.Settle, "total": e.Total} {
			p.takes.observe([3]string{e.Queue, e.Broker, step}, took.Seconds(), 1)
		}
	case posthaste.EventDuplicate:
		p.duplicates.WithLabelValues(e.Queue, e.Subscription).Add(count)
	case posthaste.EventWoken:
		p.woken.WithLabelValues(e.Queue, e.Subscription).Add(count)
	case posthaste.EventError:
		p.errors.WithLabelValues(e.Task).Inc()
	case posthaste.EventRescued:
		p.rescued.Add(count)
	case posthaste.EventTicked:
		p.ticked.Add(float64(e.Count))
		p.missed.Add(float64(e.Missed))
	case posthaste.EventLost:
		p.lost.Inc()
	case posthaste.EventClock:
		p.clock.Inc()
	}
}

func (p *Prometheus) collectors() []prometheus.Collector {
	return []prometheus.Collector{p.claimed, p.settled, p.duplicates, p.woken, p.errors, p.rescued, p.lost, p.clock, p.ticked, p.missed, &p.durations, &p.waits, &p.runs, &p.steps, p.batches, &p.takes, p.taken, &p.brokers}
}

// Describe implements [prometheus.Collector].
func (p *Prometheus) Describe(out chan<- *prometheus.Desc) {
	for _, c := range p.collectors() {
		c.Describe(out)
	}
}

// Collect implements [prometheus.Collector].
func (p *Prometheus) Collect(out chan<- prometheus.Metric) {
	for _, c := range p.collectors() {
		c.Collect(out)
	}
}

// brokers holds the functions that report whether brokers are available.
type brokers struct {
	desc *prometheus.Desc
	mu   sync.Mutex
	away map[[2]string][]func() bool // by queue and address
}

func (b *brokers) Describe(out chan<- *prometheus.Desc) { out <- b.desc }

func (b *brokers) Collect(out chan<- prometheus.Metric) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for labels, all := range b.away {
		up := 1.0
		for _, away := range all {
			if away() {
				up = 0
			}
		}
		out <- prometheus.MustNewConstMetric(b.desc, prometheus.GaugeValue, up, labels[:]...)
	}
}

// bounds are the upper bounds of the histogram's buckets in seconds.
var bounds = []float64{.0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}

// durations is a histogram that records several equal observations at the cost of one, as
// events report them. The library's own histogram records them one by one.
type durations struct {
	desc   *prometheus.Desc
	mu     sync.Mutex
	series map[[3]string]*histogram
}

type histogram struct {
	count   uint64
	sum     float64
	buckets []uint64 // not cumulative
}

func (d *durations) observe(labels [3]string, seconds float64, n uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.series[labels]
	if h == nil {
		h = &histogram{buckets: make([]uint64, len(bounds)+1)}
		d.series[labels] = h
	}
	h.count += n
	h.sum += seconds * float64(n)
	h.buckets[sort.SearchFloat64s(bounds, seconds)] += n
}

func (d *durations) Describe(out chan<- *prometheus.Desc) { out <- d.desc }

func (d *durations) Collect(out chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for labels, h := range d.series {
		cumulated, total := make(map[float64]uint64, len(bounds)), uint64(0)
		for i, bound := range bounds {
			total += h.buckets[i]
			cumulated[bound] = total
		}
		out <- prometheus.MustNewConstHistogram(d.desc, h.count, h.sum, cumulated, labels[:]...)
	}
}
