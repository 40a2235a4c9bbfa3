package ledger_test

import (
	"fmt"
	"testing"
)

// fullHistory is a database in which all parts of the history are in use and over, and whose queue q
// has a dead letter. The next row goes into part 1.
func fullHistory(t *testing.T, url string) (s *session, message int64) {
	t.Helper()
	s = connect(t, url)
	s.exec(`select posthaste.create_queue('q', '{"retention": "1 hour"}')`)
	message = s.send(`{}`)
	s.exec(`select posthaste.fail(delivery_id, 'no', '{"permanent": true}') from posthaste.receive('q', 1, '1 hour')`)
	s.exec(`insert into posthaste.history_parts select g, clock_timestamp() - make_interval(secs => case when g = 1 then 1 else 60 + g end) from generate_series(0, 15) g`)
	return s, message
}

// kept returns a fault of the history of a message that was discarded, or "".
func (s *session) kept(message int64) (fault string) {
	s.t.Helper()
	if n := get[int](s, `select count(*)::int from posthaste.history_of(array[$1::bigint])`, message); n != 1 {
		return fmt.Sprintf("the history has %d rows of message %d, and parts %v", n, message, list[int64](s, `select part::bigint from posthaste.history_parts order by 1`))
	}
	return ""
}

// A part that is being truncated gets no more rows: they would not be found.
func TestRuleNothingGoesIntoAForgottenPart(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, message := fullHistory(t, url)
		upkeep, other := connect(t, url), connect(t, url)
		upkeep.exec(`begin`)
		upkeep.exec(`select posthaste.forget_history()`)
		discarding := other.start(`select posthaste.discard(array[$1::bigint])`, message)
		other.waitsOrEnds(s, discarding)
		upkeep.exec(`commit`)
		if a := <-discarding; a.err != nil {
			return a.err.Error()
		}
		return s.kept(message)
	}, without("looking again", patch{file: "history_part.sql", old: " and h.until < p_expires returning h.part into v_part;", new: " and h.until < p_expires;"}))
}

// A part that got rows since upkeep found it to be over is not truncated.
func TestRuleAPartThatIsUsedAgainIsNotForgotten(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, message := fullHistory(t, url)
		upkeep, reader := connect(t, url), connect(t, url)
		s.exec(`alter function posthaste.forget_history() set lock_timeout = '30s'`)
		reader.exec(`begin`)
		reader.exec(`select from posthaste.history_0`)
		forgetting := upkeep.start(`select 1::bigint from posthaste.forget_history()`)
		upkeep.blocked(s)
		s.exec(`select posthaste.discard(array[$1::bigint])`, message)
		reader.exec(`commit`)
		if a := <-forgetting; a.err != nil {
			return a.err.Error()
		}
		return s.kept(message)
	}, without("asking whether it is over still", patch{file: "forget_history.sql", old: "h.part = v_part and h.until <= clock_timestamp();", new: "h.part = v_part;"}))
}
