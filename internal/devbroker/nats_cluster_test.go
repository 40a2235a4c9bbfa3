//go:build unix

package devbroker

import (
	"context"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

const clusterPatience = 2 * time.Minute

// publisher publishes to the stream "S" of a cluster.
func publisher(t *testing.T, url string) func() error {
	t.Helper()
	conn, err := natsgo.Connect(url, natsgo.MaxReconnects(-1), natsgo.ReconnectWait(100*time.Millisecond), natsgo.PingInterval(500*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, clusterPatience, "the stream is made", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}, Replicas: 3})
		return err == nil
	})
	return func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := js.Publish(ctx, "s", nil, jetstream.WithRetryAttempts(0))
		if err != nil { // a server that is cut off keeps its clients
			_ = conn.ForceReconnect()
		}
		return err
	}
}

// TestNATSCluster kills, pauses and cuts off servers: what the stream accepted stays, the others
// choose a leader, and a server without the others accepts nothing.
func TestNATSCluster(t *testing.T) {
	t.Parallel()
	c, err := StartNATSCluster(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	publish := publisher(t, c.URL())
	count := int64(0)
	accepts := func(what string) {
		t.Helper()
		testrun.Until(t, clusterPatience, what+": a message is accepted", func() bool { return publish() == nil })
		count++
		testrun.Until(t, clusterPatience, what+": the message is there", func() bool {
			s, err := c.Stream(t.Context(), "S")
			return err == nil && s.State.Messages >= count
		})
	}
	leader := func() *NATSNode {
		t.Helper()
		n, err := c.Leader(t.Context(), "S")
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	healthy := func() {
		t.Helper()
		testrun.Until(t, clusterPatience, "all replicas are up to date", func() bool {
			s, err := c.Stream(t.Context(), "S")
			return err == nil && Whole(&s.Cluster, s.Config.Replicas)
		})
	}
	accepts("at the start")
	for name, fault := range map[string]struct{ do, undo func(n *NATSNode) }{
		"kill":     {(*NATSNode).Kill, func(n *NATSNode) { must(t, n.Start(t.Context())) }},
		"shutdown": {(*NATSNode).Shutdown, func(n *NATSNode) { must(t, n.Start(t.Context())) }},
		"pause":    {(*NATSNode).Pause, (*NATSNode).Resume},
		"cut":      {(*NATSNode).CutOff, func(*NATSNode) { c.Heal() }},
	} {
		healthy()
		old := leader()
		fault.do(old)
		if name == "cut" {
			alone(t, old)
		}
		testrun.Until(t, clusterPatience, name+": another server leads", func() bool { return leader() != old })
		accepts(name)
		fault.undo(old)
		accepts("after " + name)
	}
	healthy()
	c.Kill()
	if publish() == nil {
		t.Error("a message was accepted without a server")
	}
	must(t, c.Start(t.Context()))
	accepts("after all were killed")
}

// alone checks that a server that is cut off has no leader, and still has clients.
func alone(t *testing.T, n *NATSNode) {
	t.Helper()
	conn, err := natsgo.Connect(n.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, clusterPatience, "a server that is cut off accepts nothing", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := js.Publish(ctx, "s", nil, jetstream.WithRetryAttempts(0))
		return err != nil
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
