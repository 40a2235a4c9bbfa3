//go:build unix

package redis

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// A server that the URL names otherwise than the cluster does is not taken for one that was
// replaced when it is slow: once it answers, it is used.
func TestASlowSeedIsNotTakenForReplaced(t *testing.T) {
	t.Parallel()
	c, err := devbroker.StartRedisCluster(t.Context(), t.TempDir(), 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	to := c.Nodes[0].Address()
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer from.Close()
				time.Sleep(unanswered + askAgain)
				server, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer server.Close()
				go func() { _, _ = io.Copy(server, from) }()
				_, _ = io.Copy(from, server)
			}()
		}
	}()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	watch := WatchTakeovers((&net.Dialer{}).DialContext, goredis.Options{}, "localhost:"+port)
	conn, err := watch.Dial(t.Context(), "tcp", "localhost:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	if answer, err := bufio.NewReader(conn).ReadString('\n'); err != nil || answer != "+PONG\r\n" {
		t.Errorf("a slow server: %q, %v", answer, err)
	}
	watch.mu.Lock()
	defer watch.mu.Unlock()
	if len(watch.gone) > 0 {
		t.Errorf("taken for replaced: %v", watch.gone)
	}
}

// A master that was replaced while nothing was asked of it is hung up on when something is,
// and is not connected to, also if the URL names it.
func TestReplacedWhileIdle(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, err := devbroker.StartRedisCluster(ctx, t.TempDir(), 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	client := ClusterClient(&goredis.ClusterOptions{Addrs: []string{c.Nodes[0].Address(), c.Nodes[1].Address()}, MaxRetries: -1, DialerRetries: 1, ReadTimeout: time.Minute})
	defer client.Close()
	key := "key"
	for i := 0; Slot(key) >= Slots/3; i++ { // of the first node
		key = fmt.Sprint("key", i)
	}
	if err := client.Get(ctx, key).Err(); err != goredis.Nil {
		t.Fatal(err)
	}
	testrun.Until(t, time.Minute, "nobody is asked", func() bool { return client.PoolStats().IdleConns == client.PoolStats().TotalConns })
	if err := syscall.Kill(c.Nodes[0].PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(c.Nodes[0].PID(), syscall.SIGCONT) }()
	if _, err := c.Replace(ctx, c.Nodes[0]); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	testrun.Until(t, 2*time.Minute, "the one that took its place is asked", func() bool { return client.Get(ctx, key).Err() == goredis.Nil })
	if took := time.Since(began); took > 15*time.Second { // the client by itself waits for a minute
		t.Errorf("it took %s until the one that took its place served", took)
	}
}
