//go:build unix

package cli_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/catcher"
	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// HA6: everything works behind PgBouncer in transaction mode, from the schema to the
// delivery of mails by serve and worker.
func TestHA6_CommandsBehindPgbouncer(t *testing.T) {
	t.Parallel()
	url := testpg.Bouncer(t, testpg.Empty(t))
	mails, err := catcher.Start(catcher.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer mails.Close()
	env := []string{"DATABASE_URL=" + url, "SMTP_URL=smtp://" + mails.Addr() + "?tls=none", "POSTHASTE_POLLING_ONLY=true"}
	run := func(wanted string, args ...string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, "posthaste", args...)
		cmd.Env = append(cmd.Environ(), env...)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), wanted) {
			t.Fatalf("%q: %v, without %q:\n%s", args, err, wanted, out)
		}
	}
	caught := func(n int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := mails.Wait(ctx, func(all []catcher.Mail) bool { return len(all) >= n }); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // in a session that another client has used
		run("ledger", "migrate", "up")
		run("ledger", "migrate", "status")
	}
	run("", "queue", "create", "orders")
	for range 3 {
		run("orders", "queue", "ls")
		run("", "send", "orders", `{"order": 7}`)
		run(`{"order": 7}`, "receive", "orders", "--wait", "20s", "--ack")
	}
	run("orders", "message", "ls", "--state", "done")

	serve, address := startServe(t, env, "--worker")
	base := "http://" + address
	eventually(t, "ready", answers(base+"/readyz", 200))
	for n := range 5 { // with idle times between them
		if _, err := do("POST", base+"/v1/emails", aMail, nil); err != nil {
			t.Fatal(err)
		}
		caught(n + 1)
	}
	if err := serve.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	start(t, "", env, "worker", "--queue", "emails")
	run("", "send", "emails", aMail)
	caught(6)
	run("", "migrate", "down", "--no-roles", "--yes")
}
