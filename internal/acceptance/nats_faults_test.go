//go:build unix

package acceptance

import (
	"fmt"
	"slices"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/nats"
)

// manyAttempts is more than any fault of a scenario takes, with short waits.
var manyAttempts = posthaste.QueueOptions{MaxAttempts: 1000, BackoffBase: 100 * time.Millisecond, BackoffMax: time.Second}

// How long messages may stand still when a leader is killed, and when it is stopped in order.
const (
	killedGap  = 10 * time.Second
	stoppedGap = 2 * time.Second
)

// The leader of a queue's stream is killed every 20 s beside senders and 4 workers, and stopped
// gracefully: no message is lost, each double is explained, and messages flow again within 10 s, or 2 s.
// A server that stops hands over its leads without asking whether the other server is up to date. If it
// is not, the others elect a leader, as after a kill. Half of the stops may do so; messages always flow
// within 2 s after there are leaders. At full size for an hour.
func TestNJ1_LeadersKilled(t *testing.T) {
	testrun.Nightly(t, "three servers and their workers take both cores for a minute; package nats tests the engine on each change")
	besideOthers(t)
	for range size(1, 17) { // a history of an hour would take long to read
		testrun.Timed(t, stoppedGap, func() string { return leadersEnd(t) })
	}
}

func leadersEnd(t *testing.T) (slow string) {
	t.Helper()
	n := newNATSStage(t)
	queue := n.queue(manyAttempts)
	c := n.crew(queue, 2, 4)
	c.each(c.workers, history.Handled, 20)
	var elected []gap
	rounds := size(1, 5)
	for round := range rounds {
		killed := n.without(c, (*devbroker.NATSNode).Kill)
		stopped := n.without(c, (*devbroker.NATSNode).Retire)
		if max(killed.all, stopped.all) > killedGap || max(killed.led, stopped.led) > stoppedGap {
			slow = fmt.Sprintf("in round %d nothing was handled for %s after the leader was killed, and for %s after it was stopped", round, killed, stopped)
		}
		if stopped.all > stoppedGap {
			elected = append(elected, stopped)
		}
	}
	if len(elected) > (rounds+1)/2 {
		slow = fmt.Sprintf("after %d of %d stops nothing was handled for over %s: %s", len(elected), rounds, stoppedGap, elected)
	}
	n.close(c)
	n.cluster.Stop()
	return slow
}

// gap is for how long nothing was handled, and for how long nothing was although there were leaders.
type gap struct{ all, led time.Duration }

func (g gap) String() string {
	return fmt.Sprintf("%s (with leaders %s)", g.all.Round(time.Millisecond), g.led.Round(time.Millisecond))
}

// without ends the leader of a queue and starts it again. It returns for how long nothing was handled
// meanwhile. At full size it takes 20 s.
func (n *natsStage) without(c *crew, end func(*devbroker.NATSNode)) (longest gap) {
	n.Helper()
	n.healthy(c.queue)
	next := time.Now().Add(size(0, 20*time.Second))
	leader := n.leader(c.queue)
	watched := n.watchLeaders(c.queue)
	at := history.Now()
	end(leader)
	c.each(c.workers, history.Handled, 10)
	n.must(leader.Start(n.ctx))
	n.healthy(c.queue)
	c.each(c.workers, history.Handled, 10)
	missing := watched()
	pace(next)
	before, since := at, time.Duration(0)
	for _, e := range n.history() {
		if e.Kind != history.Handled || e.At <= at {
			continue
		}
		if e.At-before > longest.all {
			longest.all, since = e.At-before, before-at
		}
		led := e.At - before
		for _, m := range missing {
			if m > before && m < e.At {
				led = e.At - m
			}
		}
		longest.led = max(longest.led, led)
		before = e.At
	}
	n.Logf("%s, the leader, was ended for a while: nothing was handled for %s, from %s after that on", leader.Name, longest, since.Round(time.Millisecond))
	return longest
}

// A server is cut off from the others, and its clients go on elsewhere; at first with the leader of
// the stream. All that was accepted is there after healing.
func TestNJ2_MinorityCutOff(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "three servers and their workers take both cores for a minute; package nats tests the engine on each change")
	n := newNATSStage(t)
	queue := n.queue(manyAttempts)
	c := n.crew(queue, 1, 2)
	r := n.recorder()
	for round := range size(1, 10) {
		n.healthy(queue)
		node := n.leader(queue)
		engine := n.connected(node)
		insist(n.ctx, engine, r, queue, fmt.Sprint("before-", round), false)
		node.CutOff()
		cut := history.Now()
		accepted := 0
		n.within(time.Minute, "a client of the server that is cut off goes on elsewhere", func() bool {
			accepted++
			insist(n.ctx, engine, r, queue, fmt.Sprint("minority-", round, "-", accepted), false)
			for _, e := range n.history() {
				if e.Kind == history.Sent && e.At > cut && e.Token == fmt.Sprint("minority-", round, "-", accepted) {
					return true
				}
			}
			return false
		})
		n.Logf("round %d: accepted %s after the cut", round, (history.Now() - cut).Round(time.Millisecond))
		c.each(c.workers, history.Handled, 5)
		n.cluster.Heal()
	}
	n.healthy(queue)
	n.close(c)
}

// connected opens an engine that is connected to a server at first, and knows the others.
func (n *natsStage) connected(node *devbroker.NATSNode) posthaste.Store {
	n.Helper()
	conn, err := natsgo.Connect(node.URL()+","+n.cluster.URL(), natsgo.DontRandomize(), natsgo.ReconnectBufSize(-1), natsgo.MaxReconnects(-1), natsgo.ReconnectWait(200*time.Millisecond),
		natsgo.ErrorHandler(func(*natsgo.Conn, *natsgo.Subscription, error) {}))
	n.must(err)
	n.Cleanup(conn.Close)
	var engine *nats.Engine
	n.until("the streams of the store have leaders", func() bool { engine, err = nats.New(n.ctx, conn); return err == nil })
	n.Cleanup(engine.Close)
	return engine
}

// All servers are cut off from each other: each send ends in time, as outcome_unknown, or as
// unavailable if nothing was stored; none is accepted, and after healing all that was accepted is there.
func TestNJ2_MajorityCutOff(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "three servers and their workers take both cores for a minute; package nats tests the engine on each change")
	n := newNATSStage(t)
	queue := n.queue(manyAttempts)
	c := n.crew(queue, 1, 2)
	c.each(c.workers, history.Handled, 20)
	for range size(1, 10) {
		n.healthy(queue)
		for _, node := range n.cluster.Nodes {
			node.CutOff()
		}
		cut := history.Now()
		// A message whose send began before the cut may be accepted.
		n.until("sends end without being accepted", func() bool {
			count := map[history.Kind]int{}
			for _, e := range n.history() {
				if e.At > cut {
					count[e.Kind]++
				}
			}
			return count[unknown]+count[refused] >= 8
		})
		n.cluster.Heal()
		healed := history.Now()
		for _, e := range n.history() {
			began := e.At - e.Took
			switch {
			case e.Kind != history.Sent && e.Kind != unknown && e.Kind != refused || began < cut || e.At > healed:
			case e.Kind == history.Sent:
				n.Errorf("message %s was accepted %s after the cut", e.ID, e.At-cut)
			case e.Took > sendAnswer+2*time.Second:
				n.Errorf("a send took %s: %s", e.Took, e.Note)
			case e.Kind == unknown && !hasCode(e, posthaste.CodeOutcomeUnknown) && !hasCode(e, posthaste.CodeUnavailable):
				n.Errorf("a send ended with %s", e.Note)
			}
		}
		n.healthy(queue)
		c.each(c.workers, history.Handled, 5)
	}
	n.close(c)
}

// hasCode reports whether a note begins with a code.
func hasCode(e history.Event, code posthaste.Code) bool {
	return len(e.Note) > len(code) && e.Note[:len(code)] == string(code)
}

// All servers are killed at one moment, with messages in flight: messages that were answered as sent are
// handled, and each double is explained.
func TestNJ3_AllKilled(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "three servers and their workers take both cores for a minute; package nats tests the engine on each change")
	n := newNATSStage(t)
	queue := n.queue(manyAttempts)
	c := n.crew(queue, 2, 2)
	for range size(2, 12) {
		c.each(c.workers, history.Handled, 20)
		n.cluster.Kill()
		n.must(n.cluster.Start(n.ctx))
		begun := time.Now()
		c.each(c.workers, history.Handled, 5)
		n.Logf("messages flow %s after all servers were started", time.Since(begun).Round(time.Millisecond))
	}
	n.close(c)
}

// Delayed messages are on time, and none comes early or is lost; also if the leader is killed while
// they are due.
func TestNJ4_DelayedMessages(t *testing.T) {
	testrun.Nightly(t, "three servers and their workers take both cores for a minute; package nats tests the engine on each change")
	besideOthers(t)
	for name, c := range map[string]struct {
		kill  bool
		bound time.Duration
	}{"undisturbed": {false, 500 * time.Millisecond}, "leader killed": {true, 10 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			testrun.Timed(t, c.bound, func() string { return delayed(t, c.kill, c.bound) })
		})
	}
}

func delayed(t *testing.T, kill bool, bound time.Duration) (slow string) {
	t.Helper()
	n := newNATSStage(t)
	queue, count := n.queue(manyAttempts), size(500, 10_000)
	spread := size(2*time.Second, 10*time.Second)
	w := n.spawn(task{Role: "witness", Queue: queue, Concurrency: 200, Lease: natsLease})
	due := time.Now().Add(size(4*time.Second, 30*time.Second))
	batch := make([]posthaste.Message, count)
	ats := map[string]time.Time{}
	for i := range batch {
		at := due.Add(spread * time.Duration(i) / time.Duration(count))
		batch[i] = posthaste.Message{Queue: queue, Payload: fmt.Sprint("due-", i), SendAt: at}
		ats[fmt.Sprint("due-", i)] = at
	}
	var ids []posthaste.MessageID
	for rest := batch; len(rest) > 0; rest = rest[min(len(rest), 500):] {
		sent, err := posthaste.IDs(n.client.Send(n.ctx, rest[:min(len(rest), 500)]...))
		n.must(err)
		ids = append(ids, sent...)
	}
	if time.Now().After(due) {
		n.Log("the messages were due before all were sent")
	}
	if kill {
		pace(due.Add(spread / 4)) // the leader dies while they are due
		leader := n.leader(queue)
		leader.Kill()
		pace(due.Add(spread + time.Second))
		n.must(leader.Start(n.ctx))
	}
	n.emptied(queue)
	n.must(w.term())
	events := n.history()
	n.must(history.Merge(history.EveryOne(ids, events), history.NoOther(ids, events), doubles(events)))
	began := time.Now().Add(-history.Now()) // of the clock of events, as far as that is exact
	var delays []time.Duration
	first := map[string]bool{}
	for _, e := range events {
		if e.Kind != history.Started || first[e.Token] {
			continue
		}
		first[e.Token] = true
		delays = append(delays, began.Add(e.At).Sub(ats[e.Token]))
	}
	least, p99, most := spreadOf(delays)
	n.Logf("of %d delayed messages the first began %s after its time, 99 %% within %s, the last after %s", len(delays), least, p99, most)
	if least < -time.Second {
		n.Errorf("a message began %s before its time", -least)
	}
	if p99 > bound {
		return fmt.Sprintf("99 %% of the messages began within %s", p99)
	}
	return ""
}

// spreadOf returns the least, the 99th percentile and the most of some durations.
func spreadOf(all []time.Duration) (least, p99, most time.Duration) {
	slices.Sort(all)
	return all[0], all[len(all)*99/100], all[len(all)-1]
}

// A worker is frozen for twice the time after which the servers deliver again, with messages in
// hand: afterwards it sends no acknowledgment of those attempts, and another worker has handled
// them.
func TestNJ5_FrozenWorker(t *testing.T) {
	t.Parallel()
	server := devbroker.Own(t, devbroker.StartNATS)
	n := natsStageOn(t, server.URL(), nil)
	queue, count := n.queue(manyAttempts), size(20, 200)
	var wire wiretap
	proxy := wire.before(t, server.Address())
	frozen := n.spawn(task{Role: "witness", Queue: queue, URL: "nats://" + proxy + "?ack_wait=" + natsAckWait.String(), Concurrency: count, Lease: natsLease, Work: time.Second})
	ids := n.send(queue, count)
	n.until("all messages are in hand", func() bool { return len(history.IDs(n.history(), history.Started)) == count })
	last := n.lastSequence(queue)
	freeze(n.stage, frozen, true)
	sentBefore := wire.length()
	resume := time.Now().Add(2 * natsAckWait)
	other := n.witness(queue)
	pace(resume) // the scenario freezes it for so long
	freeze(n.stage, frozen, false)
	n.until("the frozen worker has tried to settle", func() bool {
		return slices.ContainsFunc(n.history(), func(e history.Event) bool {
			return e.Process == frozen.name && e.Attempt == 1 && (e.Kind == late || e.Kind == confirmed)
		})
	})
	n.emptied(queue)
	n.must(frozen.term())
	n.must(other.term())
	if acks := wire.acks(sentBefore, last); len(acks) > 0 {
		t.Errorf("after the frozen worker went on it sent %d acknowledgments, such as %s", len(acks), acks[0])
	}
	events := n.history()
	n.must(history.Merge(history.EveryOne(ids, events), history.NoOther(ids, events), doubles(events)))
	for _, e := range events {
		if e.Process == frozen.name && e.Attempt == 1 && e.Kind == confirmed {
			t.Errorf("message %s: the frozen attempt was settled as %s", e.ID, e.Note)
		}
	}
}
