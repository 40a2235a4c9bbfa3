//go:build unix

package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"

	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// startCluster starts a cluster of three masters.
func startCluster(t *testing.T) *devbroker.RedisCluster {
	t.Helper()
	return devbroker.Own(t, func(ctx context.Context, dir string, further ...string) (*devbroker.RedisCluster, error) {
		return devbroker.StartRedisCluster(ctx, dir, 3, 0, further...)
	})
}

// A server that the URL names otherwise than the cluster does is not taken for one that was
// replaced when it is slow: once it answers, it is used.
func TestASlowSeedIsNotTakenForReplaced(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
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
				time.Sleep(unanswered + askAgain) // how slow the server is, is the scenario
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
	c := startCluster(t)
	client := ClusterClient(&goredis.ClusterOptions{Addrs: []string{c.Nodes[0].Address(), c.Nodes[1].Address()}, MaxRetries: -1, DialerRetries: 1, ReadTimeout: time.Minute})
	defer client.Close()
	key := "key"
	for i := 0; Slot(key) >= Slots/3; i++ { // of the first node
		key = fmt.Sprint("key", i)
	}
	if err := client.Get(ctx, key).Err(); err != goredis.Nil {
		t.Fatal(err)
	}
	testrun.Until(t, time.Minute, "no question is open", func() bool { return client.PoolStats().IdleConns == client.PoolStats().TotalConns })
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

// credentials counts how often it is asked for them. It implements
// [auth.StreamingCredentialsProvider].
type credentials struct{ asked atomic.Int64 }

func (c *credentials) Subscribe(auth.CredentialsListener) (auth.Credentials, auth.UnsubscribeFunc, error) {
	c.asked.Add(1)
	return auth.NewBasicCredentials("user", "password"), func() error { return nil }, nil
}

// The question who the masters are takes the way that the caller's connections take, and
// his credentials.
func TestMastersAreAskedAsTheCallerConnects(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	to := c.Nodes[0].Address()
	for _, node := range c.Nodes {
		if err := node.Client.Do(t.Context(), "ACL", "SETUSER", "user", "on", ">password", "+@all", "~*", "&*").Err(); err != nil {
			t.Fatal(err)
		}
		if err := node.Client.Do(t.Context(), "ACL", "SETUSER", "default", "-@all").Err(); err != nil {
			t.Fatal(err)
		}
	}
	tunnel := func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == "behind.invalid:6379" {
			address = to
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	streaming := &credentials{}
	for name, o := range map[string]*goredis.ClusterOptions{
		"context": {CredentialsProviderContext: func(context.Context) (string, string, error) { return "user", "password", nil }},
		"stream":  {StreamingCredentialsProvider: streaming},
	} {
		o.Addrs, o.Dialer = []string{"behind.invalid:6379"}, tunnel
		client, watch := clusterClient(o)
		// A busy machine may be late to answer one question.
		testrun.Until(t, time.Minute, name+": three masters are named", func() bool { return len(watch.masters()) == 3 })
		_ = client.Close()
	}
	if streaming.asked.Load() == 0 {
		t.Error("the provider was not asked for credentials")
	}
}

// Other servers are not asked because of a command that may wait for data, or about a server
// that no other server knows.
func TestWhoIsAskedForSilence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		seeds  []string
		blocks time.Duration
		want   bool
	}{
		"a cluster":              {[]string{"a:1", "b:1"}, 0, true},
		"a command that waits":   {[]string{"a:1", "b:1"}, time.Hour, false},
		"a server of no cluster": {[]string{"a:1"}, 0, false},
	} {
		here, there := net.Pipe()
		defer there.Close()
		away := func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("away") }
		t.Run(name, func(t *testing.T) {
			watch := WatchTakeovers(func(context.Context, string, string) (net.Conn, error) { return here, nil }, goredis.Options{Dialer: away}, c.seeds...)
			watch.Blocks = c.blocks
			conn, err := watch.Dial(t.Context(), "tcp", "a:1")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			w := conn.(*watched)
			w.wrote.Store(time.Now().Add(-time.Minute).UnixNano())
			w.waits()
			watch.mu.Lock()
			defer watch.mu.Unlock()
			if watch.asking != c.want {
				t.Errorf("others are asked: %v", watch.asking)
			}
		})
	}
}
