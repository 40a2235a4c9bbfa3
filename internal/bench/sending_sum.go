package bench

import "time"

// denseSends is how many sends a second, whatever they carry, may each notify.
const denseSends = 200

// usage is the CPU time that the processes of a run of [sending] have used so far.
type usage struct {
	server, client, workers, http time.Duration
	known                         bool // the server's
}

func (s *sending) used() (u usage, err error) {
	u.server, u.known = s.run.meter().Total()
	u.server -= s.contention.used()
	u.client = ownCPU()
	got, err := s.crew.total()
	if err != nil || s.server == nil {
		u.workers = got.CPU
		return u, err
	}
	u.workers = got.CPU
	got, err = s.server.ask(order{})
	u.http = got.CPU
	return u, err
}

// per notes what each of so many messages used since before.
func (u usage) per(messages int64, before usage, lap *sendingLap) {
	each := func(now, before time.Duration) *float64 {
		return quotient(float64((now - before).Microseconds()), float64(messages))
	}
	if u.known && before.known {
		lap.server = each(u.server, before.server)
	}
	lap.client, lap.workers, lap.http = each(u.client, before.client), each(u.workers, before.workers), each(u.http, before.http)
}

// conclude sums the slices up.
func (s *sending) conclude() {
	o := s.run.o
	result := &SendingResult{Connections: singles, SentTo: o.Queues, WorkerProcesses: o.Workers, AskedPerSecond: o.Rate}
	for _, w := range s.ways {
		w.sumUp()
		result.Ways = append(result.Ways, w.SendingWay)
		if w.dense() {
			result.MostNotifications = max(result.MostNotifications, w.Notifications)
		}
		if w.LockWaits != nil && (result.MostLockWaits == nil || *w.LockWaits > *result.MostLockWaits) {
			result.MostLockWaits = w.LockWaits
		}
	}
	res, main := s.run.result, s.main.SendingWay
	res.SendingResult = result
	res.PerSecond, res.Messages = known(main.PerSecond), main.Messages
	if res.Ratio = main.RatioToPayloads; res.Ratio == nil {
		res.Ratio = main.RatioToEngine
	}
	res.ServerCPU, res.ClientCPU = main.ServerCPU, main.ClientCPU
}

// dense says whether sends came so often that hardly any may notify.
func (w *sendWay) dense() bool { return w.PerSecond/float64(max(w.messages, 1)) > denseSends }

// column is the median over the rounds of a figure, where it is known.
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

// against is the median of the ratios to another way in each round; nil without one.
func (w *sendWay) against(other *sendWay) *float64 {
	if other == nil || other == w {
		return nil
	}
	return w.column(func(i int) *float64 { return quotient(w.laps[i].perSecond, other.laps[i].perSecond) })
}

// sumUp takes medians over the rounds: of a ratio, of those in each round.
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
