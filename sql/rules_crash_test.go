package ledger_test

import (
	"fmt"
	"testing"
	"time"
)

// ◆ After a crash the first one who claims moves the sequence on. Whoever comes meanwhile
// waits until that is committed, and then goes on beside all others: would each keep a key
// to the end of its transaction, one that is slow would hold up all queues.
func TestRuleAfterACrashNobodyWaitsInLine(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		s.send(`{}`)
		s.exec(`select posthaste.create_queue('other')`)
		s.exec(`select posthaste.create_queue('third')`)
		s.exec(`delete from posthaste.since_crash`) // as a crash does, for the table is unlogged
		next := get[int64](s, `select last_value from posthaste.positions`)
		first, second, third := connect(t, url), connect(t, url), connect(t, url)
		first.exec(`begin`)
		first.exec(`select from posthaste.receive('q', 1, '1 hour')`)
		second.exec(`begin`)
		waits := func(asks *session, queue string) (asked <-chan answer, early bool) {
			asked = asks.start(`select count(*) from posthaste.receive($1, 1, '1 hour')`, queue)
			until(t, "it waits", func() bool {
				select {
				case <-asked:
					early = true
					return true
				default:
				}
				return get[bool](s, `select wait_event in ('PgSleep', 'advisory') is true from pg_stat_activity where pid = $1`, int32(asks.PgConn().PID()))
			})
			return asked, early
		}
		asked, early := waits(second, "other")
		if early {
			return "one claimed before the sequence had been moved for good"
		}
		also, _ := waits(third, "third")
		first.exec(`commit`)
		moved := get[int64](s, `select last_value from posthaste.positions`)
		if moved <= next {
			return fmt.Sprintf("the sequence is at %d and was at %d", moved, next)
		}
		for who, answered := range map[string]<-chan answer{"second": asked, "third": also} {
			select {
			case a := <-answered:
				if a.err != nil {
					t.Fatal(a.err)
				}
			case <-time.After(10 * time.Second):
				second.exec(`rollback`)
				return "the " + who + " one waited for the other's transaction"
			}
		}
		second.exec(`commit`)
		if now := get[int64](s, `select last_value from posthaste.positions`); now != moved {
			return fmt.Sprintf("the sequence was moved again, from %d to %d", moved, now)
		}
		return ""
	}, without("waiting for the commit", patch{file: "admit.sql", old: "perform pg_sleep(0.002);", new: "exit;"}),
		without("going on side by side", patch{file: "admit.sql", old: "if v_tries > 500 then", new: "if true then"}))
}
