//go:build unix

package cli_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste/internal/devbroker"
)

// startCluster starts a cluster of two masters and returns their addresses.
func startCluster(t *testing.T) (addresses []string) {
	t.Helper()
	var all []*goredis.Client
	for i := range 2 {
		r, err := devbroker.StartRedisNode(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Stop)
		c := goredis.NewClient(&goredis.Options{Addr: r.Address()})
		t.Cleanup(func() { c.Close() })
		all, addresses = append(all, c), append(addresses, r.Address())
		err = c.ClusterAddSlotsRange(t.Context(), i*8192, i*8192+8191).Err()
		if host, port, _ := net.SplitHostPort(r.Address()); err == nil {
			err = all[0].Do(t.Context(), "cluster", "meet", host, port, r.BusPort()).Err()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the cluster serves", func() error {
		for _, c := range all {
			info, err := c.ClusterInfo(t.Context()).Result()
			if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, "cluster_size:2") {
				return fmt.Errorf("%v: %s", err, info)
			}
		}
		return nil
	})
	return addresses
}

// With cluster=true in the URL, the command line and the server use queues on all servers of
// a cluster. Without it, the error names the parameter.
func TestRedisCluster(t *testing.T) {
	t.Parallel()
	addresses := startCluster(t)
	one, all := "redis://"+addresses[1], "redis://"+addresses[1]+"?cluster=true&addr="+addresses[0]
	_, address := startServe(t, []string{"REDIS_URL=" + all})
	eventually(t, "it is ready", answers("http://"+address+"/readyz", http.StatusOK))
	refused := 0
	for i := range 8 {
		queue := fmt.Sprint("jobs", i)
		if _, said, code := run(t, "", "queue", "create", queue, "--redis-url", one); code != 0 {
			refused++
			if !strings.Contains(said, "cluster=true") {
				t.Errorf("by one of its servers alone it says %q", said)
			}
		}
		if _, said, code := run(t, "", "queue", "create", queue, "--redis-url", all); code != 0 {
			t.Fatalf("creating %s: %s", queue, said)
		}
		if _, err := do("POST", "http://"+address+"/v1/queues/"+queue+"/messages", fmt.Sprintf(`{"payload":%d}`, i), nil); err != nil {
			t.Fatal(err)
		}
		out, said, code := run(t, "", "receive", queue, "--ack", "--json", "--redis-url", all)
		var got []struct{ Payload int }
		if err := json.Unmarshal([]byte(out), &got); code != 0 || err != nil || len(got) != 1 || got[0].Payload != i {
			t.Errorf("receiving from %s: %q, %s, %v", queue, out, said, err)
		}
	}
	if refused == 0 {
		t.Error("one of two servers took all queues")
	}
}
