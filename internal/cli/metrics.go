package cli

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/telemetry"
)

// newMetrics makes what counts the events of this process, and what shows
// them, together with the counters of the queues and of the process itself.
func newMetrics(engine posthaste.Engine, log *slog.Logger) (posthaste.Telemetry, http.Handler) {
	events := telemetry.NewPrometheus()
	registry := prometheus.NewRegistry()
	registry.MustRegister(events, &queueMetrics{engine}, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return events, promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		// What is known is shown also while the store is away.
		ErrorHandling: promhttp.ContinueOnError,
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	})
}

// queueMetrics asks the store for its queues at every scrape.
type queueMetrics struct{ engine posthaste.Engine }

// scrapeTimeout bounds that question: a scraper waits 10 s, as a rule.
const scrapeTimeout = 3 * time.Second

func queueMetric(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("posthaste_queue_"+name, help, []string{"queue", "subscription"}, nil)
}

var (
	upMetric     = prometheus.NewDesc("posthaste_store_up", "Whether the store answered (1) or not (0).", nil, nil)
	depthMetric  = queueMetric("depth", "Messages that wait, scheduled ones and retries included.")
	flightMetric = queueMetric("in_flight", "Messages handed out and not settled.")
	deadMetric   = queueMetric("dead_letters", "Dead letters.")
	oldestMetric = queueMetric("oldest_age_seconds", "Age of the oldest message that may be handed out.")
	sentMetric   = queueMetric("sent_total", "Messages sent since the queue was made.")
	doneMetric   = queueMetric("done_total", "Messages done since the queue was made.")
)

// Describe implements [prometheus.Collector].
func (m *queueMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{upMetric, depthMetric, flightMetric, deadMetric, oldestMetric, sentMetric, doneMetric} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (m *queueMetrics) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	queues, err := m.engine.Queues(ctx)
	if err != nil {
		out <- prometheus.MustNewConstMetric(upMetric, prometheus.GaugeValue, 0)
		return
	}
	out <- prometheus.MustNewConstMetric(upMetric, prometheus.GaugeValue, 1)
	for _, q := range queues {
		for _, s := range q.Subscriptions {
			tell := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
				out <- prometheus.MustNewConstMetric(d, kind, v, q.Name, s.Name)
			}
			tell(depthMetric, prometheus.GaugeValue, float64(s.Depth))
			tell(flightMetric, prometheus.GaugeValue, float64(s.InFlight))
			tell(deadMetric, prometheus.GaugeValue, float64(s.Dead))
			tell(oldestMetric, prometheus.GaugeValue, s.OldestAge.Seconds())
			tell(sentMetric, prometheus.CounterValue, float64(s.Sent))
			tell(doneMetric, prometheus.CounterValue, float64(s.Done))
		}
	}
}
