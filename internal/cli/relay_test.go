//go:build unix

package cli_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	posthastenats "github.com/posthaste-mq/posthaste/nats"
	"github.com/posthaste-mq/posthaste/postgres"
	posthasteredis "github.com/posthaste-mq/posthaste/redis"
)

// TestOR2_Relay runs the relay as a user does: errors name their place in the configuration,
// messages arrive at the broker, and each batch is logged and measured.
func TestOR2_Relay(t *testing.T) {
	t.Parallel()
	database := testpg.New(t)
	engine, err := postgres.Open(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	relays(t, "--database-url", database, engine)
}

func TestOR2_RelayOnRedis(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "the commands of relays do not depend on the engine")
	server := startRedis(t)
	engine, err := posthasteredis.Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	relays(t, "--redis-url", server.URL(), engine)
}

func TestOR2_RelayOnNATS(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "the commands of relays do not depend on the engine")
	server := startNATS(t)
	relays(t, "--nats-url", server.URL(), storeOf(posthastenats.Open(t.Context(), server.URL()))(t))
}

// address returns the host and port of a URL.
func address(t *testing.T, text string) string {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// relays tests relays and sources of a store, which the flag names.
func relays(t *testing.T, storeFlag, store string, engine posthaste.Store) {
	broker, err := devbroker.StartRabbitMQ(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Stop)
	dir := workDir(t)
	if err := engine.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	const count = 200
	send := func(queue string) {
		batch := make([]posthaste.Message, count)
		for i := range batch {
			batch[i] = posthaste.Message{Queue: queue, Kind: "placed", Payload: i}
		}
		if _, err := engine.Send(t.Context(), batch...); err != nil {
			t.Fatal(err)
		}
	}
	// arrived is a condition that each message has come back once, into a queue.
	arrived := func(queue string) func() error {
		seen := map[string]bool{}
		return func() error {
			r, err := engine.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: queue}, Max: 1000, Lease: time.Hour})
			for _, d := range r.Deliveries {
				if d.Kind != "placed" || seen[string(d.Payload)] {
					t.Errorf("in queue %s: %+v", queue, d)
				}
				seen[string(d.Payload)] = true
			}
			if err == nil && len(seen) != count {
				err = fmt.Errorf("%d are there", len(seen))
			}
			return err
		}
	}
	waiting := func(queue string) func() error {
		return func() error {
			conn, err := amqp.Dial(broker.URL())
			if err != nil {
				return err
			}
			defer conn.Close()
			ch, err := conn.Channel()
			if err != nil {
				return err
			}
			q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
			if err == nil && q.Messages != count {
				err = fmt.Errorf("there are %d messages", q.Messages)
			}
			return err
		}
	}

	t.Run("errors", func(t *testing.T) {
		file := filepath.Join(dir, "wrong.yaml")
		if err := os.WriteFile(file, []byte("relays:\n  - queue: orders\n    broker: "+broker.URL()+"\n    exchange: nowhere\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for want, args := range map[string][]string{
			"wrong.yaml:4: ": {"--config", "wrong.yaml"},
			"ACCESS_REFUSED": {"--queue", "orders", "--broker", strings.Replace(broker.URL(), "guest:guest", "guest:hunter2", 1)},
			"vhost":          {"--queue", "orders", "--broker", broker.URL() + "nowhere"},
		} {
			_, stderr, code := run(t, dir, append([]string{"relay", storeFlag, store}, args...)...)
			if code != 2 || !strings.Contains(stderr, want) || strings.Contains(stderr, "hunter2") || strings.Count(stderr, "\n") < 2 {
				t.Errorf("%v: exit code %d: %s", args, code, stderr)
			}
		}
	})

	// Messages that are settled when they are claimed would be lost if the broker rejects them.
	t.Run("at most once", func(t *testing.T) {
		if err := engine.CreateQueue(t.Context(), "once", posthaste.QueueOptions{Mode: posthaste.AtMostOnce}); err != nil {
			t.Fatal(err)
		}
		send("once")
		if err := os.WriteFile(filepath.Join(dir, "once.yaml"), []byte("broker: "+broker.URL()+"\nrelays:\n  - {queue: orders, exchange: amq.topic}\n  - exchange: amq.topic\n    queue: once\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		for want, args := range map[string][]string{
			`--queue: queue "once" has mode at_most_once`:     {"--queue", "once", "--broker", broker.URL(), "--set", "chunks.size=5"},
			`once.yaml:5: queue "once" has mode at_most_once`: {"--config", "once.yaml"},
		} {
			_, stderr, code := run(t, dir, append([]string{"relay", storeFlag, store}, args...)...)
			if code != 2 || !strings.Contains(stderr, want) || !strings.Contains(stderr, "can be lost") || !strings.Contains(stderr, "relay a queue of mode at_least_once") {
				t.Errorf("%v: exit code %d: %s", args, code, stderr)
			}
		}
		if infos, err := engine.Queues(t.Context(), "once"); err != nil || infos[0].Subscriptions[0].Done != 0 {
			t.Errorf("a message was delivered: %+v, %v", infos, err)
		}
	})

	t.Run("relayed", func(t *testing.T) {
		send("orders")
		p := start(t, dir, nil, "relay", storeFlag, store, "--queue", "orders", "--broker", broker.URL(), "--set", "declare=quorum",
			"--set", "routing_key=relayed", "--set", "headers.tenant={{.Kind}}", "--metrics-listen", "127.0.0.1:0")
		eventually(t, "all is at the broker", waiting("relayed"))
		wantSink(t, engine, posthaste.WorkerSink{Queue: "orders", Subscription: posthaste.DefaultSubscription, Destination: "RabbitMQ at " + address(t, broker.URL())})
		line := regexp.MustCompile(`level=INFO msg=batch queue=orders subscription=default count=\d+ failed=0 claim=\S+s publish=\S+s settle=\S+s total=\S+s`)
		metrics := loggedBatch(t, p, line)
		eventually(t, "batches are measured", func() error {
			body, err := scrape(metrics)
			if err != nil {
				return err
			}
			for _, want := range []string{`posthaste_batch_messages_total{queue="orders",subscription="default"} 200`, `posthaste_batch_duration_seconds_count{queue="orders",step="claim",subscription="default"}`} {
				if !strings.Contains(body, want) {
					return fmt.Errorf("the metrics have no %s", want)
				}
			}
			return nil
		})
		if code := p.stop(syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})

	// A source reads the messages of a relay, in the same process and in its own.
	t.Run("source", func(t *testing.T) {
		if err := engine.CreateQueue(t.Context(), "taken", posthaste.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
		files := map[string]string{
			"both.yaml": "broker: " + broker.URL() + "\nrelays:\n  - {queue: orders, declare: classic, routing_key: round}\nsources:\n  - queue: taken\n    from_queue: round\n    batch: 50\n",
			"in.yaml":   "sources:\n  - broker: " + broker.URL() + "\n    queue: taken\n    from_queue: relayed\n",
			"no.yaml":   "sources:\n  - broker: " + broker.URL() + "\n    queue: taken\n    from_queue: nowhere\n",
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, stderr, code := run(t, dir, "relay", storeFlag, store, "--config", "no.yaml"); code != 2 || !strings.Contains(stderr, "no.yaml:4: ") || !strings.Contains(stderr, "404 NOT_FOUND") {
			t.Errorf("exit code %d: %s", code, stderr)
		}
		taken := 0
		receive := func(want int) func() error {
			return func() error {
				r, err := engine.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "taken"}, Max: 1000, Lease: time.Hour})
				if taken += len(r.Deliveries); err == nil && taken != want {
					err = fmt.Errorf("%d messages were taken in", taken)
				}
				return err
			}
		}
		p := start(t, dir, nil, "relay", storeFlag, store, "--config", "in.yaml", "--metrics-listen", "127.0.0.1:0")
		eventually(t, "all of it is taken in", receive(count))
		line := regexp.MustCompile(`level=INFO msg=taken queue=taken broker=\S+ count=\d+ known=0 refused=0 read=\S+s send=\S+s acknowledge=\S+s total=\S+s`)
		metrics := loggedBatch(t, p, line)
		body, err := scrape(metrics)
		if want := `posthaste_source_messages_total{broker="` + broker.Address() + `",queue="taken",result="sent"} ` + fmt.Sprint(count); err != nil || !strings.Contains(body, want) {
			t.Errorf("%v: no %s in %s", err, want, body)
		}
		if code := p.stop(syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d", code)
		}
		send("orders")
		taken = 0
		p = start(t, dir, nil, "relay", storeFlag, store, "--config", "both.yaml")
		eventually(t, "all of it has come around", receive(count))
		if code := p.stop(syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})

	// A broker message holds several messages, and each arrives separately.
	t.Run("chunks", func(t *testing.T) {
		for name, o := range map[string]posthaste.QueueOptions{"apart": {}, "lined": {Ordered: true}} {
			if err := engine.CreateQueue(t.Context(), name, o); err != nil {
				t.Fatal(err)
			}
		}
		if _, stderr, code := run(t, dir, "relay", storeFlag, store, "--queue", "lined", "--broker", broker.URL(), "--set", "chunks.size=5"); code != 2 || !strings.Contains(stderr, `--set chunks: queue "lined" is ordered`) {
			t.Errorf("exit code %d: %s", code, stderr)
		}
		for encoding, size := range map[string]string{"json": "1", "msgpack": "7"} {
			text := "broker: " + broker.URL() + "\nrelays:\n  - {queue: orders, declare: classic, routing_key: chunks, chunks: {size: " + size + ", encoding: " + encoding + "}}\n" +
				"sources:\n  - {queue: apart, from_queue: chunks, chunks: {encoding: " + encoding + "}}\n"
			if err := os.WriteFile(filepath.Join(dir, "chunks.yaml"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			send("orders")
			p := start(t, dir, nil, "relay", storeFlag, store, "--config", "chunks.yaml")
			eventually(t, "each message has arrived", arrived("apart"))
			if code := p.stop(syscall.SIGTERM); code != 0 {
				t.Errorf("exit code %d", code)
			}
			taken := 0
			for _, m := range regexp.MustCompile(`msg=taken .* count=(\d+)`).FindAllStringSubmatch(p.said(), -1) {
				n, _ := strconv.Atoi(m[1])
				taken += n
			}
			if (taken == count) != (size == "1") {
				t.Errorf("%s: %d messages of the broker for %d in chunks of %s", encoding, taken, count, size)
			}
		}
	})

	t.Run("to Redis", func(t *testing.T) {
		server, err := devbroker.StartRedis(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Stop)
		send("orders")
		p := start(t, dir, []string{"BROKER_HOST=127.0.0.1"}, "relay", storeFlag, store, "--queue", "orders",
			"--broker", strings.Replace(server.URL(), "127.0.0.1", "${BROKER_HOST}", 1), "--set", "stream=events.{{.Kind}}", "--set", "cloudevents.source=/shop")
		client := redis.NewClient(&redis.Options{Addr: server.Address()})
		defer client.Close()
		eventually(t, "all is in the stream", func() error {
			if n := client.XLen(t.Context(), "events.placed").Val(); n != count {
				return fmt.Errorf("there are %d messages", n)
			}
			return nil
		})
		if code := p.stop(syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})

	// A relay and a source of NATS, in one process.
	t.Run("through NATS", func(t *testing.T) {
		server, err := devbroker.StartNATS(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Stop)
		conn, err := nats.Connect(server.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		js, err := jetstream.New(conn)
		if err == nil {
			_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "shop", Subjects: []string{"shop.>"}})
		}
		if err == nil {
			err = engine.CreateQueue(t.Context(), "around", posthaste.QueueOptions{})
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "nats.yaml"), []byte("broker: "+server.URL()+"\nrelays:\n  - {queue: orders, subject: \"shop.{{.Kind}}\"}\nsources:\n  - {queue: around, stream: shop}\n"), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		send("orders")
		p := start(t, dir, nil, "relay", storeFlag, store, "--config", "nats.yaml")
		eventually(t, "all of it has come around", arrived("around"))
		if code := p.stop(syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})

	t.Run("up", func(t *testing.T) {
		ports := map[string][]string{"--database-url": anyPorts, "--redis-url": anyRedisPorts, "--nats-url": anyNATSPorts}[storeFlag]
		here := workDir(t)
		p, u := startUp(t, here, append([]string{"--broker", broker.URL()}, ports...)...)
		ours := engine
		switch {
		case u.Database != "":
			engine, err = postgres.Open(t.Context(), u.Database)
		case u.Redis != "":
			engine, err = posthasteredis.Open(t.Context(), u.Redis)
		default:
			engine, err = posthastenats.Open(t.Context(), u.NATS)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer func() { engine.Close(); engine = ours }()
		send("outbox")
		eventually(t, "all is at the broker", waiting("outbox"))
		if err = engine.DropQueue(t.Context(), "outbox", posthaste.DropOptions{}); err == nil {
			err = engine.CreateQueue(t.Context(), "outbox", posthaste.QueueOptions{Mode: posthaste.AtMostOnce})
		}
		if err != nil {
			t.Fatal(err)
		}
		if code := p.stop(syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d", code)
		}
		_, stderr, code := run(t, here, append([]string{"up", "--broker", broker.URL()}, ports...)...)
		if code != 2 || !strings.Contains(stderr, `--broker: queue "outbox" has mode at_most_once`) {
			t.Errorf("exit code %d: %s", code, stderr)
		}
	})

	t.Run("broker away", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address := l.Addr().String()
		l.Close()
		p := start(t, dir, nil, "relay", storeFlag, store, "--queue", "orders", "--broker", "amqp://"+address+"/")
		eventually(t, "it waits for the broker", func() error {
			if said := p.said(); !strings.Contains(said, "the broker is unavailable") || !strings.Contains(said, "msg=relaying") {
				return fmt.Errorf("said %s", said)
			}
			return nil
		})
		if code := p.stop(syscall.SIGTERM); code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
}
