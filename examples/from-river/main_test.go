package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
)

const printed = `an invoice, duplicate: false
an invoice, duplicate: true
asked for a review of order 7
gave up a review: the order was cancelled
invoiced order 7
reported
shipped order 7, attempt 2
`

// The program does all of its work.
func TestShopInPosthaste(t *testing.T) {
	t.Parallel()
	prints(t, ".")
}

// The program with River prints the same.
func TestShopInRiver(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "River is no dependency of this module, and must be downloaded")
	ctx, url := t.Context(), prints(t, "river")

	// move.sql moves the waiting jobs of River.
	pool, err := pgxpool.New(ctx, url)
	must(t, err)
	defer pool.Close()
	engine := postgres.New(pool)
	must(t, engine.CreateQueue(ctx, "shop", posthaste.QueueOptions{}))
	must(t, engine.CreateQueue(ctx, "shipping", posthaste.QueueOptions{}))
	_, err = pool.Exec(ctx, `insert into river_job (state, kind, args, queue, priority, max_attempts, attempt, attempted_at, scheduled_at, tags) values
		('available', 'invoice', '{"order": 9}', 'default', 1, 25, 0, null, now(), '{}'),
		('scheduled', 'review', '{"order": 9}', 'default', 2, 25, 0, null, now() + interval '1 hour', '{"x"}'),
		('retryable', 'ship', '{"order": 9}', 'shipping', 1, 5, 1, now(), now() + interval '1 minute', '{}'),
		('running', 'ship', '{"order": 10}', 'shipping', 1, 5, 1, now(), now(), '{}')`)
	must(t, err)
	statement, err := os.ReadFile("move.sql")
	must(t, err)
	var moved, left int
	must(t, pool.QueryRow(ctx, string(statement)).Scan(&moved))
	must(t, pool.QueryRow(ctx, "select count(*) from river_job where args ->> 'order' in ('9', '10')").Scan(&left))
	if moved != 3 || left != 1 {
		t.Errorf("%d jobs were moved and %d are left, want 3 and 1", moved, left)
	}
	page, err := engine.Messages(ctx, posthaste.MessageFilter{})
	must(t, err)
	var got []string
	for _, m := range page.Items {
		got = append(got, fmt.Sprint(m.Queue, " ", m.Kind, " ", m.Subscriptions[0].State, " ", m.Terms))
	}
	slices.Sort(got)
	if want := []string{"shipping ship scheduled []", "shop invoice ready []", "shop review scheduled [x]"}; !slices.Equal(got, want) {
		t.Errorf("the messages are %q, want %q", got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// prints runs a program on a database of its own and returns its URL.
func prints(t *testing.T, folder string) (url string) {
	t.Helper()
	url = testpg.New(t)
	cmd := exec.Command("go", "run", ".")
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "DATABASE_URL="+url)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	lines := slices.Sorted(strings.Lines(string(out)))
	if got := strings.Join(lines, ""); err != nil || got != printed {
		t.Errorf("it printed\n%s%v\n%s", got, err, log.String())
	}
	return url
}
