//go:build unix

package acceptance

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// crew is a set of processes that send and work.
type crew struct {
	*stage
	queue            string
	lease            time.Duration
	senders, workers []*child
}

func newCrew(s *stage, queue string, lease time.Duration, senders, workers int) *crew {
	c := &crew{stage: s, queue: queue, lease: lease}
	for range senders {
		c.senders = append(c.senders, c.sender())
	}
	for range workers {
		c.workers = append(c.workers, c.worker())
	}
	return c
}

func (c *crew) sender() *child {
	_, ordered := c.keyed.Load(c.queue)
	return c.spawn(task{Role: "pester", Queue: c.queue, Concurrency: 2, Ordered: ordered})
}

func (c *crew) worker() *child {
	return c.spawn(task{Role: "worker", Queue: c.queue, Concurrency: 10, Lease: c.lease, Work: 5 * time.Millisecond})
}

// each waits until every given process has recorded n further events of a kind.
func (c *crew) each(of []*child, kind history.Kind, n int) {
	c.Helper()
	begun := history.Now()
	c.until(fmt.Sprintf("each process has %d %s", n, kind), func() bool {
		did := map[string]int{}
		for _, e := range c.history() {
			if e.Kind == kind && e.At > begun {
				did[e.Process]++
			}
		}
		for _, p := range of {
			if did[p.name] < n {
				return false
			}
		}
		return true
	})
}

// end ends all processes gracefully after everything is settled, and returns the sent messages
// and all events. A process that met an error fails the test, unless an answer was only late,
// which is returned as slow.
func (c *crew) end() (ids []posthaste.MessageID, events []history.Event, slow string) {
	c.Helper()
	for _, p := range c.senders {
		c.must(p.term())
	}
	c.settled(c.queue)
	for _, p := range c.workers {
		c.must(p.term())
	}
	events = c.history()
	for _, e := range events {
		code, _, _ := strings.Cut(e.Note, ": ")
		switch {
		case e.Kind != trouble:
		case code == string(posthaste.CodeUnavailable) || code == string(posthaste.CodeOutcomeUnknown):
			slow = fmt.Sprintf("%s met an error: %s", e.Process, e.Note)
		default:
			c.Errorf("%s met an error: %s", e.Process, e.Note)
		}
	}
	return history.IDs(events, history.Sent), events, slow
}

// answerTime is less than any time after which an engine stops waiting for an answer.
const answerTime = 2 * time.Second

// Of 3 senders and 3 workers under load one is killed: the others see no error, and
// consumption continues. The messages that the worker held run again elsewhere.
func TestHA1_OneIsKilled(t *testing.T) {
	t.Parallel()
	testrun.Timed(t, answerTime, func() (fault string) { return oneIsKilled(t) })
}

func oneIsKilled(t *testing.T) (slow string) {
	t.Helper()
	s := newStage(t)
	c := newCrew(s, s.queue(posthaste.QueueOptions{MaxAttempts: 100}), 10*time.Second, 3, 3)
	c.each(c.workers, history.Handled, 20)
	var killed []string
	for _, of := range []*[]*child{&c.workers, &c.senders} {
		victim := (*of)[0]
		*of = (*of)[1:]
		victim.kill()
		killed = append(killed, victim.name)
		c.each(c.senders, history.Sent, 20)
		c.each(c.workers, history.Handled, 20)
	}
	ids, events, slow := c.end()
	// The killed sender may have had answers in flight.
	s.must(history.Merge(history.EveryOne(ids, events), history.Attempts(events, 0)))
	again := history.Once(events)
	for _, f := range again {
		if first := handledFirst(events, f.ID); first != killed[0] {
			t.Errorf("%v, at first by %s, which lives", f, first)
		}
	}
	t.Logf("%d sent and handled, %d twice", len(ids), len(again))
	return slow
}

// handledFirst returns the process that handled a message first, or "".
func handledFirst(events []history.Event, id posthaste.MessageID) string {
	for _, e := range events {
		if e.ID == id && e.Kind == history.Handled {
			return e.Process
		}
	}
	return ""
}

// All workers are replaced, one after the other, new ones first: no message is lost, none
// comes twice, and no send fails.
func TestHA2_RollingReplacement(t *testing.T) {
	t.Parallel()
	testrun.Timed(t, answerTime, func() (fault string) { return replacedOneByOne(t) })
}

func replacedOneByOne(t *testing.T) (slow string) {
	t.Helper()
	s := newStage(t)
	c := newCrew(s, s.queue(posthaste.QueueOptions{}), 30*time.Second, 2, 3)
	backlog := s.send(c.queue, size(1_000, 20_000))
	c.each(c.workers, history.Handled, 20)
	for range size(1, 3) {
		for i, old := range c.workers {
			c.workers[i] = c.worker()
			s.must(old.term())
			c.each(c.workers[i:i+1], history.Handled, 20)
		}
	}
	ids, events, slow := c.end()
	if slow != "" { // a send may have been committed without an answer
		return slow
	}
	s.must(history.Exactly(append(ids, backlog...), events))
	t.Logf("%d sent beside %d that waited", len(ids), len(backlog))
	return ""
}

// With a long backlog, the worker's memory stays that with a short queue, and so does the rate
// of its claims. (`posthaste bench backlog` measures the rate.) The memory of PostgreSQL's
// processes stays constant, too. A Redis holds the backlog, and its memory does not grow with
// time.
func TestLP8_LongBacklog(t *testing.T) {
	testrun.Nightly(t, "it measures time and memory; TestLP8_ClaimCostsTheSameBehindABacklog in sql runs on each change")
	s := newStage(t)
	waiting, some := size(150_000, 10_000_000), size(20_000, 100_000)
	if full() && s.redis() {
		some = 1_000_000 // so that it takes some seconds
	}
	short, long := s.queue(posthaste.QueueOptions{}), s.queue(posthaste.QueueOptions{})
	s.send(short, some)
	empty := s.store()
	batch := make([]posthaste.Message, 10_000)
	for i := range batch {
		batch[i] = posthaste.Message{Queue: long, Payload: []byte(`{"n": 1}`)}
	}
	for range waiting / len(batch) {
		_, err := s.client.Send(s.ctx, batch...)
		s.must(err)
	}
	settled, backendsOf := s.doneIn()
	// run handles n messages of a queue, and returns the duration, and the maximum memory of
	// the handling process and of its backends.
	run := func(queue string) (took time.Duration, worker, backends int) {
		w := s.spawn(task{Role: "counter", Queue: queue, Concurrency: 100, Lease: 10 * time.Second})
		first := time.Time{}
		s.until("so many are settled", func() bool {
			n := settled(queue)
			if n > 0 && first.IsZero() {
				first = time.Now()
			}
			return n >= some
		})
		took = time.Since(first)
		worker = heldKB(t, w.cmd.Process.Pid, "VmHWM:")
		for _, pid := range backendsOf(w.name) {
			backends = max(backends, heldKB(t, pid, "RssAnon:"))
		}
		s.must(w.cmd.Process.Signal(syscall.SIGTERM))
		<-w.ended
		return took, worker, backends
	}
	before := s.store()
	shortTook, shortHeld, shortBackends := run(short)
	longTook, longHeld, longBackends := run(long)
	t.Logf("%d messages took %s with %d waiting, %s with none; the worker held %d and %d MB, a backend up to %d and %d MB",
		some, longTook, waiting, shortTook, longHeld>>10, shortHeld>>10, longBackends>>10, shortBackends>>10)
	if full() && longTook > 2*shortTook+time.Second {
		t.Errorf("with a backlog of %d, %d messages took %s, and %s with none", waiting, some, longTook, shortTook)
	}
	if longHeld > shortHeld+(64<<10) || longBackends > shortBackends+(32<<10) {
		t.Errorf("with a backlog the worker held %d kB and a backend %d kB, and %d and %d kB without", longHeld, longBackends, shortHeld, shortBackends)
	}
	if s.redis() {
		after := s.store()
		t.Logf("Redis: %d MB for what waits, %d B a message; %d MB after the work", before>>20, (before-empty)/waiting, after>>20)
		if each := (before - empty) / waiting; each > 250 {
			t.Errorf("Redis has %d B for each message of 8 B that waits", each)
		}
		if after > before+(16<<20) {
			t.Errorf("Redis has %d MB, and had %d before any was handled", after>>20, before>>20)
		}
	}
}

// doneIn returns functions that count the done messages of a queue, by the settlements only,
// and that return the server's processes of a client. A Redis has none.
func (s *stage) doneIn() (count func(queue string) int, backends func(client string) []int) {
	s.Helper()
	if s.redis() {
		return func(queue string) int {
			n, err := s.keys().HGet(s.ctx, key(queue, "meta"), "done").Int()
			if !errors.Is(err, goredis.Nil) {
				s.must(err)
			}
			return n
		}, func(string) []int { return nil }
	}
	conn := s.conn()
	return func(queue string) int { return one[int](s, conn, doneOf, queue) }, func(client string) []int {
		return one[[]int](s, conn, "select array_agg(pid) from pg_stat_activity where datname = current_database() and application_name like $1 || '%'", client)
	}
}

// store returns the memory of a Redis in bytes, after a pending rewrite of its file; 0 for a
// PostgreSQL.
func (s *stage) store() (bytes int) {
	s.Helper()
	if !s.redis() {
		return 0
	}
	s.until("Redis has rewritten its file", func() bool {
		info, err := s.keys().InfoMap(s.ctx, "persistence", "memory").Result()
		s.must(err)
		bytes, err = strconv.Atoi(info["Memory"]["used_memory"])
		s.must(err)
		file := info["Persistence"]
		return file["aof_rewrite_in_progress"] == "0" && file["aof_rewrite_scheduled"] == "0"
	})
	return bytes
}

// heldKB returns the memory that a process uses or has used, by a field of its status; 0 if it
// is unknown.
func heldKB(t *testing.T, pid int, field string) int {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Logf("memory is not looked at: %v", err)
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == field {
			n, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("the process has no %s", field)
	return 0
}
