package memory_test

import (
	"slices"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/memory"
)

// Details are removed by the engine's clock, and the sums of their hours later.
func TestFiguresEnd(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 10, 20, 30, 0, time.UTC)
	e := memory.OpenAt(func() time.Time { return now })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(e.CreateQueue(t.Context(), "jobs", posthaste.QueueOptions{}))
	w, err := e.Register(t.Context(), posthaste.WorkerInfo{Name: "w", Lease: time.Hour})
	must(err)
	report := func() {
		t.Helper()
		_, err := e.Send(t.Context(), posthaste.Message{Queue: "jobs"})
		must(err)
		must(e.Report(t.Context(), w, []posthaste.HandlerStats{{Queue: "jobs", Failed: 1, Errors: []posthaste.ErrorCount{{Fingerprint: "x", Count: 1}}}}))
		_, err = e.Maintain(t.Context(), posthaste.UpkeepSpace)
		must(err)
	}
	from := now
	want := func(what string, stats, failed, sent int64) {
		t.Helper()
		var got [3]int64
		for _, step := range []time.Duration{time.Minute, time.Hour} {
			counts, err := e.HandlerStats(t.Context(), posthaste.StatsQuery{From: from, Step: step})
			must(err)
			got[0] += int64(len(counts))
			samples, err := e.Samples(t.Context(), posthaste.SampleQuery{From: from, Step: step})
			must(err)
			for _, x := range samples {
				got[2] += x.Sent
			}
		}
		failures, err := e.Failures(t.Context(), posthaste.FailureQuery{From: from})
		must(err)
		for _, f := range failures {
			got[1] += f.Count
		}
		if got != [3]int64{stats, failed, sent} {
			t.Errorf("%s there are %v, want %v", what, got, []int64{stats, failed, sent})
		}
	}
	report()
	want("at once", 2, 1, 2)
	now = now.Add(30 * time.Second)
	report() // in the same minute by the sample's interval, and the next of the clock
	want("half a minute later", 3, 2, 2)
	now = now.Add(30 * time.Second)
	report()
	want("a minute later", 3, 3, 6)
	now = now.Add(posthaste.ChartDetail + 2*time.Minute)
	report()
	want("when details have ended", 3, 4, 5)
	now = now.Add(posthaste.ChartHours + 2*time.Hour)
	report()
	want("when hours have ended", 2, 1, 2)
}

// Erasing a message erases its errors, too: the text, and the fingerprint if it was the only one.
func TestFailuresAreErased(t *testing.T) {
	t.Parallel()
	e := memory.Open()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx := posthaste.WithActor(t.Context(), "ada")
	must(e.CreateQueue(ctx, "jobs", posthaste.QueueOptions{}))
	w, err := e.Register(ctx, posthaste.WorkerInfo{Name: "w", Lease: time.Hour})
	must(err)
	sent, err := e.Send(ctx, posthaste.Message{Queue: "jobs", Terms: []string{"ada"}}, posthaste.Message{Queue: "jobs"})
	must(err)
	var all []posthaste.ErrorCount
	for i, text := range []string{"only hers", "hers and others'", "another's"} {
		all = append(all, posthaste.ErrorCount{Fingerprint: text, Error: text, Message: sent[i/2].ID, Count: int64(i + 1)})
	}
	must(e.Report(ctx, w, []posthaste.HandlerStats{{Queue: "jobs", Failed: 6, Errors: all}}))
	_, err = e.Cancel(ctx, sent[0].ID)
	must(err)
	_, err = e.Erase(ctx, "ada", 0)
	must(err)
	for _, ago := range []time.Duration{time.Minute, 72 * time.Hour} {
		found, err := e.Failures(ctx, posthaste.FailureQuery{From: time.Now().Add(-ago)})
		must(err)
		var got []string
		for _, f := range found {
			got = append(got, f.Fingerprint+": "+f.Error)
		}
		if want := []string{"another's: another's", "hers and others': erased", "erased: erased"}; !slices.Equal(got, want) {
			t.Errorf("the failures are %q, want %q", got, want)
		}
	}
}
