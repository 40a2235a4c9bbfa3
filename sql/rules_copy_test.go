package ledger_test

import (
	"fmt"
	"testing"
)

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
