//go:build unix

package acceptance

import (
	"context"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/worker"
)

// The number of connections of a process is bounded by its pool plus one for the doorbell,
// whatever its concurrency and the number of its queues.
func TestHA4_ConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	conn := s.conn()
	for _, c := range []struct{ concurrency, queues, pool int }{{1, 1, 0}, {500, 1, 0}, {500, 30, 0}, {500, 30, 3}} {
		most := c.pool + 1
		if c.pool == 0 {
			most = postgres.DefaultPoolSize + 1
		}
		u, err := url.Parse(s.url)
		s.must(err)
		name := s.name("counted")
		query := u.Query()
		query.Set("application_name", name)
		u.RawQuery = query.Encode()
		options := []postgres.Option{postgres.WithLogger(s.log)}
		if c.pool > 0 {
			options = append(options, postgres.WithPoolSize(c.pool))
		}
		engine, err := postgres.Open(s.ctx, u.String(), options...)
		s.must(err)
		t.Cleanup(engine.Close)
		w := worker.New(engine, worker.Config{Concurrency: c.concurrency, Logger: s.log})
		var queues []string
		var running, handled atomic.Int64
		for range c.queues {
			q := s.queue(posthaste.QueueOptions{})
			queues = append(queues, q)
			other := s.queue(posthaste.QueueOptions{})
			worker.HandleRaw(w, q, func(ctx context.Context, _ posthaste.RawDelivery) error {
				running.Add(1)
				defer running.Add(-1)
				// Handlers that send need connections, too.
				_, err := engine.Send(ctx, posthaste.Message{Queue: other})
				works(20 * time.Millisecond)
				handled.Add(1)
				return err
			})
		}
		stop := s.run(w)
		n := 0
		for _, q := range queues {
			n += len(s.send(q, 750/c.queues))
		}
		used, together := 0, int64(0)
		s.until("everything is handled", func() bool {
			used = max(used, one[int](s, conn, "select count(*) from pg_stat_activity where datname = current_database() and application_name like $1 || '%'", name))
			together = max(together, running.Load())
			return handled.Load() >= int64(n)
		})
		stop()
		t.Logf("concurrency %d, %d queues, pool %d: up to %d connections, %d handlers at once", c.concurrency, c.queues, c.pool, used, together)
		if used > most || used < 2 {
			t.Errorf("concurrency %d, %d queues: %d connections, want at most %d", c.concurrency, c.queues, used, most)
		}
		if c.concurrency > 1 && together < 2*postgres.DefaultPoolSize {
			t.Errorf("only %d handlers ran at once: nothing was tested", together)
		}
	}
}

// One slow message in each few hundred delays only itself: all others of its claims are
// handled and settled in the meantime.
func TestTH5_SlowMessageDelaysOnlyItself(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	const messages, each = 3000, 300
	q := s.queue(posthaste.QueueOptions{Timeout: 10 * time.Minute})
	var slow, quick []posthaste.MessageID
	release := make(chan struct{})
	var once sync.Once
	free := func() { once.Do(func() { close(release) }) }
	defer free()
	var waiting atomic.Int64
	for i, id := range s.send(q, messages) {
		if i%each == each/2 {
			slow = append(slow, id)
		} else {
			quick = append(quick, id)
		}
	}
	w := worker.New(s.open(), worker.Config{Concurrency: len(slow) + 2, Logger: s.log})
	worker.Handle(w, q, func(_ context.Context, d posthaste.Delivery[int]) error {
		if d.Payload%each == each/2 {
			waiting.Add(1)
			<-release
		}
		return nil
	})
	s.run(w)
	conn := s.conn()
	s.until("all others are settled", func() bool { return one[int](s, conn, doneOf, q) == len(quick) })
	if n := waiting.Load(); n != int64(len(slow)) {
		t.Errorf("%d of %d slow ones run", n, len(slow))
	}
	for _, id := range slow {
		if state := s.state(id); state.State != posthaste.StateRunning || len(state.Attempts) != 1 {
			t.Errorf("a slow one is %+v", state)
		}
	}
	free()
	s.until("the slow ones are settled, too", func() bool { return one[int](s, conn, doneOf, q) == messages })
	if n := one[int](s, conn, "select count(*) from posthaste.outcomes"); n > 0 {
		t.Errorf("%d attempts ended in another way", n)
	}
}

// doneOf counts the done messages of a queue, by the settlements only.
const doneOf = `select coalesce(sum(t.done), 0)::int from posthaste.settlements t
	join posthaste.queue_settings q on t.reader >> 20 = q.id where q.name = $1`

// With a load of 1/s, 5,000/s, 1/s, wake-ups change to polling and back by themselves. A calm
// sender notifies each time. A sender in dense traffic rarely notifies, and its messages are
// still handled.
func TestLA4_WakeUpsAndPolling(t *testing.T) {
	s := newStage(t)
	q := s.queue(posthaste.QueueOptions{})
	heard := s.listen(q)
	var handled atomic.Int64
	w := worker.New(s.open(), worker.Config{Logger: s.log})
	worker.HandleRaw(w, q, func(context.Context, posthaste.RawDelivery) error { handled.Add(1); return nil })
	s.run(w)
	var sent int64
	pause, calm := size(200*time.Millisecond, time.Second), size(5, 20)
	slowly := func() {
		t.Helper()
		// Between the check that workers sleep and the send, they may wake up to look by
		// themselves. Then there is no notification, because no worker needs to be woken.
		before := heard.Load()
		for tries := 0; heard.Load()-before < int64(calm); tries++ {
			if tries == 4*calm {
				t.Fatalf("of %d messages to sleepers %d were announced", tries, heard.Load()-before)
			}
			s.asleep(q)
			s.send(q, 1)
			sent++
			s.until("it is handled", func() bool { return handled.Load() == sent })
			pace(time.Now().Add(pause))
		}
	}
	slowly()
	// Senders of single messages, each in its own transaction; at full size 5,000 per second
	// together, otherwise as many as they can.
	const senders, perSecond = 16, 5000
	each := size(300, 5000)
	before, began := heard.Load(), time.Now()
	var sending sync.WaitGroup
	pool := s.pool()
	for k := range senders {
		sending.Go(func() {
			for i := range each {
				if full() {
					pace(began.Add(time.Duration(i*senders+k) * time.Second / perSecond))
				}
				if _, err := pool.Exec(s.ctx, "select posthaste.send($1, '{}')", q); err != nil {
					s.Error(err)
					return
				}
			}
		})
	}
	sending.Wait()
	sent += int64(senders * each)
	took := time.Since(began)
	notified := heard.Load() - before
	s.until("everything is handled", func() bool { return handled.Load() == sent })
	t.Logf("%d single messages in %s (%.0f a second): %d notifications", senders*each, took, float64(senders*each)/took.Seconds(), notified)
	if rate := float64(senders*each) / took.Seconds(); full() && rate < 0.95*perSecond {
		t.Errorf("the machine sent %.0f a second, which is not the load asked for", rate)
	}
	// If the machine stalls in between, there are pauses, too.
	if notified > int64(senders*each/size(4, 20)) {
		t.Errorf("%d notifications for %d messages in dense traffic", notified, senders*each)
	}
	slowly()
}

// listen counts the notifications for a queue, or for all if the name is empty.
func (s *stage) listen(queue string) *atomic.Int64 {
	s.Helper()
	conn, n := s.conn(), &atomic.Int64{}
	id := one[string](s, conn, "select coalesce(max(id)::text, '') from posthaste.queue_settings where name = $1", queue)
	_, err := conn.Exec(s.ctx, "listen posthaste")
	s.must(err)
	ctx, stop := context.WithCancel(s.ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			got, err := conn.WaitForNotification(ctx)
			if err != nil {
				return
			}
			if got.Payload == id || queue == "" {
				n.Add(1)
			}
		}
	}()
	s.Cleanup(func() {
		stop()
		<-ended
	})
	return n
}
