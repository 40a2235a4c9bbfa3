//go:build unix

package acceptance

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/catcher"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/sink/smtp"
	"github.com/posthaste-mq/posthaste/worker"
)

// handout is the number of deliveries handed out at a time, by the database's clock.
type handout struct {
	at float64
	n  int
}

// handouts returns those of a queue, in order.
func (s *stage) handouts(queue string) (all []handout) {
	s.Helper()
	rows, err := s.conn().Query(s.ctx, `select extract(epoch from c.at)::float8, c.places - coalesce(bit_count(c.withheld), 0)::int
		from posthaste.claims c join posthaste.queue_settings q on q.id = c.reader >> 20
		where q.name = $1 and c.places > 0 order by c.at`, queue)
	s.must(err)
	defer rows.Close()
	for rows.Next() {
		var h handout
		s.must(rows.Scan(&h.at, &h.n))
		all = append(all, h)
	}
	s.must(rows.Err())
	return all
}

// checkRate checks that the rate was not exceeded in any period. At full size it also checks
// that the rate was used up from the first handout on, except for the burst, within 5 %, plus
// the time for which the machine stalled.
func (s *stage) checkRate(all []handout, rate, burst float64, stalled time.Duration) {
	s.Helper()
	total := 0.0
	for i := range all {
		n := 0.0
		for j := i; j < len(all); j++ {
			n += float64(all[j].n)
			// A claim counts its tokens before it writes its time, and a busy machine may run
			// others in between.
			if span := all[j].at - all[i].at; n > rate*(span+size(0.3, 0.1)+stalled.Seconds())+burst {
				s.Fatalf("%.0f were handed out within %.3f s, %.1f may be", n, span, rate*span+burst)
			}
		}
		total += float64(all[i].n)
	}
	took := all[len(all)-1].at - all[0].at
	least := (total - burst) / rate
	s.Logf("%.0f in %.2f s, that is %.1f/s after the burst; stalls of %s", total, took, (total-burst)/took, stalled)
	// The lower bound is checked at full size only, when nothing else runs.
	if full() && took > least*1.05+stalled.Seconds() {
		s.Errorf("%.0f took %.2f s, at %.0f/s it is %.2f s", total, took, rate, least)
	}
}

// stalls measures how long the machine stalled, in pauses above 20 ms.
func (s *stage) stalls() (total func() time.Duration) {
	var sum atomic.Int64
	ctx, stop := context.WithCancel(s.ctx)
	s.Cleanup(stop)
	go func() {
		for last := time.Now(); ctx.Err() == nil; {
			rest(ctx, 5*time.Millisecond)
			if gap := time.Since(last); gap > 20*time.Millisecond {
				sum.Add(int64(gap))
			}
			last = time.Now()
		}
	}()
	return func() time.Duration { return time.Duration(sum.Load()) }
}

// EM3: mails leave at a rate that was set while they waited, from several workers, and no
// lease expires in the meantime.
func TestEM3_MailsAtARate(t *testing.T) {
	t.Parallel()
	p := newPost(t, time.Minute)
	limits := posthaste.QueueLimits{RateLimit: posthaste.Rate{Limit: 50, Burst: 25}}
	p.must(p.engine.UpdateQueue(posthaste.WithActor(p.ctx, "ada"), email.Queue, posthaste.QueueUpdate{Options: posthaste.QueueOptions{Limits: limits}}))
	sink, err := smtp.New(smtp.Config{URL: "smtp://" + p.server.Addr() + "?tls=none"})
	p.must(err)
	t.Cleanup(func() { _ = sink.Close() })
	// The wait is longer than the lease, and stalls of seconds lose no lease.
	w := worker.New(p.open(), worker.Config{Logger: p.log, Lease: 3 * time.Second, Heartbeat: 300 * time.Millisecond})
	worker.HandleSink(w, email.Queue, sink)
	p.run(w)
	stalled := p.stalls()
	var mails []posthaste.Message
	for i := range size(225, 1500) {
		m := simple(fmt.Sprintf("m%d@example.com", i))
		mails = append(mails, posthaste.Message{Queue: email.Queue, Payload: m})
	}
	_, err = p.client.Send(p.ctx, mails...)
	p.must(err)
	p.must(p.server.Wait(p.ctx, func(all []catcher.Mail) bool { return len(all) >= len(mails) }))
	p.checkRate(p.handouts(email.Queue), 50, 25, stalled())
	conn := p.conn()
	if n := one[int](p.stage, conn, `select count(*)::int from posthaste.outcomes where outcome in ('lost', 'retried', 'released')`); n != 0 {
		t.Errorf("%d attempts ended in another way than done", n)
	}
	if n := one[int](p.stage, conn, `select count(*)::int from posthaste.entries where attempt > 1`); n != 0 {
		t.Errorf("%d attempts were burnt", n)
	}
}

// A low rate per second, with the default burst, is met from both sides: a worker that is late
// for one message is not late for the next.
func TestLowRatesHold(t *testing.T) {
	testrun.Nightly(t, "it measures time")
	t.Parallel()
	for _, rate := range []int{3, 9} {
		t.Run(fmt.Sprint(rate, " a second"), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			q := s.queue(posthaste.QueueOptions{Limits: posthaste.QueueLimits{RateLimit: posthaste.Rate{Limit: rate}}})
			queues, err := s.engine.Queues(s.ctx, q)
			s.must(err)
			n := rate * size(6, 60)
			var handled atomic.Int64
			stalled := s.stalls()
			for range 2 {
				s.work(q, s.recorder(), worker.Config{Concurrency: 4}, func(context.Context, posthaste.RawDelivery) error {
					handled.Add(1)
					return nil
				})
			}
			s.send(q, n)
			s.until("all are handled", func() bool { return handled.Load() == int64(n) })
			s.checkRate(s.handouts(q), float64(rate), float64(queues[0].Options.Limits.RateLimit.Burst), stalled())
		})
	}
}

// A queue's concurrency limit holds over all workers and is used up, and all messages are
// handled.
func TestConcurrencyOverWorkers(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	q := s.queue(posthaste.QueueOptions{Limits: posthaste.QueueLimits{Concurrency: 5}})
	var running, most, handled atomic.Int64
	used := make(chan struct{})
	full := sync.OnceFunc(func() { close(used) })
	for range 3 {
		s.work(q, s.recorder(), worker.Config{Concurrency: 4}, func(ctx context.Context, _ posthaste.RawDelivery) error {
			n := running.Add(1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			if n == 5 {
				full()
			}
			select {
			case <-used:
			case <-ctx.Done():
			}
			works(5 * time.Millisecond)
			running.Add(-1)
			handled.Add(1)
			return nil
		})
	}
	n := int64(len(s.send(q, size(300, 5000))))
	s.until("all are handled", func() bool { return handled.Load() == n })
	if m := most.Load(); m != 5 {
		t.Errorf("%d ran at a time, 5 may", m)
	}
}

// woken counts how often sleeps ended.
type woken struct{ n atomic.Int64 }

func (w *woken) Event(_ context.Context, e posthaste.Event) {
	if e.Kind == posthaste.EventWoken {
		w.n.Add(1)
	}
}

// A worker that waits for a free place does not poll, is not woken by sends, and is woken when
// the place is free.
func TestWaitingForAPlaceIsNoPolling(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	q := s.queue(posthaste.QueueOptions{Limits: posthaste.QueueLimits{Concurrency: 1}})
	s.send(q, 2)
	heldReply, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: q}, Max: 10, Lease: time.Hour})
	held := heldReply.Deliveries
	s.must(err)
	if len(held) != 1 {
		t.Fatalf("%d were handed out, 1 may be", len(held))
	}
	var wakes woken
	handled := make(chan struct{}, 1)
	s.work(q, s.recorder(), worker.Config{Telemetry: &wakes}, func(context.Context, posthaste.RawDelivery) error {
		handled <- struct{}{}
		return nil
	})
	conn := s.conn()
	const waits = `select exists (select from posthaste.limit_states where full_since < clock_timestamp() - interval '3 seconds')`
	s.until("it waits for long", func() bool {
		s.send(q, 1)
		return one[bool](s, conn, waits)
	})
	if n := wakes.n.Load(); n > 20 {
		t.Errorf("in 3 s of waiting it was woken %d times", n)
	}
	select {
	case <-handled:
		t.Fatal("it was handed a second one")
	default:
	}
	// It looks again by itself after 3 s or more.
	_, err = s.engine.Settle(s.ctx, []posthaste.Settlement{{Delivery: held[0].ID, Outcome: posthaste.OutcomeDone}})
	s.must(err)
	select {
	case <-handled:
	case <-s.ctx.Done():
		t.Fatal("it was not woken")
	}
}

// The rate of each key is met from both sides, over several workers, for keys with much work
// next to keys with little.
func TestKeyRatesHold(t *testing.T) {
	testrun.Nightly(t, "it measures time")
	t.Parallel()
	s := newStage(t)
	const rate, burst = 20, 4
	q := s.queue(posthaste.QueueOptions{Limits: posthaste.QueueLimits{KeyRateLimit: posthaste.Rate{Limit: rate, Burst: burst}}})
	stalled := s.stalls()
	var handled atomic.Int64
	for range 2 {
		s.work(q, s.recorder(), worker.Config{Concurrency: 4}, func(context.Context, posthaste.RawDelivery) error {
			handled.Add(1)
			return nil
		})
	}
	ids := map[string][]posthaste.MessageID{}
	n := size(100, 600)
	for _, key := range []string{"a", "b", "c", "few"} {
		messages := slices.Repeat([]posthaste.Message{{Queue: q, Key: key, Payload: 1}}, n)
		if key == "few" {
			messages = messages[:burst]
		}
		sent, err := posthaste.IDs(s.engine.Send(s.ctx, messages...))
		s.must(err)
		ids[key] = sent
	}
	s.until("all are handled", func() bool { return handled.Load() == int64(3*n+burst) })
	s.settled(q)
	for key, all := range ids {
		var out []handout
		for _, id := range all {
			m, err := s.engine.Message(s.ctx, id)
			s.must(err)
			attempts := m.Subscriptions[0].Attempts
			if len(attempts) != 1 {
				t.Fatalf("message %d of key %s had %d attempts", id, key, len(attempts))
			}
			out = append(out, handout{float64(attempts[0].ClaimedAt.UnixMicro()) / 1e6, 1})
		}
		slices.SortFunc(out, func(x, y handout) int { return cmp.Compare(x.at, y.at) })
		if key == "few" {
			if took := out[len(out)-1].at - out[0].at; took > 1+stalled().Seconds() {
				t.Errorf("the key with few messages took %.2f s", took)
			}
			continue
		}
		s.checkRate(out, rate, burst, stalled())
	}
}
