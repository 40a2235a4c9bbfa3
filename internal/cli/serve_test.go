//go:build unix

package cli_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/catcher"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
)

var servingOn = regexp.MustCompile(`serving.*address"?[=:]"?http://[^\s"]*:(\d+)[\s"]`)

// startServe runs serve on a free port and returns its address, which it reads from the log.
func startServe(t *testing.T, env []string, args ...string) (p *process, address string) {
	t.Helper()
	p = start(t, "", env, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)...)
	eventually(t, "it tells where it serves", func() error {
		port := servingOn.FindStringSubmatch(p.said())
		if port == nil {
			return fmt.Errorf("it said %q", p.said())
		}
		address = "127.0.0.1:" + port[1]
		return nil
	})
	return p, address
}

func answers(url string, want int) func() error {
	return func() error {
		status, err := get(url, nil)
		if status != want {
			return fmt.Errorf("status %d, want %d: %v", status, want, err)
		}
		return nil
	}
}

// promptly waits for met, which is guaranteed within 5 s. It checks the time only at full
// size, when no other test runs. On each change, TestHA5Readiness of package server checks it
// with a fake clock.
func promptly(t *testing.T, what string, met func() error) {
	t.Helper()
	begun := time.Now()
	eventually(t, what, met)
	if took := time.Since(begun); testrun.Full() && took > 5*time.Second {
		t.Errorf("%s after %s, and 5 s are promised", what, took)
	}
}

// makeEmails creates the queue of e-mails as migrate up does.
func makeEmails(t *testing.T, url string) {
	t.Helper()
	engine, err := postgres.Open(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	if err := engine.CreateQueue(context.Background(), email.Queue, posthaste.QueueOptions{MaxPayload: posthaste.MaxPayloadBytes}); err != nil {
		t.Fatal(err)
	}
}

// TestHA5ServeWaitsForItsDatabase starts serve --worker before its database, and stops and
// restarts the database.
func TestHA5ServeWaitsForItsDatabase(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	pg := testpg.Server(t)
	makeEmails(t, pg.URL())
	if err := pg.Kill(); err != nil { // Stop of a temporary server removes it
		t.Fatal(err)
	}
	mails, err := catcher.Start(catcher.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer mails.Close()
	p, address := startServe(t, []string{"DATABASE_URL=" + pg.URL(), "SMTP_URL=smtp://" + mails.Addr() + "?tls=none"}, "--worker")
	base := "http://" + address
	eventually(t, "it is alive", answers(base+"/healthz", 200))
	eventually(t, "it is not ready", answers(base+"/readyz", 503))
	eventually(t, "it says that it waits", func() error {
		if !strings.Contains(p.said(), "waiting for the database") {
			return fmt.Errorf("it said %q", p.said())
		}
		return nil
	})
	status, _ := do("POST", base+"/v1/emails", aMail, nil)
	if status != http.StatusServiceUnavailable {
		t.Errorf("a mail without a database: status %d, want 503", status)
	}

	for round := 1; round <= 2; round++ {
		if err := pg.Restart(ctx); err != nil {
			t.Fatal(err)
		}
		promptly(t, "ready again", answers(base+"/readyz", 200))
		deliverMail(t, base, mails, fmt.Sprintf("Your order %d", round))
		if round == 2 {
			break
		}
		if err := pg.Kill(); err != nil {
			t.Fatal(err)
		}
		promptly(t, "not ready", answers(base+"/readyz", 503))
	}
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("SIGTERM: exit code %d", code)
	}
	said := p.said()
	for text, want := range map[string]int{"waiting for the database": 1, "the database is ready": 1, "not ready": 2, "ready again": 2} {
		if got := strings.Count(said, text); got != want {
			t.Errorf("it said %q %d times, want %d:\n%s", text, got, want, said)
		}
	}
}

const aMail = `{"from": "shop@example.com", "to": ["ada@example.com"], "subject": "Your order", "text": "It is on its way."}`

// deliverMail sends a mail and waits until the catcher has it.
func deliverMail(t *testing.T, base string, mails *catcher.Catcher, subject string) {
	t.Helper()
	// Readiness does not guarantee that each connection succeeds.
	promptly(t, "a mail is accepted", func() error {
		_, err := do("POST", base+"/v1/emails", strings.Replace(aMail, "Your order", subject, 1), nil)
		return err
	})
	limited, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// A message whose settlement was interrupted can be delivered twice.
	if err := mails.Wait(limited, func(all []catcher.Mail) bool {
		return slices.ContainsFunc(all, func(m catcher.Mail) bool { return m.Subject == subject })
	}); err != nil {
		t.Fatal(err)
	}
}

// TestHA3SecondSignalExitsAtOnce keeps a request open, so that a graceful stop would take the
// whole grace period.
func TestHA3SecondSignalExitsAtOnce(t *testing.T) {
	t.Parallel()
	database := testpg.New(t)
	for _, c := range []struct {
		signal syscall.Signal
		code   int
	}{{syscall.SIGTERM, 143}, {syscall.SIGINT, 130}} {
		p, address := startServe(t, []string{"DATABASE_URL=" + database}, "--grace", "10m")
		eventually(t, "it is ready", answers("http://"+address+"/readyz", 200))
		holdRequest(t, address)
		if err := p.Process.Signal(c.signal); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it stops", func() error {
			if !strings.Contains(p.said(), "a second signal stops it at once") {
				return fmt.Errorf("it said %q", p.said())
			}
			return nil
		})
		if code := p.stop(c.signal); code != c.code {
			t.Errorf("second %s: exit code %d, want %d", c.signal, code, c.code)
		}
	}
}

// TestSignalsInOneInstantAreOne sends two signals at once, as programs do that signal a child
// and its process group. The program still stops gracefully.
func TestSignalsInOneInstantAreOne(t *testing.T) {
	t.Parallel()
	p, address := startServe(t, []string{"DATABASE_URL=" + testpg.New(t)})
	eventually(t, "it is ready", answers("http://"+address+"/readyz", 200))
	// The process is stopped, so that it gets both signals at once.
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGTERM, syscall.SIGINT} {
		if err := p.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}
	if code := p.stop(syscall.SIGCONT); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestHA3GraceEnds keeps a request open beyond the grace period. The connection is closed and
// the log reports it.
func TestHA3GraceEnds(t *testing.T) {
	t.Parallel()
	p, address := startServe(t, []string{"DATABASE_URL=" + testpg.New(t)}, "--grace", "100ms")
	eventually(t, "it is ready", answers("http://"+address+"/readyz", 200))
	holdRequest(t, address)
	if code := p.stop(syscall.SIGTERM); code != 1 || !strings.Contains(p.said(), "connections were closed") {
		t.Errorf("exit code %d, want 1:\n%s", code, p.said())
	}
}

// holdRequest sends the header of a request and waits until the server asks for the body.
func holdRequest(t *testing.T, address string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "POST /v1/emails HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n", address)
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "100") {
		t.Fatalf("the server answered %q, %v", line, err)
	}
}

// TestServeWithToken listens beyond loopback, which requires a token, and rejects requests
// without it.
func TestServeWithToken(t *testing.T) {
	t.Parallel()
	env := []string{"DATABASE_URL=" + testpg.New(t), "POSTHASTE_TOKEN=open-sesame"}
	p, address := startServe(t, env, "--listen", "0.0.0.0:0", "--log-format", "json") // the last --listen applies
	base := "http://" + address
	eventually(t, "it is ready", answers(base+"/readyz", 200))
	if err := answers(base+"/v1/queues", 401)(); err != nil {
		t.Error(err)
	}
	if err := answers(base+"/metrics", 401)(); err != nil {
		t.Error(err)
	}
	r, err := http.NewRequest("GET", base+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer open-sesame")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	metrics := bufio.NewScanner(answer.Body)
	found := false
	for metrics.Scan() {
		found = found || metrics.Text() == "posthaste_store_up 1"
	}
	if answer.StatusCode != 200 || !found {
		t.Errorf("metrics with the token: %s, posthaste_store_up 1 found: %v", answer.Status, found)
	}
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if said := p.said(); strings.Contains(said, "open-sesame") || !strings.HasPrefix(said, "{") {
		t.Errorf("the log holds the token or is no JSON:\n%s", said)
	}
}

// TestServeWithStoredTokens listens beyond loopback only if the database has a token, accepts
// the token, and rejects it after a drop without a restart.
func TestServeWithStoredTokens(t *testing.T) {
	t.Parallel()
	database := testpg.New(t)
	env := []string{"DATABASE_URL=" + database}
	refused := start(t, "", env, "serve", "--listen", "0.0.0.0:0")
	if code := refused.wait(); code != 2 || !strings.Contains(refused.said(), "posthaste token add") {
		t.Fatalf("without a token: exit code %d:\n%s", code, refused.said())
	}
	add := func(name string) string {
		t.Helper()
		secret, stderr, code := run(t, "", "token", "add", name, "--scope", "admin", "--database-url", database)
		if code != 0 {
			t.Fatalf("token add: %d: %s", code, stderr)
		}
		return strings.TrimSpace(secret)
	}
	secret := add("ops")
	p, address := startServe(t, env, "--listen", "0.0.0.0:0", "--log-level", "debug")
	with := func(secret string, want int) func() error {
		return func() error {
			r, err := http.NewRequest("GET", "http://"+address+"/v1/queues", nil)
			if err != nil {
				return err
			}
			r.Header.Set("Authorization", "Bearer "+secret)
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			answer.Body.Close()
			if answer.StatusCode != want {
				return fmt.Errorf("%s, want %d", answer.Status, want)
			}
			return nil
		}
	}
	eventually(t, "the token is good", with(secret, 200))
	if err := answers("http://"+address+"/v1/queues", 401)(); err != nil {
		t.Error(err)
	}
	second := add("ops-2")
	eventually(t, "the second token is good", with(second, 200))
	if _, stderr, code := run(t, "", "token", "drop", "ops", "--database-url", database); code != 0 {
		t.Fatal(stderr)
	}
	eventually(t, "the dropped token is refused", with(secret, 401))
	if err := with(second, 200)(); err != nil {
		t.Error(err)
	}
	if said := p.said(); strings.Contains(said, secret) || strings.Contains(said, second) {
		t.Errorf("a secret is in the log:\n%s", said)
	}
}
