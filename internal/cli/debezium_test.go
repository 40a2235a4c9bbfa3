//go:build unix

package cli_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// TestMovedFromDebezium follows the migration from Debezium in docs/migrate/outbox.md.
const (
	fromDebezium = `
posthaste queue create outbox --ordered
posthaste import outbox --table public.outbox --id id --payload payload --key aggregateid --kind type \
  --header aggregatetype=aggregatetype --queue outbox --delete --trigger print > trigger.sql
posthaste relay --config relays.yaml
`
	likeDebezium = `
broker: kafka://kafka.example.com:9092
relays:
  - queue: outbox
    topic: "outbox.event.{{.Headers.aggregatetype}}"
    key: "{{.Key}}"
    message_id: "{{.Reference}}"
    headers:
      id: "{{.Reference}}"
      eventType: "{{.Kind}}" # where your connector places it: type:header:eventType
`
)

// event is a row of Debezium's table, as its outbox event router documents it.
type event struct{ id, aggregateType, aggregateID, kind, payload string }

// A relay with the configuration of the page routes like the outbox event router of
// Debezium: aggregatetype selects the topic, aggregateid is the key, payload the value, and
// id and type are headers.
func TestMovedFromDebezium(t *testing.T) {
	t.Parallel()
	broker, err := devbroker.StartKafka(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Stop)
	topics := []string{"outbox.event.order", "outbox.event.Customer"}
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Address()), kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	for _, topic := range topics {
		request := kmsg.NewPtrCreateTopicsRequest()
		one := kmsg.NewCreateTopicsRequestTopic()
		one.Topic, one.NumPartitions, one.ReplicationFactor = topic, 5, 1
		request.Topics = append(request.Topics, one)
		answer, err := request.RequestWith(t.Context(), client)
		if err == nil {
			err = kerr.ErrorForCode(answer.Topics[0].ErrorCode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	database, dir := testpg.New(t), workDir(t)
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(`create table public.outbox (id uuid not null primary key, aggregatetype varchar(255) not null, aggregateid varchar(255) not null, type varchar(255) not null, payload jsonb)`)
	if err := os.WriteFile(filepath.Join(dir, "relays.yaml"), []byte(strings.Replace(likeDebezium, "kafka://kafka.example.com:9092", broker.URL(), 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	environment := []string{"DATABASE_URL=" + database}
	commands := strings.Split(strings.TrimSpace(strings.ReplaceAll(fromDebezium, "\\\n", "")), "\n")
	for _, command := range commands[:len(commands)-1] {
		words, file, redirected := strings.Cut(command, " > ")
		args := append(strings.Fields(words)[1:], "--database-url", database)
		stdout, stderr, code := run(t, dir, args...)
		if code != 0 {
			t.Fatalf("%s: %s", command, stderr)
		}
		if redirected {
			if file != "trigger.sql" {
				t.Fatalf("%s is not looked at", file)
			}
			exec(stdout)
		}
	}
	// Errors name the line and a fix.
	for text, want := range map[string]string{
		"relays:\n  - queue: outbox\n    broker: " + broker.URL() + "\n    topic: nowhere\n":                                                                "wrong.yaml:4: kafka at",
		"relays:\n  - queue: outbox\n    mechanism: plain\n    broker: kafka://" + devbroker.KafkaUser + ":hunter2@" + broker.LoginAddress() + "\n":         "wrong.yaml:4: kafka at",
		"sources:\n  - queue: outbox\n    broker: " + broker.URL() + "\n    topic: nowhere\n":                                                               "wrong.yaml:4: kafka at",
		"sources:\n  - queue: outbox\n    topic: x\n    broker: kafka://" + devbroker.KafkaUser + ":hunter2@" + broker.LoginAddress() + "\n":                "wrong.yaml:4: kafka at",
		"relays:\n  - queue: outbox\n    broker: " + broker.URL() + "\n    topic: outbox.event.order\n    headers:\n      tenant: \"{{.Header.tenant}}\"\n": "wrong.yaml:6: ",
	} {
		if err := os.WriteFile(filepath.Join(dir, "wrong.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, stderr, code := run(t, dir, "relay", "--database-url", database, "--config", "wrong.yaml")
		if code != 2 || !strings.Contains(stderr, want) || strings.Contains(stderr, "hunter2") {
			t.Errorf("%s: exit code %d: %s", text, code, stderr)
		}
	}
	relay := start(t, dir, environment, strings.Fields(commands[len(commands)-1])[1:]...)

	// One of them is the example of Debezium's documentation.
	events := []event{{"406c07f3-26f0-4eea-a50c-109940064b8f", "order", "1", "OrderCreated",
		`{"id": 1, "lineItems": [{"id": 1, "item": "Debezium in Action", "status": "ENTERED", "quantity": 2, "totalPrice": 39.98}], "orderDate": "2019-01-31T12:13:01", "customerId": 123}`}}
	for n := range 60 {
		events = append(events, event{fmt.Sprintf("406c07f3-26f0-4eea-a50c-%012d", n), []string{"order", "Customer"}[n%2], fmt.Sprint("größe ", n%7), []string{"Placed", "ü"}[n%2], fmt.Sprintf(`{"b": %d, "a": null}`, n)})
	}
	events = append(events, event{"406c07f3-26f0-4eea-a50c-ffffffffffff", "order", "1", "OrderDeleted", "null"})
	for i := range events {
		e := &events[i] // jsonb has its own order and spaces, which are what logical decoding shows
		if err := conn.QueryRow(t.Context(), "insert into outbox (id, aggregatetype, aggregateid, type, payload) values ($1, $2, $3, $4, $5) returning payload::text",
			e.id, e.aggregateType, e.aggregateID, e.kind, e.payload).Scan(&e.payload); err != nil {
			t.Fatal(err)
		}
	}
	var came []*kgo.Record
	eventually(t, "all of it is in the topics", func() error {
		within, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		came = append(came, client.PollFetches(within).Records()...)
		if len(came) < len(events) {
			return fmt.Errorf("%d of %d are there; the relay said %s", len(came), len(events), relay.said())
		}
		return nil
	})
	left := -1
	if err := conn.QueryRow(t.Context(), "select count(*) from outbox").Scan(&left); err != nil || left != 0 {
		t.Errorf("the table has %d rows, %v", left, err)
	}
	byID := map[string]*kgo.Record{}
	partitions, offsets := map[string]int32{}, map[string]int64{}
	for _, r := range came {
		byID[headerOf(r, "id")] = r
	}
	for i, e := range events {
		r := byID[e.id]
		if r == nil {
			t.Errorf("event %s never came", e.id)
			continue
		}
		for field, is := range map[string][2]string{
			"topic":             {r.Topic, "outbox.event." + e.aggregateType},
			"key":               {string(r.Key), e.aggregateID},
			"value":             {string(r.Value), e.payload},
			"header id":         {headerOf(r, "id"), e.id},
			"header eventType":  {headerOf(r, "eventType"), e.kind},
			"header message-id": {headerOf(r, "message-id"), e.id},
		} {
			if is[0] != is[1] {
				t.Errorf("event %d: %s is %q, want %q", i, field, is[0], is[1])
			}
		}
		// Those of an aggregate are in one partition, in order.
		place := r.Topic + " " + string(r.Key)
		if before, ok := partitions[place]; ok && (before != r.Partition || r.Offset <= offsets[place]) {
			t.Errorf("event %d of %s is at %d/%d, behind %d/%d", i, place, r.Partition, r.Offset, before, offsets[place])
		}
		partitions[place], offsets[place] = r.Partition, r.Offset
	}
	if len(came) != len(events) || len(byID) != len(events) {
		t.Errorf("%d records with %d ids, want %d", len(came), len(byID), len(events))
	}
	if code := relay.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func headerOf(r *kgo.Record, name string) (value string) {
	for _, h := range r.Headers {
		if h.Key == name {
			value += string(h.Value)
		}
	}
	return value
}
