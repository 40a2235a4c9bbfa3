package ledger_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// hot lists the statements whose plans must not depend on statistics, by words that no other
// statement contains. Their order is that of the golden file.
var hot = []hotStatement{
	{"cursor_of: where a reader stands", "order by reader, seq desc limit 1"},
	{"fresh_slice", "select array_agg(x.xid), array_agg(x.pos)"},
	{"due_slice, part 1: what became visible", "select e.xid, e.pos, e.due_at, e.for_subscription, e.losses from unnest(v_lo, v_hi)"},
	{"due_slice, part 2: what fell due", "pg_visible_in_snapshot(e.xid, w.s0) as before"},
	{"due_idle: two probes", "order by e.xid, e.pos limit 1) is null"},
	{"claim: what a number has", "c.holder = p_worker and c.number between"},
	{"claim: one fresh entry", "e.xid = v_made[1].first_xid and e.pos = v_made[1].first_pos"},
	{"claim_lane: what falls due next", "e.due_at > v_due.t1 and posthaste.in_slots((e.pos >> 22) & 15, live."},
	{"fetch: claims of a number", "k.holder = p_worker and k.number between"},
	{"fetch, fresh", "e.plain and (e.xid, e.pos) >= ("},
	{"fetch, due, part 1", "e.due_at <= v_claim.t1 and (e.xid, e.pos) >= ("},
	{"fetch, due, part 2", "(e.due_at, e.pos) >= (v_claim.first_due, v_claim.first_pos)"},
	{"settle_claim: newest bits", "select s.number, s.bits from posthaste.settlements s"},
	{"settle_claim: singles", "insert into posthaste.settlements (slot, claim, part, number, reader, worker, duration, fresh, done, bits) select"},
	{"message: by position", "e.pos = v_id and e.message_id is null"},
	{"message: later entries", "(select distinct x as id from unnest(p_ids) x where x > 0) i"},
	{"rescue_leases: ends", "order by x.until offset 255 limit 1"},
	{"rescue_leases: both windows", "order by x.until)) x"},
	{"count_up: settlements", "x.done from posthaste.settlements x"},
	{"count_up: outcomes", "select x.reader, x.outcome from posthaste.outcomes x"},
	{"count_up: fresh entries", "with sent as materialized"},
	{"open_claims: from the mark on", "c.number >= v_mark and c.places > 0"},
	{"worker_look: idle lanes", "bool_and(coalesce(f.ended, true)"},
	{"slot_unread: readers", "posthaste.reader_key(x.id, u.number, g, 0) as reader"},
	{"slot_held: leases", "from posthaste.leases e where e.subscriber = z.subscriber"},
	{"carry_slot: cursors", "order by y.reader desc, y.seq desc limit 1) = p_slot"},
	{"count_up: due entries", "count(*) filter (where e.message_id is null) as first"},
	{"insert_once: a key", "where d.queue_id = k.queue and d.key = k.key and d.until"},
}

type hotStatement struct{ name, words string }

// planner is a session that reports the plans of all statements that it runs, including those
// inside functions.
type planner struct {
	*session
	hot   []hotStatement
	every func(query string, top plan) // unless nil; called one at a time
	mu    sync.Mutex
	plans map[string]string // of hot statements, by name
	mixed []string
}

func newPlanner(t testing.TB, url string, hot []hotStatement) *planner {
	t.Helper()
	p := &planner{hot: hot, plans: map[string]string{}}
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { p.notice(n.Message) }
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	p.session = &session{Conn: conn, t: t}
	for _, sql := range []string{`load 'auto_explain'`, `set auto_explain.log_min_duration = 0`, `set auto_explain.log_nested_statements = on`,
		`set auto_explain.log_format = json`, `set client_min_messages = log`} {
		p.exec(sql)
	}
	return p
}

var spaces = regexp.MustCompile(`\s+`)

func (p *planner) notice(message string) {
	i := strings.Index(message, "plan:\n")
	if i < 0 {
		return
	}
	var said struct {
		Query string `json:"Query Text"`
		Plan  plan
	}
	if err := json.Unmarshal([]byte(message[i+len("plan:\n"):]), &said); err != nil {
		p.t.Error(err)
		return
	}
	text := spaces.ReplaceAllString(said.Query, " ")
	if p.every != nil {
		p.mu.Lock()
		p.every(text, said.Plan)
		p.mu.Unlock()
	}
	for _, h := range p.hot {
		if strings.Contains(text, h.words) {
			var shape strings.Builder
			said.Plan.write(&shape, "  ")
			p.mu.Lock()
			if was, ok := p.plans[h.name]; ok && was != shape.String() {
				p.mixed = append(p.mixed, h.name)
			}
			p.plans[h.name] = shape.String()
			p.mu.Unlock()
		}
	}
}

// plan has the parts of a plan that must not change.
type plan struct {
	Type      string `json:"Node Type"`
	Relation  string `json:"Relation Name"`
	Index     string `json:"Index Name"`
	Direction string `json:"Scan Direction"`
	Join      string `json:"Join Type"`
	Function  string `json:"Function Name"`
	Removed   *int   `json:"Subplans Removed"`
	Plans     []plan

	// Not part of the shape.
	JoinFilter string `json:"Join Filter"`
	Condition  string `json:"Index Cond"`
	Filter     string
	Part       string `json:"Parent Relationship"`
}

var slotNumber = regexp.MustCompile(`_(1[0-5]|[0-9])(_|$)`)

func (p plan) write(w *strings.Builder, indent string) {
	line := p.Type
	if p.Index != "" {
		line += " using " + slotNumber.ReplaceAllString(p.Index, "_N$2")
	}
	if p.Relation != "" {
		line += " on " + slotNumber.ReplaceAllString(p.Relation, "_N$2")
	}
	if p.Function != "" {
		line += " on " + p.Function
	}
	if p.Direction == "Backward" {
		line += ", backward"
	}
	if p.Join != "" && p.Join != "Inner" {
		line += ", " + strings.ToLower(p.Join)
	}
	if p.Removed != nil && *p.Removed > 0 {
		line += fmt.Sprintf(", %d leaves pruned", *p.Removed)
	}
	// The planner chooses an index only scan by the vacuumed part of the table; it reads the
	// same part of the same index.
	line = strings.Replace(line, "Index Only Scan", "Index Scan", 1)
	fmt.Fprintf(w, "%s%s\n", indent, line)
	for _, c := range p.Plans {
		c.write(w, indent+"  ")
	}
}

// use runs every hot statement at least once.
func (p *planner) use(number *int64) {
	p.t.Helper()
	worker := p.register()
	var message int64
	for _, due := range []string{`{"delay": "1 day"}`, `{"delay": "1 microsecond"}`, `{}`} {
		message = p.send(due)
	}
	for range 4 {
		*number++
		p.claim(worker, *number, 5, false)
	}
	// A day passes for the message that waits for it.
	p.exec(`update posthaste.entries_other set due_at = clock_timestamp() where pos = $1 and ((pos >> 22) & 15) = 0`, message-2)
	for range 3 {
		*number++
		got := p.claim(worker, *number, 5, false)
		if len(got) > 0 {
			p.exec(`select from posthaste.settle(array[$1::bigint], array[B'1'])`, got[0]>>12)
		}
	}
	p.send(`{}`)
	*number++
	p.exec(`select from posthaste.claim($1, $2, 'q', 'default', 1, p_due => false, p_rows => 1)`, worker, *number)
	p.send(`{}`)
	p.exec(`select from posthaste.ack(array(select delivery_id from posthaste.receive('q', 1, '1 hour')))`)
	p.exec(`select from posthaste.message($1)`, message)
	p.exec(`select posthaste.rescue_leases(1 << 10)`)
	p.exec(`select from posthaste.count_up()`)
	p.exec(`select from posthaste.worker_look($1, '{q}', '{default}')`, worker)
	// Of an empty slot, so that nothing is carried.
	p.exec(`select posthaste.slot_unread(5), posthaste.slot_held(5), posthaste.carry_slot(5)`)
	p.exec(`select posthaste.send('q', '1', jsonb_build_object('dedupe_key', 'k' || $1::bigint))`, *number)
}

// fill creates a log of n entries that wait in queue q, and as many of another queue, some of
// them due long ago, some tomorrow.
func fill(s *session, n int) {
	s.t.Helper()
	s.exec(`select posthaste.create_queue('other')`)
	s.exec(`insert into posthaste.entries_plain (queue_id, payload) select 1, convert_to(repeat('x', 20), 'UTF8') from generate_series(1, $1::int)`, n)
	s.exec(`insert into posthaste.dedupe_keys (queue_id, key, message_id, until) select 2, g::text || clock_timestamp(), g, clock_timestamp() + interval '1 day' from generate_series(1, $1::int) g`, n)
	s.exec(`insert into posthaste.entries_other (queue_id, payload, due_at, message_id)
		select 2, '1', clock_timestamp() + case when g % 2 = 0 then '1 day' else '-1 day' end::interval, g from generate_series(1, $1::int) g`, n/10)
}

// The plans of the hot statements are the reviewed ones: on an empty log, a small one, one of
// hundreds of thousands of rows without statistics, and one with misleading statistics.
func TestGoldenPlans(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	s := begin(t, url)
	var number int64
	shapes := shapes{hot: hot, of: map[string]string{}}
	compare := func(state string) {
		t.Helper()
		p := newPlanner(t, url, hot)
		p.use(&number)
		shapes.compare(state, p)
	}
	compare("empty")
	// As vacuumdb leaves an idle ledger: the statistics say that every table is empty.
	s.exec(`vacuum analyze`)
	compare("vacuumed while empty")
	fill(s, 1000)
	compare("1,000 entries without statistics")
	n := rows(t, 200_000)
	fill(s, n)
	compare(fmt.Sprintf("%d entries without statistics", n))
	s.exec(`analyze posthaste.entries_plain, posthaste.entries_other, posthaste.claims, posthaste.settlements, posthaste.leases, posthaste.queue_settings, posthaste.dedupe_keys`)
	compare(fmt.Sprintf("%d entries with statistics", n))
	// Statistics that know only one queue, all of it settled and none of it due.
	for _, table := range []string{"entries_plain", "entries_other"} {
		s.exec(`create table public.` + table + ` as select * from posthaste.` + table + ` where queue_id = 2`)
		s.exec(`delete from posthaste.` + table + ` where queue_id = 2`)
		s.exec(`analyze posthaste.` + table)
		s.exec(`insert into posthaste.` + table + ` select * from public.` + table)
	}
	compare("misleading statistics")

	golden(t, "plans/postgresql-"+testpg.Version(t)+".txt", shapes.write("The plans of the hot statements, the same whatever the statistics say. _N is a\nslot's number. Written by go test ./sql -run Golden -update.\n"))
}

// shapes has the plans of hot statements as they were first seen, by name.
type shapes struct {
	hot []hotStatement
	of  map[string]string
}

// compare reports plans that have changed.
func (s shapes) compare(state string, p *planner) {
	p.t.Helper()
	for _, name := range p.mixed {
		p.t.Errorf("%s: %s has several plans", state, name)
	}
	for _, h := range s.hot {
		shape, ok := p.plans[h.name]
		switch was, seen := s.of[h.name]; {
		case !ok:
			p.t.Errorf("%s: %s was not run: are its words %q still in it?", state, h.name, h.words)
		case seen && was != shape:
			p.t.Errorf("%s: the plan of %s is not that of an empty log, which is\n%sbut\n%s", state, h.name, was, shape)
		default:
			s.of[h.name] = shape
		}
	}
}

func (s shapes) write(title string) string {
	var b strings.Builder
	b.WriteString(title)
	for _, h := range s.hot {
		fmt.Fprintf(&b, "\n%s\n%s", h.name, s.of[h.name])
	}
	return b.String()
}

// The pages that a claim touches do not grow with the backlog, and hardly with the number of
// open transactions.
func TestGoldenPages(t *testing.T) {
	t.Parallel()
	server := testpg.Server(t, func(c *devpg.Config) { c.Settings["max_prepared_transactions"] = "250" })
	s := begin(t, server.URL())
	worker := s.register()
	number := int64(0)
	claim := func(most int) int {
		number++
		return s.buffers(`select * from posthaste.claim($1, $2, 'q', 'default', $3)`, worker, number, most)
	}
	// The median of several, because a page may fill up under one of them.
	median := func(most int, before func()) int {
		var all []int
		for range 5 {
			before()
			all = append(all, claim(most))
		}
		sort.Ints(all)
		return all[2]
	}
	nothing := func() {}
	thousand := func() {
		s.exec(`insert into posthaste.entries_plain (queue_id, payload) select 1, '1' from generate_series(1, 1000)`)
	}
	for range 8 {
		thousand()
		claim(1000)
		claim(1000)
	}
	empty := median(1000, nothing)
	short := median(1000, thousand)
	n := rows(t, 200_000)
	s.exec(`insert into posthaste.entries_plain (queue_id, payload) select 1, '1' from generate_series(1, $1::int)`, n)
	long := median(1000, nothing)
	for i := range 200 {
		s.exec(`begin`)
		s.exec(`select pg_current_xact_id()`)
		s.exec(fmt.Sprintf(`prepare transaction 'open-%d'`, i))
	}
	claim(1000)
	beside := median(1000, thousand)
	for get[int](s, `select handed from posthaste.claim($1, $2, 'q', 'default', 4096)`, worker, number+1) > 0 {
		number++
	}
	number++
	emptyBeside := median(1000, nothing)
	t.Logf("pages touched: empty claim %d; claim of 1,000 with 1,000 waiting %d, with %d waiting %d; beside 200 open transactions %d, empty %d",
		empty, short, n, long, beside, emptyBeside)
	for i := range 200 {
		s.exec(fmt.Sprintf(`rollback prepared 'open-%d'`, i))
	}
	type bound struct {
		what      string
		got, most int
	}
	var b strings.Builder
	b.WriteString("The most pages that a claim touches. Written by hand: more is a step back.\n\n")
	for _, x := range []bound{
		{"an empty claim", empty, 40},
		{"a claim of 1,000, as many waiting", short, 80},
		{"a claim of 1,000, 200,000 and more waiting", long, 80},
		{"a claim of 1,000 beside 200 open transactions", beside, 120},
		{"an empty claim beside 200 open transactions", emptyBeside, 60},
	} {
		fmt.Fprintf(&b, "%5d  %s\n", x.most, x.what)
		if x.got > x.most {
			t.Errorf("%s touches %d pages, and may touch %d", x.what, x.got, x.most)
		}
	}
	if long > short+short/2+20 {
		t.Errorf("with %d waiting a claim touches %d pages, with 1,000 %d", n, long, short)
	}
	golden(t, "plans/pages.txt", b.String())
}
