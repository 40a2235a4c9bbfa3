package ledger_test

import (
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

const traceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// The trace context is stored beside the headers, and is returned among them everywhere: to
// receivers, in listings, dead letters and the history.
func TestTraceContextIsAHeader(t *testing.T) {
	t.Parallel()
	for _, headers := range []string{
		`{"traceparent": "` + traceParent + `"}`, `{"a": "1", "traceparent": "` + traceParent + `"}`, `{"traceparent": ""}`, `{"a": "1"}`,
	} {
		t.Run(headers, func(t *testing.T) {
			t.Parallel()
			s := keeping(t, testpg.New(t), `{"retention": "1 day"}`)
			options := `{"key": "k", "headers": ` + headers + `}`
			check := func(where, sql string, args ...any) {
				t.Helper()
				if got := list[string](s, sql, args...); len(got) != 1 || got[0] != headers {
					t.Errorf("%s: %v, want %s", where, got, headers)
				}
			}
			id := s.send(options)
			if n := get[int](s, `select count(*)::int from posthaste.entries where headers ? 'traceparent' and headers ->> 'traceparent' <> ''`); n != 0 {
				t.Error("the trace context is stored as JSON")
			}
			check("ready", `select headers::text from posthaste.message($1)`, id)
			check("listed", `select headers::text from posthaste.list_messages('q')`)
			const attempt = `select r.headers::text from (select * from posthaste.receive('q', 1, '1 hour')) r cross join lateral posthaste.fail(r.delivery_id, 'no', '{"retry_after": "0 s"}')`
			check("received", attempt)
			check("retrying", `select headers::text from posthaste.message($1)`, id)
			check("received again", attempt)
			s.exec(`select posthaste.fail(delivery_id, 'never', '{"permanent": true}') from posthaste.receive('q', 1, '1 hour')`)
			check("dead", `select headers::text from posthaste.list_dead_letters()`)
			check("dead, as a message", `select headers::text from posthaste.message($1)`, id)
			s.exec(`select posthaste.replay(array[$1::bigint])`, id)
			check("replayed", attempt)
			s.exec(`select posthaste.fail(delivery_id, 'never', '{"permanent": true}') from posthaste.receive('q', 1, '1 hour')`)
			s.exec(`select posthaste.discard(array[$1::bigint])`, id)
			done := s.send(options)
			s.exec(`select posthaste.ack(array[delivery_id]) from posthaste.receive('q', 1, '1 hour')`)
			withdrawn := s.send(options)
			s.exec(`select from posthaste.cancel($1)`, withdrawn)
			s.exec(`select posthaste.create_queue('ordered', '{"ordered": true, "retention": "1 day"}')`)
			parked := get[int64](s, `select posthaste.send('ordered', '1', $1)`, options)
			check("received in order", strings.Replace(attempt, "'q'", "'ordered'", 1))
			check("parked", `select headers::text from posthaste.message($1)`, parked)
			check("received in order again", strings.Replace(attempt, "'q'", "'ordered'", 1))
			s.exec(`select from posthaste.cancel($1)`, parked)
			check("withdrawn while parked", `select headers::text from posthaste.history where message_id = $1`, parked)
			s.exec(`select posthaste.drop_queue('ordered')`)
			if fault := reclaimAll(t, s); fault != "" {
				t.Fatal(fault)
			}
			for where, id := range map[string]int64{"discarded": id, "done": done, "withdrawn": withdrawn} {
				check(where, `select headers::text from posthaste.message($1)`, id)
				check(where+", in the history", `select headers::text from posthaste.history where message_id = $1`, id)
			}
		})
	}
}

// A filter cannot use it, because it would never match.
func TestTraceContextIsNoFilter(t *testing.T) {
	t.Parallel()
	s := connect(t, testpg.New(t))
	s.exec(`select posthaste.create_queue('q')`)
	pg := s.refusal(`select posthaste.subscribe('q', 's', '{"filter": {"headers": {"traceparent": "x"}}}')`)
	if pg == nil || pg.Code != "PH400" || pg.ColumnName != "filter" {
		t.Errorf("refused with %v", pg)
	}
}
