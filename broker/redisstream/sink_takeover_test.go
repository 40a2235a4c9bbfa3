//go:build unix

package redisstream

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/redis"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

// A master hangs, and another server gets its slots. Messages that wait for its replies, and
// later ones, go to the other server soon.
func TestSinkMasterStandsStill(t *testing.T) {
	t.Parallel()
	for name, idle := range map[string]bool{"under load": false, "idle": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := newCluster(t, 0)
			s, err := NewSink(SinkConfig{URL: URL(c.URL()), Stream: streamOf(c), DialTimeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if r := sinktest.Deliver(t, s, sinktest.Delivery(1)); r[0].Err != nil {
				t.Fatal(r[0].Err)
			}
			asked := mastersAsked(t, c)
			if err := syscall.Kill(c.Nodes[0].PID(), syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = syscall.Kill(c.Nodes[0].PID(), syscall.SIGCONT) }()
			var waits chan []posthaste.SinkResult
			if !idle {
				waits = make(chan []posthaste.SinkResult, 1)
				go func() { waits <- s.Deliver(t.Context(), []posthaste.RawDelivery{sinktest.Delivery(2)}) }()
				testrun.Until(t, time.Minute, "a reply does not come, and the others are asked", func() bool { return mastersAsked(t, c) > asked })
			}
			began := time.Now()
			if _, err := c.Replace(t.Context(), c.Nodes[0]); err != nil {
				t.Fatal(err)
			}
			if waits != nil {
				t.Logf("the waiting message ends with %v", (<-waits)[0].Err)
			}
			if r := s.Deliver(t.Context(), []posthaste.RawDelivery{sinktest.Delivery(3)}); r[0].Err != nil {
				if r = s.Deliver(t.Context(), []posthaste.RawDelivery{sinktest.Delivery(3)}); r[0].Err != nil {
					t.Error(r[0].Err)
				}
			}
			// By itself the sink would wait until the timeout.
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("it took %s until the new master has a message", took)
			} else {
				t.Log("it took", took)
			}
		})
	}
}

// streamOf returns a stream of the first node.
func streamOf(*devbroker.RedisCluster) string {
	for i := 0; ; i++ {
		if stream := fmt.Sprint("stream-", i); redis.Slot(stream) < redis.Slots/3 {
			return stream
		}
	}
}
