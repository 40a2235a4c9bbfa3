package ledger_test

import (
	"fmt"
	"testing"
)

// ◆ A physical copy hands out nothing to programs from another environment than the original's
// workers, whenever a server was started. A worker from a known environment, or an operator, ends
// that; if no worker named its environment, nothing is checked.
func TestRuleACopyHandsOutNothingElsewhere(t *testing.T) {
	const production, staging = `'db.production:5432/shop'`, `'db.staging:5432/shop'`
	starts := map[string]string{
		"crash":   `truncate posthaste.since_crash, posthaste.skipped`, // the state of unlogged tables, also after a promotion
		"restart": `update posthaste.since_crash set started = started - interval '1 day'`,
	}
	rule(t, func(t *testing.T, url string) string {
		for name, start := range starts {
			s := begin(t, url)
			fresh := func() *session { return connect(t, url) } // a session checks only once
			register := func(environment string) (int64, string) {
				c := fresh()
				code := c.code(`select posthaste.worker_register('w', 'v', '1 minute', ` + environment + `)`)
				if code != "" {
					return 0, code
				}
				return get[int64](c, `select max(id) from posthaste.registrations`), ""
			}
			received := func() string { return fresh().code(`select from posthaste.receive('q', 1, '1 hour')`) }
			s.exec(`delete from posthaste.registrations`)
			s.exec(start)
			if code := received(); code != "" {
				return name + ": no worker had named its environment, and " + code
			}
			old, code := register(production)
			if code != "" {
				return name + ": the first one fails: " + code
			}
			if _, code := register(staging); code != "" {
				return name + ": another one fails while the server runs: " + code
			}
			s.exec(`delete from posthaste.registrations where environment = ` + staging)

			s.exec(start)
			s.send(`{}`)
			for _, refused := range []struct{ what, code string }{
				{"an unknown receiver", received()},
				{"upkeep", get[string](fresh(), `select coalesce((select 'PH503' from posthaste.maintain() where task = 'refused'), 'done')`)},
				{"rescue", fresh().code(`select posthaste.rescue()`)},
				{"a tick", func() string {
					s.exec(`select posthaste.schedule_put('s', 'q', 'every 1 hour')`)
					s.exec(`update posthaste.schedule_settings set next_at = clock_timestamp() - interval '1 second'`)
					return fresh().code(`select from posthaste.tick()`)
				}()},
				{"a worker that says nothing", func() string { _, code := register(`null`); return code }()},
				{"a worker from elsewhere", func() string { _, code := register(staging); return code }()},
			} {
				if refused.code != "PH503" {
					return fmt.Sprintf("%s: %s ends with %q in a copy", name, refused.what, refused.code)
				}
			}
			if n := get[int](fresh(), `select count(*) from posthaste.doctor_server() where "check" = 'identity'`); n != 1 {
				return name + ": the doctor says nothing"
			}
			if message := get[*string](fresh(), `select message from posthaste.not_here(`+production+`)`); message != nil {
				return name + ": a caller from there fails: " + *message
			}
			// A worker that existed before continues, and with it all others.
			if code := fresh().code(`select from posthaste.claim($1, 1, 'q', 'default', 10)`, old); code != "" {
				return name + ": its own worker fails: " + code
			}
			if code := received(); code != "" {
				return name + ": a receiver fails after a worker was back: " + code
			}

			s.exec(start)
			if _, code := register(production); code != "" {
				return name + ": a caller from there fails: " + code
			}
			s.exec(start)
			if !get[bool](s, `select rebased from posthaste.rebase(same_ids => true)`) {
				return name + ": the operator is told that there is nothing to do"
			}
			if _, code := register(staging); code != "" {
				return name + ": it fails although an operator allowed it: " + code
			}
			s.exec(`delete from posthaste.schedule_settings`)
		}
		return ""
	},
		without("the question", patch{file: "not_here.sql", old: "elsif not exists", new: "elsif false and not exists"}),
		without("the time of the start", patch{file: "not_here.sql", old: "where x.started = pg_postmaster_start_time()", new: ""}),
		without("rescue", patch{file: "rescue.sql", old: "perform posthaste.check_identity();", new: "null;"}),
		without("the worker's own registration", patch{file: "claim.sql", old: "check_identity(null, p_worker)", new: "check_identity()"}))
}
