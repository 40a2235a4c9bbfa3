//go:build unix

package acceptance

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/worker"
)

// Several processes tick many schedules concurrently, with much to catch up, and are killed
// meanwhile: each tick is one message, and each message is handled.
func TestEachTickIsOneMessageThroughKills(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.failing()
	q := s.queue(posthaste.QueueOptions{})
	schedules, behind, kills := size(5, 40), size(200, 2000), size(2, 20)
	pool := s.pool()
	for i := range schedules {
		_, err := s.engine.PutSchedule(s.ctx, posthaste.Schedule{Name: fmt.Sprintf("s%d", i), Spec: "every 1 second", CatchUp: posthaste.CatchUpEach,
			Message: posthaste.Message{Queue: q, Payload: i}})
		s.must(err)
	}
	_, err := pool.Exec(s.ctx, `update posthaste.schedule_settings set next_at = next_at - make_interval(secs => $1)`, behind)
	s.must(err)
	_, err = pool.Exec(s.ctx, `create table firsts as select name, next_at as first from posthaste.schedules`)
	s.must(err)
	sent := func() int { return one[int](s, pool, `select sum(sent)::int from posthaste.schedules`) }
	spawn := func() *child { return s.spawn(task{Role: "worker", Queue: q, Concurrency: 10, Lease: 3 * time.Second}) }
	workers := []*child{spawn(), spawn(), spawn()}
	for i := range kills {
		before := sent()
		s.until("more ticks are sent", func() bool { return sent() > before })
		workers[i%len(workers)].kill()
		workers[i%len(workers)] = spawn()
	}
	s.until("all is caught up", func() bool {
		return one[bool](s, pool, `select bool_and(last_tick > clock_timestamp() - interval '30 seconds') from posthaste.schedules`)
	})
	for i := range schedules {
		s.must(s.engine.Pause(s.ctx, posthaste.OfSchedule(fmt.Sprintf("s%d", i)), posthaste.PauseOptions{}))
	}
	total := sent()
	if missed := one[int](s, pool, `select sum(missed)::int from posthaste.schedules`); missed != 0 {
		t.Errorf("%d ticks were missed", missed)
	}
	// The ticks of each schedule, without gaps and duplicates.
	wrong := one[string](s, pool, `
		with ticks as (select headers ->> 'posthaste-schedule' as name, (headers ->> 'posthaste-tick')::timestamptz as tick from posthaste.messages where queue = $1)
		select coalesce(string_agg(format('%s: %s messages of %s ticks, %s expected', t.name, t.n, t.different, t.expected), '; '), '')
		  from (select s.name, count(k.tick) as n, count(distinct k.tick) as different, extract(epoch from s.last_tick - f.first)::int + 1 as expected
		          from posthaste.schedules s join firsts f using (name) left join ticks k using (name) group by s.name, s.last_tick, f.first) t
		 where t.n <> t.different or t.n <> t.expected`, q)
	if wrong != "" {
		t.Error(wrong)
	}
	if n := one[int](s, pool, `select count(*)::int from posthaste.messages where queue = $1`, q); n != total || n < schedules*behind {
		t.Errorf("%d messages, %d sent, at least %d due", n, total, schedules*behind)
	}
	s.settled(q)
	handled := map[posthaste.MessageID]bool{}
	for _, e := range s.history() {
		if e.Kind == history.Handled {
			handled[e.ID] = true
		}
	}
	if len(handled) != total {
		t.Errorf("%d messages were handled, %d were sent", len(handled), total)
	}
}

// unkempt is an engine without upkeep. It still sends ticks, but later.
type unkempt struct{ posthaste.Store }

func (u unkempt) Maintain(ctx context.Context, what posthaste.Upkeep) (posthaste.MaintainReply, error) {
	if what != posthaste.UpkeepSpace {
		return u.Store.Maintain(ctx, what)
	}
	return posthaste.MaintainReply{}, ctx.Err()
}

// An idle worker wakes for each tick: its message starts within a second of it, or within five
// on a busy machine, plus the time for which the machine stalled. The first one may be later,
// because the worker learns of a new schedule with its heartbeat.
func TestTickStartsWithinASecond(t *testing.T) {
	testrun.Nightly(t, "it measures time")
	s := newStage(t)
	const ticks = 4
	q := s.queue(posthaste.QueueOptions{})
	most := size(5*time.Second, time.Second)
	var mu sync.Mutex
	var late []time.Duration
	enough := make(chan struct{})
	w := worker.New(unkempt{s.open()}, worker.Config{Logger: s.log})
	worker.HandleRaw(w, q, func(_ context.Context, d posthaste.RawDelivery) error {
		now := time.Now() // PostgreSQL runs on this machine and uses the same clock
		tick, err := time.Parse(time.RFC3339, d.Headers[posthaste.HeaderTick])
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		if late = append(late, now.Sub(tick)); len(late) == ticks {
			close(enough)
		}
		return nil
	})
	stalled := s.stalls()
	s.run(w)
	_, err := s.engine.PutSchedule(s.ctx, posthaste.Schedule{Name: "s", Spec: "every 2 seconds", CatchUp: posthaste.CatchUpEach, Message: posthaste.Message{Queue: q}})
	s.must(err)
	select {
	case <-enough:
	case <-s.ctx.Done():
		t.Fatal("the ticks did not come")
	}
	s.must(s.engine.Pause(s.ctx, posthaste.OfSchedule("s"), posthaste.PauseOptions{}))
	mu.Lock()
	defer mu.Unlock()
	stood := stalled()
	t.Logf("late by %v; stalls of %s", late, stood)
	for i, by := range late {
		if by < 0 || by > most+stood && i > 1 {
			t.Errorf("tick %d started %s after its time, with stalls of %s", i, by, stood)
		}
	}
}
