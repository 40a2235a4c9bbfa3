//go:build unix

package acceptance

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testpg/testdb"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
)

// either returns the URL of whichever of two servers accepts writes.
func either(t *testing.T, one, two *devpg.Server) string {
	t.Helper()
	u, err := url.Parse(one.URL())
	if err != nil {
		t.Fatal(err)
	}
	u.Host = fmt.Sprintf("127.0.0.1:%d,127.0.0.1:%d", one.Port(), two.Port())
	u.RawQuery = "sslmode=disable&target_session_attrs=read-write"
	return u.String()
}

// follower returns a standby of a server that has received all of its data so far.
func follower(b *books, of *devpg.Server) *devpg.Server {
	b.Helper()
	dir := testdb.Copy(b.T, of, true)
	standby := testpg.Unfilled(b.T, func(c *devpg.Config) { c.DataDir = dir })
	b.until("a standby", func() bool {
		return ask[bool](b, `select exists (select from pg_stat_replication where state = 'streaming')`)
	})
	return standby
}

// cut stops a standby from receiving, after it has all data so far.
func cut(b *books, standby *devpg.Server) {
	b.Helper()
	lsn := ask[string](b, `select pg_current_wal_flush_lsn()::text`)
	s := openBooks(b.T, standby.URL())
	b.until("the standby", func() bool { return ask[bool](s, `select pg_last_wal_replay_lsn() >= $1::pg_lsn`, lsn) })
	s.exec(`alter system set primary_conninfo = ''`)
	s.exec(`select pg_reload_conf()`)
	b.until("the standby is cut off", func() bool { return ask[bool](b, `select not exists (select from pg_stat_replication)`) })
}

// The primary is killed and its standby promoted, while senders and workers, whose URL names
// both servers, continue. With synchronous replication no acknowledged message is lost;
// without it only those that the standby had not received. No message counts as settled that
// was not handled.
func TestHA7_FailoverToAStandby(t *testing.T) {
	for _, synchronous := range []bool{true, false} {
		t.Run(map[bool]string{true: "synchronous", false: "asynchronous"}[synchronous], func(t *testing.T) {
			t.Parallel()
			if synchronous {
				testrun.Nightly(t, "the asynchronous failover, which can lose messages, runs on each change")
			}
			failover(t, synchronous)
		})
	}
}

func failover(t *testing.T, synchronous bool) {
	primary := testpg.Server(t)
	b := openBooks(t, primary.URL())
	standby := follower(b, primary)
	if synchronous {
		b.exec(`alter system set synchronous_standby_names = '*'`)
		b.exec(`select pg_reload_conf()`)
		b.until("synchronous", func() bool {
			return ask[bool](b, `select exists (select from pg_stat_replication where sync_state = 'sync')`)
		})
	}
	s := stageOn(t, either(t, primary, standby))
	q := s.queue(posthaste.QueueOptions{MaxAttempts: 100})
	senders := []*child{s.spawn(task{Role: "pester", Queue: q, Concurrency: 2}), s.spawn(task{Role: "pester", Queue: q, Concurrency: 2})}
	workers := []*child{
		s.spawn(task{Role: "worker", Queue: q, Concurrency: 10, Lease: 5 * time.Second, Work: time.Millisecond}),
		s.spawn(task{Role: "worker", Queue: q, Concurrency: 10, Lease: 5 * time.Second, Work: time.Millisecond}),
	}
	since := func(what string, begun time.Duration) {
		t.Helper()
		s.until(what, func() bool {
			sent, handled := 0, 0
			for _, e := range s.history() {
				switch {
				case e.At < begun:
				case e.Kind == history.Sent:
					sent++
				case e.Kind == history.Handled:
					handled++
				}
			}
			return sent > 100 && handled > 100
		})
	}
	since("traffic", 0)
	var ids []*lostIDs
	cutAt := history.Now()
	if !synchronous {
		ids = []*lostIDs{newLostIDs(b, primary, "whole", false), newLostIDs(b, primary, "patched", true)}
		cutAt = history.Now()
		cut(b, standby)
		for _, l := range ids {
			l.hold()
		}
		since("traffic that the standby does not hear of", cutAt)
	}
	s.must(primary.Kill())
	testdb.Promote(t, standby)
	for _, l := range ids {
		l.examine(t, standby)
	}
	promoted := history.Now()
	since("traffic on the new primary", promoted)
	for _, c := range senders {
		s.must(c.term())
	}
	s.settled(q)
	for _, c := range workers {
		s.must(c.term())
	}

	events := s.history()
	handled, lost, again := map[posthaste.MessageID]bool{}, 0, len(history.Once(events))
	for _, id := range history.IDs(events, history.Handled) {
		handled[id] = true
	}
	for _, e := range events {
		if e.Kind != history.Sent || handled[e.ID] {
			continue
		}
		if lost++; synchronous || e.At < cutAt || e.At > promoted {
			t.Errorf("message %s was acknowledged by a primary that had a standby, and was not handled", e.ID)
		}
	}
	kept := map[posthaste.MessageID]bool{}
	for _, id := range ask[[]int64](openBooks(t, standby.URL()), `select array_agg(pos) from posthaste.entries e join posthaste.queue_settings q on q.id = e.queue_id where q.name = $1 and message_id is null`, q) {
		if kept[posthaste.MessageID(id)] = true; !handled[posthaste.MessageID(id)] {
			t.Errorf("message %d counts as settled, and was not handled", id)
		}
	}
	gone := 0
	for _, id := range history.IDs(events, history.Sent) {
		if !kept[id] {
			gone++
		}
	}
	if synchronous != (gone == 0) {
		t.Errorf("the new primary does not know %d messages", gone)
	}
	first := promoted
	for _, e := range events {
		if e.Kind == history.Handled && e.At > promoted {
			first = e.At
			break
		}
	}
	t.Logf("%d sent, %d handled, %d of them twice, %d gone with the old primary, of which %d were not handled; handling began %s after the promotion",
		len(history.IDs(events, history.Sent)), len(handled), again, gone, lost, first-promoted)
}

// lostIDs is a database in which a receiver holds a delivery that the standby never receives.
// It cannot be settled after the promotion, and neither can a delivery that has its id then.
type lostIDs struct {
	*books
	name    string
	patched bool    // without the protection
	sent    []int64 // ids of messages that the standby never receives
	held    int64
}

func inDatabase(s *devpg.Server, name string) string {
	return strings.Replace(s.URL(), "/posthaste?", "/"+name+"?", 1)
}

func newLostIDs(b *books, primary *devpg.Server, name string, patched bool) *lostIDs {
	b.Helper()
	b.exec("create database " + name)
	url := inDatabase(primary, name)
	conn, err := pgx.Connect(b.ctx, url)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := postgres.Migrate(b.ctx, conn, postgres.MigrateOptions{}); err != nil {
		b.Fatal(err)
	}
	l := &lostIDs{books: openBooks(b.T, url), name: name, patched: patched}
	l.exec(`select posthaste.create_queue('q')`)
	if patched {
		l.broken("skip_ids.sql", "begin\n  if pg_relation_size('posthaste.skipped_at') <= current_setting('block_size')::int then", "begin\n  if false then")
	}
	return l
}

// hold receives with ids far beyond the standby's position of the sequence.
func (l *lostIDs) hold() {
	l.Helper()
	l.sent = ask[[]int64](l.books, `select array_agg(posthaste.send('q', '1')) from generate_series(1, 100)`)
	held, err := l.receive(l.ctx, "q", "default", 1, time.Hour)
	if err != nil || len(held) != 1 {
		l.Fatal(held, err)
	}
	l.held = held[0].ID
}

func (l *lostIDs) examine(t *testing.T, standby *devpg.Server) {
	t.Helper()
	b := openBooks(t, inDatabase(standby, l.name))
	// Sends come first: no message gets the id of a lost one.
	for _, id := range ask[[]int64](b, `select array_agg(posthaste.send('q', '2')) from generate_series(1, 5)`) {
		if slices.Contains(l.sent, id) != l.patched {
			t.Fatalf("%s: messages %d to %d were lost, and %d is sent now", l.name, l.sent[0], l.sent[99], id)
		}
	}
	// Advance to just before it, if it is ahead.
	b.exec(`select nextval('posthaste.positions') from posthaste.positions p, generate_series(p.last_value + 1, $1 - 1) where p.last_value < $1`, l.held>>12)
	if other, err := b.receive(b.ctx, "q", "default", 1, time.Hour); err != nil || len(other) != 1 {
		t.Fatal(other, err)
	} else if (other[0].ID == l.held) != l.patched {
		t.Fatalf("%s: delivery %d of the lost primary, and now %d", l.name, l.held, other[0].ID)
	}
	if settled := ask[bool](b, `select settled from posthaste.ack(array[$1::bigint])`, l.held); settled != l.patched {
		t.Fatalf("%s: the delivery of the lost primary was settled: %t, want %t", l.name, settled, l.patched)
	}
}

// A base backup recovered to a point in time is the ledger of that moment: messages settled by
// then stay settled, those in flight are redelivered after their leases, and later ones do not
// exist. No operator has to confirm it, because its ids are its own.
func TestBK2_PointInTime(t *testing.T) {
	t.Parallel()
	archive := filepath.Join(t.TempDir(), "archive")
	server := testpg.Server(t, func(c *devpg.Config) {
		c.Settings["archive_mode"] = "on"
		c.Settings["archive_command"] = "cp %p " + archive + "/%f"
	})
	if err := os.MkdirAll(archive, 0o755); err != nil {
		t.Fatal(err)
	}
	for dir := archive; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		_ = os.Chmod(dir, 0o755) // for the user that PostgreSQL runs as
	}
	testdb.Own(t, server, archive)
	b := newBooks(t, server.URL())
	stop := b.busy()
	b.until("traffic", func() bool { return ask[int](b, `select count(*) from effects`) >= 50 })
	dir := testdb.Copy(t, server, false)
	b.until("more traffic", func() bool { return ask[int](b, `select count(*) from effects`) >= 100 })
	b.exec(`select pg_create_restore_point('before the mistake')`)
	settled := ask[int](b, `select count(*) from effects`)
	b.until("a message to be undone", func() bool { return ask[int](b, `select count(*) from effects`) >= settled+50 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	segment := ask[string](b, `select pg_walfile_name(pg_switch_wal())`)
	b.until("the archive", func() bool { _, err := os.Stat(filepath.Join(archive, segment)); return err == nil })
	after := ask[int](b, `select count(*) from sent`)

	signal := filepath.Join(dir, filepath.Base(server.DataDir()), "recovery.signal")
	if err := os.WriteFile(signal, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testdb.Own(t, server, signal)
	restored := testpg.Unfilled(t, func(c *devpg.Config) {
		c.DataDir = dir
		c.Settings["archive_mode"] = "off"
		c.Settings["restore_command"] = "cp " + archive + "/%f %p"
		c.Settings["recovery_target_name"] = "before the mistake"
		c.Settings["recovery_target_action"] = "promote"
	})
	p := openBooks(t, restored.URL())
	p.until("the end of recovery", func() bool { return !ask[bool](p, `select pg_is_in_recovery()`) })
	if n := ask[int](p, `select count(*) from sent`); n >= after {
		t.Fatalf("%d messages at the point in time, and %d later", n, after)
	}
	if ask[bool](p, `select rebased from posthaste.rebase()`) {
		t.Fatal("a physical copy was rebased")
	}
	p.drained()
}
