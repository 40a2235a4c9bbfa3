package ledger_test

import (
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/testpg"
	ledger "github.com/posthaste-mq/posthaste/sql"
)

// TestPublicFunctionsHaveOneStyle: parameters of public functions have clean names, because callers
// write them in named notation, and the same in all overloads. No function returns void, on which
// some clients fail.
func TestPublicFunctionsHaveOneStyle(t *testing.T) {
	t.Parallel()
	s := connect(t, testpg.New(t))
	public := publicFunctions(t)
	if len(public) < 30 {
		t.Fatalf("only %d public functions", len(public))
	}
	s.exec(`create view public.parameters as
		select p.oid, p.proname, p.pronargs, p.prorettype, u.n, u.name, p.proargtypes[u.n - 1] as type
		  from pg_proc p left join lateral unnest(p.proargnames, p.proargmodes) with ordinality u (name, mode, n) on u.mode in ('i', 'b') or u.mode is null
		 where p.pronamespace = 'posthaste'::regnamespace`)
	for what, query := range map[string]string{
		"a parameter with a prefix, or without a name": `select distinct proname || ': ' || coalesce(name, '') from public.parameters
			where proname = any ($1) and pronargs > 0 and coalesce(name, '') !~ '^(?!(p|v|in|with|of)_)[a-z_]+$'`,
		"a parameter of type integer or smallint, which a bigint of a client does not fit": `select distinct proname || ': ' || name from public.parameters
			where proname = any ($1) and type in ('int'::regtype, 'smallint'::regtype)`,
		"a void result": `select distinct proname from public.parameters where proname = any ($1) and prorettype = 'void'::regtype`,
		"overloads with different names": `select proname from (
			select distinct proname, oid, array_agg(name order by n) as names from public.parameters where proname = any ($1) group by 1, 2) x
			group by 1 having count(distinct names) > 1`,
	} {
		if found := list[string](s, query, public); len(found) > 0 {
			t.Errorf("%s: %q", what, found)
		}
	}
}

// publicFunctions are the names of the functions of class public in grants.sql.
func publicFunctions(t *testing.T) (names []string) {
	t.Helper()
	for _, m := range publicGrant.FindAllStringSubmatch(grantsText(t), -1) {
		names = append(names, m[1])
	}
	return names
}

var publicGrant = regexp.MustCompile(`\('public', '[a-z_]+', '([a-z_]+)'\)`)

func grantsText(t *testing.T) string {
	t.Helper()
	text, err := ledger.Files.ReadFile("grants.sql")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// kindOfArgument lists the types in which drivers bind an argument of a kind. A literal and an untyped
// parameter are of type unknown.
var kindOfArgument = map[string][]string{
	"text":     {"unknown", "varchar"},
	"json":     {"unknown", "text", "varchar", "json", "jsonb"},
	"id":       {"unknown", "int2", "int4", "int8"},
	"ids":      {"unknown", "unknown[]", "int2", "int4", "int8", "int2[]", "int4[]", "int8[]", "text", "varchar"},
	"array":    {"unknown[]", "int2[]", "int4[]", "int8[]"},
	"texts":    {"unknown[]", "text[]", "varchar[]"},
	"bytes":    {"unknown", "bytea"},
	"interval": {"unknown", "interval"},
	"moment":   {"unknown", "timestamptz"},
	"flag":     {"unknown", "bool"},
	"number":   {"unknown", "numeric", "float4", "float8"},
}

type argument struct{ name, kind, value string }

// documentedCall is a call of a public function: the arguments that are needed, the others, and the
// error that the example's values may have. The arguments of a split call are not neighbors.
type documentedCall struct {
	function         string
	needed, optional []argument
	errors           string
	split            bool
}

var documentedCalls = []documentedCall{
	{function: "send", needed: []argument{queueArgument, {"payload", "json", `{"a": 1}`}}, optional: []argument{{"options", "json", `{"key": "k"}`}}},
	{function: "send_unique", needed: []argument{queueArgument, {"payload", "json", `{"a": 1}`}}, optional: []argument{{"options", "json", `{"unique": {"key": "k"}}`}}},
	{function: "send_bytes", needed: []argument{queueArgument, {"payload", "bytes", `\x00`}}, optional: []argument{{"options", "json", `{"key": "k"}`}}},
	{function: "send_many", needed: []argument{queueArgument, {"messages", "json", `[{"payload": 1}]`}}, optional: []argument{{"options", "json", `{"key": "k"}`}}},
	{function: "receive", needed: []argument{queueArgument}, optional: []argument{{"max", "id", "1"}, {"lease", "interval", "1 minute"}, {"options", "json", `{"subscription": "default"}`}}},
	{function: "ack", needed: []argument{{"delivery_ids", "ids", "5"}}, optional: []argument{{"options", "json", `{"wake": false}`}}},
	{function: "release", needed: []argument{{"delivery_ids", "ids", "5"}}, optional: []argument{{"options", "json", `{"after": "1 second"}`}}},
	{function: "checkpoint", needed: []argument{{"delivery_id", "id", "5"}, {"value", "json", `{"a": 1}`}}, optional: []argument{{"options", "json", `{}`}}, errors: "PH409"},
	{function: "progress", needed: []argument{{"delivery_id", "id", "5"}, {"progress", "number", "0.5"}}, optional: []argument{{"progress_text", "text", "half"}, {"options", "json", `{}`}}, errors: "PH409"},
	{function: "extend", needed: []argument{{"delivery_ids", "ids", "5"}, {"lease", "interval", "1 minute"}}, optional: []argument{{"options", "json", `{"strict": false}`}}},
	{function: "fail", needed: []argument{{"delivery_id", "id", "5"}, {"error", "text", "no"}}, optional: []argument{{"options", "json", `{"permanent": true}`}}},
	{function: "message", needed: []argument{{"message_id", "id", "5"}}, errors: "PH404"},
	{function: "cancel", needed: []argument{{"message_id", "id", "5"}}, optional: []argument{byArgument}, errors: "PH404"},
	{function: "reschedule", needed: []argument{{"message_id", "id", "5"}, {"send_at", "moment", "2999-01-01 00:00:00+00"}}, optional: []argument{byArgument}, errors: "PH404"},
	{function: "update_message", needed: []argument{{"message_id", "id", "5"}, {"changes", "json", `{"kind": "k"}`}}, optional: []argument{{"version", "text", "v"}, byArgument}, errors: "PH404"},
	{function: "run_message", needed: []argument{{"message_id", "id", "5"}}, optional: []argument{byArgument}, errors: "PH404"},
	{function: "replay", optional: []argument{{"message_ids", "ids", "5"}, byArgument}, errors: "PH404"},
	{function: "replay", optional: []argument{byArgument, {"filter", "json", `{"all": true}`}, {"before", "id", "5"}, {"max", "id", "5"}}, errors: "PH400", split: true},
	{function: "discard", optional: []argument{{"message_ids", "ids", "5"}, byArgument}, errors: "PH404"},
	{function: "discard", optional: []argument{byArgument, {"filter", "json", `{"kind": "k"}`}, {"before", "id", "5"}, {"max", "id", "5"}}, errors: "PH400", split: true},
	{function: "list_dead_letters", optional: []argument{{"filter", "json", `{"kind": "k"}`}, {"message_ids", "array", "5"}, {"before", "id", "5"}, {"max", "id", "5"}}},
	{function: "list_messages", optional: []argument{queueArgument, {"reference", "text", "r"}, {"term", "text", "t"}, {"state", "text", "done"}, {"before", "id", "5"}, {"max", "id", "5"}, {"key", "text", "k"}, {"kind", "text", "k"}, {"created_from", "moment", "2030-01-01 00:00:00+00"}}},
	{function: "list_actions", optional: []argument{queueArgument, {"message_id", "id", "5"}, {"before", "id", "5"}, {"max", "id", "5"}}},
	{function: "list_stats", optional: []argument{queueArgument, {"subscription", "text", "s"}, {"kind", "text", "k"}, {"time_from", "moment", "2030-01-01 00:00:00+00"}, {"time_before", "moment", "2030-01-02 00:00:00+00"}, {"step", "interval", "1 hour"}, {"group_by", "texts", "kind"}}},
	{function: "list_failures", optional: []argument{queueArgument, {"subscription", "text", "s"}, {"kind", "text", "k"}, {"time_from", "moment", "2030-01-01 00:00:00+00"}, {"max", "id", "5"}}},
	{function: "list_samples", optional: []argument{{"queues", "texts", "q"}, {"total", "flag", "true"}, {"time_from", "moment", "2030-01-01 00:00:00+00"}, {"time_before", "moment", "2030-01-02 00:00:00+00"}, {"step", "interval", "1 hour"}}},
	{function: "create_queue", needed: []argument{{"queue", "text", "new"}}, optional: []argument{{"options", "json", `{"lanes": 2}`}, byArgument}},
	{function: "update_queue", needed: []argument{queueArgument, {"options", "json", `{"concurrency": 2}`}}, optional: []argument{byArgument}},
	{function: "list_pauses", optional: []argument{queueArgument, {"before", "id", "5"}, {"max", "id", "5"}}},
	{function: "pause_queue", needed: []argument{queueArgument}, optional: []argument{byArgument, {"reason", "text", "why"}, {"until", "moment", "2030-01-01 00:00:00+00"}}},
	{function: "resume_queue", needed: []argument{queueArgument}, optional: []argument{byArgument}},
	{function: "drop_queue", needed: []argument{queueArgument}, optional: []argument{byArgument, {"if_empty", "flag", "true"}}},
	{function: "pause_key", needed: []argument{queueArgument, {"key", "text", "k"}}, optional: []argument{byArgument, {"reason", "text", "why"}, {"until", "moment", "2030-01-01 00:00:00+00"}}, errors: "PH501"},
	{function: "pause_kind", needed: []argument{queueArgument, {"kind", "text", "k"}}, optional: []argument{byArgument, {"reason", "text", "why"}, {"until", "moment", "2030-01-01 00:00:00+00"}}},
	{function: "resume_kind", needed: []argument{queueArgument, {"kind", "text", "k"}}, optional: []argument{byArgument}},
	{function: "resume_key", needed: []argument{queueArgument, {"key", "text", "k"}}, optional: []argument{byArgument}, errors: "PH501"},
	{function: "subscribe", needed: []argument{queueArgument, {"subscription", "text", "s"}}, optional: []argument{{"options", "json", `{"from": "now"}`}, byArgument}},
	{function: "unsubscribe", needed: []argument{queueArgument, {"subscription", "text", "s"}}, optional: []argument{byArgument, {"if_empty", "flag", "true"}}, errors: "PH404"},
	{function: "purge", needed: []argument{queueArgument}, optional: []argument{byArgument}},
	{function: "schedule_put", needed: []argument{{"name", "text", "n"}, queueArgument, {"spec", "text", "@daily"}}, optional: []argument{{"payload", "json", `{"a": 1}`}, {"options", "json", `{"kind": "k"}`}, byArgument}},
	{function: "schedule_drop", needed: []argument{{"name", "text", "n"}}, optional: []argument{byArgument}, errors: "PH404"},
	{function: "schedule_pause", needed: []argument{{"name", "text", "n"}}, optional: []argument{byArgument, {"reason", "text", "why"}, {"until", "moment", "2030-01-01 00:00:00+00"}}, errors: "PH404"},
	{function: "schedule_resume", needed: []argument{{"name", "text", "n"}}, optional: []argument{byArgument}, errors: "PH404"},
	{function: "schedule_run", needed: []argument{{"name", "text", "n"}}, optional: []argument{byArgument}, errors: "PH404"},
	{function: "schedule_next", needed: []argument{{"spec", "text", "@daily"}}, optional: []argument{{"time_zone", "text", "UTC"}, {"after", "moment", "2030-01-01 00:00:00+00"}}},
	{function: "token_add", needed: []argument{{"name", "text", "n"}, {"scopes", "texts", "send"}}, optional: []argument{{"options", "json", `{"queues": ["q"]}`}, byArgument}},
	{function: "token_drop", needed: []argument{{"name", "text", "n"}}, optional: []argument{byArgument}, errors: "PH404"},
	{function: "erase", needed: []argument{{"term", "text", "t"}}, optional: []argument{byArgument, {"before", "id", "5"}, {"max", "id", "5"}}},
	{function: "give_up", needed: []argument{{"claim", "id", "5"}}, optional: []argument{byArgument, {"unnamed_too", "flag", "true"}}, errors: "PH409"},
	{function: "rebase", optional: []argument{{"same_ids", "flag", "false"}, byArgument}},
}

var (
	queueArgument = argument{"queue", "text", "q"}
	byArgument    = argument{"by", "text", "ada"}
)

// written returns an argument as a type as it stands in a statement, or as EXECUTE takes it.
func (a argument) written(kind string, prepared bool) string {
	value := "'" + strings.ReplaceAll(a.value, "'", "''") + "'"
	if base, array := strings.CutSuffix(kind, "[]"); array {
		if value = "'{" + a.value + "}'"; base == "unknown" {
			return value
		}
	}
	if prepared || kind == "unknown" {
		return value
	}
	return value + "::" + kind
}

// resolved prepares a call with parameters of these types, and runs it if that is wanted. It
// returns the code of the error. Named arguments are written in reverse order.
func (s *session) resolved(function string, arguments []argument, types []string, named, parameters, run bool) string {
	var list, declared, given []string
	for n, a := range arguments {
		x := a.written(types[n], false)
		if parameters {
			x = fmt.Sprintf("$%d", n+1)
			declared = append(declared, strings.Replace(types[n], "unknown[]", "unknown", 1))
			given = append(given, a.written(types[n], true))
		}
		if named {
			x = a.name + " => " + x
		}
		list = append(list, x)
	}
	if named {
		slices.Reverse(list)
	}
	header, execute := "prepare c", "execute c"
	if len(declared) > 0 {
		header += "(" + strings.Join(declared, ", ") + ")"
		execute += "(" + strings.Join(given, ", ") + ")"
	}
	s.exec("begin")
	defer s.exec("rollback; deallocate all")
	code := s.code(header + " as select * from posthaste." + function + "(" + strings.Join(list, ", ") + ")")
	if code == "" && run {
		code = s.code(execute)
	}
	return code
}

// combinations returns every choice of types for the arguments.
func combinations(arguments []argument) (out [][]string) {
	out = [][]string{nil}
	for _, a := range arguments {
		var longer [][]string
		for _, head := range out {
			for _, kind := range kindOfArgument[a.kind] {
				longer = append(longer, append(slices.Clone(head), kind))
			}
		}
		out = longer
	}
	return out
}

// typed reports how many arguments are typed.
func typed(types []string) (n int) {
	for _, kind := range types {
		if !strings.HasPrefix(kind, "unknown") {
			n++
		}
	}
	return n
}

// TestEveryCallWorksAsDriversBind: each documented call resolves to one function for literals,
// untyped parameters and parameters of all types that drivers give them, positional and named.
// A call with at most one typed argument is also run.
func TestEveryCallWorksAsDriversBind(t *testing.T) {
	t.Parallel()
	covered := map[string]bool{"maintain": true, "tick": true, "rescue": true, "doctor": true, "vitals": true, "oldest_slot": true} // without arguments
	for _, c := range documentedCalls {
		covered[c.function] = true
	}
	for _, name := range publicFunctions(t) {
		if !covered[name] {
			t.Errorf("no call of posthaste.%s is tried", name)
		}
	}
	for _, c := range documentedCalls {
		t.Run(c.function, func(t *testing.T) {
			t.Parallel()
			for problem := range c.problems(begin(t, testpg.New(t))) {
				t.Error(problem)
			}
		})
	}
}

// problems tries a call in all ways and yields those that fail.
func (c *documentedCall) problems(s *session) iter.Seq[string] {
	s.t.Helper()
	return func(yield func(string) bool) {
		for w := range c.ways() {
			if code := s.resolved(c.function, w.arguments, w.types, w.named, w.parameters, w.run); code != "" && code != c.errors {
				if !yield(fmt.Sprintf("%s(%v) as %q, named %t, parameters %t: %s", c.function, w.arguments, w.types, w.named, w.parameters, code)) {
					return
				}
			}
		}
	}
}

// way is a way to write a call.
type way struct {
	arguments              []argument
	types                  []string
	named, parameters, run bool
}

// ways yields the ways to write a call.
func (c *documentedCall) ways() iter.Seq[way] {
	all := append(slices.Clone(c.needed), c.optional...)
	first := c.needed
	if len(first) == 0 {
		first = c.optional[:1]
	}
	return func(yield func(way) bool) {
		for _, types := range combinations(first) {
			if !yield(way{first, types, false, true, true}) {
				return
			}
		}
		for _, types := range combinations(all) {
			for _, parameters := range []bool{false, true} {
				if !yield(way{all, types, true, parameters, typed(types) <= 1}) || !c.split && !yield(way{all, types, false, parameters, false}) {
					return
				}
			}
		}
		for _, extra := range c.optional {
			some := append(slices.Clone(c.needed), extra)
			for _, types := range combinations(some) {
				if !yield(way{some, types, true, true, false}) {
					return
				}
			}
		}
	}
}

// Each overload is needed: without it some of the calls fail.
func TestCallsNeedEachOverload(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	type overload struct{ Name, Signature string }
	rows, err := s.Query(t.Context(), `
		select p.proname, p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'posthaste'::regnamespace
		   and p.proname = any ($1) and 1 < (select count(*) from pg_proc o where o.pronamespace = p.pronamespace and o.proname = p.proname)`, publicFunctions(t))
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[overload])
	if err != nil || len(all) < 15 {
		t.Fatalf("%d overloads, %v", len(all), err)
	}
	for _, o := range all {
		t.Run(o.Signature, func(t *testing.T) {
			t.Parallel()
			s := begin(t, testpg.New(t))
			s.exec(`drop function ` + o.Signature)
			for _, c := range documentedCalls {
				if c.function != o.Name {
					continue
				}
				for range c.problems(s) {
					return
				}
			}
			t.Error("all calls work without it")
		})
	}
}

// A message is the same in whichever type its JSON was given.
func TestAnyTypeOfJSONIsTheSameMessage(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	const payload, options = `{"b": [1, "x"], "a": 9007199254740993}`, `{"key": "k", "headers": {"h": "v"}}`
	types := kindOfArgument["json"]
	for _, body := range types {
		for _, more := range types {
			s.exec(`select posthaste.send('q', ` + argument{"", "", payload}.written(body, false) + `, ` + argument{"", "", options}.written(more, false) + `)`)
		}
		s.exec(`select posthaste.send_many('q', ` + argument{"", "", `[` + `{"payload": ` + payload + `}]`}.written(body, false) + `, ` + argument{"", "", options}.written(body, false) + `)`)
	}
	want := len(types) * (len(types) + 1)
	if n := get[int](s, `select count(*)::int from posthaste.receive('q', 1000, '1 hour')
		where payload_json = $1::jsonb and payload is null and key = 'k' and headers = '{"h": "v"}'`, payload); n != want {
		t.Errorf("%d of %d messages arrived as they were sent", n, want)
	}
}

// JSON comes as JSON and everything else as bytes; bytes that claim to be JSON, which only a client's
// own mistake can send, do not stop the queue.
func TestRulePayloadsComeInTheirOwnColumn(t *testing.T) {
	examine := func(t *testing.T, url string) string {
		s := begin(t, url)
		for _, m := range []struct{ payload, contentType string }{
			{`{"a":1}`, "application/json"}, {`[1]`, "application/vnd.x+json; v=1"}, {`null`, "application/json"}, {`{"a":1}`, "text/plain"}, {"\xff\x00", "application/octet-stream"},
			{`{broken`, "application/json"}, {"\"\xff\"", "application/json"}, {`"\u0000"`, "application/json"}, {strings.Repeat("[", 1e5), "application/json"},
		} {
			s.exec(`select posthaste.send_row('q', $1, $2, null, null, null, null, null, null, null, null, true)`, []byte(m.payload), m.contentType)
		}
		_, err := s.Exec(t.Context(), `create temporary table came as select row_number() over (order by message_id) as n, payload_json, payload from posthaste.receive('q', 1000, '1 hour')`)
		if err != nil {
			return "nothing can be received: " + err.Error()
		}
		got := list[string](s, `select coalesce(payload_json::text, '-') || ' ' || coalesce(length(payload)::text, '-') from came order by n`)
		want := []string{`{"a": 1} -`, `[1] -`, `null -`, `- 7`, `- 2`, `- 7`, `- 3`, `- 8`, `- 100000`}
		if !slices.Equal(got, want) {
			t.Fatalf("received %q, want %q", got, want)
		}
		return ""
	}
	rule(t, examine, without("keeping it as bytes", patch{file: "split_payload.sql", old: "exception when data_exception or syntax_error or program_limit_exceeded then\n  payload := p_payload;", new: "exception when division_by_zero then null;"}))
}

// Without a lease a receive holds for the queue's timeout, and without a number it is one message.
func TestReceiveHasDefaults(t *testing.T) {
	t.Parallel()
	s := connect(t, testpg.New(t))
	for queue, timeout := range map[string]string{"short": "7 minutes", "long": "30 days"} {
		s.exec(`select posthaste.create_queue($1, jsonb_build_object('timeout', $2::text))`, queue, timeout)
		s.exec(`select posthaste.send($1, '1') from generate_series(1, 2)`, queue)
		s.exec(`select from posthaste.receive($1)`, queue)
		held := get[string](s, `select case when until > clock_timestamp() + interval '11 hours' then 'long' when until < clock_timestamp() + interval '7 minutes' then 'short' end
			from posthaste.leases order by xid desc limit 1`)
		if held != queue {
			t.Errorf("the lease of %s is another: %q", queue, held)
		}
	}
}

// A call that names nothing, or a day instead of a time, is refused, and nothing changes.
func TestNothingAndTomorrowAreRefused(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	id := s.send(`{"delay": "1 hour"}`)
	for _, c := range []struct{ call, field string }{
		{`posthaste.replay(filter => '{}')`, "filter"}, {`posthaste.discard(filter => '{}'::json)`, "filter"}, {`posthaste.list_dead_letters('{}')`, "filter"},
		{`posthaste.replay()`, "message_ids"}, {`posthaste.discard(null)`, "message_ids"}, {`posthaste.replay('x')`, "message_ids"}, {`posthaste.replay('')`, "message_ids"},
		{`posthaste.subscribe('q', 's', '{"filter": {}}')`, "filter"}, {`posthaste.erase('')`, "term"},
		{`posthaste.ack(null)`, "delivery_ids"}, {`posthaste.ack('{5,x}')`, "delivery_ids"}, {`posthaste.ack('{5,null}')`, "delivery_ids"}, {`posthaste.ack('9223372036854775808')`, "delivery_ids"},
	} {
		if pg := s.refusal(`select * from ` + c.call); pg == nil || pg.Code != "PH400" || pg.ColumnName != c.field {
			t.Errorf("%s: %v", c.call, pg)
		}
	}
	for _, special := range []string{"tomorrow", "now", "today", "yesterday", "epoch", "infinity", "-infinity", "allballs", "2030-01-01", "2030-01-01 12:00", "", "January 8, 2030 12:00 UTC"} {
		for call, args := range map[string][]any{
			`posthaste.send('q', '1', jsonb_build_object('send_at', $1::text))`:                                  {special},
			`posthaste.token_add('t', '{send}', jsonb_build_object('expires_at', $1::text))`:                     {special},
			`posthaste.list_dead_letters(jsonb_build_object('queue', 'q', 'died_from', $1::text))`:               {special},
			`posthaste.send_many('q', jsonb_build_array(jsonb_build_object('payload', 1, 'send_at', $1::text)))`: {special},
		} {
			if code := s.code(`select * from `+call, args...); code != "PH400" {
				t.Errorf("%s of %q: %q, want PH400", call, special, code)
			}
		}
	}
	if state := get[string](s, `select state from posthaste.message($1)`, id); state != "scheduled" {
		t.Errorf("the message became %s", state)
	}
}

// JSON of a user's own type would be cast by that user's function, with the rights of the owner.
func TestRuleOnlyJSONIsCast(t *testing.T) {
	examine := func(t *testing.T, url string) string {
		s := begin(t, url)
		s.exec(`create type public.bait as (x int)`)
		s.exec(`create table public.bitten (name text)`)
		s.exec(`create function public.bite(public.bait) returns text language plpgsql as $$ begin insert into public.bitten values (current_user); return '{}'; end $$`)
		s.exec(`create cast (public.bait as text) with function public.bite(public.bait)`)
		pg := s.refusal(`select posthaste.send('q', '1', row(1)::public.bait)`)
		if n := get[int](s, `select count(*)::int from public.bitten`); n != 0 || pg == nil {
			return "a user's function was called"
		}
		if pg.Code != "PH400" || pg.ColumnName != "options" {
			t.Fatalf("refused with %v", pg)
		}
		return ""
	}
	rule(t, examine, without("the look at the type", patch{file: "json_argument.sql", old: "if pg_typeof(p_value) not in", new: "if false and pg_typeof(p_value) not in"}))
}
