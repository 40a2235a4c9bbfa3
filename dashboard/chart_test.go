package dashboard

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func TestRates(t *testing.T) {
	t.Parallel()
	samples := []posthaste.Sample{
		{At: noon.Add(-time.Minute), Sent: 1000},
		{At: noon, Subscription: "default", Sent: 60, Done: 30, Retried: 6},
		{At: noon, Subscription: "audit", Sent: 60, Done: 60, Lost: 6},
		{At: noon.Add(2 * time.Minute), Sent: 30},
		{At: noon.Add(3 * time.Minute), Sent: 1000},
	}
	r := ratesOf(samples, noon, noon.Add(3*time.Minute), noon.Add(2*time.Minute+30*time.Second), time.Minute)
	if !slices.Equal(r.sent, []float64{1, 0, 1}) {
		t.Errorf("sent: %v; a message to two subscriptions is one, and the last step lasts half a minute so far", r.sent)
	}
	if !slices.Equal(r.done, []float64{1.5, 0, 0}) || !slices.Equal(r.failed, []float64{0.2, 0, 0}) {
		t.Errorf("done: %v, failed: %v", r.done, r.failed)
	}
}

func TestDepths(t *testing.T) {
	t.Parallel()
	samples := []posthaste.Sample{
		{At: noon.Add(time.Minute), Subscription: "default", Depth: 5},
		{At: noon.Add(2 * time.Minute), Subscription: "audit", Depth: 10},
		{At: noon.Add(3 * time.Minute), Subscription: "default", Depth: 0},
	}
	got := depthsOf(samples, noon, noon.Add(5*time.Minute), time.Minute)
	if !math.IsNaN(got[0]) || !slices.Equal(got[1:], []float64{5, 15, 10, 10}) {
		t.Errorf("got %v, want unknown, 5, 15, 10, 10", got)
	}
}

func TestChart(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	c := &chart{Title: "Waiting", From: noon, To: noon.Add(4 * time.Minute), Step: time.Minute, unit: whole,
		Series: []series{{"a", []float64{0, 28, nan, 14}}, {"b", []float64{nan, nan, nan, nan}}},
		Marks:  []mark{{noon.Add(time.Minute), "version 2 started"}, {noon.Add(-time.Minute), "before"}}}
	if top := c.top(); top != 30 {
		t.Errorf("the top is %g, want 30", top)
	}
	lines := c.Lines()
	if lines[0].Path != "M0.0 120.0L200.0 8.0M600.0 64.0" || lines[0].Last != "14" {
		t.Errorf("a line with a gap is %+v", lines[0])
	}
	if lines[1].Path != "" || lines[1].Last != "–" {
		t.Errorf("an unknown line is %+v", lines[1])
	}
	if ticks := c.Ticks(); len(ticks) != 4 || ticks[0] != (tick{"0.0", "30"}) || ticks[3] != (tick{"120.0", "0"}) {
		t.Errorf("ticks: %v", ticks)
	}
	if steps := c.Steps(); len(steps) != 4 || steps[1].Text != "12:01 UTC\na: 28" || steps[2].Text != "12:02 UTC" {
		t.Errorf("steps: %+v", steps)
	}
	if events := c.Events(); len(events) != 1 || events[0].X != "150.0" || !strings.Contains(events[0].Text, "version 2") {
		t.Errorf("events: %+v", events)
	}
	if got := c.Summary(); got != "Waiting, now: a 14, b –" {
		t.Errorf("the summary is %q", got)
	}
}

// No value of a store makes a chart that a browser cannot draw.
func TestChartOfOddValues(t *testing.T) {
	t.Parallel()
	for _, values := range [][]float64{nil, {0}, {-5, 1}, {math.MaxFloat64, 1}, {1e-300}, {math.NaN()}} {
		c := &chart{From: noon, To: noon, Step: time.Minute, unit: rate, Series: []series{{"a", values}}}
		for _, l := range c.Lines() {
			if strings.Contains(l.Path, "NaN") || strings.Contains(l.Path, "Inf") {
				t.Errorf("%v: path %q", values, l.Path)
			}
		}
		c.Steps()
		c.Ticks()
		spark(values)
	}
}

func TestRoundUp(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]float64{0: 1, 1: 1, 1.1: 2, 3: 5, 5.1: 10, 0.3: 0.5, 99: 100, 100: 100, 101: 200, math.Inf(1): 1} {
		if got := roundUp(v); math.Abs(got-want) > want*1e-9 {
			t.Errorf("roundUp(%g) is %g, want %g", v, got, want)
		}
	}
}

// Viewers share answers, and an error is not kept.
func TestFiguresAreShared(t *testing.T) {
	t.Parallel()
	now := noon
	f := &figures{timeout: time.Minute, now: func() time.Time { return now }, kept: map[string]*figure{}}
	calls := 0
	ask := func(key string, err error) (int, error) {
		return figureOf(f, key, time.Minute, func(context.Context, time.Time) (int, error) {
			calls++
			return calls, err
		})
	}
	ask("a", nil)
	if got, _ := ask("a", nil); got != 1 || calls != 1 {
		t.Errorf("the second viewer got %d after %d calls", got, calls)
	}
	now = now.Add(time.Minute + 1)
	if got, _ := ask("a", nil); got != 2 {
		t.Errorf("an old answer was returned: %d", got)
	}
	ask("b", errors.New("away"))
	if _, err := ask("b", nil); err != nil || calls != 4 {
		t.Errorf("an error was kept: %v, %d calls", err, calls)
	}
	for i := range 2 * maxFigures {
		ask(string(rune('0'+i)), nil)
	}
	if len(f.kept) > maxFigures {
		t.Errorf("%d answers are kept", len(f.kept))
	}
}
