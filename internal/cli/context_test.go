package cli

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste/internal/memory"
)

// ownContexts gives a test a folder for its contexts, and returns the path of their file.
func ownContexts(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	return filepath.Join(dir, "posthaste", "contexts.yaml")
}

// Contexts are created, used, replaced and forgotten. Their file is for the user alone.
func TestContexts(t *testing.T) {
	file := ownContexts(t)
	s := &session{T: t}
	s.does("context ls", "^no contexts; create one with: posthaste context set")
	s.ends(exitFailed, []string{"context", "show"}, "no context is in use", "posthaste context use CONTEXT")
	s.does("context set prod --database-url postgres://app@db.example.com/app", "^context prod set$")
	s.does("context set jobs --redis-url rediss://redis.example.com/3 --json", `^\{"set":"jobs"\}$`)
	if info, err := os.Stat(file); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(filepath.Dir(file)); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o700 {
		t.Errorf("its folder is %v, %v", info.Mode(), err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	s.does("context use prod", "^context prod used$")
	if info, err := os.Stat(file); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("after a change the file is %v, %v", info.Mode(), err)
	}
	s.does("context list", `^CURRENT +NAME +STORE$`, `^ +jobs +rediss://redis.example.com/3$`, `^\* +prod +postgres://app@db.example.com/app$`)
	s.does("context ls --json", `^\[\{"name":"jobs","current":false,"redis_url":"rediss://redis.example.com/3"\},\{"name":"prod","current":true,"database_url":"postgres://app@db.example.com/app"\}\]$`)
	s.does("context show", "^context +prod$", "^database url +postgres://app@db.example.com/app$")
	s.does("context get jobs -o yaml", "^current: false$")
	s.does("context set prod --database-url postgres://db2.example.com/app --use")
	s.does("context show prod", "db2.example.com")
	s.ends(exitFailed, []string{"context", "use", "nowhere"}, `context "nowhere" does not exist`, "the contexts are jobs, prod$")
	s.does("context rm prod", "^context prod dropped$")
	s.ends(exitFailed, []string{"context", "show"}, "no context is in use")
	s.does("context ls --json", `"name":"jobs","current":false`)

	s.refuses("context set bad", "either --database-url, --redis-url, --nats-url or --server-url")
	s.refuses("context set bad --database-url postgres://x/y --redis-url redis://x", "either --database-url, --redis-url, --nats-url or --server-url")
	s.refuses("context set bad --database-url mysql://x/y", "must begin with postgres:// or postgresql://")
	s.refuses("context set bad --nats-url nats://a,redis://b", "must begin with nats:// or tls://")
	s.refuses("context set bad --redis-url postgres://x/y", "must begin with redis:// or rediss://")
	s.refuses("context set No-Good --redis-url redis://x", "a-z, 0-9")
	t.Setenv("DATABASE_URL", "postgres://other/x")
	s.refuses("context set bad", "either --database-url, --redis-url, --nats-url or --server-url")
	s.does("context use jobs", "warning: DATABASE_URL is set, and overrides the current context$")
}

// No command shows a password of a context.
func TestContextsKeepPasswords(t *testing.T) {
	file := ownContexts(t)
	for url, shown := range map[string]string{
		"postgres://app:hunter2@db/app":                    "postgres://app:xxxxx@db/app",
		"postgres://app:hun%20ter2@db/app?sslmode=disable": "postgres://app:xxxxx@db/app?sslmode=disable",
		"postgres://db/app?user=a&password=hunter2&x=y":    "postgres://db/app?user=a&password=xxxxx&x=y",
		"postgres://db/app?sslpassword=hunter2":            "postgres://db/app?sslpassword=xxxxx",
		"postgres://app:${PW}@db/app":                      "postgres://app:${PW}@db/app",
		"postgres://app:hunter2${PW}@db/app":               "postgres://app:xxxxx@db/app",
		"postgres://app@db/app":                            "postgres://app@db/app",
		"${URL}":                                           "${URL}",
		"rediss://:hunter2@redis/0":                        "rediss://:xxxxx@redis/0",
		"nats://hunter2@nats:4222":                         "nats://xxxxx@nats:4222",
		"nats://me:hun,ter2@a,tls://hunter2@b:4222?x=y":    "nats://me:xxxxx@a,tls://xxxxx@b:4222?x=y",
		"nats://${TOKEN}@nats:4222":                        "nats://${TOKEN}@nats:4222",
	} {
		flag := "--database-url"
		if strings.HasPrefix(url, "redis") {
			flag = "--redis-url"
		} else if strings.HasPrefix(url, "nats") {
			flag = "--nats-url"
		}
		secret := strings.Contains(shown, "xxxxx")
		for _, command := range [][]string{{"context", "set", "c", flag, url, "--use"}, {"context", "show"}, {"context", "ls"}, {"context", "show", "c", "-o", "yaml"}, {"context", "ls", "-o", "jsonl"}} {
			p := newProgram(nil)
			stdout, stderr, code := p.run(t.Context(), command...)
			if code != 0 || strings.Contains(stdout+stderr, "hun") || command[1] != "set" && !strings.Contains(stdout, shown) {
				t.Errorf("%q ends with %d: %s%s", command, code, stdout, stderr)
			}
			if command[1] == "set" && secret != strings.Contains(stderr, "warning: the password is stored in "+file) {
				t.Errorf("%q warns with %q", command, stderr)
			}
			if secret && command[1] == "set" && (strings.Contains(stderr, "PGPASSFILE") != (flag == "--database-url") || !strings.Contains(stderr, "${PASSWORD}")) {
				t.Errorf("%q advises %q", command, stderr)
			}
		}
	}
	for _, url := range []string{"postgres://app:hun/ter2@db/app", "postgres://app:hunter2@db:x y/app", "hunter2"} {
		p := newProgram(nil)
		if stdout, stderr, code := p.run(t.Context(), "context", "set", "c", "--database-url", url); code != exitUsage || strings.Contains(stdout+stderr, "hun") {
			t.Errorf("%q ends with %d: %s%s", url, code, stdout, stderr)
		}
	}
	for _, content := range []string{"contexts:\n  c: {database_url: 'postgres://app:hun/ter2@db/app'}\n", "contexts:\n  hunter2", "password: hunter2\n", "contexts:\n  c: {database_url: [hunter2]}\n", "contexts:\n  c: {}\n"} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		p := newProgram(nil)
		if stdout, stderr, _ := p.run(t.Context(), "context", "ls"); strings.Contains(stdout+stderr, "hun") || !strings.Contains(stdout+stderr, "not valid") {
			t.Errorf("%q: %s%s", content, stdout, stderr)
		}
	}
}

// Stores as [decided] tells them.
const (
	one = "postgres postgres://one/x in context one"
	two = "redis redis://two/0 in context two"
	web = "http https://web in context web"
	js  = "nats nats://js,nats://ks in context js"
)

// selections has the current context, arguments and variables, and the store that they select.
var selections = []struct{ current, args, variables, want string }{
	{"", "", "", "no database is set"},
	{"one", "", "", one},
	{"two", "", "", two},
	{"", "--context one", "", one},
	{"two", "--context one", "", one},
	{"two", "", "POSTHASTE_CONTEXT=one", one},
	{"", "--context two", "POSTHASTE_CONTEXT=one", two},
	{"one", "", "DATABASE_URL=postgres://env/x", "postgres postgres://env/x"},
	{"one", "", "POSTHASTE_REDIS_URL=redis://env/0", "redis redis://env/0"},
	{"", "--context two", "DATABASE_URL=postgres://env/x", two},
	{"", "", "DATABASE_URL=postgres://env/x POSTHASTE_CONTEXT=two POSTHASTE_ENGINE=postgres", two},
	{"one", "--database-url postgres://flag/x", "", "postgres postgres://flag/x"},
	{"one", "--database-url postgres://flag/x", "POSTHASTE_CONTEXT=two", "postgres postgres://flag/x"},
	{"one", "--redis-url redis://flag/0", "DATABASE_URL=postgres://env/x", "redis redis://flag/0"},
	{"", "--context one --redis-url redis://flag/0", "", "--context contradicts a URL"},
	{"one", "--engine redis", "", "--engine redis contradicts context one"},
	{"js", "", "", js},
	{"one", "--context js", "NATS_URL=nats://env", js},
	{"one", "", "NATS_URL=nats://env", "nats nats://env"},
	{"one", "", "NATS_URL=nats://env POSTHASTE_NATS_URL=nats://ours", "nats nats://ours"},
	{"js", "--engine redis", "", "--engine redis contradicts context js, which is nats"},
	{"", "--engine nats", "", "no NATS URL is set"},
	{"web", "", "", web},
	{"one", "--context web", "DATABASE_URL=postgres://env/x", web},
	{"web", "", "DATABASE_URL=postgres://env/x", "postgres postgres://env/x"},
	{"one", "", "POSTHASTE_SERVER_URL=https://env", "http https://env"},
	{"one", "--server-url https://flag", "DATABASE_URL=postgres://env/x", "http https://flag"},
	{"", "", "POSTHASTE_SERVER_URL=https://env DATABASE_URL=postgres://env/x", "PostgreSQL and a server"},
	{"", "", "POSTHASTE_SERVER_URL=https://env DATABASE_URL=postgres://env/x POSTHASTE_ENGINE=http", "http https://env"},
	{"", "--engine http", "", "no server URL is set"},
	{"web", "--engine postgres", "", "--engine postgres contradicts context web, which is http"},
	{"", "--context web --server-url https://flag", "", "--context contradicts a URL"},
	{"", "--context other", "", `context "other" does not exist`},
	{"", "--context var", "", "PW is not set"},
	{"", "--context var", "PW=a/b+c%", "postgres postgres://app:a%2Fb%2Bc%25@var/x in context var"},
}

// The store is decided by the command line, the context that a flag or a variable names, the
// variables of URLs, and the current context, in that order.
func TestContextPrecedence(t *testing.T) {
	ownContexts(t)
	s := &session{T: t}
	s.does("context set one --database-url postgres://one/x")
	s.does("context set two --redis-url redis://two/0")
	s.ends(0, []string{"context", "set", "var", "--database-url", "postgres://app:${PW}@var/x"})
	s.does("context set web --server-url https://web")
	s.does("context set js --nats-url nats://js,nats://ks")
	for _, c := range selections {
		name := strings.Join([]string{c.current, c.args, c.variables}, " ")
		t.Run(name, func(t *testing.T) {
			contexts, err := loadContexts()
			if err != nil {
				t.Fatal(err)
			}
			if contexts.Current = c.current; contexts.save() != nil {
				t.Fatal("the contexts cannot be saved")
			}
			for _, variable := range strings.Fields(c.variables) {
				key, value, _ := strings.Cut(variable, "=")
				t.Setenv(key, value)
			}
			if got := decided(t, strings.Fields(c.args)); got != c.want && !strings.Contains(got, c.want) || strings.Contains(c.want, "://") && got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// decided returns the store that flags and variables select, or the error.
func decided(t *testing.T, args []string) string {
	t.Helper()
	command, _, err := newProgram(nil).root.Find([]string{"queue", "ls"})
	if err != nil {
		t.Fatal(err)
	}
	var flags *pflag.FlagSet = command.Flags()
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := bindEnvironment(flags); err != nil {
		t.Fatal(err)
	}
	db := databaseOf(flags)
	if err := db.check(); err != nil {
		return err.Error()
	}
	return db.engine + " " + db.url() + db.place()
}

// A command that destroys something names the context, in its question and with --yes.
func TestJB8_DestructiveCommandsNameTheContext(t *testing.T) {
	ownContexts(t)
	store := memory.Open()
	s := &session{T: t, store: store}
	s.does("queue create orders")
	s.does("context set prod --database-url postgres://db.example.com/app --use")
	s.ends(exitUsage, strings.Fields("queue drop orders"), "this would drop queue orders, .* in context prod, and there is no terminal")
	s.ends(exitUsage, strings.Fields("dead discard --all"), "this would discard all dead letters that match the flags in context prod")
	s.ends(exitUsage, strings.Fields("erase ada --context prod"), "in context prod")
	p := newProgram(store)
	p.app.stdin, p.app.terminal = strings.NewReader("y\n"), func() bool { return true }
	if _, stderr, code := p.run(t.Context(), "queue", "purge", "orders"); code != 0 || !strings.Contains(stderr, "in context prod. It cannot be undone.") {
		t.Errorf("it asks %q, and ends with %d", stderr, code)
	}
	s.does("queue drop orders --yes", "^posthaste: working in context prod$")
	t.Setenv("DATABASE_URL", "postgres://other/x")
	s.does("queue create orders")
	p = newProgram(store)
	if _, stderr, code := p.run(t.Context(), "queue", "drop", "orders", "--yes"); code != 0 || strings.Contains(stderr, "context") {
		t.Errorf("without a context it prints %q, and ends with %d", stderr, code)
	}
}
