package ledger_test

import (
	"fmt"
	"slices"
	"testing"
)

// Messages sent in a savepoint that is rolled back were never sent: the transaction's messages
// before and after it arrive, in order if the queue is ordered, and nothing of the savepoint does,
// nor its other changes: a dedupe key, the lanes of a priority.
func TestRuleSavepointsTakeTheirSendsBack(t *testing.T) {
	const many = `select posthaste.send_many('q', jsonb_build_array($1::jsonb || '{"payload": 1}'))`
	// As posthaste.ord_now would be if it took the id of the subtransaction that is open.
	subtransactions := without("the order of the whole", patch{file: "ord_now.sql",
		old: "    return greatest(own, pg_snapshot_xmax(pg_current_snapshot()));\n",
		new: "    insert into posthaste.order_marks default values returning xmin::text::bigint into v_low;\n    return v_low::text::xid8;\n"})
	for _, c := range []struct {
		name, queue, options string
		broken               []twin
	}{
		{"plain", `{}`, `{}`, nil},
		{"delayed", `{}`, `{"delay": "1 day"}`, nil},
		{"of a kind", `{}`, `{"kind": "bill"}`, nil},
		{"of a priority", `{}`, `{"priority": 2}`, nil},
		{"with a dedupe key", `{}`, `{"dedupe_key": "k"}`, nil},
		{"with a dedupe key and a delay", `{}`, `{"dedupe_key": "k", "delay": "1 day"}`, nil},
		{"of an ordered queue", `{"ordered": true}`, `{"key": "a"}`, []twin{subtransactions}},
		{"of an ordered queue, with a dedupe key", `{"ordered": true}`, `{"key": "a", "dedupe_key": "k"}`, nil},
		{"of a fair queue", `{"fair": true}`, `{"key": "a"}`, nil},
	} {
		for _, level := range []string{"read committed", "serializable"} {
			t.Run(c.name+", "+level, func(t *testing.T) {
				broken := c.broken
				if level != "read committed" {
					broken = nil
				}
				rule(t, func(t *testing.T, url string) string {
					s := keyed(t, url, c.queue)
					for what, send := range map[string]string{
						"send":      `select posthaste.send('q', '1', $1)`,
						"send_many": many,
					} {
						if fault := s.savepoints(send, c.options, level); fault != "" {
							return what + ": " + fault
						}
					}
					return ""
				}, broken...)
			})
		}
	}
}

// savepoints sends one message, a second in a savepoint that is rolled back, a third from within the
// savepoint, which is still open, and a fourth after its end, and reports a fault in those that
// arrive. With a dedupe key the second alone and the third have it.
func (s *session) savepoints(send, options, level string) (fault string) {
	s.t.Helper()
	sent := func(options string) int64 { s.t.Helper(); return get[int64](s, send, options) }
	bare := get[string](s, `select ($1::jsonb - 'dedupe_key')::text`, options)
	s.exec(`delete from posthaste.dedupe_keys`)
	s.exec(`begin isolation level ` + level)
	want := []int64{sent(bare)}
	s.exec(`savepoint s`)
	taken := sent(options)
	s.exec(`rollback to savepoint s`)
	want = append(want, sent(options))
	s.exec(`release savepoint s`)
	want = append(want, sent(bare))
	s.exec(`commit`)
	if slices.Contains(want, taken) {
		return fmt.Sprintf("%v were sent, of which the savepoint that was rolled back had sent %d", want, taken)
	}
	if again := get[int64](s, send, options); options != bare && again != want[1] {
		return fmt.Sprintf("a later send with the key got %d, want %d", again, want[1])
	} else if options == bare {
		want = append(want, again)
	}
	s.exec(`update posthaste.entries_other set due_at = clock_timestamp() where due_at > clock_timestamp()`)
	var came []int64
	for n := 1; n > 0; {
		taken := s.take(10)
		n = len(taken)
		came = append(came, messages(taken)...)
		s.ack(taken...)
	}
	if !get[bool](s, `select ordered from posthaste.queue_settings`) {
		slices.Sort(came)
	}
	if !slices.Equal(came, want) {
		return fmt.Sprintf("%v came, want %v", came, want)
	}
	return ""
}
