//go:build unix

package acceptance

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/worker"
)

// With 300,000 new messages waiting, retries and scheduled messages that become due start
// within 1 s of their time. With small numbers, on a busy machine, within 5 s: behind the
// backlog they would be 10 s late. Both may be later by as long as the machine stalled. Not
// parallel, because it measures times.
func TestDS10_DueBesideBacklog(t *testing.T) {
	testrun.Nightly(t, "it measures time; DS10_DueBesideBacklog in enginetest runs on each change")
	for _, name := range []string{"plain", "limited"} {
		t.Run(name, func(t *testing.T) { dueBesideBacklog(t, allKinds[name]) })
	}
}

func dueBesideBacklog(t *testing.T, k kind) {
	s := newStage(t)
	s.failing()
	backlog := size(30_000, 300_000)
	const scheduled, retried = 300, 300
	most := size(5*time.Second, time.Second)
	q := s.queueOf(k)
	s.send(q, backlog)

	var mu sync.Mutex
	late := map[posthaste.MessageID]time.Duration{}
	fresh, retries := 0, 0
	enough := make(chan struct{})
	w := worker.New(s.open(), worker.Config{Concurrency: 20, Logger: s.log})
	worker.HandleRaw(w, q, func(_ context.Context, d posthaste.RawDelivery) error {
		now := time.Now() // PostgreSQL runs on this machine and uses the same clock
		mu.Lock()
		switch {
		case !d.DueAt.IsZero():
			late[d.MessageID] = now.Sub(d.DueAt)
			if len(late) == scheduled+retried {
				close(enough)
			}
		case retries < retried && fresh%10 == 0:
			fresh, retries = fresh+1, retries+1
			wait := time.Second + time.Duration(retries)*5*time.Millisecond
			mu.Unlock()
			return posthaste.RetryAfter(errors.New("later"), wait)
		default:
			fresh++
		}
		mu.Unlock()
		works(10 * time.Millisecond)
		return nil
	})
	stalled := s.stalls()
	s.run(w)
	for i := range scheduled {
		_, err := s.client.Send(s.ctx, posthaste.Message{Queue: q, Payload: i, Delay: time.Second + time.Duration(i)*10*time.Millisecond})
		s.must(err)
	}
	select {
	case <-enough:
	case <-s.ctx.Done():
		mu.Lock()
		defer mu.Unlock()
		t.Fatalf("%d of %d due ones came", len(late), scheduled+retried)
	}
	mu.Lock()
	defer mu.Unlock()
	if fresh > backlog*9/10 {
		t.Fatalf("%d of %d fresh ones were handled meanwhile: there was no backlog any more", fresh, backlog)
	}
	var all []time.Duration
	stood := stalled()
	for id, by := range late {
		all = append(all, by)
		if by > most+stood || by < 0 {
			t.Errorf("message %s started %s after its time, with stalls of %s", id, by, stood)
		}
	}
	slices.Sort(all)
	t.Logf("beside %d fresh ones: p50 %s, p99 %s, at most %s late; stalls of %s", backlog-fresh, all[len(all)/2], all[len(all)*99/100], all[len(all)-1], stood)
}

// A message sent just before, while or after a worker falls asleep waits at most 100 ms from
// its commit, unless a bare NOTIFY at the same time was slow too. Not parallel, because it
// measures times.
func TestLA3_SentAroundFallingAsleep(t *testing.T) {
	testrun.Nightly(t, "it measures time; TestLA3SentWhileFallingAsleep in postgres runs on each change")
	s := newStage(t)
	messages := size(300, 10_000)
	most := 100 * time.Millisecond
	if !full() { // next to other tests; still less than a lost wake-up takes
		most = 180 * time.Millisecond
	}
	random := seeded(t)
	q := s.queue(posthaste.QueueOptions{})
	r := s.recorder()
	s.work(q, r, worker.Config{}, nothing)
	probe := s.probe()
	// The first messages use new sessions, which are slower.
	var ids []posthaste.MessageID
	committed := map[posthaste.MessageID]time.Duration{}
	for range 20 {
		ids = append(ids, s.send(q, 1)...)
		s.recorded(r, history.Handled, len(ids))
		committed[ids[len(ids)-1]] = history.Now()
	}
	for n := range messages {
		// A few ms after a message was handled, a worker looks again and sleeps.
		gap := time.Duration(random.IntN(6000)) * time.Microsecond
		switch n % 10 {
		case 0:
			gap *= 10
		case 1:
			gap = 0
		}
		rest(s.ctx, gap)
		sent := s.send(q, 1)
		committed[sent[0]] = history.Now()
		ids = append(ids, sent...)
		if n%3 > 0 { // otherwise the next message is sent while this one is handled
			s.recorded(r, history.Handled, len(ids))
		}
	}
	s.recorded(r, history.Handled, len(ids))
	events := s.history()
	s.must(history.Exactly(ids, events))
	var all, unexplained []time.Duration
	stalled := 0
	for _, e := range events {
		if e.Kind != history.Started {
			continue
		}
		wait := max(0, e.At-committed[e.ID])
		all = append(all, wait)
		if wait <= most {
			continue
		}
		// On an idle machine, a lost wake-up is found by a look 200 ms later, while the probe
		// sleeps nearly all of that time. On a busy one it is found by a heartbeat, seconds
		// later. A busy machine does not excuse that, because the probe gets through for much
		// of the time.
		trip, share := probe.worst(committed[e.ID], e.At), probe.share(committed[e.ID], e.At)
		calm := wait - time.Duration(share*float64(wait))
		if (trip > most/4 || share > 0.25) && calm < 5*most {
			stalled++
			t.Logf("message %s waited %s, while a bare NOTIFY took up to %s and NOTIFYs were on their way for %.0f %% of the time", e.ID, wait, trip, 100*share)
			continue
		}
		unexplained = append(unexplained, wait)
		t.Logf("message %s waited %s from its commit, and for %s of that NOTIFYs were not delayed", e.ID, wait, calm)
	}
	// Next to other tests, this process may get no CPU time while the probe rests. A lost
	// wake-up waits until the next look, and is not a single case.
	if len(unexplained) > size(1, 0) || len(unexplained) > 0 && slices.Max(unexplained) > time.Second {
		t.Errorf("waited %v from their commits, and nothing else stalled", unexplained)
	}
	if stalled > messages/20 {
		tell := t.Logf
		if full() {
			tell = t.Errorf
		}
		tell("%d of %d messages coincided with stalls: the machine is too busy to tell anything", stalled, messages)
	}
	slices.Sort(all)
	t.Logf("p50 %s, p99 %s, at most %s", all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
}

// trips are the round trips of bare NOTIFYs. A round trip that starts late, because the
// machine stalled before it, counts from when it should have started.
type trips struct {
	mu  sync.Mutex
	all []trip
}

type trip struct{ from, to time.Duration }

// probe repeatedly sends a NOTIFY from one connection to another.
func (s *stage) probe() *trips {
	s.Helper()
	listener, notifier := s.conn(), s.conn()
	_, err := listener.Exec(s.ctx, "listen acceptance_probe")
	s.must(err)
	const pause = 5 * time.Millisecond
	p := &trips{}
	ctx, stop := context.WithCancel(s.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			// Count as in flight even if this pause takes more than twice its time.
			p.mu.Lock()
			p.all = append(p.all, trip{history.Now() + 2*pause, 0})
			p.mu.Unlock()
			rest(ctx, pause)
			p.mu.Lock()
			last := &p.all[len(p.all)-1]
			last.from = min(last.from, history.Now())
			p.mu.Unlock()
			_, err := notifier.Exec(ctx, "notify acceptance_probe")
			if err == nil {
				_, err = listener.WaitForNotification(ctx)
			}
			if err != nil {
				if ctx.Err() == nil {
					s.Errorf("the control probe failed: %v", err)
				}
				return
			}
			p.mu.Lock()
			p.all[len(p.all)-1].to = history.Now()
			p.mu.Unlock()
		}
	}()
	s.Cleanup(func() {
		stop()
		<-done
	})
	return p
}

// share returns the part of a period during which a round trip was in flight. On an idle
// machine it is a few percent.
func (p *trips) share(from, to time.Duration) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	var busy time.Duration
	for _, t := range p.all {
		end := t.to
		if end == 0 {
			end = history.Now()
		}
		busy += max(0, min(end, to)-max(t.from, from))
	}
	return float64(busy) / float64(max(to-from, 1))
}

// worst returns the longest round trip during a period.
func (p *trips) worst(from, to time.Duration) (longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.all {
		end := t.to
		if end == 0 {
			end = history.Now()
		}
		if t.from < to && end > from {
			longest = max(longest, end-t.from)
		}
	}
	return longest
}
