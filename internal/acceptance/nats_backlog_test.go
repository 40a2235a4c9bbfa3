//go:build unix

package acceptance

import (
	"fmt"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// With a million messages that wait and 300,000 that are scheduled, claims and acknowledgments are at
// least 0.7 as fast as in a short queue; on each change with fewer, and at least half as fast.
func TestNJ10_LongBacklog(t *testing.T) {
	testrun.Nightly(t, "it fills a store for a minute; package nats tests the engine on each change")
	besideOthers(t)
	server := devbroker.Own(t, devbroker.StartNATS)
	n := natsStageOn(t, server.URL(), nil)
	rounds, some := 3, size(5_000, 50_000)
	short, long := n.queue(posthaste.QueueOptions{}), n.queue(posthaste.QueueOptions{})
	waiting, scheduled := size(30_000, 1_000_000), size(5_000, 300_000)
	n.fillWith(long, posthaste.Message{Queue: long, Payload: "waits", SendAt: time.Now().Add(24 * time.Hour)}, scheduled)
	n.fillWith(long, posthaste.Message{Queue: long, Payload: "waits"}, waiting)
	bound := size(0.5, 0.7)
	testrun.Timed(t, 300*time.Millisecond, func() string {
		var best, bestLong float64
		for range rounds {
			n.fillWith(short, posthaste.Message{Queue: short, Payload: "waits"}, some)
			best, bestLong = max(best, n.drain(short, some)), max(bestLong, n.drain(long, some))
			n.fillWith(long, posthaste.Message{Queue: long, Payload: "waits"}, some)
		}
		t.Logf("%.0f a second with %d waiting and %d scheduled, %.0f in a short queue: %.2f", bestLong, waiting, scheduled, best, bestLong/best)
		if bestLong < bound*best {
			return fmt.Sprintf("claims of a long queue reach %.2f of those of a short one", bestLong/best)
		}
		return ""
	})
}

// fillWith sends copies of a message.
func (n *natsStage) fillWith(queue string, m posthaste.Message, count int) {
	n.Helper()
	for count > 0 {
		batch := make([]posthaste.Message, min(count, 500))
		for i := range batch {
			batch[i] = m
		}
		_, err := n.client.Send(n.ctx, batch...)
		n.must(err)
		count -= len(batch)
	}
}

// drain claims and settles so many messages, and returns how many in a second.
func (n *natsStage) drain(queue string, count int) float64 {
	n.Helper()
	w, err := n.engine.Register(n.ctx, posthaste.WorkerInfo{Name: n.name("drain"), Lease: time.Minute})
	n.must(err)
	begun, done := time.Now(), 0
	for number := int64(1); done < count; number++ {
		reply, err := n.engine.Claim(n.ctx, posthaste.ClaimRequest{Worker: w, Number: number, QueueRef: posthaste.QueueRef{Queue: queue}, Max: min(1000, count-done)})
		n.must(err)
		settlements := make([]posthaste.Settlement, len(reply.Deliveries))
		for i, d := range reply.Deliveries {
			settlements[i] = posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeDone}
		}
		if len(settlements) == 0 {
			continue
		}
		results, err := n.engine.Settle(n.ctx, settlements)
		n.must(err)
		for _, r := range results {
			if !r.Settled {
				n.Fatalf("a delivery was not settled: %+v", r)
			}
		}
		done += len(results)
	}
	took := time.Since(begun)
	n.must(n.engine.Unregister(n.ctx, w))
	return float64(count) / took.Seconds()
}
