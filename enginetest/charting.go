package enginetest

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var charting = []test{
	{name: "ReportsAreGrouped", run: reportsAreGrouped, needs: features{Charts: true}},
	{name: "ReportsAreSelected", run: reportsAreSelected, needs: features{Charts: true}},
	{name: "ReportsAreSummedBySteps", run: reportsAreSummedBySteps, needs: features{Charts: true}},
	{name: "ReportsOfTheLost", run: reportsOfTheLost, needs: features{Charts: true}},
	{name: "ReportsAreChecked", run: reportsAreChecked, needs: features{Charts: true}},
	{name: "Failures", run: failures, needs: features{Charts: true}},
	{name: "FailuresAreLimited", run: failuresAreLimited, needs: features{Charts: true}},
	{name: "Samples", run: samples, needs: features{Charts: true}},
	{name: "SamplesOfSubscriptions", run: samplesOfSubscriptions, needs: features{Charts: true, Subscriptions: true}},
	{name: "ChartsOfNothing", run: chartsOfNothing, needs: features{Charts: true}},
}

// reporter registers a worker with a name and a version.
func (s *suite) reporter(name, version string) posthaste.WorkerID {
	s.Helper()
	id, err := s.engine.Register(s.ctx, posthaste.WorkerInfo{Name: name, Version: version, Lease: time.Minute})
	s.must(err)
	return id
}

// handled returns counts of a kind of the test's queue. Each message waited 3 ms and ran 40 ms.
func (s *suite) handled(kind string, done, retried, failed int64) posthaste.HandlerStats {
	stats := posthaste.HandlerStats{Queue: s.queue, Subscription: posthaste.DefaultSubscription, Kind: kind, Done: done, Retried: retried, Failed: failed}
	for range done + retried + failed {
		stats.Wait.Add(3 * time.Millisecond)
		stats.Run.Add(40 * time.Millisecond)
	}
	return stats
}

func (s *suite) report(w posthaste.WorkerID, stats ...posthaste.HandlerStats) {
	s.Helper()
	s.must(s.engine.Report(s.ctx, w, stats))
}

func (s *suite) handlerStats(q posthaste.StatsQuery) []posthaste.HandlerStats {
	s.Helper()
	all, err := s.engine.HandlerStats(s.ctx, q)
	s.must(err)
	if !slices.IsSortedFunc(all, func(a, b posthaste.HandlerStats) int { return a.At.Compare(b.At) }) {
		s.Errorf("the result of %+v is not ordered by time: %+v", q, all)
	}
	return all
}

// sums returns the sums of done, retried and failed attempts by the groups of a result.
func sums(all []posthaste.HandlerStats) map[string][3]int64 {
	by := map[string][3]int64{}
	for _, g := range all {
		key := fmt.Sprintf("%s/%s/%s/%s/%s", g.Queue, g.Subscription, g.Kind, g.Version, g.Worker)
		n := by[key]
		by[key] = [3]int64{n[0] + g.Done, n[1] + g.Retried, n[2] + g.Failed}
	}
	return by
}

// reportTwice sends reports of two workers: one of version 1 and one of version 2.
func (s *suite) reportTwice() {
	s.Helper()
	s.create(posthaste.QueueOptions{})
	old, recent := s.reporter("host-a", "1"), s.reporter("host-b", "2")
	s.report(old, s.handled("mail", 3, 1, 0), s.handled("sms", 1, 0, 0))
	s.report(recent, s.handled("mail", 2, 0, 1), s.handled("", 7, 0, 0))
	s.report(old, s.handled("mail", 10, 0, 0))
}

func reportsAreGrouped(s *suite) {
	s.reportTwice()
	for by, want := range map[posthaste.StatsBy]map[string][3]int64{
		0:                   {"////": {23, 1, 1}},
		posthaste.ByQueue:   {"suite/default///": {23, 1, 1}},
		posthaste.ByKind:    {"//mail//": {15, 1, 1}, "//sms//": {1}, "////": {7}},
		posthaste.ByVersion: {"///1/": {14, 1, 0}, "///2/": {9, 0, 1}},
		posthaste.ByWorker:  {"////host-a": {14, 1, 0}, "////host-b": {9, 0, 1}},
		posthaste.ByQueue | posthaste.ByKind | posthaste.ByVersion | posthaste.ByWorker: {
			"suite/default/mail/1/host-a": {13, 1, 0}, "suite/default/sms/1/host-a": {1}, "suite/default/mail/2/host-b": {2, 0, 1}, "suite/default//2/host-b": {7}},
	} {
		// The details, and the hours with the present one.
		for _, ago := range []time.Duration{time.Hour, 72 * time.Hour} {
			all := s.handlerStats(posthaste.StatsQuery{Queue: s.queue, By: by, From: time.Now().Add(-ago)})
			if got := sums(all); !maps.Equal(got, want) {
				s.Errorf("by %b from %s ago: %v, want %v", by, ago, got, want)
			}
			for _, g := range all {
				n := g.Done + g.Retried + g.Failed
				if g.Wait[2] != n || g.Wait.Count() != n || g.Run[6] != n || g.Run.Count() != n {
					s.Errorf("by %b: %d messages waited %v and ran %v", by, n, g.Wait, g.Run)
				}
				if len(g.Errors) != 0 {
					s.Errorf("by %b: errors %v", by, g.Errors)
				}
			}
			if len(all) != len(want) {
				s.Errorf("by %b: %d results for %d groups of one step", by, len(all), len(want))
			}
		}
	}
}

func reportsAreSelected(s *suite) {
	s.reportTwice()
	now := time.Now()
	for what, of := range map[string]struct {
		query posthaste.StatsQuery
		done  int64
	}{
		"the queue":               {posthaste.StatsQuery{Queue: s.queue}, 23},
		"the subscription":        {posthaste.StatsQuery{Queue: s.queue, Subscription: posthaste.DefaultSubscription}, 23},
		"a kind":                  {posthaste.StatsQuery{Queue: s.queue, Kind: "mail"}, 15},
		"by hours":                {posthaste.StatsQuery{Queue: s.queue, Kind: "mail", Step: 24 * time.Hour}, 15},
		"an unknown queue":        {posthaste.StatsQuery{Queue: "nowhere"}, 0},
		"an unknown subscription": {posthaste.StatsQuery{Queue: s.queue, Subscription: "unknown"}, 0},
		"an unknown kind":         {posthaste.StatsQuery{Queue: s.queue, Kind: "unknown", Step: time.Minute}, 0},
		"earlier":                 {posthaste.StatsQuery{Queue: s.queue, To: now.Add(-30 * time.Minute)}, 0},
		"earlier by hours":        {posthaste.StatsQuery{Queue: s.queue, From: now.Add(-72 * time.Hour), To: now.Add(-3 * time.Hour)}, 0},
		"later":                   {posthaste.StatsQuery{Queue: s.queue, From: now.Add(2 * time.Hour), To: now.Add(3 * time.Hour)}, 0},
		"until later":             {posthaste.StatsQuery{Queue: s.queue, From: now.Add(-time.Hour), To: now.Add(time.Hour)}, 23},
	} {
		var done int64
		for _, g := range s.handlerStats(of.query) {
			done += g.Done
		}
		if done != of.done {
			s.Errorf("%s: %d messages are done, want %d", what, done, of.done)
		}
	}
	s.must(s.engine.DropQueue(posthaste.WithActor(s.ctx, "ada"), s.queue, posthaste.DropOptions{}))
	if got := s.handlerStats(posthaste.StatsQuery{Queue: s.queue, By: posthaste.ByQueue}); len(got) != 0 {
		s.Errorf("figures of a dropped queue are returned: %+v", got)
	}
}

func reportsAreSummedBySteps(s *suite) {
	s.reportTwice()
	for _, step := range []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour} {
		// Of two reports one may be in the next step.
		all := s.handlerStats(posthaste.StatsQuery{Queue: s.queue, Step: step})
		if got, want := sums(all), map[string][3]int64{"////": {23, 1, 1}}; !maps.Equal(got, want) || len(all) > 2 {
			s.Errorf("by steps of %s: %+v, want the sums %v", step, all, want)
		}
		for _, g := range all {
			if age := time.Since(g.At); !g.At.Equal(g.At.Truncate(step)) || age < -time.Minute || age > step+5*time.Minute {
				s.Errorf("a step of %s begins at %s, %s ago", step, g.At, age)
			}
		}
	}
	// One step for the whole time begins with the query's time.
	from := time.Now().Add(-30 * time.Minute).Truncate(time.Minute)
	if all := s.handlerStats(posthaste.StatsQuery{Queue: s.queue, From: from}); len(all) != 1 || !all[0].At.Equal(from) {
		s.Errorf("one step from %s: %+v", from, all)
	}
}

// reportsOfTheLost: a worker that is not registered cannot report. A report about a queue that
// was dropped meanwhile is stored without it.
func reportsOfTheLost(s *suite) {
	s.create(posthaste.QueueOptions{})
	w := s.reporter("host-a", "1")
	dropped, ended := s.handled("mail", 1, 0, 0), s.handled("mail", 1, 0, 0)
	dropped.Queue, ended.Subscription = "nowhere", "unknown"
	s.report(w, dropped, s.handled("mail", 2, 0, 0), ended)
	s.report(w)
	if got := s.handlerStats(posthaste.StatsQuery{}); len(got) != 1 || got[0].Done != 2 {
		s.Errorf("of three counts, two of them of nothing, there are %+v", got)
	}
	s.must(s.engine.Unregister(s.ctx, w))
	s.wantCode("a report of a worker that left", s.engine.Report(s.ctx, w, []posthaste.HandlerStats{s.handled("mail", 4, 0, 0)}), posthaste.CodeWorkerLost)
	s.wantCode("a report of an unknown worker", s.engine.Report(s.ctx, w+1000, []posthaste.HandlerStats{s.handled("mail", 4, 0, 0)}), posthaste.CodeWorkerLost)
	if got := s.handlerStats(posthaste.StatsQuery{}); len(got) != 1 || got[0].Done != 2 {
		s.Errorf("after refused reports there are %+v", got)
	}
}

func reportsAreChecked(s *suite) {
	for what, call := range map[string]func() error{
		"a step of half minutes": func() error {
			_, err := s.engine.HandlerStats(s.ctx, posthaste.StatsQuery{Step: 90 * time.Second})
			return err
		},
		"from after to": func() error {
			_, err := s.engine.HandlerStats(s.ctx, posthaste.StatsQuery{From: time.Now(), To: time.Now().Add(-time.Hour)})
			return err
		},
		"a limit of thousands": func() error {
			_, err := s.engine.Failures(s.ctx, posthaste.FailureQuery{Limit: 1001})
			return err
		},
		"samples of half minutes": func() error {
			_, err := s.engine.Samples(s.ctx, posthaste.SampleQuery{Step: 90 * time.Second})
			return err
		},
	} {
		s.wantCode(what, call(), posthaste.CodeInvalid)
	}
}

// broken returns counts of a kind with failed attempts.
func (s *suite) broken(kind string, of ...posthaste.ErrorCount) posthaste.HandlerStats {
	stats := s.handled(kind, 0, 0, 0)
	for _, e := range of {
		stats.Failed += e.Count
	}
	stats.Errors = of
	return stats
}

func (s *suite) failures(q posthaste.FailureQuery) []posthaste.Failure {
	s.Helper()
	all, err := s.engine.Failures(s.ctx, q)
	s.must(err)
	return all
}

func failures(s *suite) {
	s.create(posthaste.QueueOptions{})
	old, recent := s.reporter("host-a", "1"), s.reporter("host-b", "2")
	refused := func(n int64, m posthaste.MessageID) posthaste.ErrorCount {
		return posthaste.ErrorCount{Fingerprint: "refused by …", Error: fmt.Sprintf("refused by %d: \"no\", 'é'", m), Message: m, Count: n}
	}
	s.report(old, s.broken("mail", refused(2, 7), posthaste.ErrorCount{Fingerprint: "timeout", Error: "timeout", Message: 9, Count: 1}))
	s.report(recent, s.broken("mail", refused(50, 8)))
	s.report(old, s.broken("mail", refused(3, 11)), s.broken("sms", refused(10, 12)), s.handled("fax", 3, 0, 0))
	for _, ago := range []time.Duration{30 * time.Minute, 72 * time.Hour} {
		from := time.Now().Add(-ago)
		all := s.failures(posthaste.FailureQuery{Queue: s.queue, From: from})
		var got []string
		for _, f := range all {
			got = append(got, fmt.Sprintf("%s %s %s %s %s %d", f.Queue, f.Subscription, f.Kind, f.Version, f.Fingerprint, f.Count))
			if age := time.Since(f.First); f.First.After(f.Last) || age > 10*time.Minute || age < -time.Minute {
				s.Errorf("from %s ago: %q first came at %s and last at %s", ago, f.Fingerprint, f.First, f.Last)
			}
		}
		want := []string{"suite default mail 2 refused by … 50", "suite default sms 1 refused by … 10", "suite default mail 1 refused by … 5", "suite default mail 1 timeout 1"}
		if !slices.Equal(got, want) {
			s.Fatalf("from %s ago the failures are %q, want %q", ago, got, want)
		}
		// Of several, any text and its message.
		if m := all[2].Message; (m != 7 && m != 11) || all[2].Error != refused(1, m).Error || all[3].Message != 9 || all[3].Error != "timeout" {
			s.Errorf("from %s ago the errors are %+v", ago, all)
		}
	}
	for what, of := range map[string]struct {
		query posthaste.FailureQuery
		n     int
	}{
		"all":                     {posthaste.FailureQuery{}, 4},
		"a kind":                  {posthaste.FailureQuery{Queue: s.queue, Kind: "mail"}, 3},
		"the subscription":        {posthaste.FailureQuery{Queue: s.queue, Subscription: posthaste.DefaultSubscription, Kind: "sms"}, 1},
		"an unknown subscription": {posthaste.FailureQuery{Queue: s.queue, Subscription: "unknown"}, 0},
		"an unknown queue":        {posthaste.FailureQuery{Queue: "nowhere"}, 0},
		"later":                   {posthaste.FailureQuery{Queue: s.queue, From: time.Now().Add(time.Hour)}, 0},
	} {
		if got := s.failures(of.query); len(got) != of.n {
			s.Errorf("%s: %d failures, want %d", what, len(got), of.n)
		}
	}
}

// failuresAreLimited: a store keeps the most frequent errors of a kind, and a query returns the
// most frequent ones.
func failuresAreLimited(s *suite) {
	s.create(posthaste.QueueOptions{})
	w := s.reporter("host-a", "1")
	var stats []posthaste.HandlerStats
	for i := range 30 {
		text := fmt.Sprintf("error %c", 'a'+i)
		stats = append(stats, s.broken(fmt.Sprint("kind-", i), posthaste.ErrorCount{Fingerprint: text, Error: text, Count: int64(i + 1)}))
	}
	s.report(w, stats...)
	if got := s.failures(posthaste.FailureQuery{Queue: s.queue}); len(got) != 30 || got[0].Count != 30 || got[29].Count != 1 {
		s.Errorf("there are %d failures: %+v", len(got), got)
	}
	if got := s.failures(posthaste.FailureQuery{Queue: s.queue, Limit: 2}); len(got) != 2 || got[0].Count != 30 || got[1].Count != 29 {
		s.Errorf("the two most frequent are %+v", got)
	}
}

func (s *suite) samples(q posthaste.SampleQuery) []posthaste.Sample {
	s.Helper()
	all, err := s.engine.Samples(s.ctx, q)
	s.must(err)
	if !slices.IsSortedFunc(all, func(a, b posthaste.Sample) int { return a.At.Compare(b.At) }) {
		s.Errorf("the samples of %+v are not ordered by time: %+v", q, all)
	}
	return all
}

// sampled does upkeep until the samples of a subscription add up to a number of sent messages,
// and returns their sum, with the last depths. The first upkeep of a store takes a sample.
func (s *suite) sampled(subscription string, sent int64, step time.Duration) (sum posthaste.Sample) {
	s.Helper()
	s.until(fmt.Sprintf("the samples have %d messages", sent), func() bool {
		_, err := s.engine.Maintain(s.ctx, posthaste.UpkeepSpace)
		s.must(err)
		sum = posthaste.Sample{}
		for _, x := range s.samples(posthaste.SampleQuery{Queues: []string{s.queue}, Step: step}) {
			if x.Queue != s.queue || !x.At.Equal(x.At.Truncate(max(step, time.Minute))) || time.Since(x.At) > step+5*time.Minute {
				s.Fatalf("a sample of queue %s by %s: %+v", s.queue, step, x)
			}
			if x.Subscription == subscription {
				sent, done, retried := sum.Sent+x.Sent, sum.Done+x.Done, sum.Retried+x.Retried
				sum = x
				sum.Sent, sum.Done, sum.Retried = sent, done, retried
			}
		}
		return sum.Sent >= sent
	})
	return sum
}

func samples(s *suite) {
	s.create(posthaste.QueueOptions{MaxAttempts: 3, BackoffBase: time.Hour, BackoffMax: time.Hour})
	s.send(7)
	w := s.register(time.Minute)
	d := s.claimed(w, 6)
	s.settle(done, d[0], d[1])
	s.settle(hopeless, d[2])
	s.settle(failed, d[3])
	for _, step := range []time.Duration{0, 5 * time.Minute, time.Hour, 24 * time.Hour} {
		got := s.sampled(posthaste.DefaultSubscription, 7, step)
		if age := got.OldestAge; age <= 0 || age > time.Minute {
			s.Errorf("by %s: the oldest message waits since %s", step, age)
		}
		want := posthaste.Sample{At: got.At, Queue: s.queue, Subscription: posthaste.DefaultSubscription, Sent: 7, Done: 2, Retried: 1, Depth: 2, InFlight: 2, Dead: 1, OldestAge: got.OldestAge}
		if got != want {
			s.Errorf("by %s: the samples come to %+v, want %+v", step, got, want)
		}
	}
	total := s.samples(posthaste.SampleQuery{Queues: []string{s.queue}, Total: true, Step: time.Hour})
	if len(total) != 1 || total[0] != (posthaste.Sample{At: total[0].At, Sent: 7, Done: 2, Retried: 1}) {
		s.Errorf("in total there are %+v", total)
	}
	before := s.samples(posthaste.SampleQuery{Queues: []string{s.queue}})
	_, err := s.engine.Maintain(s.ctx, posthaste.UpkeepSpace)
	s.must(err)
	if after := s.samples(posthaste.SampleQuery{Queues: []string{s.queue}}); !slices.Equal(after, before) {
		s.Errorf("nothing changed, and the samples changed from %+v to %+v", before, after)
	}
	now := time.Now()
	for what, q := range map[string]posthaste.SampleQuery{
		"an unknown queue": {Queues: []string{"nowhere"}},
		"earlier":          {Queues: []string{s.queue}, From: now.Add(-time.Hour), To: now.Add(-30 * time.Minute)},
		"later":            {Queues: []string{s.queue}, From: now.Add(2 * time.Hour), To: now.Add(3 * time.Hour)},
	} {
		if got := s.samples(q); len(got) != 0 {
			s.Errorf("%s: %+v", what, got)
		}
	}
}

// samplesOfSubscriptions: each subscription has samples of its own, and a total adds them.
func samplesOfSubscriptions(s *suite) {
	s.create(posthaste.QueueOptions{})
	s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "other", posthaste.SubscriptionOptions{}))
	s.send(3)
	s.settle(done, s.claimed(s.register(time.Minute), 3)...)
	for subscription, want := range map[string]posthaste.Sample{posthaste.DefaultSubscription: {Sent: 3, Done: 3}, "other": {Sent: 3, Depth: 3}} {
		got := s.sampled(subscription, 3, time.Hour)
		if got.Sent != want.Sent || got.Done != want.Done || got.Depth != want.Depth || (got.OldestAge > 0) != (want.Depth > 0) {
			s.Errorf("subscription %s: %+v, want %+v", subscription, got, want)
		}
	}
	var sent, done int64
	for _, x := range s.samples(posthaste.SampleQuery{Queues: []string{s.queue}, Total: true}) {
		sent, done = sent+x.Sent, done+x.Done
	}
	if sent != 6 || done != 3 {
		s.Errorf("in total %d messages were sent and %d done, want 6 and 3", sent, done)
	}
}

// chartsOfNothing: a queue without any message has no figures.
func chartsOfNothing(s *suite) {
	s.create(posthaste.QueueOptions{})
	_, err := s.engine.Maintain(s.ctx, posthaste.UpkeepSpace)
	s.must(err)
	for _, step := range []time.Duration{0, time.Minute, time.Hour} {
		if got := s.handlerStats(posthaste.StatsQuery{Queue: s.queue, Step: step}); len(got) != 0 {
			s.Errorf("counts of nothing: %+v", got)
		}
		for _, total := range []bool{false, true} {
			if got := s.samples(posthaste.SampleQuery{Queues: []string{s.queue}, Total: total, Step: step}); len(got) != 0 {
				s.Errorf("samples of nothing: %+v", got)
			}
		}
	}
	if got := s.failures(posthaste.FailureQuery{Queue: s.queue}); len(got) != 0 {
		s.Errorf("failures of nothing: %+v", got)
	}
}
