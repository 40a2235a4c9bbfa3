//go:build unix

package acceptance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/nats"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/sink/funnel"
	"github.com/posthaste-mq/posthaste/worker"
)

// funnelRole relays a queue into the engine at t.Target, as the origin t.Broker, until it is told to
// stop.
func funnelRole(ctx context.Context, t task, ready func()) error {
	engine, err := postgres.Open(ctx, t.URL, postgres.WithLazyConnect())
	if err != nil {
		return err
	}
	defer engine.Close()
	target, err := nats.Open(ctx, t.Target, nats.WithLazyConnect())
	if err != nil {
		return err
	}
	sink, err := funnel.New(funnel.Config{Target: target, Origin: t.Broker})
	if err != nil {
		return err
	}
	defer sink.Close()
	w := worker.New(engine, worker.Config{Name: t.Name, Lease: t.Lease})
	worker.HandleSink(w, t.Queue, sink, worker.WithBatchSize(t.Count), worker.WithConcurrency(t.Concurrency))
	go func() {
		<-w.Started()
		ready()
	}()
	return w.Run(ctx)
}

// spring is a database that is relayed into the cluster.
type spring struct {
	*stage
	origin string
	relay  *child
	tokens []string // of its messages, in the order of each key
}

const funnelKeys = 7

// The funnel from several databases into an ordered queue: relays, the databases' server and the
// servers of the cluster are killed, all of them at one moment too, inside the duplicate window. No
// message is lost, none is stored twice, and the order of each key is kept.
func TestNJ7_Funnel(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "three servers and their workers take both cores for a minute; package nats tests the engine on each change")
	n := newNATSStage(t)
	queue := n.queue(posthaste.QueueOptions{Ordered: true, Lanes: 4, MaxAttempts: 1000, BackoffBase: 100 * time.Millisecond, BackoffMax: time.Second})
	server := testpg.Server(t)
	var sources []*spring
	for i := range size(2, 5) {
		sources = append(sources, n.source(server, queue, fmt.Sprint("shop", i)))
	}
	w := n.spawn(task{Role: "witness", Queue: queue, Concurrency: 20, Lease: natsLease})
	kills, each := size(4, 20), size(50, 500)
	for kill := range kills {
		for _, s := range sources {
			s.more(queue, each)
		}
		n.until("some messages arrive", func() bool { return len(n.runs()) > kill*each })
		n.strike(kill, server, sources, queue)
	}
	total := 0
	for _, s := range sources {
		total += len(s.tokens)
	}
	n.until("all messages arrive", func() bool { return len(n.runs()) >= total })
	for _, s := range sources {
		n.must(s.relay.term())
	}
	n.emptied(queue)
	n.must(w.term())
	n.inOrder(sources)
}

// source makes a database on a server, with a queue whose messages are relayed.
func (n *natsStage) source(server *devpg.Server, queue, origin string) *spring {
	n.Helper()
	conn, err := pgx.Connect(n.ctx, server.URL())
	n.must(err)
	defer conn.Close(n.ctx)
	_, err = conn.Exec(n.ctx, "create database "+origin)
	n.must(err)
	u, err := url.Parse(server.URL())
	n.must(err)
	u.Path = "/" + origin
	own, err := postgres.Connect(n.ctx, u.String())
	n.must(err)
	defer own.Close(n.ctx)
	n.must(postgres.Migrate(n.ctx, own, postgres.MigrateOptions{}))
	s := &spring{stage: stageOn(n.T, u.String()), origin: origin}
	s.failing()
	n.must(s.engine.CreateQueue(n.ctx, queue, posthaste.QueueOptions{Ordered: true, MaxAttempts: 1000, BackoffBase: 100 * time.Millisecond, BackoffMax: time.Second}))
	s.start(queue, n.url)
	return s
}

// start starts the relay.
func (s *spring) start(queue, target string) {
	s.Helper()
	s.relay = s.spawn(task{Role: "funnel", Queue: queue, Broker: s.origin, Target: target, Count: 20, Concurrency: 4, Lease: natsLease})
}

// more sends messages. One whose outcome is not known is sent again under its dedupe key.
func (s *spring) more(queue string, count int) {
	s.Helper()
	for range count {
		token := fmt.Sprint(s.origin, "-", len(s.tokens))
		m := posthaste.Message{Queue: queue, Payload: token, Key: fmt.Sprint(s.origin, "-key", len(s.tokens)%funnelKeys), DedupeKey: token, DedupeWindow: time.Hour}
		s.until("a database takes a message", func() bool {
			_, err := s.client.Send(s.ctx, m)
			return err == nil
		})
		s.tokens = append(s.tokens, token)
	}
}

// strike kills a relay, the databases' server, the leader of the queue, or all of these.
func (n *natsStage) strike(kill int, server *devpg.Server, sources []*spring, queue string) {
	n.Helper()
	s := sources[rand.IntN(len(sources))]
	all := kill%4 == 3
	if kill%4 == 0 || all {
		s.relay.kill()
	}
	if kill%4 == 1 || all {
		n.must(server.Kill())
	}
	switch {
	case all:
		n.cluster.Kill()
	case kill%4 == 2:
		n.leader(queue).Kill()
	}
	n.must(n.cluster.Start(n.ctx))
	if kill%4 == 1 || all {
		n.must(server.Restart(n.ctx))
	}
	if kill%4 == 0 || all {
		s.start(queue, n.url)
	}
}

// runs returns the tokens of the messages that were handled.
func (n *natsStage) runs() map[string]int {
	n.Helper()
	tokens := map[string]int{}
	for _, e := range n.history() {
		if e.Kind == history.Handled {
			tokens[e.Token]++
		}
	}
	return tokens
}

// inOrder checks that all messages of the sources were handled, each under one id, and those of each
// key in order.
func (n *natsStage) inOrder(sources []*spring) {
	n.Helper()
	ids, next := map[string]posthaste.MessageID{}, map[string]int{}
	events := n.history()
	for _, e := range events {
		if e.Kind != history.Started {
			continue
		}
		if first := ids[e.Token]; first != 0 {
			if first != e.ID {
				n.Errorf("%s is stored twice, as %s and %s", e.Token, first, e.ID)
			}
			continue // another attempt
		}
		ids[e.Token] = e.ID
		origin, number, _ := strings.Cut(e.Token, "-")
		var place int
		_, err := fmt.Sscan(number, &place)
		n.must(err)
		key := fmt.Sprint(origin, "-key", place%funnelKeys)
		if want := next[key]*funnelKeys + place%funnelKeys; place != want || e.Key != key {
			n.Errorf("message %d of %s with key %s began when %d was expected", place, origin, e.Key, want)
		}
		next[key] = place/funnelKeys + 1
	}
	count := 0
	for _, s := range sources {
		for _, token := range s.tokens {
			count++
			if ids[token] == 0 {
				n.Errorf("%s is lost", token)
			}
		}
	}
	n.must(history.Merge(doubles(events)))
	n.Logf("%d messages came from %d databases, %d of them twice", count, len(sources), len(history.Once(events)))
}
