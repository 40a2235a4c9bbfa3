package ledger_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/testpg"
	ledger "github.com/posthaste-mq/posthaste/sql"
)

// interfaceOf names the role of every function that a role may execute. A new function
// with the rights of its owner needs a decision here, if only that it is inner: an empty
// role. All other functions are inner, and only their owner may execute them.
var interfaceOf = map[string]string{
	"send": "sender", "send_bytes": "sender", "send_many": "sender", "send_row": "sender", "send_rows": "sender", "send_told": "sender", "send_unique": "sender",
	"idempotency_begin": "sender", "idempotency_end": "sender",

	"receive": "receiver", "receive_rows": "receiver", "ack": "receiver", "fail": "receiver", "release": "receiver", "extend": "receiver", "checkpoint": "receiver", "progress": "receiver", "note": "receiver", "message": "receiver",
	"worker_register": "receiver", "worker_heartbeat": "receiver", "worker_look": "receiver", "worker_unregister": "receiver",
	"worker_unsettled": "receiver", "warm_up": "receiver", "arm": "receiver", "bell_key": "receiver", "doze_key": "receiver", "lock_key": "receiver",
	"claim": "receiver", "fetch": "receiver", "settle": "receiver", "rescue": "receiver", "maintain": "receiver",

	"create_queue": "admin", "drop_queue": "admin", "pause_queue": "admin", "resume_queue": "admin", "update_queue": "admin", "pause_key": "admin", "pause_kind": "admin", "resume_kind": "admin", "resume_key": "admin", "list_messages": "admin", "list_dead_letters": "admin", "replay": "admin", "discard": "admin", "list_actions": "admin", "list_pauses": "admin",
	"report_stats": "receiver", "list_stats": "admin", "list_failures": "admin", "list_samples": "admin",
	"not_here": "sender",
	"cancel":   "admin", "reschedule": "admin", "update_message": "admin", "edit_message": "admin", "run_message": "admin", "purge": "admin", "subscribe": "admin", "unsubscribe": "admin",
	"check_identity": "",
	"schedule_put":   "admin", "schedule_drop": "admin", "schedule_pause": "admin", "schedule_resume": "admin", "schedule_run": "admin", "schedule_next": "admin",
	"tick": "receiver", "tick_in": "receiver", "rescue_in": "receiver",
	"token_add": "admin", "token_drop": "admin", "token_hashes": "admin", "delivery_queues": "admin",
	"doctor": "admin", "rebase": "admin", "erase": "admin", "give_up": "admin", "oldest_slot": "admin", "vitals": "admin",

	// Views call them with the rights of the role that reads the view.
	"message_state": "admin", "oldest_waiting": "admin", "set_aside": "admin", "all_headers": "admin", "texts_of": "admin", "is_for": "admin", "passes": "admin", "rate_option": "admin", "kinds_option": "admin", "worker_overdue": "admin",
	"upcoming_ticks": "admin", "next_tick": "admin", "cron_wall": "admin", "wall_time": "admin", "zone_change": "admin",
}

// inherits says which roles' rights a role has.
var inherits = map[string][]string{
	"posthaste_sender": {"sender"}, "posthaste_receiver": {"receiver"}, "posthaste_admin": {"sender", "receiver", "admin"}, "public": nil,
}

type catalogued struct {
	Name, Signature, Call string
	Definer               bool
}

// catalogue lists the functions with a call of each, all arguments null.
func catalogue(s *session) []catalogued {
	s.t.Helper()
	s.exec(`set search_path = pg_catalog`) // so that types are told with their schema
	rows, err := s.Query(s.t.Context(), `
		select p.proname, p.oid::regprocedure::text,
		       format('select from posthaste.%I(%s)', p.proname, coalesce((select string_agg('null::' || regexp_replace(format_type(a, null), '^any(element|compatible)$', 'text'), ', ' order by n)
		              from unnest(p.proargtypes) with ordinality x (a, n)), '')), p.prosecdef
		  from pg_proc p where p.pronamespace = 'posthaste'::regnamespace and p.prokind = 'f' order by 1`)
	if err != nil {
		s.t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[catalogued])
	if err != nil || len(all) < 80 {
		s.t.Fatalf("%d functions, %v", len(all), err)
	}
	return all
}

// attempt runs a statement as a role and undoes it. It returns the SQLSTATE.
func (s *session) attempt(role, sql string) string {
	s.t.Helper()
	if role == "public" {
		role = "pg_monitor" // a role without rights of Posthaste
	}
	s.exec(`begin`)
	defer s.exec(`rollback`)
	s.exec(`set local role ` + role)
	s.exec(`set local statement_timeout = '10s'`)
	return s.code(sql)
}

const denied = "42501"

// Every function is for some role, and no other role may call it.
func TestRolesMayCallWhatIsForThem(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	unknown := maps.Clone(interfaceOf)
	refusals := 0
	for _, f := range catalogue(s) {
		whose, decided := interfaceOf[f.Name]
		delete(unknown, f.Name)
		if f.Definer && !decided {
			t.Errorf("%s runs with its owner's rights, and nothing says whom it is for: add it to interfaceOf, or leave security definer out", f.Signature)
		}
		for role, has := range inherits {
			allowed := slices.Contains(has, whose)
			may := role != "public" && get[bool](s, `select has_function_privilege($1, $2::regprocedure, 'execute')`, role, f.Signature)
			switch {
			case may && !allowed:
				t.Errorf("%s may call %s, and that is for %q: add it to interfaceOf, or take it out of grants.sql", role, f.Signature, whose)
			case !may && allowed && role != "public":
				t.Errorf("%s may not call %s, which is for %q", role, f.Signature, whose)
			case !allowed:
				if code := s.attempt(role, f.Call); code != denied {
					t.Errorf("%s: %s ended with %q, want %s", role, f.Call, code, denied)
				}
				refusals++
			}
		}
	}
	for name := range unknown {
		t.Errorf("interfaceOf names %s, which does not exist", name)
	}
	if refusals < 700 {
		t.Errorf("only %d calls were refused", refusals)
	}
}

// A schema from before a function became inner has a right on it, which migrating revokes. A right
// of a user's own role stays.
func TestMigratingTakesBackRights(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	s.exec(`grant execute on all functions in schema posthaste to posthaste_admin`)
	s.exec(`grant execute on function posthaste.drop_queue(text, text, boolean) to posthaste_sender, pg_monitor`)
	grants, err := ledger.Files.ReadFile("grants.sql")
	if err != nil {
		t.Fatal(err)
	}
	s.exec(string(grants))
	for _, c := range []struct {
		role, function string
		may            bool
	}{
		{"posthaste_admin", "truncate_slot(int, bigint[], boolean)", false},
		{"posthaste_sender", "drop_queue(text, text, boolean)", false},
		{"posthaste_admin", "drop_queue(text, text, boolean)", true},
		{"pg_monitor", "drop_queue(text, text, boolean)", true},
	} {
		if got := get[bool](s, `select has_function_privilege($1, $2::regprocedure, 'execute')`, c.role, "posthaste."+c.function); got != c.may {
			t.Errorf("%s may execute %s: %v, want %v", c.role, c.function, got, c.may)
		}
	}
}

// The admin reads every column of every view, with rows that make the views call all functions that
// they can call. A query without a column needs no right on its functions.
func TestAdminsReadAllOfTheViews(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	s.exec(`select posthaste.create_queue('orders', '{"rate_limit": {"limit": 5, "per": "1 second"}}')`)
	s.exec(`select posthaste.subscribe('orders', 'letters', '{"filter": {"kind": "letter", "headers": {"to": ["ada"]}}}')`)
	s.exec(`select posthaste.send('orders', '1', '{"kind": "letter", "headers": {"to": "ada"}, "terms": ["ada"]}'), posthaste.send('orders', '2', '{"delay": "1 hour"}')`)
	// On one of the Sundays of March, clocks are set forward over this time.
	s.exec(`select posthaste.schedule_put('nightly', 'orders', '30 2 * 3 0', '3', '{"time_zone": "Europe/Berlin"}')`)
	s.exec(`select posthaste.worker_register('w', 'v1', interval '1 minute')`)
	s.exec(`select posthaste.token_add('t', '{send}'), posthaste.pause_queue('orders')`)
	s.exec(`set role posthaste_admin`)
	for _, view := range list[string](s, `select relname::text from pg_class where relnamespace = 'posthaste'::regnamespace and relkind = 'v' order by 1`) {
		rows := get[int](s, `select count(v.*)::int from posthaste.`+view+` v`)
		if rows == 0 && view != "dead_letters" {
			t.Errorf("the view %s has no rows", view)
		}
		s.exec(`select * from posthaste.` + view)
	}
}

// The other functions that the admin may call change nothing: they run with the admin's own rights,
// which only allow reading.
func TestAdminsReadAndChangeNothingByHand(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	for _, c := range []string{
		`select posthaste.truncate_slot(1)`,
		`select posthaste.insert_entries(array['q'], array['x'::bytea], null, null, null, null, null, null, null, null, null, false)`,
		`create table posthaste.mine ()`, `alter table posthaste.entries disable trigger all`,
		`drop function posthaste.send(text, jsonb, jsonb)`, `select nextval('posthaste.positions')`, `select setval('posthaste.positions', 1)`,
	} {
		if code := s.attempt("posthaste_admin", c); code == "" {
			t.Errorf("posthaste_admin may do: %s", c)
		}
	}
}

// rightsOn returns the rights of a role on a relation, if it may do anything.
func rightsOn(role, relation, kind string) (rights []string) {
	switch {
	case role == "public":
	case relation == "migrations":
		rights = append(rights, "select")
	case role == "posthaste_admin" && kind != "S":
		rights = append(rights, "select")
	}
	return rights
}

// No role reads or writes a table, a view or a sequence of the schema except for the rights listed
// here.
func TestRolesMayTouchNoTables(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	type relation struct {
		Name, Kind string
		Columns    []string
	}
	rows, err := s.Query(t.Context(), `
		select c.relname::text, c.relkind::text, coalesce(array(select a.attname::text from pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped), '{}')
		  from pg_class c where c.relnamespace = 'posthaste'::regnamespace and c.relkind in ('r', 'p', 'v', 'm', 'S', 'f') order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	relations, err := pgx.CollectRows(rows, pgx.RowToStructByPos[relation])
	if err != nil || len(relations) < 80 {
		t.Fatalf("%d relations, %v", len(relations), err)
	}
	for _, r := range relations {
		for role := range inherits {
			rights := rightsOn(role, r.Name, r.Kind)
			name := pgx.Identifier{"posthaste", r.Name}.Sanitize()
			may := func(what, sql string, want bool) {
				t.Helper()
				// Denied, or not applicable to such a relation: 42809, 55000, 0A000.
				if got := s.attempt(role, sql); (got == "") != want && !(want && got != denied) {
					t.Errorf("%s may %s %s: %q, want it allowed: %v", role, what, r.Name, got, want)
				}
			}
			may("read", `select from `+name, slices.Contains(rights, "select"))
			may("empty", `truncate `+name, false)
			may("delete from", `delete from `+name, false)
			if r.Kind != "S" && role != "public" {
				var column, verb string
				var may bool
				rows, err := s.Query(t.Context(), `select c, v, has_column_privilege($1, $2, c, v) from unnest($3::text[]) c, unnest(array['insert', 'update', 'references']) v`, role, name, r.Columns)
				if err == nil {
					_, err = pgx.ForEachRow(rows, []any{&column, &verb, &may}, func() error {
						if may {
							t.Errorf("%s may %s %s.%s: %v", role, verb, r.Name, column, may)
						}
						return nil
					})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if r.Kind == "S" {
				may("advance", fmt.Sprintf(`select nextval('posthaste.%s')`, r.Name), false)
				may("set", fmt.Sprintf(`select setval('posthaste.%s', 1)`, r.Name), false)
			}
		}
	}
	for role := range inherits {
		if code := s.attempt(role, `create table posthaste.mine ()`); code != denied {
			t.Errorf("%s may make tables in the schema: %q", role, code)
		}
	}
}

// The tests of roles have an effect: they find each of these superfluous rights.
func TestRightsTooManyAreSeen(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	for _, c := range []struct{ grant, role, sql string }{
		{`grant execute on function posthaste.drop_queue(text, text, boolean) to posthaste_sender`, "posthaste_sender", `select posthaste.drop_queue('q')`},
		{`grant execute on function posthaste.token_add(text, text[], anycompatible, text) to public`, "public", `select posthaste.token_add('x', '{admin}')`},
		{`grant insert (xid, pos, queue_id, payload) on posthaste.entries_plain to posthaste_sender`, "posthaste_sender", `insert into posthaste.entries_plain (xid, pos, queue_id, payload) values ('3', 1, 1, '')`},
		{`grant select on posthaste.issued_tokens to posthaste_receiver`, "posthaste_receiver", `select from posthaste.issued_tokens`},
	} {
		if code := s.attempt(c.role, c.sql); code != denied {
			t.Errorf("before %s: %q", c.grant, code)
		}
		s.exec(`begin`)
		s.exec(`grant usage on schema posthaste to pg_monitor`)
		s.exec(c.grant)
		role := c.role
		if role == "public" {
			role = "pg_monitor"
		}
		s.exec(`set local role ` + role)
		if code := s.code(c.sql); code == denied {
			t.Errorf("after %s it is still denied", c.grant)
		}
		s.exec(`rollback`)
	}
}

// The default actor is the session's user: a role set by SET ROLE, or the owner whose rights a
// function has, would hide the actor.
func TestWhoAskedIsTheSessionsUser(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	for _, f := range list[string](s, `select p.oid::regprocedure || ' ' || pg_get_function_arguments(p.oid) from pg_proc p
		where p.pronamespace = 'posthaste'::regnamespace and pg_get_function_arguments(p.oid) ~ '\mby text\M'`) {
		if !strings.Contains(f, "by text DEFAULT SESSION_USER") {
			t.Errorf("%s", f)
		}
	}
	s.exec(`set role posthaste_admin`)
	s.exec(`select posthaste.pause_queue('q'), posthaste.resume_queue('q', null)`)
	s.exec(`select posthaste.subscribe('q', 's'), posthaste.unsubscribe('q', 's', null), posthaste.purge('q')`)
	s.exec(`select posthaste.cancel(posthaste.send('q', '1')), posthaste.pause_queue('q', 'ada')`)
	s.exec(`reset role`)
	if got := list[string](s, `select distinct case by when session_user then 'me' else by end from posthaste.actions order by 1`); !slices.Equal(got, []string{"ada", "me"}) {
		t.Errorf("on record are %v", got)
	}
}
