package ledger_test

import (
	"fmt"
	"testing"
)

// Upkeep locks the tables of a slot one after the other, each for 50 ms at most. A session that
// reads the slots and then waits for a reader may so become part of a deadlock that ends by
// itself: it waits for that.
func TestRuleADeadlockWithUpkeepIsWaitedOut(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := begin(t, url)
		m := s.send(`{}`)
		claimer, upkeep, canceller := connect(t, url), connect(t, url), connect(t, url)
		for _, x := range []*session{claimer, upkeep} {
			x.exec(`set deadlock_timeout = '1h'`) // the other session must detect it
		}
		canceller.exec(`set deadlock_timeout = '2s'`)
		claimer.exec(`begin`)
		claimer.exec(`select posthaste.lock_reader(posthaste.reader_key(q.id, 0, 0, 0), true) from posthaste.queue_settings q`)
		told := canceller.start(`select count(*) from posthaste.cancel($1)`, m)
		canceller.blocked(s)
		upkeep.exec(`begin`)
		upkeep.exec(`lock table posthaste.leases_5 in access exclusive mode`)
		upkeep.exec(`set local lock_timeout = '3s'`)
		locked := upkeep.start(`lock table posthaste.entries_other_5 in access exclusive mode`)
		upkeep.blocked(s)
		looked := claimer.start(`select count(*) from posthaste.leases_5`)
		<-locked // or not, which is as well
		upkeep.exec(`rollback`)
		if a := <-looked; a.err != nil {
			t.Fatal(a.err)
		}
		claimer.exec(`commit`)
		if a := <-told; a.err != nil {
			return fmt.Sprintf("cancelling ends with %v", a.err)
		}
		return ""
	}, without("waiting on", patch{file: "await_key.sql", old: "if v_deadlocks > 2 or clock_timestamp() >= v_end then", new: "if true then"}))
}
