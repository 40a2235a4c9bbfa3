package ledger_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// ails waits until a check of the doctor has a finding that contains words.
func (s *session) ails(t *testing.T, check, level, words string) {
	t.Helper()
	until(t, check+" tells: "+words, func() bool {
		return get[bool](s, `select coalesce(bool_or(d."check" = $1 and d.level = $2 and strpos(d.message, $3) > 0 and d.hint <> ''), false) from posthaste.doctor() d`, check, level, words)
	})
}

// well fails the test if a check has a finding.
func (s *session) well(t *testing.T, check string) {
	t.Helper()
	if found := list[string](s, `select d.message from posthaste.doctor() d where d."check" = $1`, check); len(found) > 0 {
		t.Errorf("%s finds %q", check, found)
	}
}

// heals waits until a check has no finding any more.
func (s *session) heals(t *testing.T, check string) {
	t.Helper()
	until(t, check+" is well", func() bool {
		return get[int](s, `select count(*)::int from posthaste.doctor() d where d."check" = $1`, check) == 0
	})
}

// Each finding is caused, reported with a hint, and removed with its cause.
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
	until(t, "the horizon is well, but for other tests' databases", func() bool {
		return get[int](s, `select count(*)::int from posthaste.doctor() d where d."check" = 'horizon' and strpos(d.message, 'database') = 0`) == 0
	})
	s.exec(`select posthaste.pause_queue('q', 'ada', 'INC-7', '2100-01-02 03:04:05Z')`)
	s.ails(t, "behind", "warning", ": the queue is paused since 20")
	s.ails(t, "behind", "warning", " by ada, until 2100-01-02 03:04:05Z (INC-7)")
	s.exec(`select posthaste.resume_queue('q')`)
	s.receive()
	s.well(t, "behind")
	s.exec(`reset posthaste.patience`)

	// The clock was set back since a reader looked for due messages.
	s.send(`{"delay": "1 millisecond"}`)
	until(t, "it falls due", func() bool { return len(s.receive()) == 1 })
	s.well(t, "clock")
	s.exec(`update posthaste.claims set t1 = t1 + interval '1 day' where t1 is not null`)
	s.ails(t, "clock", "warning", "the clock of the database was set back by 23:59:")
	s.exec(`update posthaste.claims set t1 = t1 - interval '1 day' where t1 is not null`)
	s.well(t, "clock")

	// A worker's heartbeat is late; it is not lost yet.
	worker := s.register()
	s.exec(`update posthaste.registrations set lease = '1 hour', heartbeat_at = clock_timestamp() - interval '50 minutes' where id = $1`, worker)
	s.ails(t, "heartbeats", "warning", "is declared lost after")
	s.exec(`select posthaste.worker_unregister($1)`, worker)
	s.well(t, "heartbeats")

	// Privileges were revoked.
	for _, taken := range [][3]string{
		{"execute on function posthaste.send(text, text, anycompatible)", "posthaste_sender", "send"},
		{"execute on function posthaste.receive(text, bigint, interval, anycompatible)", "posthaste_receiver", "receive"},
		{"execute on function posthaste.maintain()", "posthaste_receiver", "do upkeep"},
		{"execute on function posthaste.create_queue(text, anycompatible, text)", "posthaste_admin", "create queues"},
		{"usage on schema posthaste", "posthaste_sender", "send"},
	} {
		s.exec(`revoke ` + taken[0] + ` from ` + taken[1])
		s.ails(t, "privileges", "fault", "role "+taken[1]+" may not "+taken[2])
		s.exec(`grant ` + taken[0] + ` to ` + taken[1])
		s.well(t, "privileges")
	}

	// A schedule in a time zone that does not exist any more; one whose ticks are not sent.
	s.exec(`select posthaste.schedule_put('nightly', 'q', '0 3 * * *')`)
	s.exec(`update posthaste.schedule_settings set time_zone = 'Mars/Olympus', next_at = clock_timestamp() - interval '1 hour'`)
	s.ails(t, "schedules", "fault", "does not know the time zone 'Mars/Olympus'")
	s.ails(t, "schedules", "warning", "should have ticked")
	s.exec(`select posthaste.schedule_drop('nightly')`)
	s.well(t, "schedules")

	// An index is broken, or a session's plans are manipulated.
	s.exec(`update pg_index set indisvalid = false where indexrelid = (select min(c.oid::bigint)::oid from pg_class c where c.relnamespace = 'posthaste'::regnamespace and c.relkind = 'i')`)
	s.ails(t, "plans", "fault", "cannot be used")
	s.exec(`update pg_index set indisvalid = true where not indisvalid`)
	s.well(t, "plans")
	// Or an operator dropped an index as unused, and created it again for the parent alone. A
	// new one is not used beside transactions that are older than it, also those of other tests.
	for index, statement := range map[string]string{"entries_plain_log": "the claim of fresh messages", "entries_other_due_xid": "the claim of newly visible messages",
		"entries_other_due": "the claim of due messages", "entries_other_ordered": "the claim of keyed messages", "entries_other_message": "the search for later attempts", "words_word": "the search for a reference or a term",
		"claims_reader": "a reader's cursor", "claims_holder": "the search for a worker's claims"} {
		definition := get[string](s, `select pg_get_indexdef(('posthaste.' || $1::text)::regclass)`, index)
		s.exec(`drop index posthaste.` + index)
		s.ails(t, "plans", "warning", statement+" is planned with a")
		s.exec(definition)
		s.ails(t, "plans", "fault", "lacks the index posthaste."+index)
		s.exec(`drop index posthaste.` + index)
		s.exec(strings.Replace(definition, " ON ONLY ", " ON ", 1))
		s.heals(t, "plans")
	}
	s.exec(`alter table posthaste.settlements drop constraint settlements_pkey`)
	s.ails(t, "plans", "warning", "settling is planned with a")
	s.exec(`alter table posthaste.settlements add constraint settlements_pkey primary key (slot, claim, part, number)`)
	s.heals(t, "plans")

	// An upgrade was not finished. The database was made a while ago on a busy machine.
	s.exec(`update posthaste.counted set at = at - interval '20 minutes'`)
	s.exec(`select posthaste.maintain()`)
	s.well(t, "workers")
	old, young := s.register(), get[int64](s, `select posthaste.worker_register('young', '2.0', '1 hour')`)
	s.exec(`update posthaste.registrations set version = '1.0' where id = $1`, old)
	s.well(t, "workers")
	s.exec(`update posthaste.registrations set started_at = clock_timestamp() - interval '2 hours', lease = '1 hour'`)
	s.ails(t, "workers", "warning", "workers of 2 versions have run at the same time for more than an hour: 1.0 (1), 2.0 (1)")
	s.exec(`select posthaste.worker_unregister($1)`, old)
	s.well(t, "workers")
	s.exec(`select posthaste.worker_unregister($1)`, young)
}

// A transaction of another database also keeps slots once it writes, or was prepared and
// forgotten: the finding names its database. One that only reads is not reported.
func TestDoctorFindsTransactionsOfOtherDatabases(t *testing.T) {
	t.Parallel()
	s, other := begin(t, testpg.New(t)), connect(t, testpg.New(t))
	s.exec(`set posthaste.patience = '1 millisecond'`)
	name := get[string](other, `select current_database()`)
	session := fmt.Sprintf("session %d ", get[int](other, `select pg_backend_pid()`))
	told := func(words string) bool {
		return get[bool](s, `select coalesce(bool_or(strpos(d.message, $1) > 0), false) from posthaste.doctor() d where d."check" = 'horizon'`, words)
	}
	other.exec(`begin isolation level repeatable read`)
	other.exec(`select from pg_class limit 1`)
	until(t, "it is old enough", func() bool {
		return get[bool](s, `select clock_timestamp() - xact_start > posthaste.patience() from pg_stat_activity where pid = $1`, get[int](other, `select pg_backend_pid()`))
	})
	if told(session) {
		t.Error("a transaction of another database is reported though it only reads")
	}
	xid := get[string](other, `select pg_current_xact_id()::text`)
	if !get[bool](s, `select pg_snapshot_xmin(pg_current_snapshot()) <= $1::text::xid8`, xid) {
		t.Errorf("transaction %s of another database is not in the snapshots of this one", xid)
	}
	s.ails(t, "horizon", "warning", session)
	s.ails(t, "horizon", "warning", ", database "+name+") has had a transaction open for")
	other.exec(`prepare transaction 'forgotten in ` + name + `'`)
	if !get[bool](s, `select pg_snapshot_xmin(pg_current_snapshot()) <= $1::text::xid8`, xid) {
		t.Errorf("prepared transaction %s of another database is not in the snapshots of this one", xid)
	}
	s.ails(t, "horizon", "fault", "in database "+name+", and never ended")
	other.exec(`rollback prepared 'forgotten in ` + name + `'`)
	until(t, "it is gone", func() bool { return !told(name) })
}

// Settings of the database, each alone.
func TestDoctorFindingsOfSettings(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	s := connect(t, url)
	findings := map[string][3]string{
		"default_transaction_isolation = 'repeatable read'": {"settings", "warning", "default_transaction_isolation is repeatable read"},
		"default_transaction_read_only = on":                {"settings", "fault", "default_transaction_read_only is on"},
		"synchronous_commit = off":                          {"settings", "warning", "synchronous_commit is off"},
		"statement_timeout = '9s'":                          {"settings", "warning", "statement_timeout is 9000 ms"},
	}
	if testpg.Version(t) != "14" { // it is new in 17
		findings["transaction_timeout = '9s'"] = [3]string{"settings", "warning", "transaction_timeout is 9000 ms"}
	}
	for _, plan := range []string{"indexscan", "indexonlyscan", "bitmapscan", "nestloop", "partition_pruning"} {
		findings["enable_"+plan+" = off"] = [3]string{"plans", "warning", "enable_" + plan + " is off"}
	}
	for setting, finding := range findings {
		name, _, _ := strings.Cut(setting, " ")
		told := func() int {
			return get[int](connect(t, url), `select count(*)::int from posthaste.doctor() d where d."check" = $1 and d.level = $2 and strpos(d.message, $3) > 0 and d.hint <> ''`, finding[0], finding[1], finding[2])
		}
		if n := told(); n != 0 {
			t.Errorf("before %s it is reported %d times", setting, n)
		}
		s.exec(`do $$ begin execute format('alter database %I set ` + strings.ReplaceAll(setting, "'", "''") + `', current_database()); end $$`)
		if n := told(); n != 1 {
			t.Errorf("with %s it is reported %d times: %q", setting, n, list[string](connect(t, url), `select d.message from posthaste.doctor() d`))
		}
		s.exec(`do $$ begin execute format('alter database %I reset ` + name + `', current_database()); end $$`)
	}
}

// A setting of a role, or of the database since this session began, is reported even if this
// session does not have it; unless it is corrected for this database, or the role may not use
// the schema.
func TestDoctorFindingsOfSettingsOfRoles(t *testing.T) {
	t.Parallel()
	s := connect(t, testpg.New(t))
	database := get[string](s, `select current_database()`)
	role := "app_" + database
	for _, c := range []struct {
		set  string
		told string // nothing if empty
	}{
		{"alter role $r set synchronous_commit = off", "synchronous_commit is off for role " + role},
		{"alter role $r set synchronous_commit = false", "synchronous_commit is false for role " + role},
		{"alter role $r in database $d set synchronous_commit = off", "synchronous_commit is off for role " + role},
		{"alter database $d set synchronous_commit = off", "synchronous_commit is off for new sessions"},
		{"alter role all set synchronous_commit = off", "synchronous_commit is off for new sessions"},
		{"alter role $r set default_transaction_read_only = 'yes'", "default_transaction_read_only is yes for role " + role},
		{"alter role $r set default_transaction_isolation = 'Serializable'", ""}, // it may only send
		{"grant posthaste_receiver to $r; alter role $r set default_transaction_isolation = 'Serializable'", "default_transaction_isolation is serializable for role " + role},
		{"alter role $r set default_transaction_isolation = 'read committed'; alter role $r set synchronous_commit = local", ""},
		{"alter role $r set synchronous_commit = off; alter role $r in database $d set synchronous_commit = on", ""},
		{"alter role $r set synchronous_commit = off; revoke posthaste_sender from $r", ""},
		{"alter role $r set synchronous_commit = off; alter role $r nologin", ""},
	} {
		s.exec(`begin`) // which no other session sees
		s.exec(`create role ` + role + ` login in role posthaste_sender`)
		for _, set := range strings.Split(strings.NewReplacer("$r", role, "$d", database).Replace(c.set), "; ") {
			s.exec(set)
		}
		var want []string
		if c.told != "" {
			want = []string{c.told}
		}
		found := list[string](s, `select split_part(d.message, ':', 1) from posthaste.doctor() d where d."check" = 'settings' and d.level = 'warning' and d.hint <> '' and strpos(d.message, ' for ') > 0`)
		if !slices.Equal(found, want) {
			t.Errorf("with %s it reports %q, want %q", c.set, found, want)
		}
		s.exec(`rollback`)
	}
}

// The cause that keeps the ring's oldest slot is reported, with a hint against it.
func TestDoctorSaysWhatKeepsTheRing(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	s := begin(t, url)
	s.exec(`update posthaste.settings set slot_rows = 1, spare_slots = 15`)
	s.send(`{}`)
	turn(t, s)
	s.send(`{}`)
	held := s.claim(s.register(), 1, 10, false)
	turn(t, s)
	s.exec(`select posthaste.carry_slot(0)`)
	kept := func(words, helps string) {
		t.Helper()
		s.ails(t, "ring", "warning", words)
		if hint := get[string](s, `select hint from posthaste.doctor() where "check" = 'ring'`); !strings.Contains(hint, helps) {
			t.Errorf("against %q it is said: %s", words, hint)
		}
	}
	// Transactions of other databases may have written, too, as far as it can tell.
	kept(fmt.Sprintf("claim %d of worker 1 is open", held[0]>>12), "end the worker that holds it")
	other := connect(t, url)
	other.exec(`begin`)
	other.exec(`select pg_current_xact_id()`)
	s.exec(`update posthaste.slots set left_before = pg_current_xact_id() where slot = 0`)
	kept("which may have written into it, is still open", "backend_xid")
	other.exec(`rollback`)
	s.exec(`select from posthaste.settle(array[$1::bigint], array[B'11'])`, held[0]>>12)
	s.exec(`select posthaste.carry_slot(1)`) // the cursor, as maintenance does
	kept("nothing, it is reclaimed next", "wait")
}

// A receiver's claim belongs to no worker: its lease determines its end.
func TestDoctorSaysThatALeaseKeepsTheRing(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	s.exec(`update posthaste.settings set slot_rows = 1, spare_slots = 15`)
	s.send(`{}`)
	s.receive()
	turn(t, s)
	s.exec(`select posthaste.carry_slot(0)`) // the cursor, as maintenance does
	until(t, "its claim is named", func() bool {
		return get[bool](s, `select coalesce(bool_or(d.message like '%claim %, received until its lease ends, is open' and d.hint like '%when the lease ends%' and d.hint not like '%worker%'), false) from posthaste.doctor() d where d."check" = 'ring'`)
	})
}

// Findings about the whole server, on a server of its own.
func TestDoctorFindingsOfTheServer(t *testing.T) {
	t.Parallel()
	url := testpg.Server(t, func(c *devpg.Config) {
		delete(c.Settings, "fsync") // an option of the command line cannot be changed
		delete(c.Settings, "full_page_writes")
		c.Settings["max_connections"] = "20"
		c.Settings["wal_sender_timeout"] = "0" // the reader of a slot here sends no status
	}).URL()
	s := begin(t, url)
	change := func(setting string) {
		s.exec(`alter system ` + setting)
		s.exec(`select pg_reload_conf()`)
	}
	for setting, level := range map[string]string{"fsync": "fault", "full_page_writes": "fault", "autovacuum": "warning"} {
		s.heals(t, "settings")
		change(`set ` + setting + ` = off`)
		s.ails(t, "settings", level, setting+" is off")
		change(`reset ` + setting)
	}
	s.heals(t, "settings")
	change(`set max_wal_size = '32MB'`)
	s.exec(`select pg_create_physical_replication_slot('idle', true)`)
	s.ails(t, "horizon", "warning", "replication slot 'idle' has no reader")

	// A session reads it and confirms nothing; max_wal_size bounds the log that it may keep.
	reader := readSlot(t, url, "idle", get[string](s, `select restart_lsn::text from pg_replication_slots`))
	until(t, "it is read", func() bool { return get[bool](s, `select active from pg_replication_slots`) })
	s.well(t, "horizon")
	for range 3 {
		s.exec(`select pg_logical_emit_message(false, '', 'x')`)
		s.exec(`select pg_switch_wal()`)
	}
	s.ails(t, "horizon", "warning", "replication slot 'idle' is read by process ")
	s.ails(t, "horizon", "warning", ", which lags: it keeps ")
	change(`set max_wal_size = '1GB'`)
	s.heals(t, "horizon")
	// A standby with hot_standby_feedback keeps old rows: here those of ten transactions, not of a
	// million.
	breakFunctions(t, url, []patch{{file: "doctor_horizon.sql", old: "r.rows > 1000000", new: "r.rows > 10", times: 2}})
	s.well(t, "horizon")
	feedBack(t, reader, get[uint32](s, `select pg_current_xact_id()::text::bigint`))
	for range 20 {
		s.exec(`select pg_current_xact_id()`)
	}
	s.ails(t, "horizon", "warning", " and the old rows of ")
	_ = reader.Close(t.Context())
	until(t, "the slot has no reader", func() bool { return !get[bool](s, `select active from pg_replication_slots`) })
	s.exec(`select pg_drop_replication_slot('idle')`)
	s.well(t, "horizon")

	for range 18 {
		connect(t, url)
	}
	s.ails(t, "settings", "warning", "19 of 20 connections are in use")
	if hints := list[string](s, `select coalesce(d.hint, '') from posthaste.doctor() d`); slices.Contains(hints, "") {
		t.Errorf("a finding without a remedy: %q", hints)
	}
}

// readSlot reads a replication slot from a position on, as a standby that never confirms any.
func readSlot(t *testing.T, url, slot, from string) *pgconn.PgConn {
	t.Helper()
	config, err := pgconn.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["replication"] = "true"
	conn, err := pgconn.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	conn.Frontend().Send(&pgproto3.Query{String: "START_REPLICATION SLOT " + slot + " PHYSICAL " + from})
	if err := conn.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := conn.ReceiveMessage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := m.(*pgproto3.CopyBothResponse); ok {
			return conn
		}
	}
}

// feedBack sends the oldest transaction whose rows a standby still needs.
func feedBack(t *testing.T, conn *pgconn.PgConn, xmin uint32) {
	t.Helper()
	data := binary.BigEndian.AppendUint64([]byte{'h'}, 0)
	for _, n := range []uint32{xmin, 0, 0, 0} { // with its epoch, and none for catalogues
		data = binary.BigEndian.AppendUint32(data, n)
	}
	conn.Frontend().Send(&pgproto3.CopyData{Data: data})
	if err := conn.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
}

// The doctor reports workers that could fill the lock table.
func TestDoctorFindsTooFewLocks(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	if n := get[int](s, `select count(*) from posthaste.doctor_server() where "check" = 'locks'`); n != 0 {
		t.Fatalf("%d findings without any worker", n)
	}
	s.exec(`insert into posthaste.registrations (name, version, lease) select 'w', 'v', '1 hour'
		from generate_series(1, current_setting('max_locks_per_transaction')::int * (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int) / 600 + 1)`)
	if hint := get[string](s, `select hint from posthaste.doctor_server() where "check" = 'locks'`); !strings.Contains(hint, "max_locks_per_transaction to ") {
		t.Errorf("the doctor hints %q", hint)
	}
}

// JB2: messages of a kind that no running worker handles are found, and not those of a kind that
// one handles.
func TestJB2_UnknownKinds(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	old := s.knows("mail")
	old.takes(10, s.send(`{"kind": "sms"}`))
	s.well(t, "kinds")
	s.exec(`set posthaste.patience = '1 millisecond'`)
	s.ails(t, "kinds", "warning", "messages of kind 'sms' in subscription 'default' of queue 'q' wait for a worker that handles this kind (1 of them")
	if hints := list[string](s, `select hint from posthaste.doctor() where "check" = 'behind'`); len(hints) != 1 || !strings.Contains(hints[0], "see the finding kinds") {
		t.Errorf("for the subscription that falls behind it hints %q", hints)
	}
	new := s.knows("sms")
	s.well(t, "kinds")
	new.takes(10)
	s.heals(t, "kinds")
}
