package nats

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
)

// startCluster starts three servers in this process, and returns a URL with all of them.
func startCluster(t *testing.T) string {
	t.Helper()
	var routes []*url.URL
	var ports []int
	for range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		port := l.Addr().(*net.TCPAddr).Port
		must(t, l.Close())
		ports = append(ports, port)
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", port)})
	}
	var urls []string
	var servers []*server.Server
	for i, port := range ports {
		s, err := server.NewServer(&server.Options{ServerName: fmt.Sprint("s", i), Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: storeDir(t), NoLog: true, NoSigs: true,
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: port}, Routes: routes})
		must(t, err)
		go s.Start()
		t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
		servers = append(servers, s)
	}
	for _, s := range servers {
		if !s.ReadyForConnections(30 * time.Second) {
			t.Fatal("a server does not start")
		}
		urls = append(urls, s.ClientURL())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	until(t, ctx, "the cluster has a leader", func() bool {
		for _, s := range servers {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == 3 {
				return true
			}
		}
		return false
	})
	all := strings.Join(urls, ",")
	conn, err := natsgo.Connect(all)
	must(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	must(t, err)
	// The leader learns from each server that it can have streams.
	until(t, ctx, "streams with three replicas can be made", func() bool {
		for _, name := range []string{"one", "two", "three"} {
			if _, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name}, Replicas: 3}); err != nil {
				return false
			}
			if _, err := js.Publish(ctx, name, nil); err != nil {
				return false
			}
		}
		return true
	})
	return all
}

// Processes at three servers agree, too.
func TestOperationsInCluster(t *testing.T) {
	t.Parallel()
	servers := startCluster(t)
	for name, test := range map[string]func(t *testing.T, ctx context.Context, a, b *Engine){
		"ticks": ticksAreSentOnce, "tokens": tokensAgree, "pauses": pausesRace, "workers": workersAreListed, "caches": cachesAgree,
		"replaced": replacedTakesNothing, "purge": purgesPausedQueue,
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			// A new leader of the cluster makes no streams until it has heard of each server.
			until(t, ctx, "the store is made", func() bool {
				e, err := Open(ctx, servers, WithPrefix(name))
				if err == nil {
					defer e.Close()
					err = e.CreateQueue(ctx, "jobs", posthaste.QueueOptions{})
				}
				return err == nil
			})
			a, b := openEngine(t, servers, WithPrefix(name)), openEngine(t, servers, WithPrefix(name))
			if a.replicas != 3 {
				t.Fatalf("its streams have %d replicas", a.replicas)
			}
			test(t, posthaste.WithActor(ctx, "ada"), a, b)
		})
	}
}
