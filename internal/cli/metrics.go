package cli

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/telemetry"
)

// newMetrics returns the telemetry of this process and the handler of /metrics, which adds
// the metrics of the store and of the process.
func newMetrics(engine posthaste.Store, log *slog.Logger) (*telemetry.Prometheus, http.Handler) {
	events := telemetry.NewPrometheus()
	registry := prometheus.NewRegistry()
	registry.MustRegister(events, &storeMetrics{engine}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return events, promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		// The handler serves the other metrics while the store is unavailable.
		ErrorHandling: promhttp.ContinueOnError,
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	})
}

// storeMetrics collects metrics from the store at each scrape.
type storeMetrics struct{ engine posthaste.Store }

// scrapeTimeout bounds all queries of a scrape, and upTimeout the first one. The default
// timeout of Prometheus is 10 s.
const (
	scrapeTimeout = 8 * time.Second
	upTimeout     = 3 * time.Second
)

func queueMetric(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("posthaste_queue_"+name, help, []string{"queue", "subscription"}, nil)
}

func storeMetric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("posthaste_"+name, help, labels, nil)
}

var (
	upMetric      = storeMetric("store_up", "Whether the store answered (1) or not (0).")
	slowMetric    = storeMetric("store_slow", "Whether the store answered, but did not return all metrics in time (1) or did (0).")
	findingMetric = storeMetric("finding", "1 for each finding of posthaste doctor, such as a subscription that keeps the ring full.", "check", "fault", "queue", "subscription")
	pausedMetric  = storeMetric("queue_paused", "Whether the queue is paused (1) or not (0).", "queue")
)

// asideMetric is collected for each kind of a subscription with messages that were set aside.
var asideMetric = storeMetric("queue_set_aside", "Messages that wait for a worker that handles their kind; known is 1 if a running worker does.", "queue", "subscription", "kind", "known")

// subscriptionMetrics are collected for each subscription of each queue.
var subscriptionMetrics = []struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(s *posthaste.SubscriptionInfo) float64
}{
	{queueMetric("depth", "Waiting messages, including scheduled messages and retries."), prometheus.GaugeValue, func(s *posthaste.SubscriptionInfo) float64 { return float64(s.Depth) }},
	{queueMetric("in_flight", "Messages in flight: claimed and not settled."), prometheus.GaugeValue, func(s *posthaste.SubscriptionInfo) float64 { return float64(s.InFlight) }},
	{queueMetric("dead_letters", "Dead letters."), prometheus.GaugeValue, func(s *posthaste.SubscriptionInfo) float64 { return float64(s.Dead) }},
	{queueMetric("oldest_age_seconds", "Age of the oldest message that is ready, in seconds; 0 without such a message."), prometheus.GaugeValue, func(s *posthaste.SubscriptionInfo) float64 { return s.OldestAge.Seconds() }},
	{queueMetric("sent_total", "Messages sent since the queue was created."), prometheus.CounterValue, func(s *posthaste.SubscriptionInfo) float64 { return float64(s.Sent) }},
	{queueMetric("done_total", "Messages done since the queue was created."), prometheus.CounterValue, func(s *posthaste.SubscriptionInfo) float64 { return float64(s.Done) }},
	{queueMetric("retried_total", "Failed attempts that are retried, since the queue was created."), prometheus.CounterValue, func(s *posthaste.SubscriptionInfo) float64 { return float64(s.Retried) }},
	{queueMetric("lost_total", "Deliveries that were lost and redelivered because their worker died or their lease ended, since the queue was created."), prometheus.CounterValue, func(s *posthaste.SubscriptionInfo) float64 { return float64(s.Lost) }},
	{queueMetric("withdrawn_total", "Messages cancelled, rescheduled, purged, or dropped for max_lag before delivery, since the queue was created."), prometheus.CounterValue, func(s *posthaste.SubscriptionInfo) float64 { return float64(s.Withdrawn) }},
	{queueMetric("expired_total", "Messages that were not delivered because they were older than max_age, since the queue was created."), prometheus.CounterValue, func(s *posthaste.SubscriptionInfo) float64 { return float64(s.Expired) }},
}

// vitalMetric is a metric of the store as a whole.
type vitalMetric struct {
	desc  *prometheus.Desc
	value func(v *posthaste.Vitals) float64
}

// ringMetrics exist on PostgreSQL only, which stores messages in a ring of tables.
var ringMetrics = []vitalMetric{
	{storeMetric("slots_free", "Free slots of the ring, of 16."), func(v *posthaste.Vitals) float64 { return float64(v.SlotsFree) }},
	{storeMetric("slots_wanted", "Slots of the ring that should be free (setting spare_slots)."), func(v *posthaste.Vitals) float64 { return float64(v.SlotsWanted) }},
	{storeMetric("slot_age_seconds", "Age of the oldest slot in use, in seconds."), func(v *posthaste.Vitals) float64 { return v.SlotAge.Seconds() }},
	{storeMetric("doorbells", "Processes that hold a connection for notifications."), func(v *posthaste.Vitals) float64 { return float64(v.Doorbells) }},
	{storeMetric("upkeep_age_seconds", "Time since the last round of upkeep, in seconds."), func(v *posthaste.Vitals) float64 { return v.UpkeepAge.Seconds() }},
}

// vitalMetrics exist on every store.
var vitalMetrics = []vitalMetric{
	{storeMetric("workers", "Workers with a heartbeat within their lease."), func(v *posthaste.Vitals) float64 { return float64(v.Workers) }},
	{storeMetric("workers_overdue", "Workers whose lease has ended and that will be declared lost."), func(v *posthaste.Vitals) float64 { return float64(v.OverdueWorkers) }},
	{storeMetric("heartbeat_age_seconds", "Age of the oldest last heartbeat of a worker, in seconds."), func(v *posthaste.Vitals) float64 { return v.HeartbeatAge.Seconds() }},
}

// Describe implements [prometheus.Collector].
func (m *storeMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{upMetric, slowMetric, findingMetric, pausedMetric, asideMetric} {
		out <- d
	}
	for _, m := range subscriptionMetrics {
		out <- m.desc
	}
	for _, m := range slices.Concat(ringMetrics, vitalMetrics) {
		out <- m.desc
	}
}

// Collect implements [prometheus.Collector].
func (m *storeMetrics) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	up := m.up(ctx)
	out <- prometheus.MustNewConstMetric(upMetric, prometheus.GaugeValue, truth(up))
	if !up {
		return
	}
	err := errors.Join(m.collectVitals(ctx, out), m.collectQueues(ctx, out), m.collectFindings(ctx, out))
	out <- prometheus.MustNewConstMetric(slowMetric, prometheus.GaugeValue, truth(err != nil && ctx.Err() != nil))
}

// up reports whether the store answers, even with an error.
func (m *storeMetrics) up(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	err := m.engine.Ready(ctx)
	return err == nil || ctx.Err() == nil && posthaste.CodeOf(err) != posthaste.CodeUnavailable
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func (m *storeMetrics) collectQueues(ctx context.Context, out chan<- prometheus.Metric) error {
	queues, err := m.engine.Queues(ctx)
	for _, q := range queues {
		out <- prometheus.MustNewConstMetric(pausedMetric, prometheus.GaugeValue, truth(!q.PausedAt.IsZero()), q.Name)
		for i := range q.Subscriptions {
			s := &q.Subscriptions[i]
			for _, each := range subscriptionMetrics {
				if each.kind == prometheus.CounterValue && !m.engine.Capabilities().Totals {
					continue
				}
				out <- prometheus.MustNewConstMetric(each.desc, each.kind, each.value(s), q.Name, s.Name)
			}
			for _, a := range s.SetAside {
				out <- prometheus.MustNewConstMetric(asideMetric, prometheus.GaugeValue, float64(a.Waiting), q.Name, s.Name, a.Kind, strconv.Itoa(int(truth(a.Known))))
			}
		}
	}
	return err
}

func (m *storeMetrics) collectVitals(ctx context.Context, out chan<- prometheus.Metric) error {
	vitals, err := m.engine.Vitals(ctx)
	if err != nil {
		return err
	}
	metrics := vitalMetrics
	if vitals.SlotsWanted > 0 {
		metrics = slices.Concat(ringMetrics, vitalMetrics)
	}
	for _, each := range metrics {
		out <- prometheus.MustNewConstMetric(each.desc, prometheus.GaugeValue, each.value(&vitals))
	}
	return nil
}

func (m *storeMetrics) collectFindings(ctx context.Context, out chan<- prometheus.Metric) error {
	found, err := m.engine.Doctor(ctx)
	seen := map[[4]string]bool{}
	for _, f := range found {
		labels := [4]string{f.Check, strconv.FormatBool(f.Fault), f.Queue, f.Subscription}
		if !seen[labels] {
			out <- prometheus.MustNewConstMetric(findingMetric, prometheus.GaugeValue, 1, labels[:]...)
		}
		seen[labels] = true
	}
	return err
}
