package ledger_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// copyKeyed sends messages to keyed queue q as clients do, by COPY, in the
// transaction that is open on conn: one with each key, of kind kind. Refused says
// that the queue wants them otherwise.
func copyKeyed(ctx context.Context, conn *pgx.Conn, kind string, keys ...string) (ids []int64, refused bool, err error) {
	var queue *int
	var ord *string
	var lanes []int16
	if err := conn.QueryRow(ctx, `select queue_id, positions, ord::text, key_lanes from posthaste.copy_begin('q', $1, 1, true, 0, $2)`, len(keys), keys).
		Scan(&queue, &ids, &ord, &lanes); err != nil || ord == nil {
		return nil, true, err
	}
	var text strings.Builder
	for i, key := range keys {
		fmt.Fprintf(&text, "%s\t%d\t%d\t%d\t%s\t%s\t1\n", *ord, ids[i], *queue, lanes[i], key, kind)
	}
	_, err = conn.PgConn().CopyFrom(ctx, strings.NewReader(text.String()), `copy posthaste.entries (ord, pos, queue_id, lane, key, kind, payload) from stdin`)
	return ids, false, err
}

// copyKeys is copyKeyed in a transaction, or in the one that is open.
func (s *session) copyKeys(keys ...string) []int64 {
	s.t.Helper()
	own := s.PgConn().TxStatus() == 'I'
	if own {
		s.exec(`begin`)
	}
	ids, refused, err := copyKeyed(s.t.Context(), s.Conn, "k", keys...)
	if err != nil || refused {
		s.t.Fatalf("copying %v: refused %t, %v", keys, refused, err)
	}
	if own {
		s.exec(`commit`)
	}
	return ids
}

// A key has one lane, however its messages were sent.
func TestRuleACopiedKeyHasItsLane(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"ordered": true, "lanes": 8}`)
		keys := []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		var want []int64
		for _, key := range keys {
			want = append(want, s.sendKey(key))
		}
		s.copyKeys(keys...)
		got := s.take(100)
		if !slices.Equal(ascending(messages(got)), want) {
			return fmt.Sprintf("%v was handed out, want the first of each key, %v", messages(got), want)
		}
		return ""
	}, without("the lane of the key", patch{file: "copy_begin.sql", old: "posthaste.key_lane(nullif(x.key, ''), q.width)", new: "0::smallint"}))
}

// In an ordered queue each message needs a key, also where many are sent.
func TestRuleCopiesNeedKeys(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := ordered(t, url)
		for _, keys := range []string{`null`, `array['a', '']`, `array['a', null]`} {
			if lanes := get[int](s, `select lanes from posthaste.copy_begin('q', 2, 1, true, 0, `+keys+`)`); lanes != 0 {
				return "the keys " + keys + " may be copied"
			}
		}
		return ""
	}, without("the question", patch{file: "copy_begin.sql", old: "q.ordered and (", new: "false and ("}))
}

// Whoever could write the place in the order could take another's, and hide it.
func TestSendersCannotWriteTheOrder(t *testing.T) {
	t.Parallel()
	s := ordered(t, testpg.New(t))
	s.exec(`set role posthaste_sender`)
	if got := get[bool](s, `select has_column_privilege('posthaste.entries', 'ord', 'insert')`); got {
		t.Error("posthaste_sender may write ord")
	}
	if code := s.code(`insert into posthaste.entries (ord, pos, queue_id, key, payload) values ('1', 1, 1, 'a', '1')`); code != "42501" {
		t.Errorf("a sender that writes ord: %q, want it denied", code)
	}
}

// Positions that were written twice do not stop a keyed queue either: there they
// lead to messages that are parked twice.
func TestRuleRepeatedPositionsStopNoKey(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := ordered(t, url)
		evil := connect(t, url)
		fault := ""
		take := func(want ...int64) []got {
			t.Helper()
			ids := []int64{}
			rows, err := s.Query(t.Context(), `select unnest(array[delivery_id, message_id]) from posthaste.receive('q', 10, '1 hour')`)
			if err == nil {
				ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			}
			if err != nil {
				fault = "claiming ended with " + err.Error()
				return nil
			}
			var out []got
			for i := 0; i < len(ids); i += 2 {
				out = append(out, got{ids[i], ids[i+1]})
			}
			if fault == "" {
				fault = wants("received", out, want...)
			}
			return out
		}
		a := s.sendKey("a")
		first := take(a)
		// One in the log, and two that are due, with one place in the order.
		var twice int64
		until(t, "a transaction's order is its id", func() bool {
			evil.exec(`begin`)
			twice = evil.sendKey("a")
			same := get[bool](evil, `select ord = xid from posthaste.entries where pos = $1`, twice)
			evil.exec(`set local role posthaste_sender`)
			evil.exec(`insert into posthaste.entries (pos, queue_id, due_at, key, payload)
				select $1, 1, clock_timestamp() + x.after, 'a', '1' from unnest(array[interval '1 microsecond', '2 microseconds', '1 second']) x (after)`, twice)
			if !same {
				evil.exec(`rollback`)
				return false
			}
			evil.exec(`commit`)
			return true
		})
		b := s.sendKey("b")
		if others := take(b); fault == "" {
			s.ack(others...)
			s.ack(first...)
		}
		if fault != "" {
			return fault
		}
		if first = take(twice); fault != "" {
			return fault
		}
		until(t, "it is parked once more", func() bool {
			take()
			return fault != "" || get[bool](s, `select exists (select from posthaste.parked where message_id = $1)`, twice)
		})
		if fault != "" {
			return fault
		}
		if pg := s.refusal(`select from posthaste.fail($1, 'no', '{"retry_after": "0"}')`, first[0].delivery); pg != nil {
			return "settling ended with " + pg.Message
		}
		b = s.sendKey("b")
		if others := take(twice, b); fault == "" {
			s.ack(others...)
		}
		return fault
	}, without("parking what falls due once", patch{file: "lane_apply.sql", old: "on conflict (subscriber, key, ord, message_id) do nothing", new: ""}),
		without("parking what is reached once", patch{file: "park.sql", old: "on conflict (subscriber, key, ord, message_id) do nothing", new: ""}),
		without("parking what comes back once", patch{file: "finish.sql", old: "on conflict (subscriber, key, ord, message_id) do nothing", new: ""}))
}

// A sender may COPY, and so write positions that are another's, or one several
// times. What comes of that is nobody else's trouble: claims, settling, rescue
// and upkeep go on, and others' messages arrive.
func TestRuleRepeatedPositionsStopNothing(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		evil := connect(t, url)
		mine := s.send(`{}`)
		evil.exec(`set role posthaste_sender`)
		queue := get[int](evil, `select queue_id from posthaste.copy_begin('q', 1, 1, false)`)
		for _, due := range []string{"null", "clock_timestamp() + interval '1 day'", "clock_timestamp() + interval '1 microsecond'"} {
			evil.exec(fmt.Sprintf(`insert into posthaste.entries (pos, queue_id, due_at, payload) select %d, %d, %s, '1' from generate_series(1, 50)`, mine, queue, due))
		}
		// Failed for good in one statement, though they are one message by their id.
		worker := s.register()
		got := s.claim(worker, 1, 200, false)
		if len(got) != 101 {
			return fmt.Sprintf("%d deliveries, want 101", len(got))
		}
		settle := `select from posthaste.settle('{}', '{}', $1::bigint[], array_fill('dead'::text, array[101]), array_fill('no'::text, array[101]),
			array_fill(null::float8, array[101]), array_fill(null::text, array[101]), array_fill(null::real, array[101]), false)`
		if pg := s.refusal(settle, got); pg != nil {
			return "settling ended with " + pg.Message
		}
		if n := get[int](s, `select count(*) from posthaste.outcomes where outcome = 'dead'`); n != 101 {
			return fmt.Sprintf("%d of them were settled", n)
		}
		// Those that are due tomorrow are carried.
		s.exec(`update posthaste.settings set slot_rows = 1, spare_slots = 15`)
		until(t, "the ring turned", func() bool {
			s.exec(`select posthaste.rotate()`)
			return get[int64](s, `select last_value >> 22 from posthaste.positions`) != 0
		})
		s.exec(`select posthaste.rotate()`)
		var fault string
		until(t, "they are carried", func() bool {
			if pg := s.refusal(`select posthaste.carry_slot(0)`); pg != nil {
				fault = "upkeep ended with " + pg.Message
			}
			return fault != "" || get[bool](s, `select count(*) = 50 from posthaste.entries where message_id = $1 and due_at > clock_timestamp()`, mine)
		})
		return fault
	}, without("one letter each", patch{file: "finish.sql", old: "select distinct on (z.message_id) z.message_id", new: "select z.message_id"}),
		without("letting repeated positions pass", patch{file: "carry_slot.sql", old: "select distinct f.pos,", new: "select f.pos,"}))
}
