//go:build unix

package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// An import that is killed repeatedly, at night at 20 random points, sends each row once.
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
	rows, kills := 2000, 4
	if testrun.Night() {
		rows, kills = 10_000, 20
	}
	if _, err := conn.Exec(ctx, fmt.Sprintf(`create table public.outbox (id bigserial primary key, body jsonb, sent_at timestamptz);
		insert into public.outbox (body) select to_jsonb(n) from generate_series(1, %d) n;
		select posthaste.create_queue('events', '{"max_payload": 1024}')`, rows)); err != nil {
		t.Fatal(err)
	}
	args := func(more ...string) []string {
		return append([]string{"import", "outbox", "--database-url", url, "--table", "public.outbox", "--id", "id", "--payload", "body", "--queue", "events", "--sent", "sent_at"}, more...)
	}

	if out, stderr, code := run(t, dir, args("--dry-run")...); code != 0 || !strings.Contains(out, fmt.Sprint(rows, " rows of public.outbox would be imported")) || !strings.Contains(out, "--trigger install") {
		t.Fatalf("dry run: %d\n%s%s", code, out, stderr)
	}
	for hits := range kills {
		p := start(t, dir, nil, args("--batch", "5")...)
		before := count("select count(*) from public.outbox where sent_at is not null")
		eventually(t, "the import takes rows", func() error {
			if count("select count(*) from public.outbox where sent_at is not null") > before {
				return nil
			}
			return context.DeadlineExceeded
		})
		testrun.Pause(rand.N(100 * time.Millisecond))
		_ = p.Process.Signal(syscall.SIGKILL)
		if p.wait() == 0 {
			if hits == 0 {
				t.Fatal("all rows were imported before it was killed")
			}
			break
		}
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
	if out, stderr, code := run(t, dir, args()...); code != 1 || !strings.Contains(out, "imported 1 rows of public.outbox; 1 are not imported yet") || !strings.Contains(out, fmt.Sprintf("row %d was rejected", rows+3)) {
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
