//go:build unix

package redisstream

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/redis"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// mastersAsked returns how often servers of the cluster, but for the first, were asked who the
// masters are. That happens when a server leaves a command without a reply.
func mastersAsked(t *testing.T, c *devbroker.RedisCluster) (n int) {
	t.Helper()
	for _, node := range c.Nodes[1:] {
		stats, err := node.Client.Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(stats) {
			for _, command := range []string{"cluster", "cluster|slots"} {
				var calls int
				if _, err := fmt.Sscanf(line, "cmdstat_"+command+":calls=%d,", &calls); err == nil {
					n += calls
				}
			}
		}
	}
	return n
}

// A master hangs, and another server gets its slots. Entries of the other server are read
// soon.
func TestSourceMasterStandsStill(t *testing.T) {
	t.Parallel()
	r := newClusterTest(t, 0)
	for i := 0; redis.Slot(r.stream) >= redis.Slots/3; i++ {
		r.stream = fmt.Sprint("in", i)
	}
	first := r.Nodes[0]
	add := func(client *goredis.Client, stream string) {
		if err := client.XGroupCreateMkStream(t.Context(), stream, "posthaste", "0").Err(); err != nil {
			t.Fatal(err)
		}
		if err := client.XAdd(t.Context(), &goredis.XAddArgs{Stream: stream, Values: []any{FieldPayload, "{}"}}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	add(first.Client, r.stream)
	testrun.Background(r, r.source(nil).Run)
	r.until("the first is read", func() bool { return r.sent() == 1 })
	asked := mastersAsked(t, r.RedisCluster)
	if err := syscall.Kill(first.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(first.PID(), syscall.SIGCONT) })
	r.until("a reply does not come, and the others are asked", func() bool { return mastersAsked(t, r.RedisCluster) > asked })
	began := time.Now()
	by, err := r.Replace(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	add(by.Client, r.stream)
	r.until("the second is read", func() bool { return r.sent() == 2 })
	// By itself the client would wait until its timeout, which is 10 s after it asked.
	if took := time.Since(began); took > 7*time.Second {
		t.Errorf("it took %s until an entry of the new master was read", took)
	} else {
		t.Log("it took", took)
	}
}
