package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	ledger "github.com/posthaste-mq/posthaste/sql"
)

// patience bounds every wait for a condition; none is expected to take that long.
const patience = 60 * time.Second

// session is one connection of a test. An unexpected error ends the test.
type session struct {
	*pgx.Conn
	t          testing.TB
	background sync.WaitGroup
}

func connect(t testing.TB, url string) *session {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{Conn: conn, t: t}
	t.Cleanup(func() {
		s.background.Wait() // the test's context is over
		_ = conn.Close(context.Background())
	})
	return s
}

// begin is a session with queue q in its database.
func begin(t testing.TB, url string) *session {
	t.Helper()
	s := connect(t, url)
	s.exec(`select posthaste.create_queue('q')`)
	return s
}

func (s *session) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// refusal runs a statement and returns the server's error, nil if it worked.
func (s *session) refusal(sql string, args ...any) *pgconn.PgError {
	s.t.Helper()
	_, err := s.Exec(s.t.Context(), sql, args...)
	if err == nil {
		return nil
	}
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return pg
}

// code is the SQLSTATE that a statement ends with, "" if it worked.
func (s *session) code(sql string, args ...any) string {
	s.t.Helper()
	if pg := s.refusal(sql, args...); pg != nil {
		return pg.Code
	}
	return ""
}

func list[T any](s *session, sql string, args ...any) []T {
	s.t.Helper()
	rows, err := s.Query(s.t.Context(), sql, args...)
	if err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return out
}

func get[T any](s *session, sql string, args ...any) T {
	s.t.Helper()
	out := list[T](s, sql, args...)
	if len(out) != 1 {
		s.t.Fatalf("%s: %d rows", sql, len(out))
	}
	return out[0]
}

func (s *session) send(options string) int64 {
	s.t.Helper()
	return get[int64](s, `select posthaste.send('q', '1', $1)`, options)
}

const receiveAll = `select message_id from posthaste.receive('q', 1000, '1 hour')`

// receive receives all available messages, and returns their ids.
func (s *session) receive() []int64 {
	s.t.Helper()
	return list[int64](s, receiveAll)
}

// receives fails the test unless s receives these messages and no others.
func (s *session) receives(want ...int64) {
	s.t.Helper()
	if got := s.receive(); !slices.Equal(got, want) {
		s.t.Fatalf("received %v, want %d", got, want)
	}
}

// receivesNoMore returns a fault if s receives a message after message m was handed out.
func (s *session) receivesNoMore(m int64) string {
	s.t.Helper()
	if got := s.receive(); len(got) > 0 {
		return fmt.Sprintf("after message %d was handed out, %v were", m, got)
	}
	return ""
}

// endLeases moves all leases of an hour to the past, so that a look is due.
func (s *session) endLeases() {
	s.t.Helper()
	s.exec(`update posthaste.leases set until = until - interval '61 minutes'`)
	s.exec(`update posthaste.lease_cursors set t = t - interval '61 minutes'`)
}

func (s *session) register() int64 {
	s.t.Helper()
	return get[int64](s, `select posthaste.worker_register('w', 'test', '1 hour')`)
}

// claim claims for a worker and returns the deliveries.
func (s *session) claim(worker, number int64, most int, single bool) []int64 {
	s.t.Helper()
	s.exec(`select posthaste.claim($1, $2, 'q', 'default', $3, $4, true)`, worker, number, most, single)
	return s.fetch(worker, number)
}

func (s *session) fetch(worker, number int64) []int64 {
	s.t.Helper()
	return list[int64](s, `select numbered_from + ordinality from posthaste.fetch($1, $2) with ordinality`, worker, number)
}

// answer is the result of a statement in the background.
type answer struct {
	values []int64
	err    error
}

func (a answer) code() string {
	var pg *pgconn.PgError
	if errors.As(a.err, &pg) {
		return pg.Code
	}
	return ""
}

// start runs a statement in the background; its first column holds bigints.
func (s *session) start(sql string, args ...any) <-chan answer {
	c := make(chan answer, 1)
	s.background.Go(func() {
		var a answer
		rows, err := s.Query(s.t.Context(), sql, args...)
		if err == nil {
			a.values, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		a.err = err
		c <- a
	})
	return c
}

// superuser is the URL of the server's superuser for the database of a session.
func superuser(t *testing.T, s *session) string {
	t.Helper()
	return in(t, testpg.Superuser(t), s.Config().Database)
}

// waits reports whether s waits for a lock.
func (s *session) waits(watcher *session) bool {
	s.t.Helper()
	return get[bool](watcher, `select wait_event_type = 'Lock' is true from pg_stat_activity where pid = $1`, int32(s.PgConn().PID()))
}

// blocked waits until s does.
func (s *session) blocked(watcher *session) {
	s.t.Helper()
	until(s.t, "a session waits for a lock", func() bool { return s.waits(watcher) })
}

// waitsOrEnds waits until s does, or its statement has ended.
func (s *session) waitsOrEnds(watcher *session, ended <-chan answer) {
	s.t.Helper()
	until(s.t, "a session waits for a lock, or did not have to", func() bool { return len(ended) > 0 || s.waits(watcher) })
}

func until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	// Open transactions of other tests' databases delay the ring, too.
	testrun.Until(t, 4*patience, what, condition)
}

// buffers runs a statement and counts the pages that it touches, including those in functions.
func (s *session) buffers(sql string, args ...any) int {
	s.t.Helper()
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal(get[[]byte](s, `explain (analyze, buffers, format json) `+sql, args...), &plans); err != nil {
		s.t.Fatal(err)
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read
}

// reads returns the number of pages that a read-only statement touches: the least of several runs,
// because the first one, and one after a concurrent analyze of a table, also reads the catalog.
func (s *session) reads(sql string, args ...any) int {
	s.t.Helper()
	least := s.buffers(sql, args...)
	for range 3 {
		least = min(least, s.buffers(sql, args...))
	}
	return least
}

// walked runs a statement and counts the entries that indexes led it to.
func (s *session) walked(sql string, args ...any) int {
	s.t.Helper()
	const counted = `select coalesce(sum(idx_tup_fetch), 0)::int from pg_stat_xact_user_tables where schemaname = 'posthaste' and relname ~ '^entries_'`
	// In a transaction, because outside of one the counts are flushed from time to time.
	s.exec(`begin`)
	before := get[int](s, counted)
	s.exec(sql, args...)
	n := get[int](s, counted) - before
	s.exec(`commit`)
	return n
}

// patch breaks a shipped file: it replaces old, which must occur exactly times (0: 1) times, by new.
type patch struct {
	file, old, new string
	times          int
}

// twin is the ledger without one protection.
type twin struct {
	name    string
	patches []patch
}

func without(name string, patches ...patch) twin { return twin{name, patches} }

// rule examines the shipped functions, which must have no fault, and each broken twin, which must
// have one: otherwise the examination proves nothing.
//
// Some faults show only if two sessions meet at one moment, or if no other test's transaction is
// open on the server, which a busy machine delays: a twin is examined repeatedly for as long as
// twins.
func rule(t *testing.T, examine func(t *testing.T, url string) (fault string), broken ...twin) {
	t.Helper()
	t.Parallel()
	const twins = 3 * time.Minute
	_, test, _, _ := runtime.Caller(1)
	t.Run("holds", func(t *testing.T) {
		t.Parallel()
		url := testpg.New(t)
		waitsLong(t, url)
		if fault := examine(t, url); fault != "" {
			t.Error(fault)
		}
	})
	for _, b := range broken {
		t.Run("without_"+strings.ReplaceAll(b.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			found := beginTwin(t, test, b.patches...)
			for began := time.Now(); time.Since(began) < twins; {
				url := testpg.New(t)
				breakFunctions(t, url, b.patches)
				waitsLong(t, url)
				if fault := examine(t, url); fault != "" {
					t.Logf("found: %s", fault)
					found()
					return
				}
			}
			t.Fatal("without its protection nothing was found, so this test finds nothing")
		})
	}
}

// beginTwin is [testrun.Twin] for a twin of functions, whose test is in the file.
func beginTwin(t testing.TB, test string, patches ...patch) (found func()) {
	t.Helper()
	text, err := os.ReadFile(filepath.Base(test))
	if err != nil {
		t.Fatal(err)
	}
	sources := []string{string(text)}
	for _, p := range patches {
		sources = append(sources, functionText(t, p.file))
	}
	return testrun.Twin(t, sources...)
}

// functionText is the shipped text of a file of functions.
func functionText(t testing.TB, file string) string {
	t.Helper()
	text, err := ledger.Function(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// waitsFor gives the functions with a lock timeout of the first duration, which name the holder in
// their error, the second duration instead.
const waitsFor = `do $$
declare
  f text;
begin
  for f in select p.proname from pg_proc p where p.pronamespace = 'posthaste'::regnamespace and 'lock_timeout=%[1]s' = any (p.proconfig) loop
    execute format('alter function posthaste.%%I set lock_timeout = %%L', f, '%[2]s');
  end loop;
end $$`

// waitsLong makes waits for locks longer than the longest stall of a busy machine.
func waitsLong(t testing.TB, url string) {
	t.Helper()
	s := connect(t, url)
	s.exec(fmt.Sprintf(waitsFor, "5s", "61s"))
	_ = s.Close(t.Context())
}

// asShipped undoes that, for tests of the final error.
func (s *session) asShipped() {
	s.t.Helper()
	s.exec(fmt.Sprintf(waitsFor, "61s", "5s"))
}

// breakFunctions applies several patches at once.
func breakFunctions(t testing.TB, url string, patches []patch) {
	t.Helper()
	texts := map[string]string{}
	var order []string
	for _, p := range patches {
		text, ok := texts[p.file]
		if !ok {
			text = functionText(t, p.file)
			order = append(order, p.file)
		}
		if n := strings.Count(text, p.old); n != max(p.times, 1) {
			t.Fatalf("the patch of %s no longer applies: %q stands there %d times", p.file, p.old, n)
		}
		texts[p.file] = strings.ReplaceAll(text, p.old, p.new)
	}
	s := connect(t, url)
	for _, file := range order {
		s.exec(texts[file])
	}
	_ = s.Close(t.Context())
}

// ascending is a sorted copy.
func ascending(ids []int64) []int64 {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	return ids
}
