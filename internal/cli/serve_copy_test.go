//go:build unix

package cli_test

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/catcher"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/postgres"
)

// On a copy of a database, serve --worker accepts mails and /readyz gives the reason why they
// are not delivered. After a rebase they are.
func TestServeInACopyWaits(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	makeEmails(t, url)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	// The state after a restore of a dump: the identity is of another server.
	if _, err := conn.Exec(t.Context(), `update posthaste.identity set system_identifier = system_identifier + 1`); err != nil {
		t.Fatal(err)
	}
	mails, err := catcher.Start(catcher.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer mails.Close()
	p, address := startServe(t, []string{"DATABASE_URL=" + url, "SMTP_URL=smtp://" + mails.Addr() + "?tls=none"}, "--worker")
	base := "http://" + address
	eventually(t, "/readyz gives the reason", func() error {
		status, err := get(base+"/readyz", nil)
		if status != 503 || !strings.Contains(fmt.Sprint(err), "copy") {
			return fmt.Errorf("status %d: %v", status, err)
		}
		return nil
	})
	if status, err := do("POST", base+"/v1/emails", aMail, nil); status != 201 {
		t.Errorf("a mail is answered %d: %v", status, err)
	}
	if _, err := postgres.Rebase(t.Context(), url, false, func(string) {}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is ready", answers(base+"/readyz", 200))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := mails.Wait(ctx, func(all []catcher.Mail) bool { return len(all) > 0 }); err != nil {
		t.Fatal(err)
	}
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("SIGTERM: exit code %d", code)
	}
}

// serve without a worker does upkeep: it counts sent messages, and schedules tick.
func TestServeAloneDoesUpkeep(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), `select posthaste.create_queue('q'), posthaste.create_queue('ticks'), posthaste.schedule_put('s', 'ticks', 'every 1 second'), posthaste.send('q', '1')`,
		pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	p, _ := startServe(t, []string{"DATABASE_URL=" + url})
	eventually(t, "it is counted, and ticks are sent", func() error {
		var depths []int64
		rows, err := conn.Query(t.Context(), `select depth from posthaste.queues where queue in ('q', 'ticks') order by queue`)
		if err == nil {
			depths, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		if err == nil && (len(depths) != 2 || depths[0] != 1 || depths[1] < 2) {
			err = fmt.Errorf("depths are %v", depths)
		}
		return err
	})
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("SIGTERM: exit code %d", code)
	}
}
