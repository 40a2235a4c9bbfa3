package dashboard_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// report registers a worker of a version and reports counts of a kind that failed.
func report(t *testing.T, engine posthaste.Store, version string, stats posthaste.HandlerStats) {
	t.Helper()
	worker, err := engine.Register(t.Context(), posthaste.WorkerInfo{Name: "host/" + version, Version: version, Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	stats.Queue, stats.Subscription = "emails", posthaste.DefaultSubscription
	for range stats.Done + stats.Retried + stats.Failed {
		stats.Run.Add(40 * time.Millisecond)
		stats.Wait.Add(3 * time.Second)
	}
	if err := engine.Report(t.Context(), worker, []posthaste.HandlerStats{stats}); err != nil {
		t.Fatal(err)
	}
}

// After a bad deploy the page names kind, error and version, and leads to the messages and to
// pausing the kind.
func TestFailingNow(t *testing.T) {
	t.Parallel()
	engine := newStock(t)
	s := newSite(t, engine)
	report(t, engine, "v1", posthaste.HandlerStats{Kind: "invoice", Done: 90})
	report(t, engine, "v2", posthaste.HandlerStats{Kind: "invoice", Done: 2, Retried: 7, Failed: 1,
		Errors: []posthaste.ErrorCount{{Fingerprint: `column … does not exist`, Error: `column "vat" does not exist`, Message: 1, Count: 8}}})
	v := s.viewer(posthaste.ScopeOperate) // its first page is the overview, whose answers are kept for seconds
	page := v.get("/failing").want(200, "column … does not exist", `column "vat" does not exist`, "invoice", "v2")
	for _, want := range []string{`href="/messages/1"`, `href="/queues/emails/kinds/pause?kind=invoice"`, "state=retrying", ">new<"} {
		if !strings.Contains(page.body, want) {
			t.Errorf("the page lacks %s:\n%s", want, page.body)
		}
	}
	v.get("/failing?kind=other").want(200, "No attempt failed")
	v.get("/failing?queue=emails&kind=invoice&range=24h").want(200, "column … does not exist", "last 24 hours")
	v.get("/").want(200, "Failing now", "column … does not exist", "version v2")
	page = v.get("/queues/emails").want(200, "Handlers", "invoice 100 8 8.0 %", "v1 90 0 0", "v2 10 8 80.0 %", "run p95", "Wait p95")
	if n := strings.Count(page.body, "<svg"); n < 3 {
		t.Errorf("the page has %d charts, want 3", n)
	}
	v.get("/workers").want(200, "host/v2", "80.0 %")

	reader := s.viewer(posthaste.ScopeRead)
	if body := reader.get("/failing").body; strings.Contains(body, "/kinds/pause") {
		t.Error("a reader is offered to pause a kind")
	}
}

// sampled is a store with samples of its own.
type sampled struct {
	posthaste.Store
	asked []posthaste.SampleQuery
}

func (s *sampled) Samples(_ context.Context, q posthaste.SampleQuery) ([]posthaste.Sample, error) {
	s.asked = append(s.asked, q)
	var all []posthaste.Sample
	for at := q.From; at.Before(q.To); at = at.Add(q.Step) {
		seconds := min(q.Step, time.Since(at)).Seconds() // the present hour is not over
		all = append(all, posthaste.Sample{At: at, Queue: "orders", Subscription: "default", Sent: int64(5 * seconds), Done: int64(3 * seconds), Depth: 1234})
	}
	return all, nil
}

// Charts show the rates of the chosen time, and mark operators' actions and deploys.
func TestChartsOfSamples(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	engine := &sampled{Store: stock}
	s := newSite(t, engine)
	ctx := posthaste.WithActor(t.Context(), "ada")
	if err := stock.Pause(ctx, posthaste.OfQueue("orders"), posthaste.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	report(t, stock, "v9", posthaste.HandlerStats{Kind: "k", Done: 1})
	v := s.viewer(posthaste.ScopeRead)
	for of, steps := range map[string]int{"": 60, "1h": 60, "24h": 24, "30d": 120} {
		page := v.get("/queues/orders?range="+of).want(200, "Messages per second", "sent 5.0 done 3.0 failed 0", "waiting 1,234")
		if n := strings.Count(page.body, `class="step"`); n < 2*steps {
			t.Errorf("range %q has %d steps in all charts, want at least %d", of, n, 2*steps)
		}
		if of != "" && !strings.Contains(page.body, `aria-current="true">`+map[string]string{"1h": "Last hour", "24h": "Last 24 hours", "30d": "Last 30 days"}[of]) {
			t.Errorf("range %q is not marked as chosen", of)
		}
	}
	v.get("/queues/orders?range=24h").want(200, "pause orders by ada", "version v9 started")
	if !strings.Contains(v.get("/queues").body, "<polyline") {
		t.Error("the list of queues has no small charts")
	}
	before := len(engine.asked)
	for range 5 {
		v.get("/queues/orders?range=24h")
	}
	if len(engine.asked) != before {
		t.Errorf("viewers of the same chart asked the store %d times", len(engine.asked)-before)
	}
	if !slices.ContainsFunc(engine.asked, func(q posthaste.SampleQuery) bool { return fmt.Sprint(q.Queues) == "[orders]" && !q.Total }) ||
		!slices.ContainsFunc(engine.asked, func(q posthaste.SampleQuery) bool { return q.Queues == nil && q.Total }) {
		t.Errorf("the queries are %+v", engine.asked)
	}
}
