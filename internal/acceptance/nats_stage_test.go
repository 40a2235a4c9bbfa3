//go:build unix

package acceptance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/history"
)

// natsAckWait is the AckWait of the scenarios' queues, and natsLease the lease of their workers.
const (
	natsAckWait = 5 * time.Second
	natsLease   = 3 * time.Second
)

// natsStage is a stage on a cluster of three NATS servers.
type natsStage struct {
	*stage
	cluster *devbroker.NATSCluster
	js      jetstream.JetStream
	streams sync.Map // the name of the stream of each queue
}

func newNATSStage(t *testing.T, further ...string) *natsStage {
	t.Helper()
	cluster := devbroker.Own(t, devbroker.StartNATSCluster, further...)
	return natsStageOn(t, cluster.URL(), cluster)
}

// natsStageOn creates a stage on the servers of a URL.
func natsStageOn(t *testing.T, servers string, cluster *devbroker.NATSCluster) *natsStage {
	t.Helper()
	n := &natsStage{stage: stageOn(t, servers+"?ack_wait="+natsAckWait.String()), cluster: cluster}
	n.failing()
	conn, err := natsgo.Connect(servers, natsgo.MaxReconnects(-1), natsgo.ReconnectWait(100*time.Millisecond), natsgo.PingInterval(2*time.Second), natsgo.IgnoreAuthErrorAbort(),
		natsgo.ErrorHandler(func(*natsgo.Conn, *natsgo.Subscription, error) {}))
	n.must(err)
	t.Cleanup(conn.Close)
	n.js, err = jetstream.New(conn)
	n.must(err)
	return n
}

// stream returns the name of a queue's stream. It is asked for once, before servers are cut off.
func (n *natsStage) stream(queue string) string {
	if name, known := n.streams.Load(queue); known {
		return name.(string)
	}
	var name string
	n.until("the stream of "+queue+" is known", func() (known bool) {
		var err error
		name, err = n.js.StreamNameBySubject(n.ctx, "posthaste.queue."+strings.ReplaceAll(queue, ".", "=")+".>")
		return err == nil
	})
	n.streams.Store(queue, name)
	return name
}

// queue creates a queue, and waits until all replicas for it are up to date.
func (n *natsStage) queue(o posthaste.QueueOptions) string {
	n.Helper()
	queue := n.stage.queue(o)
	n.healthy(queue)
	return queue
}

func (n *natsStage) healthy(queue string) {
	n.Helper()
	if n.cluster != nil {
		all := n.replicasFor(queue)
		n.until("all replicas for "+queue+" are up to date", func() bool { return agree(n.ctx, all, isWhole) })
	}
}

// leader returns the server that leads the stream of a queue.
func (n *natsStage) leader(queue string) *devbroker.NATSNode {
	n.Helper()
	leader, err := n.cluster.Leader(n.ctx, n.stream(queue))
	n.must(err)
	return leader
}

// left counts the messages of a queue that wait, are handed out, or are scheduled, as the servers
// tell. A number below 0 says that they do not, or that a message moved meanwhile.
func (n *natsStage) left(queue string) (count int) {
	ctx, cancel := context.WithTimeout(n.ctx, 5*time.Second)
	defer cancel()
	stream, err := n.js.Stream(ctx, n.stream(queue))
	if err != nil {
		return -1
	}
	before := stream.CachedInfo().State.LastSeq
	all := stream.ListConsumers(ctx)
	for c := range all.Info() {
		if strings.HasPrefix(c.Name, "sub-") {
			count += int(c.NumPending) + c.NumAckPending
		}
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter("posthaste.queue.*.s.>"))
	if err != nil || all.Err() != nil || info.State.LastSeq != before {
		return -1
	}
	return count + len(info.State.Subjects)
}

// emptied waits until nothing of a queue is left.
func (n *natsStage) emptied(queue string) {
	n.Helper()
	last := 0
	defer func() { n.Logf("%d messages were left in %s when it was looked at last", last, queue) }()
	n.until("nothing is left in "+queue, func() bool { last = n.left(queue); return last == 0 })
}

// What processes of the scenarios record besides.
const (
	unknown   history.Kind = "unknown"   // a send ended without an answer
	refused   history.Kind = "refused"   // a send has failed: nothing was stored
	confirmed history.Kind = "confirmed" // a settlement took effect
	late      history.Kind = "late"      // a settlement was refused, or not confirmed
)

// crew starts senders and workers of a queue.
func (n *natsStage) crew(queue string, senders, workers int) *crew {
	n.Helper()
	c := &crew{stage: n.stage, queue: queue}
	for range senders {
		c.senders = append(c.senders, n.spawn(task{Role: "insister", Queue: queue, Concurrency: 4}))
	}
	for range workers {
		c.workers = append(c.workers, n.witness(queue))
	}
	return c
}

func (n *natsStage) witness(queue string) *child {
	n.Helper()
	return n.spawn(task{Role: "witness", Queue: queue, Concurrency: 10, Lease: natsLease, Work: 5 * time.Millisecond, Fails: 10})
}

// close ends senders, waits until nothing is left, ends the workers, and checks the history: all messages that were
// answered as sent were handled, each double is explained, and nothing came that was not sent.
func (n *natsStage) close(c *crew) []history.Event {
	n.Helper()
	for _, p := range c.senders {
		n.must(p.term())
	}
	n.emptied(c.queue)
	for _, p := range c.workers {
		n.must(p.term())
	}
	events := n.history()
	ids := history.IDs(events, history.Sent)
	for _, f := range history.EveryOne(ids, events) {
		for _, e := range events {
			if e.ID == f.ID {
				n.Logf("of the lost message %s: %+v", f.ID, e)
			}
		}
	}
	n.must(history.Merge(history.EveryOne(ids, events), doubles(events), stray(events)))
	ranTwice := history.Once(events)
	sort, errs := map[history.Kind]int{}, map[string]int{}
	for _, e := range events {
		sort[e.Kind]++
		if e.Kind == unknown || e.Kind == refused {
			errs[e.Note]++
		}
	}
	for text, count := range errs {
		n.Logf("%d sends ended with: %s", count, text)
	}
	n.Logf("%d sent, %d without an answer, %d refused; %d runs, %d of them failed; %d messages ran twice, %d schedules fired twice", len(ids), sort[unknown], sort[refused], sort[history.Started], sort[history.Failed], len(ranTwice), len(firedTwice(events)))
	if len(ids) == 0 || sort[history.Failed] == 0 {
		n.Errorf("nothing was tested")
	}
	return events
}

// The rules of this engine.
const (
	unexplainedDouble history.Rule = "double"
	strayMessage      history.Rule = "stray"
)

// unexplained finds runs of a message after one whose end was confirmed. A message may run again
// after a failure, after the death of its process, and after an acknowledgment that was not
// confirmed within its lease.
func unexplained(events []history.Event) (faults []history.Fault) {
	runs := map[posthaste.MessageID][]history.Event{}
	ended := map[string]time.Duration{} // when the end of a run was confirmed as done
	run := func(e history.Event) string { return fmt.Sprint(e.Process, " ", e.ID, " ", e.Attempt) }
	for _, e := range events {
		switch {
		case e.Kind == history.Started:
			runs[e.ID] = append(runs[e.ID], e)
		case e.Kind == confirmed && e.Note == string(posthaste.OutcomeDone):
			ended[run(e)] = e.At
		}
	}
	for id, all := range runs {
		for i, again := range all[1:] {
			if at, was := ended[run(all[i])]; was {
				faults = append(faults, history.Fault{Rule: unexplainedDouble, ID: id,
					Text: fmt.Sprintf("%s began attempt %d at %s, and %s had ended attempt %d, which was confirmed at %s", again.Process, again.Attempt, again.At, all[i].Process, all[i].Attempt, at)})
			}
		}
	}
	slices.SortFunc(faults, func(a, b history.Fault) int { return int(a.ID - b.ID) })
	return faults
}

// stray finds messages that no sender sent, those that were refused, and those that came under two ids.
// The token of a message is known before its id.
func stray(events []history.Event) (faults []history.Fault) {
	sent := map[string]history.Event{}
	came := map[string]posthaste.MessageID{}
	for _, e := range events {
		switch {
		case e.Token == "":
		case e.Kind == history.Sent || e.Kind == unknown || e.Kind == refused:
			sent[e.Token] = e
		case e.Kind == history.Started:
			if first := came[e.Token]; first != 0 && first != e.ID {
				faults = append(faults, history.Fault{Rule: strayMessage, ID: e.ID, Text: "it is message " + first.String() + " again"})
			}
			came[e.Token] = e.ID
		}
	}
	for token, id := range came {
		switch e, is := sent[token]; {
		case !is:
			faults = append(faults, history.Fault{Rule: strayMessage, ID: id, Text: token + " was not sent"})
		case e.Kind == refused:
			faults = append(faults, history.Fault{Rule: strayMessage, ID: id, Text: token + " was handled, and its sender was told that it was not stored: " + e.Note})
		case e.Kind == history.Sent && e.ID != id:
			faults = append(faults, history.Fault{Rule: strayMessage, ID: id, Text: token + " was answered with id " + e.ID.String()})
		}
	}
	return faults
}
