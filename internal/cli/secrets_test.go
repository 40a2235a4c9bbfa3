//go:build unix

package cli_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/brokers"
	"github.com/posthaste-mq/posthaste/internal/catcher"
	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// The secrets of TestNoSecretComesOut, one for each place that can hold one.
// Those in URLs have characters that are escaped there.
var secrets = map[string]string{
	"password of the database": "db-S3cret/p%w", "wrong password of the database": "db-Wr0ng/p%w", "password of the mail server": "smtp-S3cret/p%w",
	"password of Redis": "redis-S3cret/p%w", "wrong password of Redis": "redis-Wr0ng/p%w",
	"password of NATS": "nats-S3cret/p%w", "wrong password of NATS": "nats-Wr0ng/p%w", "token of NATS": "nats-S3cret/token",
	"wrong password of the mail server": "smtp-Wr0ng/p%w", "given token": "given-S3cret-token", "wrong token": "wrong-S3cret-token",
	"payload": "payload-S3cret", "header of a message": "header-S3cret", "text of a mail": "text-S3cret", "subject of a mail": "subject-S3cret",
	"beginning of a password that is not escaped": "begin-S3cret", "end of a password that is not escaped": "end-S3cret",
	"header of a mail": "mailheader-S3cret", "attachment": "YXR0YWNobWVudC1TM2NyZXQ=", "parameter": "parameter-S3cret",
}

// output is all output except the requested values.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) add(where, text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	fmt.Fprintf(&o.text, "\n### %s\n%s", where, text)
}

// TestNoSecretComesOut runs server, worker and commands at log level debug, with a secret in
// each setting that takes one. It makes them fail in many ways, and searches their output
// for the secrets.
func TestNoSecretComesOut(t *testing.T) {
	t.Parallel()
	var out output
	database := testpg.New(t)
	asUser := databaseUser(t, database, secrets["password of the database"])
	mails, err := catcher.Start(catcher.Config{Username: "shop", Password: secrets["password of the mail server"], InsecureAuth: true})
	if err != nil {
		t.Fatal(err)
	}
	defer mails.Close()
	smtp := func(password string) string {
		return (&url.URL{Scheme: "smtp", User: url.UserPassword("shop", password), Host: mails.Addr(), RawQuery: "tls=none"}).String()
	}
	makeEmails(t, database)
	stored := addStoredToken(t, database)
	env := []string{"DATABASE_URL=" + asUser, "SMTP_URL=" + smtp(secrets["wrong password of the mail server"]), "POSTHASTE_TOKEN=" + secrets["given token"], "POSTHASTE_LOG_LEVEL=debug"}
	server, address := startServe(t, env)
	base := "http://" + address
	eventually(t, "it is ready", answers(base+"/readyz", 200))
	tryRequests(t, &out, base, stored)
	// A worker with a wrong password fails to deliver the mail; one with the right password
	// delivers it.
	wrong := start(t, "", append(env, "POSTHASTE_LOG_FORMAT=json"), "worker", "--queue", "emails")
	eventually(t, "an attempt failed", func() error {
		if !strings.Contains(wrong.said(), "Authentication failed") {
			return fmt.Errorf("it said %q", wrong.said())
		}
		return nil
	})
	wrong.stop(syscall.SIGTERM)
	right := start(t, "", append(env, "SMTP_URL="+smtp(secrets["password of the mail server"])), "worker", "--queue", "emails")
	limited, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := mails.Wait(limited, func(all []catcher.Mail) bool { return len(all) == 1 }); err != nil {
		t.Fatalf("%v\n%s", err, right.said())
	}
	right.stop(syscall.SIGTERM)
	server.stop(syscall.SIGTERM)
	tryCommands(t, &out, asUser)
	tryRedis(t, &out, secrets["payload"])
	tryNATS(t, &out, secrets["payload"])
	tryUnescaped(t, &out, database)
	for what, p := range map[string]*process{"server": server, "worker with a wrong password": wrong, "worker": right} {
		out.add(what, p.said())
	}

	said := out.text.String()
	for _, there := range []string{"level=DEBUG", "msg=request", "posthaste_store_up", `"status":401`, `"status":413`, `"code":"invalid"`, "database URL cannot be read"} {
		if !strings.Contains(said, there) {
			t.Errorf("%q is not in the output, so this test can have missed some", there)
		}
	}
	all := map[string]string{"stored token": stored}
	for what, secret := range secrets {
		all[what] = secret
	}
	for what, secret := range all {
		checkAbsent(t, said, what, secret)
	}
}

// addStoredToken adds a token to the database and returns its secret.
func addStoredToken(t *testing.T, database string) string {
	t.Helper()
	stored, _, code := run(t, "", "token", "add", "stored", "--scope", "admin", "--database-url", database)
	if code != 0 {
		t.Fatal("token add")
	}
	return strings.TrimSpace(stored)
}

// checkAbsent checks that output does not contain a secret, in plain or encoded form.
func checkAbsent(t *testing.T, output, what, secret string) {
	t.Helper()
	for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret), url.UserPassword("", secret).String()[1:],
		base64.StdEncoding.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte("\x00shop\x00" + secret))} {
		if i := strings.Index(output, form); i >= 0 {
			t.Errorf("the output contains the %s: …%s…", what, output[max(0, i-300):min(len(output), i+100)])
			return
		}
	}
}

// databaseUser creates a user with all privileges for this test.
func databaseUser(t *testing.T, database, password string) (asUser string) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	name := "secrets_" + strings.TrimPrefix(u.Path, "/")
	if _, err := conn.Exec(ctx, "create role "+name+" login password '"+password+"' in role posthaste_admin"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = conn.Exec(ctx, "drop role "+name)
		_ = conn.Close(ctx)
	})
	u.User = url.UserPassword(name, password)
	return u.String()
}

// tryRequests sends valid and invalid requests with secrets.
func tryRequests(t *testing.T, out *output, base, stored string) {
	t.Helper()
	message := `{"payload":{"x":"` + secrets["payload"] + `"},"headers":{"Authorization":"` + secrets["header of a message"] + `"}%s}`
	mail := `{"from":"shop@example.com","to":["ada@example.com"],"subject":"` + secrets["subject of a mail"] + `","text":"` + secrets["text of a mail"] + `",` +
		`"headers":{"X-Secret":"` + secrets["header of a mail"] + `"},"attachments":[{"filename":"a.txt","content":"` + secrets["attachment"] + `"}]%s}`
	for i, c := range []struct {
		method, path, token, body string
		want                      int
	}{
		{"PUT", "/v1/queues/orders", secrets["given token"], `{"max_payload":1000}`, 201},
		{"POST", "/v1/queues/orders/messages", stored, fmt.Sprintf(message, ""), 201},
		{"POST", "/v1/emails", secrets["given token"], fmt.Sprintf(mail, ""), 201},
		{"GET", "/v1/queues", secrets["wrong token"], "", 401},
		{"GET", "/v1/queues", secrets["wrong token"] + " " + secrets["wrong token"], "", 401},
		{"GET", "/v1/queues?token=" + secrets["parameter"], stored, "", 400},
		{"GET", "/v1/queues?" + secrets["parameter"][:4] + "=%zz" + secrets["parameter"], stored, "", 400},
		{"POST", "/v1/queues/orders/messages", stored, fmt.Sprintf(message, `,"nope":1`), 400},
		{"POST", "/v1/queues/orders/messages", stored, fmt.Sprintf(message, `,"delay":"-1s"`), 400},
		{"POST", "/v1/queues/orders/messages", stored, fmt.Sprintf(message, `,`), 400},
		{"POST", "/v1/queues/orders/messages", stored, `{"payload":"` + secrets["payload"] + `\u0000"}`, 400},
		{"POST", "/v1/queues/orders/messages", stored, `{"payload":"` + strings.Repeat(secrets["payload"], 100) + `"}`, 413},
		{"POST", "/v1/queues/orders/messages", stored, `{"payload":1,"headers":{"a":"` + strings.Repeat(secrets["header of a message"], 2000) + `"}}`, 413},
		{"POST", "/v1/queues/nowhere/messages", stored, fmt.Sprintf(message, ""), 404},
		{"POST", "/v1/emails", stored, fmt.Sprintf(mail, `,"nope":1`), 400},
		{"POST", "/v1/emails", stored, strings.Replace(fmt.Sprintf(mail, ""), "ada@", "ada", 1), 400},
		{"GET", "/metrics", stored, "", 200},
		{"GET", "/openapi.json", "", "", 200},
	} {
		r, err := http.NewRequest(c.method, base+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+c.token)
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != c.want {
			t.Errorf("request %d, %s %s: %s, want %d: %s %v", i, c.method, c.path, answer.Status, c.want, body, err)
		}
		out.add("answer of "+c.method, fmt.Sprint(answer.Header)+string(body))
	}
}

// tryRedis runs commands and a server that fail on Redis.
func tryRedis(t *testing.T, out *output, payload string) {
	t.Helper()
	r := startRedis(t, "--requirepass", secrets["password of Redis"])
	at := func(password, host string) string {
		return (&url.URL{Scheme: "redis", User: url.UserPassword("default", password), Host: host}).String()
	}
	right := at(secrets["password of Redis"], r.Address())
	wrong := at(secrets["wrong password of Redis"], r.Address())
	away := at(secrets["password of Redis"], "127.0.0.1:1")
	if text, _, code := run(t, "", "queue", "create", "orders", "--redis-url", right); code != 0 {
		t.Fatalf("queue create: %s", text)
	}
	for _, c := range []struct{ redis, args string }{
		{wrong, "queue ls"}, {wrong, "worker --queue orders"}, {wrong, "queue ls --json"}, {away, "queue ls"}, {away, "doctor"},
		{at(secrets["password of Redis"], "127.0.0.1:port"), "queue ls"}, {right + "/nonsense", "queue ls"}, {right + "/99", "serve --listen 127.0.0.1:0"},
		{strings.Replace(right, "redis:", "rediss:", 1), "queue ls"}, {right, "send nowhere " + payload}, {right, "serve --listen nonsense"},
	} {
		limited, cancel := context.WithTimeout(t.Context(), 3*time.Second) // long-running commands wait for Redis
		cmd := exec.CommandContext(limited, "posthaste", strings.Fields(c.args)...)
		cmd.Env = append(os.Environ(), "REDIS_URL="+c.redis, "DATABASE_URL=", "POSTHASTE_LOG_LEVEL=debug")
		text, err := cmd.CombinedOutput()
		cancel()
		if err == nil {
			t.Errorf("%s passes on Redis", c.args)
		}
		out.add("posthaste "+strings.Fields(c.args)[0]+" on Redis", string(text))
	}
}

// tryNATS runs commands and a server that fail on NATS.
func tryNATS(t *testing.T, out *output, payload string) {
	t.Helper()
	n := startNATS(t, `authorization: {user: "shop", password: "`+secrets["password of NATS"]+`"}`)
	at := func(password, host string) string {
		return (&url.URL{Scheme: "nats", User: url.UserPassword("shop", password), Host: host}).String()
	}
	right := at(secrets["password of NATS"], n.Address())
	wrong := at(secrets["wrong password of NATS"], n.Address())
	away := at(secrets["password of NATS"], "127.0.0.1:1")
	token := (&url.URL{Scheme: "nats", User: url.User(secrets["token of NATS"]), Host: n.Address()}).String()
	if _, said, code := run(t, "", "queue", "create", "orders", "--nats-url", right); code != 0 {
		t.Fatalf("queue create: %s", said)
	}
	for _, c := range []struct{ nats, args string }{
		{wrong, "queue create orders"}, {wrong, "worker --queue orders"}, {wrong, "queue create orders --json"}, {token, "queue create orders"}, {away, "queue create orders"}, {away, "doctor"},
		{at(secrets["password of NATS"], "127.0.0.1:port"), "queue create orders"}, {right + "?" + payload + "=1", "queue create orders"}, {right + "?replicas=9", "serve --listen 127.0.0.1:0"},
		{right + "," + wrong + "," + away + "/nonsense?x", "queue create orders"}, {away + "," + token, "serve --listen 127.0.0.1:0"},
		{strings.Replace(right, "nats:", "tls:", 1), "queue create orders"}, {right, "send nowhere " + payload}, {right, "serve --listen nonsense"},
		{right, "relay --queue orders --set origin=a --to-engine " + wrong},
	} {
		limited, cancel := context.WithTimeout(t.Context(), 3*time.Second) // long-running commands wait for NATS
		cmd := exec.CommandContext(limited, "posthaste", strings.Fields(c.args)...)
		cmd.Env = append(os.Environ(), "NATS_URL="+c.nats, "DATABASE_URL=", "POSTHASTE_LOG_LEVEL=debug")
		text, err := cmd.CombinedOutput()
		cancel()
		if err == nil {
			t.Errorf("%s passes on NATS", c.args)
		}
		out.add("posthaste "+strings.Fields(c.args)[0]+" on NATS", string(text))
	}
}

// tryCommands runs commands with secrets that fail.
func tryCommands(t *testing.T, out *output, asUser string) {
	t.Helper()
	u, err := url.Parse(asUser)
	if err != nil {
		t.Fatal(err)
	}
	wrong := *u
	wrong.User = url.UserPassword("nobody_at_all", secrets["wrong password of the database"])
	away := *u
	away.Host = "127.0.0.1:1"
	broken := strings.Replace(asUser, u.Host, "127.0.0.1:port", 1)
	payload := `{"x":"` + secrets["payload"] + `"}`
	for _, c := range []struct{ database, args string }{
		{wrong.String(), "queue ls"}, {wrong.String(), "worker --queue emails --smtp-url smtp://a:" + url.PathEscape(secrets["password of the mail server"]) + "@127.0.0.1?tls=sometimes"},
		{away.String(), "queue ls --json"}, {away.String(), "serve --listen nonsense --token " + secrets["given token"]}, {broken, "queue ls"}, {broken, "serve --listen 127.0.0.1:0"},
		{asUser, "send nowhere " + payload}, {asUser, "send orders " + payload + " --delay -1s"}, {asUser, "send orders " + payload + "}"},
		{asUser, "migrate up"}, {asUser, "nonsense"},
	} {
		cmd := exec.CommandContext(t.Context(), "posthaste", strings.Fields(c.args)...)
		cmd.Env = append(os.Environ(), "DATABASE_URL="+c.database, "POSTHASTE_LOG_LEVEL=debug")
		text, err := cmd.CombinedOutput()
		if err == nil {
			t.Errorf("%s passes", strings.Fields(c.args)[0])
		}
		out.add("posthaste "+strings.Fields(c.args)[0], string(text))
	}
}

// tryUnescaped sets passwords with unescaped special characters. Parts of such a password
// are parsed as host, port, path or options, and must not appear in errors either.
func tryUnescaped(t *testing.T, out *output, database string) {
	t.Helper()
	dir := t.TempDir()
	end := secrets["end of a password that is not escaped"]
	for _, begin := range []string{secrets["beginning of a password that is not escaped"], "31415"} {
		for _, sign := range []string{"/", "#", "?"} {
			at := func(scheme string) string { return scheme + "://shop:" + begin + sign + end + "@127.0.0.1:1/" }
			all := [][]string{
				{"queue", "ls", "--database-url", at("postgres")}, {"queue", "ls", "--redis-url", at("redis")}, {"queue", "ls", "--nats-url", at("nats")},
				{"import", "sidekiq", "--database-url", database, "--from", at("redis")},
				{"worker", "--queue", "emails", "--database-url", database, "--smtp-url", at("smtp")},
			}
			for _, kind := range brokers.All {
				scheme := kind.Schemes[0]
				file := filepath.Join(dir, scheme+".yaml")
				if err := os.WriteFile(file, []byte("sources:\n  - queue: orders\n    broker: \""+at(scheme)+"\"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				if all = append(all, []string{"relay", "--queue", "orders", "--broker", at(scheme), "--database-url", database}); sign == "/" && kind.Source != nil {
					all = append(all, []string{"relay", "--config", file, "--database-url", database})
				}
			}
			for _, args := range all {
				limited, cancel := context.WithTimeout(t.Context(), 10*time.Second) // commands that accept the URL wait for its server
				cmd := exec.CommandContext(limited, "posthaste", args...)
				cmd.Env = append(os.Environ(), "POSTHASTE_LOG_LEVEL=debug", "DATABASE_URL=", "REDIS_URL=", "NATS_URL=")
				text, err := cmd.CombinedOutput()
				cancel()
				if err == nil {
					t.Errorf("%s passes with a password that is not escaped", args[0])
				}
				if args[0] == "relay" && !strings.Contains(string(text), "percent-encoded") {
					t.Errorf("%s is not told that passwords are percent-encoded: %s", args[0], text)
				}
				if strings.Contains(string(text), "shop:31415") || strings.Contains(string(text), ":31415\"") {
					t.Errorf("the beginning of a password came out: %s", text)
				}
				out.add("posthaste "+args[0]+" with a password that is not escaped", string(text))
			}
		}
	}
}
