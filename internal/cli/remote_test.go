//go:build unix

package cli

import (
	"context"
	"net/http/httptest"
	"os"
	"os/user"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/memory"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/server"
)

// adminSecret is the secret of the token with the scope admin of [serve].
const adminSecret = "admin-secret"

// serve offers a store over HTTP, and returns the address. Further tokens have their scope as their
// secret.
func serve(t *testing.T, store posthaste.Store, scopes ...posthaste.Scope) string {
	t.Helper()
	admin, err := server.NewToken("ops", adminSecret, posthaste.ScopeAdmin)
	if err != nil {
		t.Fatal(err)
	}
	config := server.Config{Engine: store, Tokens: []posthaste.Token{admin}}
	for _, scope := range scopes {
		token, err := server.NewToken(strings.ReplaceAll(string(scope), ":", "-"), string(scope), scope)
		if err != nil {
			t.Fatal(err)
		}
		config.Tokens = append(config.Tokens, token)
	}
	api, err := server.New(config)
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(api)
	t.Cleanup(func() { listener.Close(); api.Close() })
	return listener.URL
}

// unclosed is a store that several commands use.
type unclosed struct{ posthaste.Store }

// Close does nothing.
func (unclosed) Close() {}

// both runs commands on a store directly and on another one over HTTP.
type both struct {
	*testing.T
	direct posthaste.Store
	behind posthaste.Store // the store behind url
	url    string
}

func newBoth(t *testing.T, open func() posthaste.Store) *both {
	b := &both{T: t, direct: open(), behind: open()}
	for _, e := range []posthaste.Store{b.direct, b.behind} {
		if err := makeEmails(posthaste.WithActor(t.Context(), "test"), e, posthaste.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	b.url = serve(t, b.behind)
	return b
}

func (b *both) run(store posthaste.Store, stdin string, args []string) (stdout, stderr string, code int) {
	p := newProgram(store)
	p.app.stdin = strings.NewReader(stdin)
	return p.run(b.Context(), args...)
}

// over returns the arguments of a command on the server at url.
func over(url string, args []string) []string {
	return append(slices.Clone(args), "--server-url", url, "--server-token", adminSecret)
}

// varyingTexts are what differs between two stores: times, ages, versions of content, operators.
var varyingTexts = regexp.MustCompile(`\d{4}-\d\d-\d\dT[0-9:.]+(Z|\+00:00)|\b(in )?\d+[smhd]( ago)?\b|"(oldest_age|duration_ms)":("[^"]*"|[0-9.]+)|"(sent|done)_per_second":[0-9.]+|\b[0-9.]+(ms|µs|s)\b`)

func normal(text string) string {
	text = varyingTexts.ReplaceAllString(text, "~")
	if u, err := user.Current(); err == nil {
		text = strings.ReplaceAll(text, "cli:"+u.Username, "OPERATOR")
	}
	text = regexp.MustCompile(`http:[a-z]+`).ReplaceAllString(text, "OPERATOR")
	text = strings.NewReplacer(`": `, `":`, `, "`, `,"`, `…`, "").Replace(text) // of JSON, which the API compacts
	return strings.Join(strings.Fields(text), " ")
}

// same runs a command on both stores, which must end with the code and say the same.
func (b *both) same(code int, stdin string, args ...string) {
	b.Helper()
	out, errs, got := b.run(b.direct, stdin, args)
	out2, errs2, got2 := b.run(nil, stdin, over(b.url, args))
	if got != code || got2 != code || normal(out) != normal(out2) || normal(errs) != normal(errs2) {
		b.Errorf("%q ends with %d directly:\n%s%s\nand with %d over HTTP, want %d:\n%s%s", args, got, out, errs, got2, code, out2, errs2)
	}
}

// reads runs a command that changes nothing on the store behind the server, directly and over HTTP.
// Its results are the same to the byte.
func (b *both) reads(args ...string) {
	b.Helper()
	formats := []string{"json", "table"}
	if args[0] == "action" {
		formats = formats[:1] // a table cuts JSON, which the API compacts
	}
	for _, format := range formats {
		command := append(slices.Clone(args), "-o", format)
		out, errs, code := b.run(b.behind, "", command)
		out2, errs2, code2 := b.run(nil, "", over(b.url, command))
		counted := regexp.MustCompile(`"(counted_at|oldest_age)":"[^"]*"`)
		out, out2 = counted.ReplaceAllString(out, ""), counted.ReplaceAllString(out2, "")
		if format == "table" { // which has ages
			out, out2 = normal(out), normal(out2)
		}
		if code != 0 && args[0] != "doctor" || code != code2 || out != out2 || errs != errs2 {
			b.Errorf("%q ends with %d directly:\n%s%s\nand with %d over HTTP:\n%s%s", command, code, out, errs, code2, out2, errs2)
		}
	}
}

// Each command that works over HTTP does and says the same as on the store itself.
func TestCommandsAreTheSameOverHTTP(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		t.Parallel()
		b := newBoth(t, func() posthaste.Store { return memory.Open() })
		b.everyCommand()
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		b := newBoth(t, func() posthaste.Store {
			e, err := postgres.Open(t.Context(), testpg.New(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(e.Close)
			return unclosed{e}
		})
		b.everyCommand()
		b.ofPostgreSQL()
	})
}

func (b *both) everyCommand() {
	b.queues()
	b.messages()
	b.deliveries()
	b.schedules()
	b.rest()
}

func (b *both) queues() {
	b.same(0, "", "queue", "ls")
	b.same(0, "", "queue", "create", "orders", "--max-attempts", "2", "--backoff-base", "1ms", "--retention", "1h")
	b.same(0, "", "queue", "create", "orders", "--max-attempts", "2")
	b.same(1, "", "queue", "create", "orders", "--max-attempts", "3")
	b.same(2, "", "queue", "create", "No")
	b.same(0, "", "queue", "create", "once", "--mode", "at_most_once")
	b.same(0, "", "queue", "update", "orders", "--max-age", "1d", "--timeout", "1m")
	b.same(0, "", "queue", "update", "orders", "--max-age", "none", "--backoff-max", "none")
	b.same(2, "", "queue", "update", "orders", "--retention", "1m")
	b.same(1, "", "queue", "update", "nope", "--timeout", "1m")
	b.same(2, "", "queue", "update", "orders", "--mode", "at_most_once")
	for _, verb := range []string{"pause", "resume"} {
		b.same(0, "", "queue", verb, "orders")
		b.same(0, "", "queue", "show", "orders")
		b.same(1, "", "queue", verb, "nope")
		b.same(1, "", "queue", verb, "No")
		b.same(2, "", "queue", verb+"-key", "once", "k")
	}
	b.same(1, "", "queue", "show", "nope")
	b.same(1, "", "queue", "ls", "orders", "NOPE/../x")
	b.same(1, "", "queue", "unsubscribe", "orders", "default", "--yes")
	b.reads("queue", "ls")
	b.reads("queue", "ls", "orders")
	b.reads("queue", "show", "once")
}

func (b *both) messages() {
	b.same(0, "", "send", "orders", `{"n": 1,  "html": "<b>&"}`, "--key", "k", "--kind", "paid", "--header", "a=b", "--reference", "r-1", "--term", "ada", "--priority", "1")
	b.same(0, "bytes \x00\xff", "send", "orders", "--content-type", "image/png", "--delay", "1h", "--max-attempts", "3", "--timeout", "5s", "--backoff-base", "1s", "--backoff-max", "2s", "--wake=false")
	b.same(0, `[{"payload": 1}, {"payload": "x", "send_at": "2035-01-01T00:00:00Z"}]`, "send", "orders", "--messages", "-")
	b.same(0, "", "send", "orders", "{}", "--dedupe-key", "d", "--dedupe-window", "1h", "--json")
	b.same(0, "", "send", "orders", "{}", "--dedupe-key", "d", "--json")
	b.same(0, "", "send", "orders", "{}", "--unique-key", "u")
	b.same(0, "", "send", "orders", "[]", "--unique-key", "u", "--unique-exists", "replace", "--max-delay", "1h", "--json")
	b.same(0, "", "send", "orders", "{}", "--unique-key", "u", "--unique-until", "started", "--json")
	b.same(0, "", "send", "orders", "{}", "--idempotency-key", "again")
	b.same(0, "", "send", "orders", "{}", "--idempotency-key", "again")
	b.same(1, "", "send", "orders", "[]", "--idempotency-key", "again")
	b.same(1, "", "send", "nope", "{}")
	b.same(2, "", "send", "orders", "{")
	b.same(2, "", "send", "once", "{}", "--max-attempts", "3")
	b.same(0, "", "message", "update", "1", `{"payload": {"n":2}, "priority": 0, "headers": {"c": "d"}, "terms": null}`)
	b.same(1, "", "message", "update", "1", `{"payload": 3}`, "--if-version", "old")
	b.same(2, "", "message", "update", "1", `{}`)
	b.same(1, "", "message", "update", "99999", `{"payload": 3}`)
	b.same(0, "", "message", "ls")
	b.same(0, "", "message", "ls", "--state", "ready", "--state", "scheduled", "--limit", "2")
	b.same(0, "", "message", "show", "1")
	b.same(1, "", "message", "show", "99999")
	b.same(0, "", "message", "reschedule", "2", "2h")
	b.same(0, "", "message", "run", "2")
	b.same(0, "", "message", "cancel", "3")
	b.same(0, "", "message", "cancel", "3")
	b.same(1, "", "message", "run", "3")
	b.same(1, "", "message", "reschedule", "3", "2035-01-01T00:00:00Z")
	b.same(1, "", "message", "cancel", "99999")
	for _, args := range [][]string{{}, {"-q", "orders"}, {"--reference", "r-1"}, {"--key", "k"}, {"--state", "cancelled"}, {"--limit", "2"}, {"--limit", "2", "--before", "3"}} {
		b.reads(append([]string{"message", "ls"}, args...)...)
	}
	for _, id := range []string{"1", "2", "3", "4"} {
		b.reads("message", "show", id)
	}
	b.reads("queue", "peek", "orders", "--limit", "10")
	b.reads("queue", "peek", "orders", "--state", "scheduled", "--limit", "10")
	b.same(1, "", "queue", "peek", "orders", "--subscription", "nope")
}

func (b *both) deliveries() {
	b.same(0, "", "queue", "create", "work", "--max-attempts", "2", "--backoff-base", "1ms", "--backoff-max", "1ms")
	b.same(0, "", "receive", "work")
	b.same(0, "", "receive", "work", "--wait", "10ms")
	b.same(1, "", "receive", "nope")
	b.same(0, `[{"payload": {"a": 1}, "headers": {"x": "y"}}, {"payload": 2}, {"payload": "Mw==", "content_type": "text/plain"}, {"payload": 4}]`, "send", "work", "--messages", "-")
	ids := map[posthaste.Store][]string{}
	for store, args := range map[posthaste.Store][]string{b.direct: {"receive", "work", "--max", "10", "--json"}, b.behind: over(b.url, []string{"receive", "work", "--max", "10", "--json"})} {
		on := store
		if store == b.behind {
			on = nil
		}
		out, errs, code := b.run(on, "", args)
		for _, match := range regexp.MustCompile(`"id":"(\d+)"`).FindAllStringSubmatch(out, -1) {
			ids[store] = append(ids[store], match[1])
		}
		if code != 0 || len(ids[store]) != 4 {
			b.Fatalf("%q ends with %d: %s%s", args, code, out, errs)
		}
	}
	if !slices.Equal(ids[b.direct], ids[b.behind]) {
		b.Fatalf("the deliveries are %v and %v", ids[b.direct], ids[b.behind])
	}
	id := ids[b.behind]
	b.same(0, "", "message", "extend", id[0], id[1], "--lease", "1m", "--json")
	b.same(0, "", "message", "ack", id[0], "--receipt", `{"sid": 1}`)
	b.same(1, "", "message", "ack", id[0], "99999", id[1], "--json")
	b.same(1, "", "message", "extend", id[0])
	b.same(0, "", "message", "fail", id[2], "--error", "broken\nfor good", "--permanent")
	b.same(0, "", "message", "release", id[3], "--after", "1h")
	b.same(2, "", "message", "fail", id[3])
	b.same(0, "", "dead", "ls")
	b.same(0, "", "dead", "ls", "--error", "BROKEN", "--queue", "work")
	b.same(0, "", "dead", "ls", "--error", "other")
	dead := b.found(`"id":"(\d+)"`, "dead", "ls", "--json")
	b.reads("dead", "ls")
	b.reads("dead", "show", dead)
	b.reads("message", "show", dead)
	b.same(0, "", "dead", "replay", dead)
	b.same(1, "", "dead", "replay", dead)
	b.same(1, "", "dead", "show", dead)
	b.same(2, "", "dead", "replay")
	b.same(0, "", "dead", "replay", "--all")
	b.same(2, "", "dead", "discard", "--all")
	b.same(0, "", "dead", "discard", "--queue", "work", "--yes")
	b.same(1, "", "dead", "discard", "1", dead, "--yes")
	b.same(0, "", "queue", "purge", "work", "--yes")
	b.same(1, "", "queue", "purge", "nope", "--yes")
	b.same(0, "", "action", "ls", "--json")
	b.reads("action", "ls")
	b.reads("action", "ls", "--queue", "work", "--limit", "1")
	b.reads("action", "ls", "--message", dead)
}

// found returns what a command on the store behind the server has in its output.
func (b *both) found(pattern string, args ...string) string {
	b.Helper()
	out, errs, _ := b.run(b.behind, "", args)
	match := regexp.MustCompile(pattern).FindStringSubmatch(out)
	if match == nil {
		b.Fatalf("%q prints %q%s, which does not match %s", args, out, errs, pattern)
	}
	return match[1]
}

func (b *both) schedules() {
	b.same(0, "", "schedule", "ls")
	b.same(0, "", "schedule", "put", "nightly", "orders", "0 3 * * *", `{"report":  1}`, "--time-zone", "Europe/Berlin", "--catch-up", "skip", "--key", "k", "--header", "a=b", "--priority", "1")
	b.same(0, "", "schedule", "put", "nightly", "orders", "0 4 * * *")
	b.same(2, "", "schedule", "put", "bad", "orders", "99 * * * *")
	b.same(2, "", "schedule", "put", "bad", "orders", "@daily", "--time-zone", "Mars/Base")
	b.same(1, "", "schedule", "put", "bad", "nope", "@daily")
	b.same(0, "", "schedule", "pause", "nightly")
	b.pauses()
	b.reads("schedule", "ls")
	b.same(0, "", "schedule", "resume", "nightly")
	b.same(1, "", "schedule", "show", "nope")
	b.same(1, "", "schedule", "ls", "nope")
	b.reads("schedule", "ls", "nightly")
	b.reads("schedule", "show", "nightly")
	b.same(0, "", "schedule", "drop", "nightly")
	b.same(1, "", "schedule", "drop", "nightly")
}

func (b *both) rest() {
	b.same(0, "", "email", "send", "--from", "shop@example.com", "--to", "ada@example.com", "--bcc", "eve@example.com", "--subject", "Zoë", "--text", "Hello", "--reference", "m-1")
	mail := b.found(`"id":"(\d+)"`, "email", "ls", "--json")
	b.reads("email", "ls")
	b.reads("email", "ls", "--status", "scheduled", "--recipient", "Ada@example.com")
	b.reads("email", "show", mail)
	b.same(1, "", "email", "show", "1")
	b.same(0, "", "message", "cancel", mail)
	b.same(2, "", "erase", "ada@example.com")
	b.same(0, "", "erase", "ada@example.com", "--yes")
	b.reads("message", "show", mail)
	b.reads("worker", "ls")
	b.reads("doctor")
	for _, e := range []posthaste.Store{b.direct, b.behind} {
		if _, err := e.CreateToken(context.Background(), posthaste.Token{Name: "shop", Scopes: []posthaste.Scope{posthaste.ScopeSend}, Queues: []string{"orders"}}); err != nil {
			b.Fatal(err)
		}
	}
	b.reads("token", "ls")
	b.same(2, "", "queue", "drop", "orders")
	b.same(0, "", "queue", "drop", "orders", "--yes")
	b.same(1, "", "queue", "drop", "orders", "--yes")
}

// ofPostgreSQL runs commands for which the engine in memory lacks the features.
func (b *both) ofPostgreSQL() {
	b.same(0, "", "queue", "create", "keyed", "--fair", "--rate-limit", "50/s", "--key-concurrency", "2", "--key-rate-limit", "5/s burst 2")
	b.same(0, "", "queue", "pause-key", "keyed", "a b/c")
	b.reads("queue", "show", "keyed")
	b.same(0, "", "queue", "resume-key", "keyed", "a b/c")
	b.same(0, "", "queue", "create", "events")
	b.same(0, "", "queue", "subscribe", "events", "audit", "--from", "oldest", "--max-lag", "1h", "--kind", "paid", "--header", "region=eu", "--header", "region=uk")
	b.same(0, "", "queue", "subscribe", "events", "audit", "--from", "oldest", "--max-lag", "1h", "--kind", "paid", "--header", "region=eu", "--header", "region=uk")
	b.same(1, "", "queue", "subscribe", "events", "audit")
	b.same(2, "", "queue", "subscribe", "events", "No")
	b.same(0, "", "send", "events", "{}", "--kind", "paid", "--header", "region=eu")
	b.reads("queue", "show", "events")
	b.reads("queue", "peek", "events", "--subscription", "audit")
	b.same(0, "", "receive", "events", "--subscription", "audit", "--ack")
	b.same(0, "", "queue", "unsubscribe", "events", "audit", "--yes")
	b.same(1, "", "queue", "unsubscribe", "events", "audit", "--yes")
}

// Commands that need the store itself say so, and how to select it.
func TestCommandsThatNeedTheStore(t *testing.T) {
	t.Parallel()
	url := serve(t, memory.Open())
	file := t.TempDir() + "/queues.yaml"
	if err := os.WriteFile(file, []byte("owner: shop\nqueues:\n  orders: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"migrate", "up"}, {"migrate", "status"}, {"migrate", "down"}, {"rebase"}, {"serve"}, {"worker", "--queue", "emails", "--smtp-url", "smtp://127.0.0.1"},
		{"relay", "--queue", "a", "--broker", "nats://127.0.0.1"}, {"import", "outbox", "--table", "t", "--queue", "a"}, {"import", "sidekiq", "--from", "redis://127.0.0.1"},
		{"queue", "apply", file}, {"token", "add", "a", "--scope", "send"}, {"token", "drop", "a"}} {
		s := &session{T: t}
		s.ends(exitUsage, over(url, command), "needs a database and does not work over HTTP: ", "--database-url", "--context")
	}
}

// prints runs a command and fails if it ends with another code, does not print a text, or prints a
// secret.
func prints(t *testing.T, code int, stdin, text string, args ...string) string {
	t.Helper()
	p := newProgram(nil)
	if stdin != "" {
		p.app.stdin, p.app.terminal = strings.NewReader(stdin), func() bool { return true }
	}
	stdout, stderr, got := p.run(t.Context(), args...)
	if got != code || !strings.Contains(stdout+stderr, text) {
		t.Errorf("%q ends with %d, want %d and %q: %s%s", args, got, code, text, stdout, stderr)
	}
	if strings.Contains(stdout+stderr, "secret") {
		t.Errorf("%q tells the token: %s%s", args, stdout, stderr)
	}
	return stdout
}

// A context of a server has its token from a file, a variable or a question, and no command
// prints it.
func TestServerContexts(t *testing.T) {
	contexts := ownContexts(t)
	url := serve(t, memory.Open())
	file := t.TempDir() + "/token"
	if err := os.WriteFile(file, []byte(adminSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	prints(t, 0, "", "context file set", "context", "set", "file", "--server-url", url, "--server-token-file", file)
	prints(t, 0, "", "context variable set", "context", "set", "variable", "--server-url", url, "--server-token", "${OPS_TOKEN}")
	prints(t, 0, adminSecret+"\n", "the token is stored in "+contexts, "context", "set", "asked", "--server-url", url)
	prints(t, 0, "", "the token is stored in "+contexts, "context", "set", "typed", "--server-url", url, "--server-token", adminSecret)
	prints(t, 0, "\n", "context none set", "context", "set", "none", "--server-url", url)
	prints(t, exitUsage, "", "OPS_TOKEN is not set", "queue", "ls", "--context", "variable")
	t.Setenv("OPS_TOKEN", adminSecret)
	for _, name := range []string{"file", "variable", "asked", "typed"} {
		prints(t, 0, "", "server url", "context", "show", name)
		prints(t, 0, "", `"server_url":"`+url, "context", "show", name, "--json")
		prints(t, 0, "", "no queues", "queue", "ls", "--context", name)
	}
	prints(t, 0, "", "${OPS_TOKEN}", "context", "show", "variable")
	prints(t, 0, "", file, "context", "show", "file", "--json")
	prints(t, 0, "", "xxxxx", "context", "show", "asked")
	prints(t, 0, "", url, "context", "ls")
	prints(t, exitFailed, "", "give one with --server-token-file", "queue", "ls", "--context", "none")
	prints(t, exitFailed, "", "unknown token", "queue", "ls", "--context", "file", "--server-token", "other")
	prints(t, 0, "", "no queues", "queue", "ls", "--context", "none", "--server-token", adminSecret)
	t.Setenv("POSTHASTE_SERVER_TOKEN", "of-another-server")
	prints(t, 0, "", "no queues", "queue", "ls", "--context", "file")
	t.Setenv("POSTHASTE_SERVER_TOKEN", adminSecret)
	prints(t, 0, "", "no queues", "queue", "ls", "--context", "none")
	prints(t, 0, "", "no queues", "queue", "ls", "--server-url", url)
	prints(t, exitUsage, "", "mutually exclusive", "queue", "ls", "--server-url", url, "--server-token", adminSecret, "--server-token-file", file)
	t.Setenv("POSTHASTE_SERVER_TOKEN", "")
	t.Setenv("POSTHASTE_SERVER_TOKEN_FILE", file)
	prints(t, 0, "", "no queues", "queue", "ls", "--server-url", url)
	prints(t, exitUsage, "", "the token cannot be read", "queue", "ls", "--server-url", url, "--server-token-file", file+"x")

	for text, args := range map[string][]string{
		"must begin with https:// or http://": {"--server-url", "ftp://mq.example.com"},
		"must not contain a user":             {"--server-url", "https://me:secret@mq.example.com"},
		"--server-token needs --server-url":   {"--database-url", "postgres://x/y", "--server-token", "${X}"},
		"mutually exclusive":                  {"--server-url", "https://x", "--server-token", "${X}", "--server-token-file", file},
		"cannot be read":                      {"--server-url", "https://x", "--server-token-file", file + "x"},
	} {
		prints(t, exitUsage, "", text, append([]string{"context", "set", "bad"}, args...)...)
	}
	prints(t, exitFailed, "", "unencrypted", "context", "set", "plain", "--server-url", "http://mq.example.com")
	prints(t, 0, "", "context plain set", "context", "set", "plain", "--server-url", "http://mq.example.com", "--allow-plain-http")
	prints(t, 0, "", "allowed", "context", "show", "plain")
	prints(t, exitFailed, "", "unencrypted", "queue", "ls", "--server-url", "http://mq.example.com")
	for _, content := range []string{"contexts:\n  c: {server_url: 'https://x', database_url: 'postgres://secret/y'}\n", "contexts:\n  c: {database_url: 'postgres://x/y', server_token: secret}\n",
		"contexts:\n  c: {server_url: 'https://x', server_token: secret, server_token_file: y}\n", "contexts:\n  c: {server_token: secret}\n"} {
		if err := os.WriteFile(contexts, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		prints(t, exitUsage, "", "is not valid", "context", "ls")
	}
}

// A server that cannot be reached ends a command with the code of an unreachable database.
func TestUnreachableServerExits(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"queue", "ls"}, {"send", "orders", "{}"}, {"receive", "orders"}, {"dead", "ls"}} {
		prints(t, exitUnreachable, "", "the server http://127.0.0.1:1 cannot be reached", append(args, "--server-url", "http://127.0.0.1:1", "--server-token", adminSecret)...)
	}
}

// Variables that select a server do not keep commands that need a database from it.
func TestDatabaseBesideAServerVariable(t *testing.T) {
	t.Setenv("POSTHASTE_SERVER_URL", "https://mq.example.com")
	prints(t, exitUsage, "", "posthaste token add needs a database", "token", "add", "a", "--scope", "send")
	t.Setenv("DATABASE_URL", "postgres://127.0.0.1:1/none")
	for _, args := range [][]string{{"token", "add", "a", "--scope", "send"}, {"token", "drop", "a"}, {"migrate", "status"}} {
		prints(t, exitUnreachable, "", "PostgreSQL cannot be reached", args...)
	}
	prints(t, exitUsage, "", "needs a database", "migrate", "status", "--engine", "http")
	t.Setenv("POSTHASTE_ENGINE", "http")
	for _, args := range [][]string{{"token", "add", "a", "--scope", "send"}, {"migrate", "status"}} {
		prints(t, exitUnreachable, "", "PostgreSQL cannot be reached", args...)
	}
	prints(t, exitUsage, "", "but a server is selected", "receive", "orders", "--polling-only")
	prints(t, exitUsage, "", "--environment does not apply", "receive", "orders", "--environment", "a")
}

// With a token that does not show payloads, commands say so.
func TestHiddenPayloadsAreTold(t *testing.T) {
	t.Parallel()
	store := memory.Open()
	url := serve(t, store, posthaste.ScopeRead)
	s := &session{T: t, store: store}
	s.does("queue create orders")
	if err := makeEmails(t.Context(), store, posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	s.does(`send orders "private" --reference r`)
	s.does("email send --from a@example.com --to private@example.com --subject private --text private")
	for _, args := range [][]string{{"message", "show", "1"}, {"queue", "peek", "orders"}, {"email", "show", "2"}} {
		command := append(args, "--server-url", url, "--server-token", "read")
		if out := prints(t, 0, "", "lacks the scope read:payload", command...); strings.Contains(out, "private") {
			t.Errorf("%q prints %s", command, out)
		}
		if out := prints(t, 0, "", `"payload_hidden":true`, append(command, "--json")...); strings.Contains(out, "private") {
			t.Errorf("%q prints %s", command, out)
		}
	}
	prints(t, exitFailed, "", `token lacks scope "admin"`, "queue", "drop", "orders", "--yes", "--server-url", url, "--server-token", "read")
}
