//go:build unix

package cli_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// Repeated imports send each Sidekiq job once.
func TestImportSidekiq(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := devbroker.StartRedis(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	client := goredis.NewClient(&goredis.Options{Addr: r.Address()})
	defer client.Close()
	if _, err := client.Pipelined(ctx, func(p goredis.Pipeliner) error {
		p.SAdd(ctx, "queues", "default")
		p.LPush(ctx, "queue:default", `{"class":"HardJob","args":["bob",1],"jid":"1","queue":"default"}`, `{"class":"HardJob","args":["bob",2],"jid":"2","queue":"default"}`, `{"class":"HardJob","args":["bob",2],"jid":"2","queue":"default","retry":1}`)
		p.ZAdd(ctx, "dead", goredis.Z{Score: 1, Member: `{"class":"HardJob","args":[],"jid":"3","queue":"default","error_class":"E","error_message":"gone"}`})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	url, dir := testpg.New(t), t.TempDir()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	args := func(more ...string) []string {
		return append([]string{"import", "sidekiq", "--database-url", url, "--from", r.URL(), "--map", "default=jobs"}, more...)
	}
	if out, stderr, code := run(t, dir, args()...); code != 1 || !strings.Contains(out, "job 1 of queue:default was rejected") {
		t.Errorf("without a queue: %d\n%s%s", code, out, stderr)
	}
	if _, err := conn.Exec(ctx, "select posthaste.create_queue('jobs'), posthaste.create_queue('morgue')"); err != nil {
		t.Fatal(err)
	}
	if out, stderr, code := run(t, dir, args("--keep", "--map", "low=jobs")...); code != 0 || !strings.Contains(out, `no jobs of queue "low" found; the queues are default`) || !strings.Contains(out, "imported 2 jobs") || !strings.Contains(out, "1 more jobs were duplicates") || !strings.Contains(out, "1 jobs are in Redis: dead") {
		t.Errorf("kept: %d\n%s%s", code, out, stderr)
	}
	if out, stderr, code := run(t, dir, args("--dead", "morgue")...); code != 0 || !strings.Contains(out, "imported 3 jobs, 1 of them as dead letters") || !strings.Contains(out, "0 jobs are in Redis: queue") {
		t.Errorf("taken: %d\n%s%s", code, out, stderr)
	}
	var sent, dead int
	if err := conn.QueryRow(ctx, `select count(*) filter (where m.queue = 'jobs'), (select count(*) from posthaste.list_dead_letters('{"queue": "morgue"}')) from posthaste.list_messages() m`).Scan(&sent, &dead); err != nil || sent != 2 || dead != 1 {
		t.Errorf("%d messages and %d dead letters, want 2 and 1: %v", sent, dead, err)
	}
	for what, wrong := range map[string][]string{
		"--layout must be": args("--layout", "resque"),
		"--map must be":    args("--map", "default"),
		"--batch must be":  args("--batch", "0"),
		"is not the URL":   {"import", "sidekiq", "--database-url", url, "--from", "localhost"},
	} {
		if _, stderr, code := run(t, dir, wrong...); code != 2 || !strings.Contains(stderr, what) {
			t.Errorf("%q: %d\n%s", what, code, stderr)
		}
	}
}
