//go:build unix

package cli_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/catcher"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// foreign holds settings of a database, role or URL that must not affect Posthaste.
var foreign = map[string]string{
	"client_encoding":               "LATIN1",
	"datestyle":                     "SQL, DMY",
	"bytea_output":                  "escape",
	"standard_conforming_strings":   "off",
	"default_transaction_isolation": "serializable",
	"timezone":                      "Asia/Kathmandu",
	"intervalstyle":                 "sql_standard",
	"search_path":                   "pg_temp",
	"extra_float_digits":            "-3",
	"array_nulls":                   "off",
}

// hurried holds settings that must not affect Posthaste if a database or role has them. In a
// URL they are intended.
var hurried = map[string]string{"statement_timeout": "300", "lock_timeout": "300", "idle_in_transaction_session_timeout": "300"}

// life holds commands that run in order.
var life = [][]string{
	{"migrate", "up"},
	{"migrate", "status"},
	{"queue", "create", "jobs", "--max-attempts", "1"},
	{"queue", "create", "limited", "--rate-limit", "5/s", "--fair"},
	{"queue", "update", "limited", "--concurrency", "7"},
	{"send", "jobs", `{"name": "Jürgen 🚀"}`, "--key", "schlüssel", "--reference", "ref-ü", "--term", "Öl", "--header", "a=é"},
	{"send", "jobs", "raw \\ 'bytes'", "--content-type", "text/plain"},
	{"send", "jobs", "{}", "--send-at", "2030-01-31T12:00:00+02:00"},
	{"queue", "ls"},
	{"message", "ls"},
	{"message", "ls", "--json"},
	{"message", "ls", "--reference", "ref-ü"},
	{"message", "show", "1"},
	{"message", "show", "1", "--json"},
	{"message", "show", "2"},
	{"message", "reschedule", "3", "2031-05-06T07:08:09Z"},
	{"message", "show", "3", "--json"},
	{"receive", "jobs", "--ack"},
	{"receive", "jobs", "--json"},
	{"message", "show", "1", "--json"},
	{"schedule", "put", "nightly", "jobs", "30 2 * * FRI", `{"report": "ä"}`, "--time-zone", "Europe/Berlin"},
	{"schedule", "ls", "--json"},
	{"token", "add", "t", "--scope", "send", "--expires-in", "24h", "--json"},
	{"token", "ls", "--json"},
	{"dead", "ls"},
	{"action", "ls", "--json"},
	{"erase", "Öl", "--yes"},
	{"queue", "purge", "jobs", "--yes"},
}

// changing matches the parts of an answer that differ between runs.
var changing = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|202\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?|\b(\d+(\.\d+)?(ms|µs|s|m|h|d|y))+\b|ph_[A-Za-z0-9_-]+|"(duration|age|uptime)[a-z_]*":[0-9.]+`)

var blanks = regexp.MustCompile(` +`)

// constant returns an answer without its changing parts and their widths.
func constant(answer string) string {
	return blanks.ReplaceAllString(changing.ReplaceAllString(answer, "<>"), " ")
}

// lived runs the commands of life and returns their output.
func lived(t *testing.T, database string) string {
	t.Helper()
	var said strings.Builder
	for _, args := range life {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		cmd := exec.CommandContext(ctx, "posthaste", args...)
		cmd.Env = append(cmd.Environ(), "DATABASE_URL="+database)
		out, err := cmd.CombinedOutput()
		cancel()
		fmt.Fprintf(&said, "$ posthaste %s\n%s", strings.Join(args, " "), constant(string(out)))
		if err != nil {
			fmt.Fprintf(&said, "%v\n", err)
		}
	}
	return said.String()
}

// with creates an empty database whose sessions have settings by database, role or URL.
func with(t *testing.T, place string, settings map[string]string) string {
	t.Helper()
	where := testpg.Empty(t)
	conn, err := pgx.Connect(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	u, err := url.Parse(where)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	for name, value := range settings {
		of := "database"
		switch place {
		case "URL":
			query.Set(name, value)
			continue
		case "role":
			of = "role " + pgx.Identifier{u.User.Username()}.Sanitize() + " in database"
		}
		if name != "search_path" && name != "client_encoding" {
			value = "'" + value + "'"
		}
		if _, err := conn.Exec(t.Context(), fmt.Sprintf("alter %s %s set %s = %s", of, pgx.Identifier{conn.Config().Database}.Sanitize(), name, value)); err != nil {
			t.Fatal(err)
		}
	}
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
	return u.String()
}

// each calls test with all settings at once, and at night with each setting alone, in each
// place where it can be set.
func eachForeign(t *testing.T, test func(t *testing.T, database string)) {
	for _, place := range []string{"database", "role", "URL"} {
		all := map[string]string{}
		for name, value := range foreign {
			all[name] = value
			t.Run(place+" "+name, func(t *testing.T) {
				t.Parallel()
				testrun.Nightly(t, "all settings at once are tried on each change")
				test(t, with(t, place, map[string]string{name: value}))
			})
		}
		if place != "URL" {
			for name, value := range hurried {
				all[name] = value
			}
		}
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			test(t, with(t, place, all))
		})
	}
}

// FT1: the output of each command is independent of the settings of the database, the role
// and the URL.
func TestFT1_CommandsUnderForeignSettings(t *testing.T) {
	t.Parallel()
	want := lived(t, testpg.Empty(t))
	if strings.Contains(want, "exit status 2") || !strings.Contains(want, "Jürgen 🚀") {
		t.Fatalf("without any settings:\n%s", want)
	}
	eachForeign(t, func(t *testing.T, database string) { alike(t, lived(t, database), want) })
}

// alike compares two outputs line by line.
func alike(t *testing.T, all, want string) {
	t.Helper()
	got := strings.Split(all, "\n")
	for i, line := range strings.Split(want, "\n") {
		if i >= len(got) || got[i] != line {
			t.Fatalf("line %d: %q, want %q; all:\n%s", i, got[min(i, len(got)-1)], line, all)
		}
	}
}

// caller calls an endpoint, records the constant part of the answer, and returns the answer.
func caller(t *testing.T, address string, said *strings.Builder) func(method, path, body string) string {
	return func(method, path, body string) string {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		out, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(said, "%s %s: %s\n%s\n", method, path, answer.Status, constant(string(out)))
		return string(out)
	}
}

// asked calls all endpoints of the API in order and returns their answers.
func asked(t *testing.T, database string) string {
	t.Helper()
	mails, err := catcher.Start(catcher.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer mails.Close()
	env := []string{"DATABASE_URL=" + database, "SMTP_URL=smtp://" + mails.Addr() + "?tls=none"}
	if out, err := exec.Command("env", append(env, "posthaste", "migrate", "up")...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, address := startServe(t, env, "--worker")
	eventually(t, "ready", answers("http://"+address+"/readyz", 200))
	var said strings.Builder
	call := caller(t, address, &said)
	call("PUT", "/v1/queues/jobs", `{"max_attempts": 1, "rate_limit": {"limit": 1000, "per": "3s"}}`)
	call("POST", "/v1/queues/jobs/messages", `{"payload": {"name": "Jürgen 🚀"}, "key": "schlüssel", "reference": "ref-ü", "terms": ["Öl"]}`)
	call("POST", "/v1/queues/jobs/messages", `{"payload": "AP8K", "content_type": "image/x"}`)
	call("POST", "/v1/queues/jobs/messages", `{"payload": 1, "send_at": "2030-01-31T12:00:00.5+02:00"}`)
	call("POST", "/v1/queues/jobs/messages", `{"payload": 1, "send_at": "31/01/2030"}`)
	call("GET", "/v1/queues/jobs", "")
	call("GET", "/v1/messages?queue=jobs", "")
	call("GET", "/v1/messages/1", "")
	call("GET", "/v1/messages/2", "")
	call("GET", "/v1/messages/3", "")
	received := call("POST", "/v1/queues/jobs/receive", `{"max":1,"lease":"1h"}`)
	delivery := regexp.MustCompile(`"id":"(\d+)","message_id"`).FindStringSubmatch(received)
	if delivery == nil {
		t.Fatalf("received: %s", received)
	}
	call("POST", "/v1/deliveries/fail", fmt.Sprintf(`{"deliveries": [{"id": "%s", "error": "verdorben: ü"}]}`, delivery[1]))
	call("GET", "/v1/dead-letters", "")
	call("PUT", "/v1/schedules/nightly", `{"queue": "jobs", "spec": "30 2 * * FRI", "time_zone": "Europe/Berlin", "payload": "ä"}`)
	call("GET", "/v1/schedules", "")
	call("GET", "/v1/actions", "")
	call("GET", "/v1/emails", "")
	call("POST", "/v1/emails", aMail)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := mails.Wait(ctx, func(all []catcher.Mail) bool { return len(all) == 1 }); err != nil {
		t.Fatalf("no mail was delivered: %v", err)
	}
	call("GET", "/readyz", "")
	return said.String()
}

// FT1: the answers of all endpoints are independent of settings, and serve --worker delivers.
func TestFT1_EndpointsUnderForeignSettings(t *testing.T) {
	t.Parallel()
	want := asked(t, testpg.Empty(t))
	if !strings.Contains(want, "Jürgen 🚀") || strings.Contains(want, ": 500") {
		t.Fatalf("without any settings:\n%s", want)
	}
	eachForeign(t, func(t *testing.T, database string) { alike(t, asked(t, database), want) })
}
