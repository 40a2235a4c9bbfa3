//go:build unix

package cli_test

import (
	"context"
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// An import that is killed repeatedly sends each row once.
func TestImportOutbox(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	url, dir := testpg.New(t), t.TempDir()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	count := func(sql string) (n int) {
		t.Helper()
		if err := conn.QueryRow(ctx, sql).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	const rows = 2000
	if _, err := conn.Exec(ctx, `create table public.outbox (id bigserial primary key, body jsonb, sent_at timestamptz);
		insert into public.outbox (body) select to_jsonb(n) from generate_series(1, 2000) n;
		select posthaste.create_queue('events', '{"max_payload": 1024}')`); err != nil {
		t.Fatal(err)
	}
	args := func(more ...string) []string {
		return append([]string{"import", "outbox", "--database-url", url, "--table", "public.outbox", "--id", "id", "--payload", "body", "--queue", "events", "--sent", "sent_at"}, more...)
	}

	if out, stderr, code := run(t, dir, args("--dry-run")...); code != 0 || !strings.Contains(out, "2000 rows of public.outbox would be imported") || !strings.Contains(out, "--trigger install") {
		t.Fatalf("dry run: %d\n%s%s", code, out, stderr)
	}
	for range 4 {
		p := start(t, dir, nil, args("--batch", "5")...)
		before := count("select count(*) from public.outbox where sent_at is not null")
		eventually(t, "the import takes rows", func() error {
			if count("select count(*) from public.outbox where sent_at is not null") > before {
				return nil
			}
			return context.DeadlineExceeded
		})
		testrun.Pause(50 * time.Millisecond)
		_ = p.Process.Signal(syscall.SIGKILL) // it can have ended already
		p.wait()
	}
	out, stderr, code := run(t, dir, args("--json")...)
	var report struct{ Imported, Pending int }
	if code != 0 || json.Unmarshal([]byte(out), &report) != nil || report.Pending != 0 {
		t.Fatalf("import: %d\n%s%s", code, out, stderr)
	}
	if sent, once := count("select count(*) from posthaste.messages"), count("select count(distinct reference) from posthaste.messages"); sent != rows || once != rows {
		t.Errorf("%d messages of %d rows, want %d", sent, once, rows)
	}

	out, _, code = run(t, dir, args("--trigger", "print")...)
	if code != 0 || !strings.Contains(out, "create or replace trigger posthaste_outbox") {
		t.Fatalf("trigger print: %d\n%s", code, out)
	}
	if _, err := conn.Exec(ctx, out); err != nil {
		t.Fatalf("the printed trigger does not run: %v", err)
	}
	if _, err := conn.Exec(ctx, "insert into public.outbox (body) values ('1')"); err != nil {
		t.Fatal(err)
	}
	for _, do := range []string{"remove", "install", "install"} {
		if out, stderr, code := run(t, dir, args("--trigger", do)...); code != 0 {
			t.Fatalf("trigger %s: %d\n%s%s", do, code, out, stderr)
		}
	}
	if _, err := conn.Exec(ctx, "insert into public.outbox (body) values ('2')"); err != nil {
		t.Fatal(err)
	}
	if n := count("select count(*) from posthaste.messages"); n != rows+2 {
		t.Errorf("%d messages after two more inserts, want %d", n, rows+2)
	}

	if _, err := conn.Exec(ctx, "alter table public.outbox disable trigger user; insert into public.outbox (body) values (to_jsonb(repeat('x', 2000))), ('3')"); err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := run(t, dir, args()...); code != 1 || !strings.Contains(out, "imported 1 rows of public.outbox; 1 are not imported yet") || !strings.Contains(out, "row 2003 was rejected") {
		t.Errorf("a row that is too large: %d\n%s%s", code, out, stderr)
	}
	for what, wrong := range map[string][]string{
		"it has id, body, sent_at": args("--key", "customer"),
		"not found":                args("--table", "outbocks"),
		"--batch must be":          args("--batch", "0"),
		"--trigger must be":        args("--trigger", "perhaps"),
		"mutually exclusive":       args("--trigger", "print", "--dry-run"),
	} {
		if _, stderr, code := run(t, dir, wrong...); code != 2 || !strings.Contains(stderr, what) {
			t.Errorf("%q: %d\n%s", what, code, stderr)
		}
	}
}
