//go:build unix

package acceptance

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testpg/testdb"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/worker"
)

// 1,000 messages are sent without a worker, and a worker starts 10 s later: all are handled
// within 2 s of its start. Its second heartbeat, which looks again, is minutes away.
func TestLP1_WorkerComesLater(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	q := s.queue(posthaste.QueueOptions{})
	ids := s.send(q, 1000)
	r := s.recorder()
	engine := s.open()
	time.Sleep(10 * time.Second) // nothing runs for a while, which is the scenario
	begun := history.Now()
	w := worker.New(engine, worker.Config{Lease: 10 * time.Minute, Heartbeat: 5 * time.Minute, Logger: s.log,
		Middleware: []func(posthaste.Handler) posthaste.Handler{recording(r)}})
	worker.HandleRaw(w, q, nothing)
	s.run(w)
	s.recorded(r, history.Handled, len(ids))
	events := s.history()
	s.must(history.Exactly(ids, events))
	if took := events[len(events)-1].At - begun; took > size(time.Minute, 2*time.Second) {
		t.Errorf("it took %s from the worker's start", took)
	}
}

// With wake-ups switched off, everything is still handled, within the fallback look.
func TestLP2_WithoutWakeUps(t *testing.T) {
	t.Parallel()
	// How late the look that finds a message may be.
	late := size(12*time.Second, 2*time.Second)
	t.Run("sent without", func(t *testing.T) { // two-phase commit requires it
		t.Parallel()
		s := newStage(t)
		q := s.queue(posthaste.QueueOptions{})
		const beat = time.Second // the heartbeat makes the look
		handledWithin(s, q, beat+late, posthaste.Message{Queue: q, NoWake: true},
			s.open(), worker.Config{Heartbeat: beat}, func(int) { s.asleep(q) })
	})
	t.Run("half open", func(t *testing.T) { // the listening connection drops everything, and seems to work
		onlyPostgres(t, "name for the connection that listens: TestLP5 swallows them all")
		t.Parallel()
		s := newStage(t)
		q := s.queue(posthaste.QueueOptions{})
		proxy := testdb.NewProxy(t, s.url)
		engine, err := postgres.Open(s.ctx, proxy.URL, postgres.WithLogger(s.log))
		s.must(err)
		t.Cleanup(engine.Close)
		const beat = time.Second
		handledWithin(s, q, beat+late, posthaste.Message{Queue: q}, engine, worker.Config{Heartbeat: beat}, func(n int) {
			if n > 0 {
				return
			}
			s.asleep(q)
			if n := proxy.Swallow("doorbell"); n != 1 {
				t.Errorf("%d connections listen", n)
			}
		})
	})
	t.Run("polling only", func(t *testing.T) {
		onlyPostgres(t, "poolers")
		t.Parallel()
		s := newStage(t)
		q := s.queue(posthaste.QueueOptions{})
		// It looks each 200 ms, so the heartbeat's look may be far away.
		handledWithin(s, q, late, posthaste.Message{Queue: q},
			s.open(postgres.WithPollingOnly()), worker.Config{Lease: 10 * time.Minute, Heartbeat: 5 * time.Minute}, func(int) {})
		if one[bool](s, s.conn(), `select exists (select from pg_stat_activity where datname = current_database() and query ilike 'listen%')`) {
			t.Error("a connection listens")
		}
	})
}

// handledWithin repeatedly sends to an idle worker, and requires each message to be handled
// within a time. before is called before each send.
func handledWithin(s *stage, q string, most time.Duration, m posthaste.Message, engine posthaste.Store, c worker.Config, before func(n int)) {
	r := s.recorder()
	c.Logger = s.log
	c.Middleware = append(c.Middleware, recording(r))
	w := worker.New(engine, c)
	worker.HandleRaw(w, q, nothing)
	s.run(w)
	var ids []posthaste.MessageID
	for n := range 5 {
		before(n)
		m.Payload = n
		sent, err := posthaste.IDs(s.client.Send(s.ctx, m))
		s.must(err)
		committed := history.Now()
		ids = append(ids, sent...)
		s.recorded(r, history.Handled, len(ids))
		if took := history.Now() - committed; took > most {
			s.Errorf("message %d was handled %s after it was sent", n, took)
		}
	}
	s.must(history.Exactly(ids, s.history()))
}

// Of 2 workers with 10,000 messages, one is killed every 2 s five times: all messages are
// settled, and each rescue is done within lease + 3 s. On each change the numbers are smaller.
func TestLP3_WorkersKilled(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	messages, kills := size(4_000, 10_000), size(2, 5)
	// No living worker may be declared lost, even if it stalls for seconds.
	lease := size(20*time.Second, 6*time.Second)
	most := lease + size(15*time.Second, 3*time.Second)
	q := s.queue(posthaste.QueueOptions{MaxAttempts: 100})
	ids := s.send(q, messages)
	// With 40 ms on 2 × 10 places, 10,000 messages take 20 s.
	begin := func() *child {
		return s.spawn(task{Role: "worker", Queue: q, Concurrency: 10, Lease: lease, Work: 40 * time.Millisecond})
	}
	workers := []*child{begin(), begin()}
	killed := map[string]time.Duration{}
	for n := range kills {
		time.Sleep(2 * time.Second) // the scenario kills one every 2 s
		victim := workers[n%2]
		victim.kill()
		killed[victim.name] = history.Now()
		workers[n%2] = begin()
	}
	s.settled(q)
	for _, w := range workers {
		s.must(w.term())
	}
	events := s.history()
	s.must(history.Merge(history.EveryOne(ids, events), history.NoOther(ids, events), history.Attempts(events, kills+1)))
	rescued := map[string]int{}
	for _, e := range events {
		if e.Kind != history.Started || e.Attempt == 1 {
			continue
		}
		death, dead := killed[e.Note] // the previous holder
		if !dead {
			t.Errorf("message %s was taken from %q, which was not killed", e.ID, e.Note)
			continue
		}
		rescued[e.Note]++
		if late := e.At - death; late > most {
			t.Errorf("message %s started again %s after its holder's death: %+v", e.ID, late, s.state(e.ID).Attempts)
		}
	}
	for name := range killed {
		if rescued[name] == 0 {
			t.Errorf("nothing was in flight when %s was killed, so nothing was tested", name)
		}
	}
	// Only messages that a killed worker had handled and not yet settled may come twice. Their
	// number depends on the speed of settling.
	again := history.Once(events)
	for _, f := range again {
		first := handledFirst(events, f.ID)
		if _, dead := killed[first]; !dead {
			t.Errorf("%v, at first by %s, which was not killed", f, first)
		}
	}
	if full() && len(again) > kills*10*2 {
		t.Errorf("%d messages were handled twice, more than were in flight", len(again))
	}
}

// mortal returns a store that the test may kill and restart.
func mortal(t *testing.T) (url string, kill func() error, restart func(context.Context) error) {
	t.Helper()
	if onRedis(t) {
		r := startRedis(t)
		return r.URL(), func() error { r.Kill(); return nil }, r.Start
	}
	server := testpg.Server(t)
	return server.URL(), server.Kill, server.Restart
}

// The store is killed and restarted with messages in flight: no acknowledged message is lost,
// and senders and workers resume by themselves.
func TestLP4_StoreKilled(t *testing.T) {
	t.Parallel()
	url, kill, restart := mortal(t)
	s := stageOn(t, url)
	inFlight := size(2_000, 20_000)
	q := s.queue(posthaste.QueueOptions{MaxAttempts: 100})
	ids := s.send(q, inFlight)
	r := s.recorder()
	// Half of them remain for the time after the store was killed, however long that takes.
	var begun atomic.Int64
	killed := make(chan struct{})
	for range 2 {
		s.work(q, r, worker.Config{Concurrency: 20, Lease: 5 * time.Second}, func(ctx context.Context, _ posthaste.RawDelivery) error {
			if begun.Add(1) > int64(inFlight/2) {
				select {
				case <-killed:
				case <-ctx.Done():
				}
			}
			works(10 * time.Millisecond)
			return nil
		})
	}
	// Senders that retry, as a user's program would.
	var mu sync.Mutex
	var unsure, again atomic.Int64
	var sending sync.WaitGroup
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	for range 4 {
		sending.Go(func() {
			for ctx.Err() == nil {
				sent, err := posthaste.IDs(s.client.Send(context.WithoutCancel(ctx), posthaste.Message{Queue: q, Payload: "more"}))
				switch {
				case err == nil:
					mu.Lock()
					ids = append(ids, sent...)
					mu.Unlock()
				case posthaste.CodeOf(err) == posthaste.CodeOutcomeUnknown:
					unsure.Add(1)
				default:
					again.Add(1)
				}
				rest(ctx, 10*time.Millisecond)
			}
		})
	}
	s.recorded(r, history.Handled, 200)
	s.must(kill())
	close(killed)
	s.until("a sender notices", func() bool { return unsure.Load()+again.Load() > 0 })
	s.must(restart(s.ctx))
	sentBefore := func() int { mu.Lock(); defer mu.Unlock(); return len(ids) }
	n := sentBefore()
	s.until("senders resume", func() bool { return sentBefore() > n+20 })
	stop()
	sending.Wait()
	s.settled(q)
	events := s.history()
	s.must(history.Merge(history.EveryOne(ids, events)))
	if n := len(history.IDs(events, history.Handled)); n > len(ids)+int(unsure.Load())*4 {
		t.Errorf("%d messages came, of %d acknowledged and %d unsure calls", n, len(ids), unsure.Load())
	}
}

// A message whose handler crashes the process becomes a dead letter after max_attempts losses
// in which it was handed out alone. The messages next to it are handled, and none becomes a
// dead letter.
func TestLP7_PoisonKillsTheProcess(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const (
		attempts    = 2
		beforeAlone = 2 // losses after which a message is handed out alone
		poisoned    = 2
		neighbour   = 300
	)
	q := s.queue(posthaste.QueueOptions{MaxAttempts: attempts, BackoffBase: time.Millisecond, BackoffMax: 10 * time.Millisecond})
	var batch []posthaste.Message
	for i := range neighbour + poisoned {
		m := posthaste.Message{Queue: q, Payload: i}
		if i%(neighbour/poisoned) == 7 && i < neighbour {
			m.Kind = "poison"
		}
		batch = append(batch, m)
	}
	ids, err := posthaste.IDs(s.client.Send(s.ctx, batch...))
	s.must(err)
	var poison, harmless []posthaste.MessageID
	for i, m := range batch {
		if m.Kind == "poison" {
			poison = append(poison, ids[i])
		} else {
			harmless = append(harmless, ids[i])
		}
	}
	// Two processes that are restarted when they die, as by a supervisor.
	ctx, stop := context.WithCancel(s.ctx)
	var supervisors sync.WaitGroup
	defer supervisors.Wait()
	defer stop()
	for range 2 {
		supervisors.Go(func() {
			for ctx.Err() == nil {
				w := s.spawn(task{Role: "suicide", Queue: q, Concurrency: 10, Lease: 3 * time.Second})
				select {
				case <-w.ended:
				case <-ctx.Done():
					_ = w.term()
				}
			}
		})
	}
	s.settled(q)
	stop()
	supervisors.Wait()
	letters, err := s.engine.DeadLetters(s.ctx, posthaste.DeadLetterFilter{Queue: q})
	s.must(err)
	var dead []posthaste.MessageID
	for _, l := range letters.Items {
		dead = append(dead, l.ID)
		if l.Error == "" {
			t.Errorf("dead letter %s has no error", l.ID)
		}
		// Two losses that may be another message's fault, and then those alone.
		if len(l.Attempts) != beforeAlone+attempts {
			t.Errorf("dead letter %s has the story %+v, want %d losses beside others and %d alone", l.ID, l.Attempts, beforeAlone, attempts)
		}
	}
	slices.Sort(dead)
	if !slices.Equal(dead, poison) {
		t.Errorf("dead are %v instead of %v", dead, poison)
	}
	events := s.history()
	s.must(history.Merge(history.EveryOne(harmless, events), history.NoOther(ids, events), history.Attempts(events, 0)))
	for _, id := range poison {
		alone, beside := 0, 0
		for _, e := range events {
			switch {
			case e.ID != id || e.Kind != history.Started:
			case e.Alone:
				alone++
			default:
				beside++
			}
		}
		// A process that stalls for a lease is lost before it has started the message.
		if alone == 0 || alone > attempts || beside > beforeAlone {
			t.Errorf("poison %s ran %d times alone and %d times beside others", id, alone, beside)
		}
	}
}

// A transaction that sent stays open while others commit: its message is delivered when it
// commits, and the others in the meantime. No heartbeat looks: a worker that is not woken and
// does not look by itself finds nothing for five minutes. At full size the last transaction
// stays open for three minutes, its message comes within 300 ms, and the others are as fast as
// ever.
func TestLP6_TransactionStaysOpen(t *testing.T) {
	besideOthers(t)
	s := newStage(t)
	rounds := size(3, 8)
	q := s.queue(posthaste.QueueOptions{})
	r := s.recorder()
	s.work(q, r, worker.Config{Lease: 10 * time.Minute, Heartbeat: 5 * time.Minute}, nothing)
	conn := s.conn()
	var ids []posthaste.MessageID
	committed := map[posthaste.MessageID]time.Duration{}
	handled := func() {
		t.Helper()
		s.within(2*time.Minute, "all are handled without a heartbeat", func() bool {
			n, _ := r.Count(history.Handled)
			return n >= len(ids)
		})
	}
	singles := func(n int) (these []posthaste.MessageID) { // 100 per second
		for i := range n {
			sent := s.send(q, 1)
			committed[sent[0]] = history.Now()
			these = append(these, sent...)
			pace(time.Now().Add(time.Duration(5+i%11) * time.Millisecond))
		}
		ids = append(ids, these...)
		handled()
		return these
	}
	var free, held, late []posthaste.MessageID
	for round := range rounds { // alternately, because the machine's speed changes
		n := size(50, 1500)
		free = append(free, singles(n)...)
		if full() && round == rounds-1 {
			n = 18_000
		}
		tx, err := conn.Begin(s.ctx)
		s.must(err)
		own, err := posthaste.IDs(postgres.In(tx).Send(s.ctx, posthaste.Message{Queue: q, Payload: "late"}))
		s.must(err)
		held = append(held, singles(n)...)
		if started := history.IDs(s.history(), history.Started); slices.Contains(started, own[0]) {
			t.Fatal("a message was handed out before its commit")
		}
		s.must(tx.Commit(s.ctx))
		committed[own[0]] = history.Now()
		ids, late = append(ids, own...), append(late, own...)
		handled()
	}
	events := s.history()
	s.must(history.Exactly(ids, events))
	if !full() {
		return
	}
	started := map[posthaste.MessageID]time.Duration{}
	for _, e := range events {
		if e.Kind == history.Started {
			started[e.ID] = e.At
		}
	}
	waits := func(of []posthaste.MessageID) []time.Duration {
		var all []time.Duration
		for _, id := range of {
			all = append(all, max(0, started[id]-committed[id]))
		}
		slices.Sort(all)
		return all
	}
	if all := waits(late); all[len(all)-1] > 300*time.Millisecond {
		t.Errorf("late transactions' messages waited %v from their commits", all)
	}
	with, without := waits(held), waits(free)
	for _, percent := range []int{50, 90} {
		a, b := with[len(with)*percent/100], without[len(without)*percent/100]
		t.Logf("p%d: %s beside an open transaction, %s without", percent, a, b)
		if a > 3*b+10*time.Millisecond {
			t.Errorf("p%d: %s beside an open transaction, %s without", percent, a, b)
		}
	}
}
