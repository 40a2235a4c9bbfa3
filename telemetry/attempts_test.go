package telemetry_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/telemetry"
)

// Waits and runs that a worker counted are histograms by kind, with the buckets of the charts.
// Kinds above the maximum share one series.
func TestPrometheusOfAttempts(t *testing.T) {
	t.Parallel()
	p := telemetry.NewPrometheus()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(p)
	for range 2 {
		for i := range posthaste.MaxStatsKinds + 3 {
			stats := posthaste.HandlerStats{Queue: "q", Subscription: "default", Kind: fmt.Sprint("kind", i), Done: 2}
			stats.Wait.Add(3 * time.Millisecond)
			stats.Wait.Add(1 << 40 * time.Millisecond)
			stats.Run.Add(500 * time.Microsecond)
			p.Event(t.Context(), posthaste.Event{Kind: posthaste.EventCounted, Queue: "q", Subscription: "default", Count: 2, Stats: &stats,
				WaitSum: 5 * time.Second, RunSum: time.Second / 2})
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if strings.HasPrefix(f.GetName(), "posthaste_attempt_") {
				found[f.GetName()+" "+kindOf(m)] = bucketsOf(m.GetHistogram())
			}
		}
	}
	for name, want := range map[string]string{
		"posthaste_attempt_wait_seconds kind0":         "4 in 10 s, 0 up to 0.002 s, 2 up to 0.004 s, 2 up to 1.073741824e+06 s",
		"posthaste_attempt_run_seconds kind0":          "2 in 1 s, 2 up to 0.001 s, 2 up to 1.073741824e+06 s",
		"posthaste_attempt_run_seconds (other kinds)":  "6 in 3 s, 6 up to 0.001 s, 6 up to 1.073741824e+06 s",
		"posthaste_attempt_wait_seconds (other kinds)": "12 in 30 s, 0 up to 0.002 s, 6 up to 0.004 s, 6 up to 1.073741824e+06 s",
	} {
		if found[name] != want {
			t.Errorf("%s is %q, want %q", name, found[name], want)
		}
	}
	if len(found) != 2*(posthaste.MaxStatsKinds+1) {
		t.Errorf("%d series", len(found))
	}
}

func kindOf(m *dto.Metric) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == "kind" {
			return l.GetValue()
		}
	}
	return ""
}

// bucketsOf returns a histogram's count and sum, the buckets around the first value, and the last
// one.
func bucketsOf(h *dto.Histogram) string {
	text, before := fmt.Sprintf("%d in %v s", h.GetSampleCount(), h.GetSampleSum()), ""
	for i, b := range h.GetBucket() {
		bucket := fmt.Sprintf(", %d up to %v s", b.GetCumulativeCount(), b.GetUpperBound())
		if b.GetCumulativeCount() == 0 {
			before = bucket
			continue
		}
		if before != "" || i == 0 {
			text, before = text+before+bucket, ""
		}
		if i == len(h.GetBucket())-1 {
			text += bucket
		}
	}
	return text
}
