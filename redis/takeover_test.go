package redis

import (
	"sync"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// openCluster opens an engine on a cluster by its URL.
func openCluster(t *testing.T, all []*node) *Engine {
	t.Helper()
	url := "redis://" + all[0].Address() + "?cluster=true"
	for _, m := range all[1:] {
		url += "&addr=" + m.Address()
	}
	e, err := Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// stop lets a node stand still, as a machine does that is suspended or cut off, and returns
// what lets it go on.
func (m *node) stop(t *testing.T) (resume func()) {
	t.Helper()
	if err := syscall.Kill(m.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume = sync.OnceFunc(func() { _ = syscall.Kill(m.PID(), syscall.SIGCONT) })
	t.Cleanup(resume)
	return resume
}

// masterClient returns the client that the engine asks for a key.
func masterClient(t *testing.T, e *Engine, key string) *goredis.Client {
	t.Helper()
	client, ok := e.client.(*goredis.ClusterClient)
	if !ok {
		t.Fatal("no client of a cluster")
	}
	its, err := client.MasterForKey(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return its
}

// mastersAsked returns how often servers were asked who the masters are. That happens when
// another server leaves a command without a reply.
func mastersAsked(t *testing.T, all []*node) (n int64) {
	t.Helper()
	for _, m := range all {
		n += callsOf(t, m.client, "cluster", "cluster|slots")
	}
	return n
}

// A master stands still, and another takes its place. Calls that wait for the old one end soon
// after, however many they are, and later calls are served.
func TestCallsAreNotKeptByAMasterThatWasReplaced(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	all := nodes(t, 3, parted...)
	e := openCluster(t, all)
	const key = "somewhere"
	from := owner(t, all, all[0], slotOf(t, all, key))
	if err := e.client.Set(ctx, key, "there", 0).Err(); err != nil {
		t.Fatal(err)
	}
	var others []*node
	var first, last int // its slots, all of which must be another's, or it is a master still
	for i, m := range all {
		if m != from {
			others = append(others, m)
		} else {
			first, last = i*16384/3, (i+1)*16384/3-1
		}
	}
	its, asked := masterClient(t, e, key), mastersAsked(t, others)
	resume := from.stop(t)
	defer resume()
	var waiting sync.WaitGroup
	began := time.Now()
	for range 3 * connections {
		waiting.Go(func() { _ = e.client.Get(ctx, key).Err() })
	}
	until(t, "they all wait, some of them for a connection", func() bool { return its.PoolStats().PendingRequests >= 2*connections })
	until(t, "the others are asked who the masters are", func() bool { return mastersAsked(t, others) > asked })
	for _, m := range others {
		if _, err := m.client.Pipelined(ctx, func(pipe goredis.Pipeliner) error {
			for slot := first; slot <= last; slot++ {
				pipe.Do(ctx, "cluster", "setslot", slot, "node", others[0].id)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	taken := time.Now()
	waiting.Wait()
	told := time.Since(taken)
	until(t, "the one that took its place is asked", func() bool { return e.client.Get(ctx, key).Err() == goredis.Nil })
	t.Logf("those that waited were told after %s, and the next served after %s", told, time.Since(taken))
	// The client by itself waits for 5 s, and for as long again where it tries once more. Beside
	// other tests it takes longer.
	if took := time.Since(began); testrun.Full() && took > 5*time.Second {
		t.Errorf("it took %s until the one that took its place served, %s since it took it", took, time.Since(taken))
	}
}
