package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// maxMarks is how many operators' actions charts show, the newest.
const maxMarks = 20

// charts are the charts of a page, and the events that they mark.
type charts struct {
	Charts []*chart
	Marks  []mark
}

// choice is a link to a span.
type choice struct {
	Title, Link string
	Chosen      bool
}

// choices are the links to all spans.
func (p *page) choices() (all []choice) {
	chosen := p.span()
	for i, s := range spans {
		name := s.Name
		if i == 0 {
			name = ""
		}
		all = append(all, choice{s.Title, p.with("range", name), s.Name == chosen.Name})
	}
	return all
}

// flow returns the charts of the messages of a queue, or of all.
func (p *page) flow(queue string, s *snapshot) (*charts, error) {
	of := p.span()
	flow, err := figureOf(p.d.figures, "flow "+of.Name+" "+queue, of.age, func(ctx context.Context, now time.Time) ([]*chart, error) {
		from, to := of.bounds(now)
		query := posthaste.SampleQuery{Total: queue == "", From: from, To: to, Step: of.step}
		if queue != "" {
			query.Queues = []string{queue}
		}
		samples, err := p.d.engine.Samples(ctx, query)
		r := ratesOf(samples, from, to, now, of.step)
		all := []*chart{{Title: "Messages per second", From: from, To: to, Step: of.step, unit: rate,
			Series: []series{{"sent", r.sent}, {"done", r.done}, {"failed", r.failed}}}}
		if queue != "" {
			all = append(all, &chart{Title: "Waiting messages", From: from, To: to, Step: of.step, unit: whole,
				Series: []series{{"waiting", depthsOf(samples, from, to, of.step)}}})
		}
		return all, err
	})
	if err != nil {
		return nil, err
	}
	return p.marked(flow, queue, s)
}

// marked returns charts with the marks of deploys and operators' actions.
func (p *page) marked(all []*chart, queue string, s *snapshot) (*charts, error) {
	shown := &charts{}
	if len(all) == 0 {
		return shown, nil
	}
	if !p.Limited() { // else the records of other queues would be shown
		actions, err := p.recentActions(queue)
		if err != nil {
			return nil, err
		}
		shown.Marks = append(deploys(s.workers), actions...)
	}
	from, to := all[0].From, all[0].To
	shown.Marks = slices.DeleteFunc(shown.Marks, func(m mark) bool { return m.At.Before(from) || m.At.After(to) })
	slices.SortStableFunc(shown.Marks, func(a, b mark) int { return b.At.Compare(a.At) })
	for _, c := range all {
		own := *c // others show it at the same time
		own.Marks = shown.Marks
		shown.Charts = append(shown.Charts, &own)
	}
	return shown, nil
}

// recentActions returns the newest actions of operators, of one queue or of all.
func (p *page) recentActions(queue string) ([]mark, error) {
	return figureOf(p.d.figures, "actions "+queue, stateAge, func(ctx context.Context, _ time.Time) (marks []mark, err error) {
		actions, err := p.d.engine.Actions(ctx, posthaste.ActionFilter{Queue: queue, Limit: maxMarks})
		for _, a := range actions {
			text := a.Action + " by " + a.By
			if a.Queue != "" {
				text = a.Action + " " + a.Queue + " by " + a.By
			}
			marks = append(marks, mark{a.At, text})
		}
		return marks, err
	})
}

// deploys returns when the first running worker of each version started.
func deploys(workers []posthaste.WorkerStatus) (marks []mark) {
	first := map[string]time.Time{}
	for _, w := range workers {
		if at, known := first[w.Version]; !known || w.StartedAt.Before(at) {
			first[w.Version] = w.StartedAt
		}
	}
	for version, at := range first {
		if version != "" {
			marks = append(marks, mark{at, "version " + version + " started"})
		}
	}
	return marks
}

// whole formats a number of messages.
func whole(v float64) string { return number(int64(math.Round(v))) }

// milliseconds formats a duration in milliseconds.
func milliseconds(v float64) string {
	if v == 0 {
		return "0"
	}
	return duration(time.Duration(v * float64(time.Millisecond)))
}

// handled are the counts of a group of handled messages, for a table.
type handled struct {
	Name                  string
	Done, Retried, Failed int64
	Run50, Run95, Run99   time.Duration
	Wait95                time.Duration
}

// Attempts is the number of attempts.
func (h handled) Attempts() int64 { return h.Done + h.Retried + h.Failed }

// Unsuccessful is the number of attempts that failed, and were retried or were the last.
func (h handled) Unsuccessful() int64 { return h.Retried + h.Failed }

// Share is the share of attempts that did not succeed.
func (h handled) Share() string {
	if h.Unsuccessful() == 0 {
		return "0"
	}
	share := 100 * float64(h.Unsuccessful()) / float64(h.Attempts())
	if share < 0.1 {
		return "<0.1 %"
	}
	return fmt.Sprintf("%.1f %%", share)
}

func newHandled(name string, s *posthaste.HandlerStats) handled {
	return handled{Name: name, Done: s.Done, Retried: s.Retried, Failed: s.Failed,
		Run50: s.Run.Quantile(0.5), Run95: s.Run.Quantile(0.95), Run99: s.Run.Quantile(0.99), Wait95: s.Wait.Quantile(0.95)}
}

// handling is the part of a queue's page about its handlers.
type handling struct {
	Kinds, Versions []handled
	Durations       *chart
}

// handling returns the counts of a queue's handlers.
func (p *page) handling(queue string) (*handling, error) {
	of := p.span()
	return figureOf(p.d.figures, "handling "+of.Name+" "+queue, of.age, func(ctx context.Context, now time.Time) (*handling, error) {
		from, to := of.bounds(now)
		query := posthaste.StatsQuery{Queue: queue, From: from, By: posthaste.ByKind | posthaste.ByVersion}
		groups, err := p.d.engine.HandlerStats(ctx, query)
		if err != nil {
			return nil, err
		}
		h := &handling{
			Kinds:    grouped(groups, func(s *posthaste.HandlerStats) string { return s.Kind }),
			Versions: grouped(groups, func(s *posthaste.HandlerStats) string { return s.Version }),
		}
		steps, err := p.d.engine.HandlerStats(ctx, posthaste.StatsQuery{Queue: queue, From: from, To: to, Step: of.step})
		h.Durations = durations(steps, from, to, of.step)
		return h, err
	})
}

// grouped sums up counts by a name, most attempts first.
func grouped(all []posthaste.HandlerStats, name func(*posthaste.HandlerStats) string) (rows []handled) {
	sums := map[string]*posthaste.HandlerStats{}
	for i := range all {
		s := &all[i]
		sum := sums[name(s)]
		if sum == nil {
			sum = &posthaste.HandlerStats{}
			sums[name(s)] = sum
		}
		sum.Done, sum.Retried, sum.Failed = sum.Done+s.Done, sum.Retried+s.Retried, sum.Failed+s.Failed
		sum.Wait.Merge(&s.Wait)
		sum.Run.Merge(&s.Run)
	}
	for name, sum := range sums {
		rows = append(rows, newHandled(name, sum))
	}
	slices.SortFunc(rows, func(a, b handled) int {
		return cmp.Or(cmp.Compare(b.Attempts(), a.Attempts()), cmp.Compare(a.Name, b.Name))
	})
	return rows
}

// durations returns the chart of how long messages wait and handlers run.
func durations(steps []posthaste.HandlerStats, from, to time.Time, step time.Duration) *chart {
	n := int(to.Sub(from) / step)
	c := &chart{Title: "Durations", From: from, To: to, Step: step, unit: milliseconds,
		Series: []series{{"wait p95", nil}, {"run p50", nil}, {"run p95", nil}}}
	for i := range c.Series {
		c.Series[i].Values = make([]float64, n)
		for j := range n {
			c.Series[i].Values[j] = math.NaN()
		}
	}
	for _, s := range steps {
		i := int(s.At.Sub(from) / step)
		if s.At.Before(from) || i >= n || s.Run.Count() == 0 {
			continue
		}
		for j, d := range []time.Duration{s.Wait.Quantile(0.95), s.Run.Quantile(0.5), s.Run.Quantile(0.95)} {
			c.Series[j].Values[i] = float64(d) / float64(time.Millisecond)
		}
	}
	return c
}

// maxSparks is how many queues of a table have a small chart.
const maxSparks = 100

// sparks returns the small charts of queues: messages done per minute of the last hour.
func (p *page) sparks(s *snapshot) (map[string]string, error) {
	if !p.d.can.Charts {
		return nil, nil
	}
	lines, err := figureOf(p.d.figures, "sparks", time.Minute, func(ctx context.Context, now time.Time) (map[string]string, error) {
		busiest := make([]queueRow, len(s.queues)) // also those that this viewer may not see
		for i, q := range s.queues {
			busiest[i] = newQueueRow(q)
		}
		slices.SortStableFunc(busiest, func(a, b queueRow) int { return cmp.Compare(b.DonePerSecond, a.DonePerSecond) })
		var names []string
		for _, row := range busiest[:min(len(busiest), maxSparks)] {
			names = append(names, row.Name)
		}
		if len(names) == 0 {
			return nil, nil
		}
		of := spans[0]
		from, to := of.bounds(now)
		samples, err := p.d.engine.Samples(ctx, posthaste.SampleQuery{Queues: names, From: from, To: to, Step: of.step})
		byQueue, lines := map[string][]posthaste.Sample{}, map[string]string{}
		for _, s := range samples {
			byQueue[s.Queue] = append(byQueue[s.Queue], s)
		}
		for queue, of := range byQueue {
			lines[queue] = spark(ratesOf(of, from, to, now, time.Minute).done)
		}
		return lines, err
	})
	return lines, err
}
