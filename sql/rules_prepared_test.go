package ledger_test

import (
	"fmt"
	"testing"
)

// A settle in a transaction that will be prepared has an option for that, because PostgreSQL cannot
// prepare it after a notification: to sleeping workers, to a waiting key, to claims at a limit.
func TestRuleSettlingCanBePrepared(t *testing.T) {
	for name, settle := range map[string]string{
		"ack":     `select posthaste.ack(array(select delivery_id from got), '{"wake": false}')`,
		"fail":    `select posthaste.fail(delivery_id, 'no', '{"wake": false}') from got`,
		"release": `select posthaste.release(array(select delivery_id from got), '{"wake": false}')`,
	} {
		t.Run(name, func(t *testing.T) {
			examine := func(t *testing.T, url string) string {
				s, sleeper, other := connect(t, url), connect(t, url), connect(t, url)
				for queue, options := range map[string]string{"plain": `{}`, "ordered": `{"ordered": true, "lanes": 1}`, "limited": `{"concurrency": 1}`} {
					s.exec(`select posthaste.create_queue($1, $2)`, queue, options)
					s.exec(`select posthaste.send($1, '1', '{"key": "k"}') from generate_series(1, 2)`, queue)
					ids := list[int64](s, `select delivery_id from posthaste.receive($1, 1, '1 hour')`, queue)
					s.exec(`select from posthaste.receive($1, 1, '1 hour')`, queue) // waits for the first, or for the limit
					if armed := get[string](sleeper, `select armed from posthaste.arm($1)`, queue); armed != "bell" {
						t.Fatalf("%s: armed: %s", queue, armed)
					}
					id := "settled in " + queue + " of " + get[string](s, `select current_database()`)
					other.exec(`begin`)
					other.exec(`with got as (select unnest($1::bigint[]) as delivery_id) `+settle, ids)
					if pg := other.refusal(`prepare transaction '` + id + `'`); pg != nil {
						return fmt.Sprintf("%s: %s", queue, pg.Message)
					}
					other.exec(`rollback prepared '` + id + `'`)
				}
				return ""
			}
			broken := []twin{without("the look at the option", patch{file: "no_wake.sql", old: "is not distinct from 'yes'", new: "= 'never'"})}
			rule(t, examine, broken...)
		})
	}
}

// The option applies to one call.
func TestRuleOnlyTheCallIsSilent(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s, sleeper := begin(t, url), connect(t, url)
		s.exec(`select posthaste.send('q', '1') from generate_series(1, 2)`)
		ids := list[int64](s, `select delivery_id from posthaste.receive('q', 2, '1 hour')`)
		if armed := get[string](sleeper, `select armed from posthaste.arm('q')`); armed != "bell" {
			t.Fatalf("armed: %s", armed)
		}
		s.exec(`begin`)
		s.exec(`select posthaste.release(array[$1::bigint], '{"wake": false}')`, ids[0])
		s.exec(`select posthaste.release(array[$1::bigint])`, ids[1])
		if pg := s.refusal(`prepare transaction 'notified'`); pg == nil {
			s.exec(`rollback prepared 'notified'`)
			return "the second call sent no notification"
		}
		return ""
	}, without("ending it", patch{file: "settle_singles.sql", old: "  perform set_config('posthaste.no_wake', '', true); -- it applies to this call alone\n", new: ""},
		patch{file: "settle_singles.sql", old: "then '' else 'yes' end", new: "then current_setting('posthaste.no_wake', true) else 'yes' end"}))
}
