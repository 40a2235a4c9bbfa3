//go:build unix

package acceptance

import (
	"bytes"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
)

// A worker is killed while it makes a dead letter, before the server gets it, or after it was stored
// and before the worker knows; and the server restarts inside the duplicate window. Another
// worker leaves exactly one dead letter.
func TestNJ6_KilledDeadLettering(t *testing.T) {
	for name, c := range map[string]struct {
		strike  func(p *faultproxy.Proxy, kill func()) <-chan struct{}
		restart func(*devbroker.NATS)
	}{
		"before, then killed":  {(*faultproxy.Proxy).KillBefore, (*devbroker.NATS).Kill},
		"after, then killed":   {(*faultproxy.Proxy).KillAfter, (*devbroker.NATS).Kill},
		"before, then stopped": {(*faultproxy.Proxy).KillBefore, (*devbroker.NATS).Shutdown},
		"after, then stopped":  {(*faultproxy.Proxy).KillAfter, (*devbroker.NATS).Shutdown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := devbroker.Own(t, devbroker.StartNATS)
			n := natsStageOn(t, server.URL(), nil)
			proxy := faultproxy.Start(t, server.Address(), func(piece []byte) bool { return bytes.Contains(piece, []byte("Nats-Batch-Commit")) })
			for range size(1, 5) {
				queue := n.queue(posthaste.QueueOptions{MaxAttempts: 1})
				failing := func(url string) *child {
					return n.spawn(task{Role: "witness", Queue: queue, URL: url, Concurrency: 1, Lease: natsLease, Fails: -1})
				}
				victim := failing("nats://" + proxy.Address() + "?ack_wait=" + natsAckWait.String())
				killed := c.strike(proxy, victim.kill)
				id := n.send(queue, 1)[0]
				select {
				case <-killed:
				case <-time.After(patience):
					t.Fatal("the worker made no dead letter")
				}
				c.restart(server)
				n.must(server.Start(n.ctx))
				other := failing(n.url)
				n.emptied(queue)
				n.must(other.term())
				n.oneDead(queue, id)
			}
		})
	}
}

// oneDead checks that a queue has exactly one dead letter, that of a message.
func (n *natsStage) oneDead(queue string, id posthaste.MessageID) {
	n.Helper()
	stream, err := n.js.Stream(n.ctx, n.stream(queue))
	n.must(err)
	info, err := stream.Info(n.ctx, jetstream.WithSubjectFilter("posthaste.queue.*.d.>"))
	n.must(err)
	stored := uint64(0)
	for _, count := range info.State.Subjects {
		stored += count
	}
	if stored != 1 {
		n.Errorf("message %s failed for good, and %d dead letters are stored", id, stored)
	}
	letters, err := n.engine.DeadLetters(n.ctx, posthaste.DeadLetterFilter{Queue: queue})
	n.must(err)
	if len(letters.Items) != 1 || letters.Items[0].ID != id {
		n.Errorf("message %s failed for good, and the dead letters are %+v", id, letters.Items)
	}
}
