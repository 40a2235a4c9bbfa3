package cli

import (
	"cmp"
	"context"
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
)

// database holds the flags that select the store.
type database struct {
	urls     storeURLs
	engine   string
	api      apiServer
	context  string // its name; empty if no context selects the store
	resolved bool   // by resolve
	cmd      *cobra.Command
	flags    *pflag.FlagSet
	// sleeps is set for commands that wait at the doorbell. polling forbids that. Other
	// commands keep no state in a session.
	sleeps, polling bool
	environment     string
	watch           watching
}

func (d *database) flag(cmd *cobra.Command) {
	d.cmd, d.flags = cmd, cmd.Flags()
	d.urls.flags(d.flags, usageOfURL)
	d.api.flag(d.flags)
	d.flags.StringVar(&d.engine, "engine", "", orList("", engineNames(nil))+", if several URLs are set")
	d.flags.StringVar(&d.context, "context", "", "context that names the store (see posthaste context)")
	_ = cmd.RegisterFlagCompletionFunc("context", completeContexts)
	_ = cmd.RegisterFlagCompletionFunc("engine", cobra.FixedCompletions(engineNames(nil), cobra.ShellCompDirectiveNoFileComp))
}

// databaseOf returns the store that parsed flags select.
func databaseOf(flags *pflag.FlagSet) *database {
	text := func(name string) string {
		value, _ := flags.GetString(name)
		return value
	}
	plain, _ := flags.GetBool("allow-plain-http")
	d := &database{engine: text("engine"), context: text("context"), flags: flags,
		api: apiServer{token: text("server-token"), tokenFile: text("server-token-file"), allowPlainHTTP: plain}}
	for _, k := range engines {
		*k.url(&d.urls) = text(k.flag)
	}
	return d
}

// databaseAt returns the store with a URL.
func databaseAt(engine, url string) *database {
	d := &database{engine: engine}
	*kindOf(engine).url(&d.urls) = url
	return d
}

// typedKinds returns the kinds whose URL is on the command line.
func (d *database) typedKinds() (kinds []engineKind) {
	for _, k := range engines {
		if typed(d.flags, k.flag) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// url returns the URL of the selected engine.
func (d *database) url() string { return *kindOf(d.engine).url(&d.urls) }

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
	onCommandLine := len(d.typedKinds()) > 0
	if onCommandLine && typed(d.flags, "context") {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "context", Message: "--context contradicts a URL on the command line", Hint: "omit one of them"}
	}
	if onCommandLine || d.context == "" && d.urls.set() != nil {
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
	k := t.set()[0]
	engine := k.engine
	d.urls = storeURLs{}
	*k.url(&d.urls) = chosen
	if engine == onHTTP {
		d.api.prefer(d.flags, t)
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

// sqlFlag adds the flags of a command that needs PostgreSQL. If another engine is selected, the
// command fails with why, a clause that gives the reason.
func (d *database) sqlFlag(cmd *cobra.Command, why string) {
	d.flag(cmd)
	for _, k := range engines[1:] {
		d.flags.Lookup(k.flag).Hidden = true
	}
	d.flags.Lookup("engine").Hidden = true
	needsStore(cmd, "it works inside PostgreSQL")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := d.resolve(); err != nil {
			return err
		}
		if err := d.onlyStore(); err != nil {
			return err
		}
		if k, is := d.otherThanPostgres(); is {
			return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: k.flag, Message: cmd.CommandPath() + " needs PostgreSQL: " + why, Hint: "set --database-url"}
		}
		if d.urls.DatabaseURL != "" && !typed(d.flags, "engine") { // the others are set by variables, for other commands
			d.engine, d.urls = onPostgres, storeURLs{DatabaseURL: d.urls.DatabaseURL}
		}
		return run(cmd, args)
	}
}

// otherThanPostgres returns the engine that is selected instead of PostgreSQL, if there is one.
// Variables select another only if they do not set the URL of a database.
func (d *database) otherThanPostgres() (other engineKind, is bool) {
	for _, k := range engines[1:] {
		selected := d.urls.DatabaseURL == "" && (*k.url(&d.urls) != "" || d.engine == k.engine)
		if typed(d.flags, k.flag) || typed(d.flags, "engine") && d.engine == k.engine || selected {
			return k, true
		}
	}
	return engineKind{}, false
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
	if !only || d.urls.ServerURL == "" {
		return nil
	}
	onCommandLine := typed(d.flags, "server-url") || typed(d.flags, "engine") && d.engine == onHTTP
	if d.context == "" && !onCommandLine && len(d.urls.set()) > 1 {
		if d.urls.ServerURL = ""; d.engine == onHTTP {
			d.engine = ""
		}
		return nil
	}
	if d.engine != "" && d.engine != onHTTP {
		return nil
	}
	var flags []string
	for _, k := range engines {
		if !d.flags.Lookup(k.flag).Hidden {
			flags = append(flags, k.flag+" ("+k.variable+")")
		}
	}
	return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "server-url",
		Message: fmt.Sprintf("%s needs a database and does not work over HTTP: %s", d.cmd.CommandPath(), why),
		Hint:    "set " + orList("--", flags) + ", or select a context that has one with --context"}
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
	if err := checkEngine(d.engine, engineNames(nil)); err != nil {
		return err
	}
	if err := cmp.Or(d.resolve(), d.onlyStore(), d.chooseEngine()); err != nil {
		return err
	}
	if d.engine != onPostgres && d.polling {
		return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "polling-only", Message: "--polling-only requires PostgreSQL, but " + kindOf(d.engine).name + " is selected", Hint: "omit it"}
	}
	if d.engine == onHTTP && typed(d.flags, "environment") {
		return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "environment", Message: "--environment does not apply to a server, which has its own", Hint: "omit it"}
	}
	return nil
}

// chooseEngine decides which of the URLs is meant.
func (d *database) chooseEngine() error {
	set := d.urls.set()
	if onCommandLine := d.typedKinds(); len(onCommandLine) == 1 { // which overrides variables
		means := onCommandLine[0]
		if typed(d.flags, "engine") && d.engine != means.engine {
			return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "engine", Message: "--engine " + d.engine + " contradicts --" + means.flag,
				Hint: "omit one of them, or set the URL of the engine"}
		}
		d.engine = means.engine
	}
	if len(set) > 1 && d.engine == "" {
		names, options := make([]string, len(set)), make([]string, len(set))
		for i, k := range set {
			names[i], options[i] = k.name, "--engine "+k.engine
		}
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "engine", Message: "the URLs of several stores are set: " + strings.Join(names, " and "),
			Hint: "select one with " + strings.Join(options, " or ") + " (POSTHASTE_ENGINE), or omit the other URL"}
	}
	for _, k := range set {
		if d.engine == "" || d.engine == k.engine {
			d.engine = k.engine
			return nil
		}
	}
	return d.noURL()
}

// noURL returns the error that no URL of the selected engine is set.
func (d *database) noURL() error {
	if d.engine != "" && d.engine != onPostgres {
		k := kindOf(d.engine)
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: k.flag, Message: "no " + strings.TrimPrefix(k.name, "a ") + " URL is set", Hint: "set --" + k.flag + " or " + cmp.Or(k.variable, envName(k.flag))}
	}
	hint := "set --database-url or DATABASE_URL"
	for _, k := range engines[1:] {
		if hint += ", for " + k.name + " --" + k.flag; k.variable != "" {
			hint += " or " + k.variable
		}
	}
	return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "database-url", Message: "no database is set",
		Hint: hint + "; `posthaste up` starts a database and prints its URL"}
}

// checkEngine checks a value of --engine.
func checkEngine(name string, engines []string) error {
	if name == "" || slices.Contains(engines, name) {
		return nil
	}
	return posthaste.Invalidf("engine", "--engine must be %s, got %q", orList("", engines), name)
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
	o, err := d.opening(log, postgres.WithPoolSize(2))
	if err != nil {
		return nil, err
	}
	return kindOf(d.engine).openAt(ctx, o)
}

// opening returns how to open the selected store.
func (d *database) opening(log *slog.Logger, more ...postgres.Option) (opening, error) {
	o := opening{url: d.url(), log: log, postgres: d.options(more...), allowPlainHTTP: d.api.allowPlainHTTP}
	var err error
	if d.engine == onHTTP {
		o.token, err = d.api.secret(d.flags)
	}
	return o, err
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
	o, err := d.opening(log)
	if err != nil {
		return nil, err
	}
	o.lazy = true
	return kindOf(d.engine).openAt(ctx, o)
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

// emailsKept is how long other engines keep settled mails. PostgreSQL keeps them for a while
// without such an option.
const emailsKept = 24 * time.Hour

// prepare creates the queue of e-mails on engines that need no other setup. On PostgreSQL,
// `migrate up` does it. prepare retries while the store is unavailable or if the reply is lost,
// since creating the queue is idempotent.
func (d *database) prepare(ctx context.Context, engine posthaste.Store) error {
	if err := d.check(); err != nil || !kindOf(d.engine).prepares {
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
	conn, err := postgres.Connect(ctx, d.urls.DatabaseURL, postgres.WithPollingOnly())
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
