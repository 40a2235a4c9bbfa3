//go:build unix

package chaos

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste/internal/history"
)

// choose decides everything that depends on the engine: queues, processes and kinds of faults.
func (r *rig) choose() (err error) {
	if r.store, err = r.newStore(); err != nil {
		return err
	}
	if r.Engine == OnRedis && r.Sabotage != "" {
		return errors.New("sabotage is SQL, which Redis does not have: build a broken program, and use it for the children as well")
	}
	if len(r.Queues) == 0 {
		r.Queues = r.store.queues()
	}
	for _, queue := range r.Queues {
		if !slices.Contains(r.store.queues(), queue) {
			return fmt.Errorf("unknown queue %q for a run on %s; expected some of %s", queue, r.Engine, strings.Join(r.store.queues(), ", "))
		}
	}
	has := func(queue string) bool { return queue == "" || slices.Contains(r.Queues, queue) }
	r.cast = slices.DeleteFunc(r.store.cast(), func(role string) bool { return !has(needed[role]) })
	r.places = make([]*running, len(r.cast))
	r.can = r.strikes()
	maps.Copy(r.can, r.store.strikes())
	return r.chooseKinds()
}

// chooseKinds decides which kinds of faults to inject, and records why others are left out.
func (r *rig) chooseKinds() error {
	all := slices.DeleteFunc(AllFaults(), func(f Fault) bool {
		return r.can[f] == nil || only(f) != "" && !slices.Contains(r.store.queues(), only(f))
	})
	for _, f := range slices.Concat(r.Kinds, r.Without) {
		if !slices.Contains(all, f) && (f != Clock || slices.Contains(r.Kinds, f)) {
			return fmt.Errorf("unknown fault %q for a run on %s", f, r.Engine)
		}
	}
	why := "only others were asked for"
	switch {
	case len(r.Kinds) > 0:
	case r.Duration < allKinds:
		r.Kinds, why = r.mostImportant(), "a run of less than two minutes is too short for them"
	default:
		r.Kinds = all
	}
	for _, f := range all {
		switch queue := only(f); {
		case slices.Contains(r.Without, f):
			r.leaveOut(f, "it was asked for (-without)", true)
		case !slices.Contains(r.Kinds, f):
			r.leaveOut(f, why, true)
		case queue != "" && !slices.Contains(r.Queues, queue):
			r.leaveOut(f, "this run is without the queue "+queue, true)
		}
	}
	if slices.Contains(r.Without, Clock) {
		r.Clocks = nil
		r.leaveOut(Clock, "it was asked for (-without)", true)
	} else if len(r.Clocks) == 0 {
		r.leaveOut(Clock, "no programs whose clocks are off were given (-clocks)", true)
	}
	return nil
}

// allKinds is the minimum duration of a run with every kind of fault.
const allKinds = 2 * time.Minute

// mostImportant returns the four most important faults.
func (r *rig) mostImportant() []Fault {
	return []Fault{KillWorker, KillSender, r.store.deadliest(), Cut}
}

// leaveOut leaves out a kind of fault and records the reason: it was requested, or the fault
// is not possible here.
func (r *rig) leaveOut(kind Fault, why string, asked bool) {
	e := history.Event{Kind: LeftOut, Note: string(kind), Key: why}
	if asked {
		e.Count = 1
	} else {
		r.Log.Warn("a fault is left out", "fault", kind, "why", why)
	}
	r.left[kind] = e
	r.Kinds = slices.DeleteFunc(slices.Clone(r.Kinds), func(f Fault) bool { return f == kind })
}

// announce records the parameters of the run that the checker needs.
func (r *rig) announce() {
	r.record.Record(history.Event{Kind: Planned, Took: r.Duration})
	// In a short run only these ensure that messages are in flight.
	wanted := intersection(r.mostImportant(), r.Kinds)
	if r.Duration >= longRun {
		wanted = r.Kinds
		if len(r.Clocks) > 0 {
			wanted = append(slices.Clone(wanted), Clock)
		}
	}
	for _, kind := range wanted {
		r.record.Record(history.Event{Kind: Wanted, Note: string(kind)})
	}
	for _, kind := range AllFaults() {
		if e, ok := r.left[kind]; ok {
			r.record.Record(e)
		}
	}
}

func intersection(a, b []Fault) (both []Fault) {
	for _, f := range a {
		if slices.Contains(b, f) {
			both = append(both, f)
		}
	}
	return both
}
