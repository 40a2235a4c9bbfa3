//go:build unix

package redisstream

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste/internal/redis"
)

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
	r.run(r.source(nil))
	r.until("the first is read", func() bool { return r.sent() == 1 })
	if err := syscall.Kill(first.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(first.PID(), syscall.SIGCONT) })
	time.Sleep(time.Second) // it asks, and waits for a reply that does not come
	began := time.Now()
	by, err := r.Replace(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	add(by.Client, r.stream)
	r.until("the second is read", func() bool { return r.sent() == 2 })
	// By itself the client would wait for 20 s, and for each other connection 10 s more.
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s until an entry of the new master was read", took)
	} else {
		t.Log("it took", took)
	}
}
