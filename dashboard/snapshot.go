package dashboard

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// source is what pages read from.
type source struct {
	engine      posthaste.Store
	can         posthaste.Capabilities
	snapshots   *snapshots
	figures     *figures
	environment string
	caughtMail  string
}

// The allowed ages of what pages show. All viewers share it, so that the store gets fewer than
// two statements a second, however many people look.
const (
	queuesAge = 2 * time.Second
	stateAge  = 15 * time.Second
)

// maxPauses is how many pauses are read for pages.
const maxPauses = 1000

// snapshot is what the store said at one time. It is never changed.
type snapshot struct {
	queues           []posthaste.QueueInfo
	pauses           []posthaste.Pause // the last ones, at most maxPauses
	queuesAt         time.Time
	Findings         []posthaste.Finding
	workers          []posthaste.WorkerStatus
	Vitals           posthaste.Vitals
	stateAt          time.Time
	findErr, workErr error
	// since is when each finding was seen first.
	since map[finding]time.Time
}

// finding identifies a finding of the doctor: its text changes with times and numbers.
type finding struct{ check, queue, subscription string }

// Since returns when this server saw a finding first.
func (s *snapshot) Since(f posthaste.Finding) time.Time {
	return s.since[finding{f.Check, f.Queue, f.Subscription}]
}

// queue returns the queue with a name, or nil.
func (s *snapshot) queue(name string) *posthaste.QueueInfo {
	for i := range s.queues {
		if s.queues[i].Name == name {
			return &s.queues[i]
		}
	}
	return nil
}

// anyPaused reports whether a queue, or a key or kind of one, is paused.
func (s *snapshot) anyPaused() bool {
	return slices.ContainsFunc(s.queues, func(q posthaste.QueueInfo) bool {
		return !q.PausedAt.IsZero() || len(q.PausedKeys)+len(q.PausedKinds) > 0
	})
}

func (s *snapshot) pausedSchedules() (all []posthaste.Pause) {
	for _, one := range s.pauses {
		if _, ok := one.What.(posthaste.OfSchedule); ok {
			all = append(all, one)
		}
	}
	return all
}

// snapshots reads the store for all viewers together.
type snapshots struct {
	engine  posthaste.Store
	timeout time.Duration
	now     func() time.Time

	mu sync.Mutex
	// last is the newest snapshot; nil before the first.
	last *snapshot
	// since is that of the last snapshot whose findings are known.
	since map[finding]time.Time
	// reading is the running read; nil while the store is not read.
	reading *reading
}

type reading struct {
	done chan struct{}
	got  *snapshot
	err  error
}

func newSnapshots(engine posthaste.Store, timeout time.Duration) *snapshots {
	return &snapshots{engine: engine, timeout: timeout, now: time.Now}
}

// look returns a snapshot whose queues are at most two seconds old.
func (s *snapshots) look(ctx context.Context) (*snapshot, error) {
	last, now := s.begin()
	if last != nil {
		return last, nil
	}
	select {
	case <-now.done:
		return now.got, now.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// begin returns a snapshot whose queues are at most two seconds old, or else a read of the store,
// which it starts if none is running. A page that reads something else, too, begins before that.
func (s *snapshots) begin() (*snapshot, *reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && s.now().Sub(s.last.queuesAt) < queuesAge {
		return s.last, nil
	}
	if s.reading == nil {
		s.reading = &reading{done: make(chan struct{})}
		go s.read(s.reading, s.last)
	}
	return nil, s.reading
}

// read does not use the context of a viewer, because others wait for it, too.
func (s *snapshots) read(now *reading, last *snapshot) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	next := &snapshot{queuesAt: s.now()}
	var state sync.WaitGroup
	slow := last == nil || next.queuesAt.Sub(last.stateAt) >= stateAge // what changes slowly is read, too
	if !slow {
		next.Findings, next.workers, next.Vitals, next.findErr, next.workErr, next.stateAt = last.Findings, last.workers, last.Vitals, last.findErr, last.workErr, last.stateAt
		next.since = last.since
	} else {
		state.Go(func() {
			s.readState(ctx, next)
			s.note(next)
		})
	}
	if next.queues, now.err = s.engine.Queues(ctx); now.err == nil {
		// Queues tell whether something of theirs is paused; schedules change slowly.
		if slow || next.anyPaused() {
			next.pauses, now.err = s.engine.Pauses(ctx, posthaste.PauseFilter{Limit: maxPauses})
		} else {
			next.pauses = last.pausedSchedules()
		}
	}
	if now.err == nil {
		now.got = next
	}
	state.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading == now { // else it was forgotten, and another one runs
		s.reading = nil
		if now.err == nil {
			s.last = next
		}
	}
	close(now.done)
}

// note adds when each finding was seen first. If the doctor could not look, nothing is known to be
// over.
func (s *snapshots) note(next *snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next.since = s.since
	if next.findErr != nil {
		return
	}
	next.since = map[finding]time.Time{}
	for _, f := range next.Findings {
		key := finding{f.Check, f.Queue, f.Subscription}
		next.since[key] = next.stateAt
		if at, known := s.since[key]; known {
			next.since[key] = at
		}
	}
	s.since = next.since
}

// readState reads what changes slowly. Pages show what could be read.
func (s *snapshots) readState(ctx context.Context, next *snapshot) {
	next.stateAt = s.now()
	next.Findings, next.findErr = s.engine.Doctor(ctx)
	next.workers, next.workErr = s.engine.Workers(ctx)
	next.Vitals, _ = s.engine.Vitals(ctx) // shown as far as it is known
}

// forget makes the next look read the store: an operator sees the effect of an action at once.
func (s *snapshots) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.reading = nil, nil
}
