package bench

import (
	"context"
	"time"
)

// The values of SendingWay.Worker: whether workers handle the messages of a way.
const (
	attended   = "with a worker"
	unattended = "without a worker"
)

// denseSends is the number of sends per second, of any size, that may each notify.
const denseSends = 200

// sendWay is one kind of transaction or call.
type sendWay struct {
	SendingWay
	messages int64                                  // of one call; 0 means 1
	once     func(ctx context.Context, i int) error // one call, by sender i
	discard  func(ctx context.Context) error        // removes the rest of a slice; may be nil
	laps     []sendingLap
	// The ways to compare with; nil without.
	row, payloads, plain, own, nobody *sendWay
}

// sendingLap is one slice of a way. CPU is microseconds per message.
type sendingLap struct {
	perSecond, handled            float64
	server, client, workers, http *float64
	atOnset                       int64 // notifications before it was measured
	contended
}

// dense reports whether sends were so frequent that hardly any may notify.
func (w *sendWay) dense() bool { return w.PerSecond/float64(max(w.messages, 1)) > denseSends }

// column returns the median of a figure over the rounds, or nil if it is unknown.
func (w *sendWay) column(f func(i int) *float64) *float64 {
	var values []float64
	for i := range w.laps {
		if v := f(i); v != nil {
			values = append(values, *v)
		}
	}
	if len(values) == 0 {
		return nil
	}
	return known(median(values))
}

// against returns the median of the ratios to another way in each round, or nil without one.
func (w *sendWay) against(other *sendWay) *float64 {
	if other == nil || other == w {
		return nil
	}
	return w.column(func(i int) *float64 { return quotient(w.laps[i].perSecond, other.laps[i].perSecond) })
}

// sumUp sets the medians over the rounds. That of a ratio is over the ratios of each round.
func (w *sendWay) sumUp() {
	w.PerSecond = *w.column(func(i int) *float64 { return &w.laps[i].perSecond })
	for i := range w.laps {
		w.Rounds = append(w.Rounds, *known(w.laps[i].perSecond))
	}
	w.ServerCPU = w.column(func(i int) *float64 { return w.laps[i].server })
	w.ClientCPU = w.column(func(i int) *float64 { return w.laps[i].client })
	if w.Worker == attended {
		w.WorkerCPU = w.column(func(i int) *float64 { return w.laps[i].workers })
		w.Handled = w.column(func(i int) *float64 { return &w.laps[i].handled })
	}
	if w.HTTP {
		w.HTTPServerCPU = w.column(func(i int) *float64 { return w.laps[i].http })
	}
	w.RatioToRow, w.RatioToPayloads, w.RatioToPlain = w.against(w.row), w.against(w.payloads), w.against(w.plain)
	w.RatioToEngine, w.RatioToNobody = w.against(w.own), w.against(w.nobody)
	if p := w.payloads; p != nil && p != w {
		w.ServerCPUAbove = w.column(func(i int) *float64 {
			if w.laps[i].server == nil || p.laps[i].server == nil {
				return nil
			}
			return known(*w.laps[i].server - *p.laps[i].server)
		})
	}
	var all contended
	for _, lap := range w.laps {
		all.notified += lap.notified
		all.took += lap.took
		all.active += lap.active
		all.waiting += lap.waiting
		w.AtOnset = append(w.AtOnset, lap.atOnset)
	}
	w.Notifications = *known(rate(all.notified, all.took))
	w.LockWaits, w.Sampled = quotient(float64(all.waiting), float64(all.active)), all.active
}

// usage is the CPU time of the processes of a run of [sending] so far.
type usage struct {
	server, client, workers, http time.Duration
	known                         bool // the server's
}

// per sets the CPU time of each message since before.
func (u usage) per(messages int64, before usage, lap *sendingLap) {
	each := func(now, before time.Duration) *float64 {
		return quotient(float64((now - before).Microseconds()), float64(messages))
	}
	if u.known && before.known {
		lap.server = each(u.server, before.server)
	}
	lap.client, lap.workers, lap.http = each(u.client, before.client), each(u.workers, before.workers), each(u.http, before.http)
}
