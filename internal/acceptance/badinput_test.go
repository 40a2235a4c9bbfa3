//go:build unix

package acceptance

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste"
)

// badInput is input that must be rejected, in SQL, in Go and over HTTP.
type badInput struct {
	what, field  string
	code         posthaste.Code
	sql          string
	args         []any
	do           func() error
	method, path string
	body         string
}

// badInputs are the surfaces on which bad input is tried.
type badInputs struct {
	*stage
	conn *pgx.Conn
	http *api
	// replayed is a message whose dead letter was replayed.
	replayed int64
}

func (b *badInputs) create(o posthaste.QueueOptions) func() error {
	return func() error { return b.engine.CreateQueue(b.ctx, "new", o) }
}

func (b *badInputs) send(m posthaste.Message) func() error {
	return func() error { _, err := b.client.Send(b.ctx, m); return err }
}

func (b *badInputs) subscribe(name string, o posthaste.SubscriptionOptions) func() error {
	return func() error { return b.engine.Subscribe(posthaste.WithActor(b.ctx, "ada"), "jobs", name, o) }
}

func (b *badInputs) schedule(x posthaste.Schedule) func() error {
	x.Name, x.Message = "new", posthaste.Message{Queue: "jobs", Payload: 1}
	return func() error { _, err := b.engine.PutSchedule(b.ctx, x); return err }
}

func (b *badInputs) ofQueues() []badInput {
	return []badInput{
		{what: "at most once, tried three times", field: "max_attempts", code: posthaste.CodeInvalid,
			sql: `select posthaste.create_queue('new', '{"mode": "at_most_once", "max_attempts": 3}')`,
			do:  b.create(posthaste.QueueOptions{Mode: posthaste.AtMostOnce, MaxAttempts: 3}), method: "PUT", path: "/v1/queues/new", body: `{"mode": "at_most_once", "max_attempts": 3}`},
		{what: "a payload kept without a retention", field: "retain_payload", code: posthaste.CodeInvalid,
			sql: `select posthaste.create_queue('new', '{"retain_payload": true}')`,
			do:  b.create(posthaste.QueueOptions{RetainPayload: true}), method: "PUT", path: "/v1/queues/new", body: `{"retain_payload": true}`},
		{what: "a key that stops where nothing is in order", field: "on_dead", code: posthaste.CodeInvalid,
			sql: `select posthaste.create_queue('new', '{"on_dead": "stop"}')`,
			do:  b.create(posthaste.QueueOptions{StopOnDead: true}), method: "PUT", path: "/v1/queues/new", body: `{"on_dead": "stop"}`},
		{what: "order, and several of a key at a time", field: "key_concurrency", code: posthaste.CodeInvalid,
			sql: `select posthaste.create_queue('new', '{"ordered": true, "key_concurrency": 2}')`,
			do:  b.create(posthaste.QueueOptions{Ordered: true, Limits: posthaste.QueueLimits{KeyConcurrency: 2}}), method: "PUT", path: "/v1/queues/new", body: `{"ordered": true, "key_concurrency": 2}`},
		{what: "a limit that lets nothing through", field: "concurrency", code: posthaste.CodeInvalid,
			sql: `select posthaste.create_queue('new', '{"concurrency": 0}')`,
			do:  b.create(posthaste.QueueOptions{Limits: posthaste.QueueLimits{Concurrency: -1}}), method: "PUT", path: "/v1/queues/new", body: `{"concurrency": 0}`},
		{what: "a backoff above its bound", field: "backoff", code: posthaste.CodeInvalid,
			sql: `select posthaste.create_queue('new', '{"backoff": {"base": "2 hours"}}')`,
			do:  b.create(posthaste.QueueOptions{BackoffBase: 2 * time.Hour}), method: "PUT", path: "/v1/queues/new", body: `{"backoff": {"base": "2h"}}`},
		{what: "a timeout of years", field: "timeout", code: posthaste.CodeInvalid,
			sql: `select posthaste.create_queue('new', '{"timeout": "366 days"}')`,
			do:  b.create(posthaste.QueueOptions{Timeout: 366 * 24 * time.Hour}), method: "PUT", path: "/v1/queues/new", body: `{"timeout": "366 days"}`},
		{what: "other options than it has", field: "name", code: posthaste.CodeConflict,
			sql: `select posthaste.create_queue('jobs', '{"max_attempts": 2}')`,
			do:  func() error { return b.engine.CreateQueue(b.ctx, "jobs", posthaste.QueueOptions{MaxAttempts: 2}) }, method: "PUT", path: "/v1/queues/jobs", body: `{"max_attempts": 2}`},
	}
}

func (b *badInputs) ofMessages() []badInput {
	long, huge := strings.Repeat("k", 256), strings.Repeat("k", 1<<20)
	return []badInput{
		{what: "a key of 256 bytes", field: "key", code: posthaste.CodeTooLarge,
			sql: `select posthaste.send('jobs', '1', jsonb_build_object('key', $1::text))`, args: []any{long},
			do: b.send(posthaste.Message{Queue: "jobs", Payload: 1, Key: long}), method: "POST", path: "/v1/queues/jobs/messages", body: `{"payload": 1, "key": "` + long + `"}`},
		{what: "a key of 1 MiB", field: "key", code: posthaste.CodeTooLarge,
			sql: `select posthaste.send('jobs', '1', jsonb_build_object('key', $1::text))`, args: []any{huge},
			do: b.send(posthaste.Message{Queue: "jobs", Payload: 1, Key: huge}), method: "POST", path: "/v1/queues/jobs/messages", body: `{"payload": 1, "key": "` + huge + `"}`},
		{what: "an ordered message of no key", field: "key", code: posthaste.CodeInvalid,
			sql: `select posthaste.send('steps', '1')`,
			do:  b.send(posthaste.Message{Queue: "steps", Payload: 1}), method: "POST", path: "/v1/queues/steps/messages", body: `{"payload": 1}`},
		{what: "a priority that there is not", field: "priority", code: posthaste.CodeInvalid,
			sql: `select posthaste.send('jobs', '1', '{"priority": 4}')`,
			do:  b.send(posthaste.Message{Queue: "jobs", Payload: 1, Priority: 4}), method: "POST", path: "/v1/queues/jobs/messages", body: `{"payload": 1, "priority": 4}`},
		{what: "a queue that there is not", field: "queue", code: posthaste.CodeNotFound,
			sql: `select posthaste.send('none', '1')`,
			do:  b.send(posthaste.Message{Queue: "none", Payload: 1}), method: "POST", path: "/v1/queues/none/messages", body: `{"payload": 1}`},
	}
}

func (b *badInputs) ofSchedules() []badInput {
	return []badInput{
		{what: "a line that never ticks", field: "spec", code: posthaste.CodeInvalid,
			sql: `select posthaste.schedule_put('new', 'jobs', '0 0 31 2 *', '1')`,
			do:  b.schedule(posthaste.Schedule{Spec: "0 0 31 2 *"}), method: "PUT", path: "/v1/schedules/new", body: `{"queue": "jobs", "spec": "0 0 31 2 *", "payload": 1}`},
		{what: "a zone that there is not", field: "time_zone", code: posthaste.CodeInvalid,
			sql: `select posthaste.schedule_put('new', 'jobs', '@daily', '1', '{"time_zone": "Europe/Nowhere"}')`,
			do:  b.schedule(posthaste.Schedule{Spec: "@daily", TimeZone: "Europe/Nowhere"}), method: "PUT", path: "/v1/schedules/new", body: `{"queue": "jobs", "spec": "@daily", "time_zone": "Europe/Nowhere", "payload": 1}`},
	}
}

func (b *badInputs) ofSubscriptions() []badInput {
	return []badInput{
		{what: "an invalid filter", field: "filter", code: posthaste.CodeInvalid,
			sql: `select posthaste.subscribe('jobs', 'new', '{"filter": {"headers": {}}}')`,
			do:  b.subscribe("new", posthaste.SubscriptionOptions{Filter: posthaste.Filter{Headers: map[string][]string{"region": {}}}}), method: "PUT", path: "/v1/queues/jobs/subscriptions/new", body: `{"filter": {}}`},
		{what: "a filter by a kind that is empty", field: "filter", code: posthaste.CodeInvalid,
			sql: `select posthaste.subscribe('jobs', 'new', '{"filter": {"kind": ""}}')`,
			do:  b.subscribe("new", posthaste.SubscriptionOptions{Filter: posthaste.Filter{Kinds: []string{""}}}), method: "PUT", path: "/v1/queues/jobs/subscriptions/new", body: `{"filter": {"kind": [""]}}`},
		{what: "the oldest, and scheduled messages", field: "scheduled", code: posthaste.CodeInvalid,
			sql: `select posthaste.subscribe('jobs', 'new', '{"from": "oldest", "scheduled": true}')`,
			do:  b.subscribe("new", posthaste.SubscriptionOptions{From: posthaste.FromOldest, Scheduled: true}), method: "PUT", path: "/v1/queues/jobs/subscriptions/new", body: `{"from": "oldest", "scheduled": true}`},
		{what: "another filter than it has", field: "subscription", code: posthaste.CodeConflict,
			sql: `select posthaste.subscribe('jobs', 'audit', '{}')`,
			do:  b.subscribe("audit", posthaste.SubscriptionOptions{}), method: "PUT", path: "/v1/queues/jobs/subscriptions/audit", body: `{}`},
	}
}

func (b *badInputs) ofOperators() []badInput {
	const none = 1 << 40
	return []badInput{
		{what: "cancelling an unknown message", field: "id", code: posthaste.CodeNotFound,
			sql: `select posthaste.cancel($1)`, args: []any{none},
			do:     func() error { _, err := b.engine.Cancel(posthaste.WithActor(b.ctx, "ada"), none); return err },
			method: "DELETE", path: fmt.Sprintf("/v1/messages/%d", none)},
		{what: "moving an unknown message", field: "id", code: posthaste.CodeNotFound,
			sql: `select posthaste.reschedule($1, now())`, args: []any{none},
			do: func() error {
				_, err := b.engine.Reschedule(posthaste.WithActor(b.ctx, "ada"), none, time.Now())
				return err
			},
			method: "POST", path: fmt.Sprintf("/v1/messages/%d/reschedule", none), body: `{"send_at": "2030-01-31T12:00:00Z"}`},
		{what: "replaying a replayed message", field: "message_ids", code: posthaste.CodeNotFound,
			sql: `select posthaste.replay(array[$1::bigint])`, args: []any{b.replayed},
			do: func() error {
				_, err := b.engine.Replay(posthaste.WithActor(b.ctx, "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{posthaste.MessageID(b.replayed)}})
				return err
			},
			method: "POST", path: "/v1/dead-letters/replay", body: fmt.Sprintf(`{"ids": ["%d"]}`, b.replayed)},
		{what: "discarding a replayed message", field: "message_ids", code: posthaste.CodeNotFound,
			sql: `select posthaste.discard(array[$1::bigint])`, args: []any{b.replayed},
			do: func() error {
				_, err := b.engine.Discard(posthaste.WithActor(b.ctx, "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{posthaste.MessageID(b.replayed)}})
				return err
			},
			method: "POST", path: "/v1/dead-letters/discard", body: fmt.Sprintf(`{"ids": ["%d"]}`, b.replayed)},
	}
}

// reject checks that each surface rejects the input with the same code and field, and that nothing
// is changed.
func (b *badInputs) reject(t *testing.T, c badInput) {
	const kept = `select concat_ws(' ', (select count(*) from posthaste.queue_settings), (select count(*) from posthaste.subscriptions), (select count(*) from posthaste.entries),
		(select count(*) from posthaste.schedule_settings), (select count(*) from posthaste.dead_letter_entries), (select count(*) from posthaste.action_records), (select count(*) from posthaste.cancelled))`
	var before, after string
	b.must(b.conn.QueryRow(b.ctx, kept).Scan(&before))
	_, err := b.conn.Exec(b.ctx, c.sql, c.args...)
	codes := map[posthaste.Code]string{posthaste.CodeInvalid: "PH400", posthaste.CodeNotFound: "PH404", posthaste.CodeConflict: "PH409", posthaste.CodeTooLarge: "PH413"}
	var pg *pgconn.PgError
	switch {
	case !errors.As(err, &pg):
		t.Errorf("SQL: %v", err)
	case pg.Code != codes[c.code] || pg.ColumnName != c.field || len(pg.Message) > 400:
		t.Errorf("SQL: %s %q: %.500s", pg.Code, pg.ColumnName, pg.Message)
	}
	var e *posthaste.Error
	if err := c.do(); !errors.As(err, &e) || e.Code != c.code || e.Field != c.field || len(e.Message) > 400 {
		t.Errorf("Go: %.500v, %+v", err, e)
	}
	got := b.http.call(c.method, c.path, c.body)
	var told struct {
		Detail, Hint string
		Errors       []struct{ Field string }
	}
	if err := json.Unmarshal(got.body, &told); err != nil || got.status != map[posthaste.Code]int{posthaste.CodeInvalid: 400, posthaste.CodeNotFound: 404, posthaste.CodeConflict: 409, posthaste.CodeTooLarge: 413}[c.code] || told.Detail == "" || len(got.body) > 1000 {
		t.Errorf("HTTP: %d %.500s", got.status, got.body)
	}
	if regexp.MustCompile(`posthaste\.|\bselect\b|\bview\b`).MatchString(told.Hint) {
		t.Errorf("HTTP: the hint speaks SQL: %s", told.Hint)
	}
	b.must(b.conn.QueryRow(b.ctx, kept).Scan(&after))
	if before != after {
		t.Errorf("something was changed: %s, %s", before, after)
	}
}

// Invalid input is rejected in SQL, Go and HTTP alike, with the field's name and the code that
// says what to do, and changes nothing. The command line's scripts (queue, schedule,
// subscription, dead) test the same.
func TestBadInputIsRefusedEverywhere(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	conn := s.conn()
	exec := func(sql string, args ...any) {
		t.Helper()
		_, err := conn.Exec(s.ctx, sql, args...)
		s.must(err)
	}
	exec(`select posthaste.create_queue('jobs', '{"max_attempts": 1}'), posthaste.create_queue('steps', '{"ordered": true}')`)
	exec(`select posthaste.subscribe('jobs', 'audit', '{"filter": {"kind": "paid"}}')`)
	// A dead letter that was replayed.
	var replayed int64
	s.must(conn.QueryRow(s.ctx, `select posthaste.send('jobs', '1')`).Scan(&replayed))
	exec(`select posthaste.fail(delivery_id, 'no', '{"permanent": true}') from posthaste.receive('jobs', 1, '1 hour')`)
	exec(`select posthaste.replay(array[$1::bigint])`, replayed)

	b := &badInputs{stage: s, conn: conn, http: s.http(), replayed: replayed}
	for _, c := range slices.Concat(b.ofQueues(), b.ofMessages(), b.ofSchedules(), b.ofSubscriptions(), b.ofOperators()) {
		t.Run(strings.ReplaceAll(c.what, " ", "_"), func(t *testing.T) { b.reject(t, c) })
	}
}
