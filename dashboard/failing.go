package dashboard

import (
	"context"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// maxFailures is how many groups of failures a page shows.
const maxFailures = 200

// failing returns the failures of the viewer's span, most frequent first, and whether there are
// more.
func (p *page) failing(queue, kind string) (all []posthaste.Failure, more bool, err error) {
	of := p.span()
	key := "failing " + of.Name + "\x00" + queue + "\x00" + kind
	all, err = figureOf(p.d.figures, key, stateAge, func(ctx context.Context, now time.Time) ([]posthaste.Failure, error) {
		return p.d.engine.Failures(ctx, posthaste.FailureQuery{Queue: queue, Kind: kind, From: now.Add(-of.length), Limit: maxFailures + 1})
	})
	more = len(all) > maxFailures
	all = slices.DeleteFunc(slices.Clone(all[:min(len(all), maxFailures)]), func(f posthaste.Failure) bool { return !p.AllowsQueue(f.Queue) })
	return all, more, err
}

// failingRow is a group of failures with its links.
type failingRow struct {
	posthaste.Failure
	Messages, Pause, Sample string
	Paused                  bool
}

// Recent reports whether the error came up for the first time within the last hour.
func (f failingRow) Recent() bool { return time.Since(f.First) < time.Hour }

func (d *dashboard) showFailing(p *page) error {
	if !d.can.Charts {
		return notFound("This store keeps no counts of failures.")
	}
	queue, kind := p.text("queue"), p.text("kind")
	if queue == "" && p.Limited() {
		return denied("The token is limited to some queues. Choose one of them.")
	}
	if queue != "" {
		if err := p.allowQueue(queue); err != nil {
			return err
		}
	}
	s, err := d.snapshots.look(p.ctx())
	if err != nil {
		return err
	}
	failures, more, err := p.failing(queue, kind)
	if err != nil {
		return err
	}
	var rows []failingRow
	for _, f := range failures {
		rows = append(rows, p.failingRow(f, s.queue(f.Queue)))
	}
	var names []string
	for _, row := range p.rows(s) {
		names = append(names, row.Name)
	}
	return p.show("failing", "Failing now", "failing", true, struct {
		Rows        []failingRow
		More        bool
		Queues      []string
		Queue, Kind string
		Span        span
		Choices     []choice
	}{rows, more, names, queue, kind, p.span(), p.choices()})
}

func (p *page) failingRow(f posthaste.Failure, q *posthaste.QueueInfo) failingRow {
	row := failingRow{Failure: f}
	if p.d.can.Search {
		row.Messages = p.link("/messages", "queue", f.Queue, "kind", f.Kind, "state", string(posthaste.StateRetrying))
	}
	row.Sample = p.link("/messages/" + f.Message.String())
	if q == nil { // it was dropped
		row.Messages, row.Sample = "", ""
		return row
	}
	row.Paused = slices.Contains(q.PausedKinds, f.Kind)
	if f.Kind != "" && f.Kind != posthaste.OtherKinds && !row.Paused && !keyed(q.Options) {
		row.Pause = p.link("/queues/"+f.Queue+"/kinds/pause", "kind", f.Kind)
	}
	return row
}
