//go:build unix

package acceptance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testpg/testdb"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// A dump that was taken under load and restored elsewhere hands out nothing until it is
// rebased, and then every unsettled message once: in a server with lower transaction ids, and
// in one with higher ids. The test also shows that the protections are needed: without them
// messages are lost or come twice.
func TestBK1_ADumpIsRefusedAndRebased(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "TestBK1_ADumpRestoredInPlaceIsRefused runs on each change")
	source := testpg.New(t)
	from := newBooks(t, source)
	from.burn(60000)
	dump := from.dumpUnderLoad(source, 100)
	// The newest version, whatever the source's is.
	target := testdb.Server(t, func(c *devpg.Config) { c.Version = "18" })
	makeRoles(openBooks(t, target.URL()))
	restored := func(t *testing.T, name string) *books {
		t.Helper()
		openBooks(t, target.URL()).exec("create database " + name)
		url := strings.Replace(target.URL(), "/posthaste?", "/"+name+"?", 1)
		testdb.Run(t, "pg_restore", "--dbname", url, "--exit-on-error", dump)
		return openBooks(t, url)
	}
	t.Run("lower", func(t *testing.T) {
		for i, c := range []struct{ name, file, old, new string }{
			{name: "whole"},
			{"as if its ids were the same", "rebase.sql", "if rebase.same_ids then", "if rebase.same_ids or true then v_same := true;"},
			{"without messages sent here", "rebase.sql", "perform posthaste.rebase_sent_here();", "null;"},
			{"without messages in flight", "rebase_collect.sql", "where k.places > 0 and", "where false and"},
			{"without what waits", "rebase_collect.sql", "where x.needs is not null", "where x.needs is not null and e.due_at is not null"},
			{"to those who had it, too", "rebase_append.sql", "where not w.parks and w.for_subscription is null", "where false"},
			{"messages read ahead, too", "rebase_collect.sql", "where z.pos = e.pos and", "where z.outcome <> 'parked' and z.pos = e.pos and"},
			{"with how far was read ahead", "rebase_cursors.sql", "delete from posthaste.ahead;", ""},
			{"without words that were found", "rebase_append.sql", "e.headers, e.terms, e.trace,", "e.headers, null, e.trace,"},
			{"without settled messages of open claims", "rebase_collect.sql", "from posthaste.history_aside a join", "from (select * from posthaste.history_aside where false) a join"},
			{"without keys to look at", "rebase_keys.sql", "), v_now)\n", "), v_now + interval '1 day')\n"},
		} {
			t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
				t.Parallel()
				b := restored(t, fmt.Sprint("copy", i))
				if b.comparable(); c.file == "" {
					b.refusedThenRebased(t)
					return
				}
				b.broken(c.file, c.old, c.new)
				r := rand.New(rand.NewPCG(3, 4))
				for range 20 {
					if err := b.send(b.ctx, r); err != nil {
						t.Fatal(err)
					}
				}
				wrong := ""
				if _, err := b.Exec(b.ctx, `select posthaste.rebase()`); sqlState(err) != "" {
					wrong = err.Error()
				} else if err != nil {
					t.Fatal(err)
				} else if wrong = b.afterRebase(); wrong == "" {
					wrong = b.drain(5 * time.Second)
				}
				if wrong == "" {
					t.Fatal("nothing was found wrong")
				}
				t.Logf("found: %.200s", wrong)
			})
		}
	})
	t.Run("higher", func(t *testing.T) {
		server := openBooks(t, target.URL())
		server.burn(openBooks(t, source).next() + 20000 - server.next())
		restored(t, "higher").refusedThenRebased(t)
	})
}

// A dump that is restored into its original database is also a copy: positions that were
// allocated since are allocated again.
func TestBK1_ADumpRestoredInPlaceIsRefused(t *testing.T) {
	t.Parallel()
	if testpg.Version(t) != "18" {
		t.Skip("the tools are those of 18, whose dumps name settings that older servers do not have")
	}
	url := testpg.New(t)
	b := newBooks(t, url)
	dump := b.dumpUnderLoad(url, 80)
	b.exec(`drop schema posthaste cascade`)
	b.exec(`drop table sent, effects, subscribed`)
	b.Reset()
	testdb.Run(t, "pg_restore", "--dbname", url, "--exit-on-error", dump)
	b.refusedThenRebased(t)
}

// makeRoles creates the roles, which a dump of one database does not contain.
func makeRoles(b *books) {
	b.Helper()
	for _, role := range []string{"sender", "receiver", "admin"} {
		b.exec("create role posthaste_" + role)
	}
}

// burn consumes transaction ids.
func (b *books) burn(n int) {
	b.Helper()
	b.exec(`create procedure burn(n int) language plpgsql as $$ begin for i in 1..n loop perform pg_current_xact_id(); commit; end loop; end $$`)
	b.exec(`call burn($1)`, n)
	b.exec(`drop procedure burn`)
}

// dumpUnderLoad dumps the database while messages are sent, in flight and settled, after the
// given number was settled, and returns the dump's file.
func (b *books) dumpUnderLoad(url string, settled int) string {
	b.Helper()
	b.prepare()
	stop := b.busy()
	b.until("traffic", func() bool { return ask[int](b, `select count(*) from effects`) >= settled })
	file := filepath.Join(b.TempDir(), "ledger.dump")
	testdb.Run(b.T, "pg_dump", "--dbname", url, "--format", "custom", "--file", file)
	if err := stop(); err != nil {
		b.Fatal(err)
	}
	return file
}

// next returns the next transaction id.
func (b *books) next() int { b.Helper(); return ask[int](b, `select pg_current_xact_id()::text::int`) }

// comparable checks that the ids of a copy are lower than those in its ring.
func (b *books) comparable() {
	b.Helper()
	if !ask[bool](b, `select pg_current_xact_id() < (select min(xid) from posthaste.entries)`) {
		b.Fatal("the copy's ids are not below the original's")
	}
}

// refusedThenRebased examines a restored copy.
func (b *books) refusedThenRebased(t *testing.T) {
	t.Helper()
	b.isPrepared()
	for _, sql := range []string{
		`select posthaste.receive('plain', 1, '1 minute')`, `select posthaste.worker_register('w', 'test', '1 minute')`, `select posthaste.purge('plain')`,
		`select posthaste.rescue()`, `select posthaste.cancel(1)`, `select posthaste.subscribe('kept', 'another')`, `select posthaste.rebase(same_ids => true)`,
	} {
		_, err := b.Exec(b.ctx, sql)
		if want := map[bool]string{false: "PH503", true: "PH409"}[strings.Contains(sql, "same_ids")]; sqlState(err) != want {
			t.Fatalf("%s in a copy: %v, want %s", sql, err, want)
		}
	}
	if task := ask[string](b, `select task from posthaste.maintain()`); task != "refused" {
		t.Fatalf("upkeep of a copy: %s", task)
	}
	// Messages sent before the rebase are kept, too.
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		if err := b.send(b.ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	before := ask[int](b, `select count(*) from posthaste.entries`)
	scheduled := ask[int](b, `select count(*) from sent where scheduled`)

	// A rebase that is interrupted has no effect.
	tx, err := b.Begin(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(b.ctx, `select posthaste.rebase()`); err != nil {
		t.Fatal(err)
	}
	_ = tx.Conn().Close(context.Background())
	_ = tx.Rollback(context.Background())
	if n := ask[int](b, `select count(*) from posthaste.entries`); n != before {
		t.Fatalf("%d entries after a rebase that was cut off, %d before", n, before)
	}
	rows, _ := b.Query(b.ctx, `select * from posthaste.rebase()`)
	did, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[rebased])
	if err != nil || !did.Rebased || did.Again == 0 || did.Waiting == 0 {
		t.Fatalf("rebase: %+v, %v", did, err)
	}
	if wrong := b.afterRebase(); wrong != "" {
		t.Fatal(wrong)
	}
	// A second rebase does nothing.
	if ask[bool](b, `select rebased from posthaste.rebase()`) {
		t.Fatal("a second rebase did something")
	}
	if depth := ask[int64](b, `select sum(depth)::bigint from posthaste.queues`); depth != did.Waiting+did.Again {
		t.Fatalf("the queues' depth is %d, and %d + %d wait", depth, did.Waiting, did.Again)
	}
	if n := ask[int](b, `select count(distinct s.id) from sent s cross join lateral posthaste.message(s.id) m where s.scheduled and m.state = 'scheduled' and m.due_at > now()`); n != scheduled {
		t.Fatalf("%d of %d messages are scheduled: %s", n, scheduled, ask[string](b, `select string_agg(distinct m.state, ' ') from sent s cross join lateral posthaste.message(s.id) m where s.scheduled`))
	}
	b.drained()
}

// rebased is the result of posthaste.rebase.
type rebased struct {
	Rebased        bool
	Waiting, Again int64
}
