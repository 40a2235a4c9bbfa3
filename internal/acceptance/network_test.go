//go:build unix

package acceptance

import (
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/internal/testpg/testdb"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/worker"
)

// victim is a worker of a queue whose connections go through a proxy.
type victim struct {
	name     string // of its connections
	proxy    *testdb.Proxy
	engine   posthaste.Store
	recorder *history.Recorder
	stop     func()
}

func (s *stage) victim(queue string) *victim {
	s.Helper()
	url, name := s.named("victim")
	proxy := testdb.NewProxy(s.T, url)
	engine, err := openStore(s.ctx, proxy.URL, postgres.WithLogger(s.log))
	s.must(err)
	s.Cleanup(engine.Close)
	r := s.recorder()
	w := worker.New(engine, worker.Config{Concurrency: 10, Logger: s.log, Middleware: []func(posthaste.Handler) posthaste.Handler{recording(r)}})
	worker.HandleRaw(w, queue, nothing)
	return &victim{name, proxy, engine, r, s.run(w)}
}

// Backends are terminated, and connections cut, half-open, slowed and stalled: each time the
// worker handles messages again within 5 s after the fault, without a restart, and nothing is
// lost. A message in flight at the time is handled twice only if its lease was lost, and no
// lease is lost here.
func TestLP5_NetworkFaults(t *testing.T) {
	t.Parallel()
	most := size(time.Minute, 5*time.Second)
	s := newStage(t)
	s.failing()
	q := s.queue(posthaste.QueueOptions{MaxAttempts: 100})
	v := s.victim(q)
	proxy, victim, r := v.proxy, v.name, v.recorder

	// A link exists from its first bytes on, a session only after the login.
	connected := func() bool { return proxy.Links(victim) >= 2 }
	if !s.redis() {
		conn := s.conn()
		connected = func() bool { return proxy.Links(victim) >= 2 && one[int](s, conn, "select count(*) "+ofVictims) >= 2 }
	}
	var ids []posthaste.MessageID
	for _, fault := range []struct {
		name   string
		strike func() (heal func())
	}{
		{"backends terminated", func() func() {
			if n := s.terminate(); n < 2 {
				t.Errorf("%d backends were there", n)
			}
			return nil
		}},
		{"connections cut", func() func() {
			if proxy.Cut() < 2 {
				t.Error("no connections were there")
			}
			return nil
		}},
		{"connections half open, then cut", func() func() {
			if proxy.Swallow(victim) < 2 {
				t.Error("no connections were there")
			}
			return func() { proxy.Cut() }
		}},
		{"connections slowed", func() func() {
			proxy.Slow(200 * time.Millisecond)
			return func() { proxy.Slow(0) }
		}},
		{"packets stalled", proxy.Stall},
	} {
		for _, busy := range []bool{false, true} {
			// After the previous fault the worker may not have needed all of them yet.
			s.until("the worker has its connections", connected)
			if !busy {
				s.asleep(q) // the fault strikes a listening worker
			} else {
				ids = append(ids, s.send(q, 2000)...) // and one that claims and settles
			}
			heal := fault.strike()
			during := s.send(q, 50)
			if heal != nil {
				time.Sleep(size(time.Second, 4*time.Second)) // how long the fault lasts is the scenario
				heal()
			}
			healed := history.Now()
			ids = append(ids, during...)
			s.recorded(r, history.Handled, len(ids))
			took := history.Now() - healed
			t.Logf("%s, busy %t: everything was handled %s after its end", fault.name, busy, took.Round(time.Millisecond))
			if took > most {
				t.Errorf("%s, busy %t: it took %s", fault.name, busy, took)
			}
		}
	}
	s.settled(q)
	events := s.history()
	s.must(history.Merge(history.EveryOne(ids, events), history.NoOther(ids, events)))
}

// ofVictims selects the worker's sessions.
const ofVictims = "from pg_stat_activity where datname = current_database() and application_name like 'victim%'"

// terminate ends the worker's connections at the store, and returns their number.
func (s *stage) terminate() (n int) {
	s.Helper()
	if !s.redis() {
		conn := s.conn()
		defer conn.Close(s.ctx)
		return one[int](s, conn, "select count(pg_terminate_backend(pid)) "+ofVictims)
	}
	for _, kind := range []string{"normal", "pubsub"} { // the sender's, too, which sends again
		killed, err := s.keys().ClientKillByFilter(s.ctx, "TYPE", kind, "SKIPME", "yes").Result()
		s.must(err)
		n += int(killed)
	}
	return n
}

// Connections stay half-open and are never cut: each call over them ends by itself, and the
// worker continues over others.
func TestLP5_HalfOpenForGood(t *testing.T) {
	testrun.Nightly(t, "it waits for TCP to give up; TestLP5_NetworkFaults cuts connections half open on each change")
	t.Parallel()
	s := newStage(t)
	s.failing()
	q := s.queue(posthaste.QueueOptions{MaxAttempts: 100})
	v := s.victim(q)
	proxy, victim, r := v.proxy, v.name, v.recorder
	ids := s.send(q, 500)
	s.recorded(r, history.Handled, len(ids))
	s.asleep(q)
	s.until("the worker has its connections", func() bool { return proxy.Links(victim) >= 2 })
	if proxy.Swallow(victim) < 2 {
		t.Error("no connections were there")
	}
	struck := history.Now()
	ids = append(ids, s.send(q, 50)...)
	s.recorded(r, history.Handled, len(ids))
	took := history.Now() - struck
	t.Logf("everything was handled %s after connections became half open", took.Round(time.Millisecond))
	// A heartbeat notices it by its own timeout, and a claim by another.
	if took > size(time.Minute, 15*time.Second) {
		t.Errorf("it took %s", took)
	}
	s.settled(q)
	// Shutting down waits for them at most as long as a pool waits for connections that it
	// closes, 15 s.
	ending := history.Now()
	v.stop()
	v.engine.Close()
	if took := history.Now() - ending; took > size(40*time.Second, 20*time.Second) {
		t.Errorf("the worker's end took %s", took)
	}
	events := s.history()
	s.must(history.Merge(history.EveryOne(ids, events), history.NoOther(ids, events)))
}
