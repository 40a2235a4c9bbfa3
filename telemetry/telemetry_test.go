package telemetry_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/telemetry"
)

var events = []posthaste.Event{
	{Kind: posthaste.EventClaimed, Queue: "q", Subscription: "default", Count: 7},
	{Kind: posthaste.EventSettled, Queue: "q", Subscription: "default", Outcome: posthaste.OutcomeDone, Count: 5, Duration: 3 * time.Millisecond},
	{Kind: posthaste.EventSettled, Queue: "q", Subscription: "default", Outcome: posthaste.OutcomeDead, Count: 1, Duration: 2 * time.Second,
		Message: 12, Delivery: 34, Attempt: 3, Err: errors.New("no such user")},
	{Kind: posthaste.EventSettled, Queue: "q", Subscription: "default", Outcome: posthaste.OutcomeReleased, Count: 1},
	{Kind: posthaste.EventDuplicate, Queue: "q", Subscription: "default", Message: 13},
	{Kind: posthaste.EventRescued, Count: 4},
	{Kind: posthaste.EventWoken, Queue: "q", Subscription: "default"},
	{Kind: posthaste.EventLost},
	{Kind: posthaste.EventClock},
	{Kind: posthaste.EventTicked, Count: 2, Missed: 3},
	{Kind: posthaste.EventError, Task: "settle", Err: errors.New("away")},
}

func TestPrometheus(t *testing.T) {
	t.Parallel()
	p := telemetry.NewPrometheus()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(p); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for _, e := range events {
				p.Event(context.Background(), e)
			}
		})
	}
	all.Wait()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := valuesOf(t, families)
	want := map[string]string{
		"posthaste_deliveries_claimed_total":          "28",
		"posthaste_deliveries_settled_total done":     "20",
		"posthaste_deliveries_settled_total dead":     "4",
		"posthaste_deliveries_settled_total released": "4",
		"posthaste_possible_duplicates_total":         "4",
		"posthaste_wakeups_total":                     "4",
		"posthaste_task_errors_total settle":          "4",
		"posthaste_deliveries_rescued_total":          "16",
		"posthaste_worker_lost_total":                 "4",
		"posthaste_clock_set_back_total":              "4",
		"posthaste_ticks_sent_total":                  "8",
		"posthaste_ticks_missed_total":                "12",
		"posthaste_handler_duration_seconds done":     "20 runs, 0.060 s, 0 up to 2.5 ms, 20 up to 5 ms",
		"posthaste_handler_duration_seconds dead":     "4 runs, 8.000 s, 0 up to 2.5 ms, 0 up to 5 ms",
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("metrics %v", got)
	}
}

// A message from a broker is counted once, by outcome. If one of several connections to a
// broker is away, the gauge shows it.
func TestPrometheusOfBrokers(t *testing.T) {
	t.Parallel()
	p := telemetry.NewPrometheus()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(p)
	var away atomic.Bool
	shows := func(want map[string]float64) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "posthaste_source_messages_total" {
					got[m.GetLabel()[2].GetValue()] = m.GetCounter().GetValue()
				} else if f.GetName() == "posthaste_broker_up" {
					got["up "+m.GetLabel()[1].GetValue()] = m.GetGauge().GetValue()
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("shown are %v, want %v", got, want)
		}
	}
	shows(map[string]float64{})
	p.ExpectSource("q", "host:1")
	p.Broker("q", "host:1", func() bool { return false })
	p.Broker("q", "host:1", away.Load)
	p.Broker("r", "host:1", func() bool { return false })
	shows(map[string]float64{"sent": 0, "known": 0, "refused": 0, "up q": 1, "up r": 1})
	p.Event(t.Context(), posthaste.Event{Kind: posthaste.EventTaken, Queue: "q", Broker: "host:1", Count: 10, Known: 3, Failed: 2})
	away.Store(true)
	shows(map[string]float64{"sent": 5, "known": 3, "refused": 2, "up q": 0, "up r": 1})
}

// Every background task of a worker has a counter before its first failure.
func TestPrometheusKnowsTheTasks(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../worker/*.go")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(telemetry.NewPrometheus())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	tasks := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`task: "([a-z]+)"`).FindAllStringSubmatch(string(text), -1) {
			tasks++
			if !strings.Contains(fmt.Sprint(families), `value:"`+m[1]+`"`) {
				t.Errorf("%s: task %s is not shown", file, m[1])
			}
		}
	}
	if tasks < 5 {
		t.Errorf("only %d tasks were found", tasks)
	}
}

// valuesOf returns the metrics that are not 0, by name, outcome and task.
func valuesOf(t *testing.T, families []*dto.MetricFamily) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, f := range families {
		if f.GetHelp() == "" {
			t.Errorf("%s has no help text", f.GetName())
		}
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				if l.GetName() == "outcome" || l.GetName() == "task" {
					name += " " + l.GetValue()
				}
			}
			if value := valueOf(m); value != "0" { // a counter that was created before its first event
				values[name] = value
			}
		}
	}
	return values
}

func valueOf(m *dto.Metric) string {
	h := m.GetHistogram()
	if h == nil {
		return fmt.Sprint(m.GetCounter().GetValue())
	}
	upTo := map[float64]uint64{}
	for _, b := range h.GetBucket() {
		upTo[b.GetUpperBound()] = b.GetCumulativeCount()
	}
	return fmt.Sprintf("%d runs, %.3f s, %d up to 2.5 ms, %d up to 5 ms", h.GetSampleCount(), h.GetSampleSum(), upTo[.0025], upTo[.005])
}

func TestSlog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := telemetry.Slog(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo})))
	for _, e := range events {
		log.Event(context.Background(), e)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 6 { // dead, duplicate, rescued, lost, clock, error
		t.Errorf("%d lines above debug level, want 6:\n%s", len(lines), out.String())
	}
	for _, part := range []string{"level=ERROR", "message=12", "delivery=34", "attempt=3", "outcome=dead", `error="no such user"`, "queue=q", "duration=2s"} {
		if !strings.Contains(lines[0], part) {
			t.Errorf("the line of the dead letter has no %s: %s", part, lines[0])
		}
	}
}

type counter int

func (c *counter) Event(context.Context, posthaste.Event) { *c++ }

func TestMulti(t *testing.T) {
	t.Parallel()
	var a, b counter
	telemetry.Multi(&a, nil, &b).Event(context.Background(), events[0])
	if a != 1 || b != 1 {
		t.Errorf("called %d and %d times", a, b)
	}
	if _, none := telemetry.Multi(nil).(posthaste.NoTelemetry); !none {
		t.Error("without telemetries, the result must cost nothing")
	}
}
