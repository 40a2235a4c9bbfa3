package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/redis"
)

// database holds the flags that select the store.
type database struct {
	url, redisURL, engine string
	api                   apiServer
	context               string // its name; empty if no context selects the store
	resolved              bool   // by resolve
	cmd                   *cobra.Command
	flags                 *pflag.FlagSet
	// sleeps is set for commands that wait at the doorbell. polling forbids that. Other
	// commands keep no state in a session.
	sleeps, polling bool
	environment     string
	watch           watching
}

// The engines, as --engine names them.
const (
	onPostgres = "postgres"
	onRedis    = "redis"
	onHTTP     = "http"
)

func (d *database) flag(cmd *cobra.Command) {
	d.cmd, d.flags = cmd, cmd.Flags()
	d.flags.StringVar(&d.url, "database-url", "", "PostgreSQL URL, postgres://user:password@host:5432/database (or DATABASE_URL)")
	d.flags.StringVar(&d.redisURL, "redis-url", "", "Redis URL, to use Redis instead of PostgreSQL, redis://user:password@host:6379/0 (or REDIS_URL)")
	d.api.flag(d.flags)
	d.flags.StringVar(&d.engine, "engine", "", "postgres, redis or http, if several URLs are set")
	d.flags.StringVar(&d.context, "context", "", "context that names the store (see posthaste context)")
	_ = cmd.RegisterFlagCompletionFunc("context", completeContexts)
}

// databaseOf returns the store that parsed flags select.
func databaseOf(flags *pflag.FlagSet) *database {
	text := func(name string) string {
		value, _ := flags.GetString(name)
		return value
	}
	plain, _ := flags.GetBool("allow-plain-http")
	return &database{url: text("database-url"), redisURL: text("redis-url"), engine: text("engine"), context: text("context"), flags: flags,
		api: apiServer{url: text("server-url"), token: text("server-token"), tokenFile: text("server-token-file"), allowPlainHTTP: plain}}
}

// resolve decides which store is meant, by the first of these: a URL on the command line, a
// context that --context or its variable names, the variables of URLs, and the current context.
func (d *database) resolve() error {
	if d.resolved {
		return nil
	}
	err := d.choose()
	d.resolved = err == nil
	return err
}

func (d *database) choose() error {
	onCommandLine := typed(d.flags, "database-url") || typed(d.flags, "redis-url") || typed(d.flags, "server-url")
	if onCommandLine && typed(d.flags, "context") {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "context", Message: "--context contradicts a URL on the command line", Hint: "omit one of them"}
	}
	if onCommandLine || d.context == "" && d.url+d.redisURL+d.api.url != "" {
		d.context = ""
		return nil
	}
	c, err := loadContexts()
	if err != nil {
		return err
	}
	if d.context == "" {
		d.context = c.Current
	}
	if d.context == "" {
		return nil
	}
	t, err := c.find(d.context)
	if err != nil {
		return err
	}
	chosen, err := t.resolved()
	if err != nil {
		return err
	}
	d.url, d.redisURL, d.api.url = "", "", ""
	var engine string
	switch {
	case t.RedisURL != "":
		engine, d.redisURL = onRedis, chosen
	case t.ServerURL != "":
		engine, d.api.url = onHTTP, chosen
		d.api.prefer(d.flags, t)
	default:
		engine, d.url = onPostgres, chosen
	}
	if typed(d.flags, "engine") && d.engine != engine {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "engine", Message: fmt.Sprintf("--engine %s contradicts context %s, which is %s", d.engine, d.context, engine), Hint: "omit it"}
	}
	d.engine = engine
	return nil
}

// place names the context that a command works in, for questions; empty without one.
func (d *database) place() string {
	if d.context == "" {
		return ""
	}
	return " in context " + d.context
}

// sqlFlag adds the flags of a command that needs PostgreSQL. If Redis is selected, the
// command fails with why, a clause that gives the reason.
func (d *database) sqlFlag(cmd *cobra.Command, why string) {
	d.flag(cmd)
	d.flags.Lookup("redis-url").Hidden, d.flags.Lookup("engine").Hidden = true, true
	needsStore(cmd, "it works inside PostgreSQL")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := d.resolve(); err != nil {
			return err
		}
		if err := d.onlyStore(); err != nil {
			return err
		}
		onlyRedis := d.url == "" && (d.redisURL != "" || d.engine == onRedis)
		if typed(d.flags, "redis-url") || typed(d.flags, "engine") && d.engine == onRedis || onlyRedis {
			return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "redis-url", Message: cmd.CommandPath() + " needs PostgreSQL: " + why, Hint: "set --database-url"}
		}
		if d.url != "" && !typed(d.flags, "engine") {
			d.engine, d.redisURL = onPostgres, "" // set by variables, for other commands
		}
		return run(cmd, args)
	}
}

// needsStore marks a command that does not work over HTTP. why is a clause that gives the reason.
func needsStore(cmd *cobra.Command, why string) *cobra.Command {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[storeMark] = why
	for _, name := range apiFlags {
		cmd.Flags().Lookup(name).Hidden = true
	}
	return cmd
}

// storeMark annotates the commands of [needsStore] with the reason.
const storeMark = "posthaste_store"

// checkStore fails if a command of [needsStore] would run over HTTP.
func checkStore(cmd *cobra.Command) error {
	if _, only := cmd.Annotations[storeMark]; !only {
		return nil
	}
	d := databaseOf(cmd.Flags())
	d.cmd = cmd
	return cmp.Or(d.resolve(), d.onlyStore())
}

// onlyStore fails if a server is selected for a command that needs the store itself. Variables
// that select a server for other commands give way to a database.
func (d *database) onlyStore() error {
	if d.cmd == nil {
		return nil
	}
	why, only := d.cmd.Annotations[storeMark]
	if !only || d.api.url == "" {
		return nil
	}
	onCommandLine := typed(d.flags, "server-url") || typed(d.flags, "engine") && d.engine == onHTTP
	if d.context == "" && !onCommandLine && d.url+d.redisURL != "" {
		if d.api.url = ""; d.engine == onHTTP {
			d.engine = ""
		}
		return nil
	}
	if d.engine == onPostgres || d.engine == onRedis {
		return nil
	}
	flags := "--database-url (DATABASE_URL)"
	if !d.flags.Lookup("redis-url").Hidden {
		flags += " or --redis-url (REDIS_URL)"
	}
	return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "server-url",
		Message: fmt.Sprintf("%s needs a database and does not work over HTTP: %s", d.cmd.CommandPath(), why),
		Hint:    "set " + flags + ", or select a context that has one with --context"}
}

// pollingFlag adds the flags of commands that wait at the doorbell for messages.
func (d *database) pollingFlag(cmd *cobra.Command) {
	d.sleeps = true
	cmd.Flags().BoolVar(&d.polling, "polling-only", false, "poll for messages instead of waiting for notifications; required behind a pooler in transaction mode, such as PgBouncer")
	cmd.Flags().StringVar(&d.environment, "environment", "", "name of this environment, such as production; a copy of the database delivers nothing in another environment (default: host, port and database of the URL)")
}

// options returns the options of the engine. Commands that do not wait at the doorbell use
// no prepared statements either, so that they work behind poolers in transaction mode.
func (d *database) options(more ...postgres.Option) []postgres.Option {
	if d.polling || !d.sleeps {
		more = append(more, postgres.WithPollingOnly())
	}
	if d.environment != "" {
		more = append(more, postgres.WithEnvironment(d.environment))
	}
	return more
}

// check selects the engine, and fails if the flags are ambiguous.
func (d *database) check() error {
	if err := cmp.Or(checkEngine(d.engine, onPostgres, onRedis, onHTTP), d.resolve(), d.onlyStore(), d.chooseEngine()); err != nil {
		return err
	}
	if d.engine != onPostgres && d.polling {
		return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "polling-only", Message: "--polling-only requires PostgreSQL, but " + nameOf(d.engine) + " is selected", Hint: "omit it"}
	}
	if d.engine == onHTTP && typed(d.flags, "environment") {
		return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "environment", Message: "--environment does not apply to a server, which has its own", Hint: "omit it"}
	}
	return nil
}

// kinds are the kinds of stores, with the URLs that are set.
func (d *database) kinds() []kind {
	return []kind{{onPostgres, "database-url", d.url}, {onRedis, "redis-url", d.redisURL}, {onHTTP, "server-url", d.api.url}}
}

// kind is a kind of store, with its flag and URL.
type kind struct{ engine, flag, url string }

// nameOf returns the name of a kind of store for a person.
func nameOf(engine string) string {
	return map[string]string{onPostgres: "PostgreSQL", onRedis: "Redis", onHTTP: "a server"}[engine]
}

// chooseEngine decides which of the URLs is meant.
func (d *database) chooseEngine() error {
	var onCommandLine, set []kind
	for _, k := range d.kinds() {
		if typed(d.flags, k.flag) {
			onCommandLine = append(onCommandLine, k)
		}
		if k.url != "" {
			set = append(set, k)
		}
	}
	if len(onCommandLine) == 1 { // which overrides variables
		means := onCommandLine[0]
		if typed(d.flags, "engine") && d.engine != means.engine {
			return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "engine", Message: "--engine " + d.engine + " contradicts --" + means.flag,
				Hint: "omit one of them, or set the URL of the engine"}
		}
		d.engine = means.engine
	}
	if len(set) > 1 && d.engine == "" {
		names, engines := make([]string, len(set)), make([]string, len(set))
		for i, k := range set {
			names[i], engines[i] = nameOf(k.engine), "--engine "+k.engine
		}
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "engine", Message: "the URLs of several stores are set: " + strings.Join(names, " and "),
			Hint: "select one with " + strings.Join(engines, " or ") + " (POSTHASTE_ENGINE), or omit the other URL"}
	}
	for _, k := range set {
		if d.engine == "" || d.engine == k.engine {
			d.engine = k.engine
			return nil
		}
	}
	switch d.engine {
	case onRedis:
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "redis-url", Message: "no Redis URL is set", Hint: "set --redis-url or REDIS_URL"}
	case onHTTP:
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "server-url", Message: "no server URL is set", Hint: "set --server-url or POSTHASTE_SERVER_URL"}
	}
	return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "database-url", Message: "no database is set",
		Hint: "set --database-url or DATABASE_URL, for Redis --redis-url or REDIS_URL, or for a server --server-url; `posthaste up` starts a database and prints its URL"}
}

// checkEngine checks a value of --engine.
func checkEngine(name string, engines ...string) error {
	if name == "" || slices.Contains(engines, name) {
		return nil
	}
	last := len(engines) - 1
	return posthaste.Invalidf("engine", "--engine must be %s or %s, got %q", strings.Join(engines[:last], ", "), engines[last], name)
}

// withStore is the key of the store in the context of tests, which replaces the one that flags
// select.
type withStore struct{}

// open connects for a command that ends by itself.
func (d *database) open(ctx context.Context, log *slog.Logger) (posthaste.Store, error) {
	if err := d.resolve(); err != nil {
		return nil, err
	}
	if store, ok := ctx.Value(withStore{}).(posthaste.Store); ok {
		return store, nil
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	switch d.engine {
	case onRedis:
		return openRedis(ctx, d.redisURL)
	case onHTTP:
		return d.api.open(d.flags)
	}
	return postgres.Open(ctx, d.url, d.options(postgres.WithLogger(log), postgres.WithPoolSize(2))...)
}

// with runs f with an engine, which it closes at the end.
func (d *database) with(cmd *cobra.Command, log *slog.Logger, f func(ctx context.Context, e posthaste.Store) error) error {
	engine, err := d.open(cmd.Context(), log)
	if err != nil {
		return err
	}
	defer engine.Close()
	return f(posthaste.WithActor(cmd.Context(), caller()), engine)
}

// retryOpen is the interval of attempts to reach an unavailable database. Readiness must
// change at most 5 s after the database is available again.
const retryOpen = time.Second

// openLazily opens the store for a long-running program. The database can be unavailable.
func (d *database) openLazily(ctx context.Context, log *slog.Logger) (posthaste.Store, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	if d.engine == onRedis {
		return openRedis(ctx, d.redisURL, redis.WithLazyConnect())
	}
	return postgres.Open(ctx, d.url, d.options(postgres.WithLogger(log), postgres.WithLazyConnect())...)
}

// openRedis opens Redis. Its errors name the flag of an invalid URL.
func openRedis(ctx context.Context, url string, options ...redis.Option) (posthaste.Store, error) {
	engine, err := redis.Open(ctx, url, options...)
	if err == nil {
		return engine, nil
	}
	var e *posthaste.Error
	if errors.As(err, &e) && e.Field == "url" {
		e.Field = "redis-url"
	}
	return nil, err
}

// wait opens the store for a long-running program and waits with [untilReady] until the
// database is ready.
func (d *database) wait(ctx context.Context, log *slog.Logger) (posthaste.Store, error) {
	engine, err := d.openLazily(ctx, log)
	if err != nil {
		return nil, err
	}
	if err := untilReady(ctx, engine, log); err != nil {
		engine.Close()
		return nil, err
	}
	return engine, nil
}

// untilReady waits while the database cannot be reached, or is a copy that an operator has
// not released yet. It returns any other error at once if it is the first one; later, it
// keeps waiting, since the operator may be fixing the database. It logs each reason once,
// and the end of the wait.
func untilReady(ctx context.Context, engine posthaste.Store, log *slog.Logger) error {
	for last := posthaste.Code(""); ; {
		err := engine.Ready(ctx)
		if err == nil {
			if last != "" {
				log.Info("the database is ready")
			}
			return nil
		}
		code := posthaste.CodeOf(err)
		if ctx.Err() != nil || last == "" && code != posthaste.CodeUnavailable && code != posthaste.CodeRefused {
			return err
		}
		if code != last {
			last = code
			log.Warn("waiting for the database", "error", err)
		}
		if err := waitToRetry(ctx); err != nil {
			return err
		}
	}
}

// waitToRetry waits until the next attempt to reach a database.
func waitToRetry(ctx context.Context) error {
	select {
	case <-time.After(retryOpen):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// makeEmails creates the queue of e-mails, if it does not exist.
func makeEmails(ctx context.Context, engine posthaste.Store, o posthaste.QueueOptions) error {
	o.MaxPayload = posthaste.MaxPayloadBytes
	err := engine.CreateQueue(posthaste.WithActor(ctx, caller()), email.Queue, o)
	if posthaste.CodeOf(err) == posthaste.CodeConflict {
		return nil // it exists with other options
	}
	return err
}

// emailsKept is how long Redis keeps settled mails. PostgreSQL keeps them for a while
// without such an option.
const emailsKept = 24 * time.Hour

// prepare creates the queue of e-mails on Redis, which needs no other setup. On PostgreSQL,
// `migrate up` does it. prepare retries while Redis is unavailable or if the reply is lost,
// since creating the queue is idempotent.
func (d *database) prepare(ctx context.Context, engine posthaste.Store) error {
	if err := d.check(); err != nil || d.engine != onRedis {
		return err
	}
	for {
		err := makeEmails(ctx, engine, posthaste.QueueOptions{Retention: emailsKept})
		if code := posthaste.CodeOf(err); code != posthaste.CodeUnavailable && code != posthaste.CodeOutcomeUnknown {
			return err
		}
		if err := waitToRetry(ctx); err != nil {
			return err
		}
	}
}

// connected runs f with a connection to PostgreSQL, which it closes at the end.
func (d *database) connected(ctx context.Context, f func(*pgx.Conn) error) error {
	if err := d.check(); err != nil {
		return err
	}
	conn, err := postgres.Connect(ctx, d.url, postgres.WithPollingOnly())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return f(conn)
}

// caller returns the actor that is recorded with operator actions.
func caller() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return "cli:" + u.Username
	}
	return "cli"
}
