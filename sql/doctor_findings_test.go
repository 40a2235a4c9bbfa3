package ledger_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// ails waits until the doctor finds something by a check that says words.
func (s *session) ails(t *testing.T, check, level, words string) {
	t.Helper()
	until(t, check+" tells: "+words, func() bool {
		return get[bool](s, `select coalesce(bool_or(d."check" = $1 and d.level = $2 and strpos(d.message, $3) > 0 and d.hint <> ''), false) from posthaste.doctor() d`, check, level, words)
	})
}

// well fails the test if a check finds something.
func (s *session) well(t *testing.T, check string) {
	t.Helper()
	if found := list[string](s, `select d.message from posthaste.doctor() d where d."check" = $1`, check); len(found) > 0 {
		t.Errorf("%s finds %q", check, found)
	}
}

// Each finding is caused, told with what helps, and gone with its cause.
func TestDoctorFindings(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	s, other := begin(t, url), begin(t, url)
	s.send(`{}`)
	for _, check := range []string{"horizon", "privileges", "heartbeats", "behind", "plans", "schedules"} {
		s.well(t, check)
	}

	// A transaction stays open; one was prepared and forgotten.
	other.exec(`begin`)
	other.exec(`select 1`)
	s.exec(`set posthaste.patience = '1 millisecond'`)
	s.ails(t, "horizon", "warning", "has had a transaction open for")
	s.ails(t, "behind", "warning", "subscription 'default' of queue 'q'")
	other.exec(`prepare transaction 'forgotten in ` + get[string](s, `select current_database()`) + `'`)
	s.ails(t, "horizon", "fault", "never ended")
	other.exec(`rollback prepared 'forgotten in ` + get[string](s, `select current_database()`) + `'`)
	s.well(t, "horizon")
	s.receive()
	s.well(t, "behind")
	s.exec(`reset posthaste.patience`)

	// A worker beats late; it is not lost yet.
	worker := s.register()
	s.exec(`update posthaste.registrations set lease = '1 hour', heartbeat_at = clock_timestamp() - interval '50 minutes' where id = $1`, worker)
	s.ails(t, "heartbeats", "warning", "is lost after")
	s.exec(`select posthaste.worker_unregister($1)`, worker)
	s.well(t, "heartbeats")

	// Privileges were taken away.
	s.exec(`revoke execute on function posthaste.send(text, jsonb, jsonb) from posthaste_sender`)
	s.exec(`revoke execute on function posthaste.send(text, jsonb, jsonb) from posthaste_admin`)
	s.ails(t, "privileges", "fault", "role posthaste_sender may not send")
	s.exec(`grant execute on function posthaste.send(text, jsonb, jsonb) to posthaste_sender`)
	s.well(t, "privileges")

	// A schedule in a time zone that is gone; one that nobody ticks.
	s.exec(`select posthaste.schedule_put('nightly', 'q', '0 3 * * *')`)
	s.exec(`update posthaste.schedule_settings set time_zone = 'Mars/Olympus', next_at = clock_timestamp() - interval '1 hour'`)
	s.ails(t, "schedules", "fault", "does not know the time zone 'Mars/Olympus'")
	s.ails(t, "schedules", "warning", "should have ticked")
	s.exec(`select posthaste.schedule_drop('nightly')`)
	s.well(t, "schedules")

	// An index is broken, or a session's plans are tampered with.
	s.exec(`update pg_index set indisvalid = false where indexrelid = (select min(c.oid::bigint)::oid from pg_class c where c.relnamespace = 'posthaste'::regnamespace and c.relkind = 'i')`)
	s.ails(t, "plans", "fault", "cannot be used")
	s.exec(`update pg_index set indisvalid = true where not indisvalid`)
	s.well(t, "plans")
	// Or somebody dropped one as unused.
	for index, statement := range map[string]string{"entries_fresh": "the claim of fresh messages", "entries_due": "the claim of what fell due", "claims_reader": "a reader's cursor"} {
		definition := get[string](s, `select pg_get_indexdef(('posthaste.' || $1::text)::regclass)`, index)
		s.exec(`drop index posthaste.` + index)
		s.ails(t, "plans", "warning", statement+" is planned with a")
		s.exec(strings.Replace(definition, " ON ONLY ", " ON ", 1))
		s.well(t, "plans")
	}

	// An upgrade was not finished. The database was made a while ago on a busy machine.
	s.exec(`update posthaste.counted set at = at - interval '20 minutes'`)
	s.exec(`select posthaste.maintain()`)
	s.well(t, "workers")
	old, young := s.register(), get[int64](s, `select posthaste.worker_register('young', '2.0', '1 hour')`)
	s.exec(`update posthaste.registrations set version = '1.0' where id = $1`, old)
	s.well(t, "workers")
	s.exec(`update posthaste.registrations set started_at = clock_timestamp() - interval '2 hours', lease = '1 hour'`)
	s.ails(t, "workers", "warning", "workers of 2 versions have run side by side for more than an hour: 1.0 (1), 2.0 (1)")
	s.exec(`select posthaste.worker_unregister($1)`, old)
	s.well(t, "workers")
	s.exec(`select posthaste.worker_unregister($1)`, young)
	for setting, finding := range map[string][3]string{
		"enable_indexscan = off":                            {"plans", "warning", "enable_indexscan is off"},
		"default_transaction_isolation = 'repeatable read'": {"settings", "fault", "default_transaction_isolation is repeatable read"},
		"synchronous_commit = off":                          {"settings", "warning", "synchronous_commit is off"},
		"statement_timeout = '9s'":                          {"settings", "warning", "statement_timeout is 9000 ms"},
	} {
		s.exec(`do $$ begin execute format('alter database %I set ` + strings.ReplaceAll(setting, "'", "''") + `', current_database()); end $$`)
		begin(t, url).ails(t, finding[0], finding[1], finding[2])
		name, _, _ := strings.Cut(setting, " ")
		s.exec(`do $$ begin execute format('alter database %I reset ` + name + `', current_database()); end $$`)
	}
}

// What concerns the whole server, on one of its own.
func TestDoctorFindingsOfTheServer(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.Server(t).URL())
	s.ails(t, "settings", "fault", "fsync is off") // as in all tests
	s.exec(`select pg_create_physical_replication_slot('nobody', true)`)
	s.ails(t, "horizon", "warning", "replication slot 'nobody' is read by nobody")
	s.exec(`select pg_drop_replication_slot('nobody')`)
	s.well(t, "horizon")
	s.exec(`alter system set autovacuum = off`)
	s.exec(`select pg_reload_conf()`)
	s.ails(t, "settings", "warning", "autovacuum is off")
	if hints := list[string](s, `select coalesce(d.hint, '') from posthaste.doctor() d`); slices.Contains(hints, "") {
		t.Errorf("a finding without a remedy: %q", hints)
	}
}
