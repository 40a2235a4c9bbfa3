//go:build unix

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/catcher"
	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/server"
	"github.com/posthaste-mq/posthaste/worker"
)

// up is the flags of the command up.
type up struct {
	serving
	working
	data         string
	reset        bool
	postgresPort int
	postgresBin  string
	engine       string
	redisPort    int
	smtpListen   string
	broker       string
	relays       []relayConfig // by broker
	// delivers is the mail server that mails really go to, "" for the catcher.
	delivers string
}

func newUp(a *app) *cobra.Command {
	var u up
	cmd := &cobra.Command{
		Use: "up", Short: "Start everything on this machine: PostgreSQL, server, worker and a mail catcher",
		Long: `Start an embedded PostgreSQL, the HTTP API, a worker for e-mails and a mail
catcher to look into, in one process, and say what to do next. Nothing else is
needed; PostgreSQL is fetched the first time. Everything is kept in --data and is
there again the next time, also after a kill.

With --engine redis the messages are in a Redis in place of PostgreSQL: in the
redis-server that is installed on this machine, which up starts, with an
append-only file that is written to disk every second.

Ctrl-C or SIGTERM stops all of it in order: server, worker, mail catcher, then
PostgreSQL or Redis. A second signal ends the program at once with exit code 130 or 143.`,
		Example: "  posthaste up\n  posthaste up --reset     # start over with nothing in it",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := u.checkStore(cmd.Flags()); err != nil {
				return err
			}
			return a.up(cmd.Context(), u)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&u.data, "data", ".posthaste", "the directory that keeps everything")
	flags.BoolVar(&u.reset, "reset", false, "remove all data first, wherever the cluster lies")
	u.serving.flags(cmd)
	flags.IntVar(&u.postgresPort, "postgres-port", 5484, "where the embedded PostgreSQL listens on 127.0.0.1; 0 takes a free port")
	flags.StringVar(&u.postgresBin, "postgres-bin", "", "a directory with initdb and postgres to use instead of fetching them")
	flags.StringVar(&u.engine, "engine", onPostgres, "where the messages are: postgres or redis")
	flags.IntVar(&u.redisPort, "redis-port", 6484, "with --engine redis, where Redis listens on 127.0.0.1; 0 takes a free port")
	flags.StringVar(&u.smtpListen, "smtp-listen", "127.0.0.1:1025", "where the mail catcher listens, host:port")
	flags.StringVar(&u.smtpURL, "smtp-url", "", "a real mail server to deliver to instead of the catcher (or SMTP_URL)")
	flags.StringVar(&u.broker, "broker", "", "a broker to relay the queue "+relayQueue+" to, such as amqp://guest:guest@localhost/, with the defaults of posthaste relay")
	u.graceFlag(flags)
	return cmd
}

// checkStore looks at the flags that are of one engine.
func (u *up) checkStore(flags *pflag.FlagSet) error {
	if err := checkEngine(u.engine); err != nil {
		return err
	}
	others := []string{"redis-port"}
	if u.engine == onRedis {
		others = []string{"postgres-port", "postgres-bin"}
	}
	for _, name := range others {
		if typed(flags, name) {
			return posthaste.Invalidf(name, "--%s is not for --engine %s", name, u.engine)
		}
	}
	if u.redisPort < 0 || u.redisPort > 65535 {
		return posthaste.Invalidf("redis-port", "--redis-port must be 0 to 65535, and is %d", u.redisPort)
	}
	return nil
}

// localStore is the PostgreSQL or the Redis that up has started.
type localStore interface {
	// URL is where it is reached, DataDir where its data lie.
	URL() string
	DataDir() string
	// Done is closed when it has ended; Restart starts it again then.
	Done() <-chan struct{}
	Restart(ctx context.Context) error
	// Stop ends it in order.
	Stop(ctx context.Context) error
}

// running is what up has started, in the order of starting.
type running struct {
	listener net.Listener
	mails    *catcher.Catcher
	database localStore
	engine   posthaste.Store
	sinks    map[string]posthaste.Sink
	relays   []openRelay
	undo     []func()
}

func (r *running) later(f func()) { r.undo = append(r.undo, f) }

func (r *running) close() {
	for i := len(r.undo) - 1; i >= 0; i-- {
		r.undo[i]()
	}
}

func (a *app) up(ctx context.Context, u up) error {
	u.queues, u.concurrency = []string{email.Queue}, 8
	given, err := u.given()
	if err != nil {
		return err
	}
	if exposed, err := u.exposed(given); errors.Join(exposed, err) != nil {
		return cmp.Or(exposed, err)
	}
	if u.postgresPort < 0 || u.postgresPort > 65535 {
		return posthaste.Invalidf("postgres-port", "--postgres-port must be 0 to 65535, and is %d", u.postgresPort)
	}
	if err := u.check(); err != nil {
		return err
	}
	if u.broker != "" {
		if u.relays, err = easyRelay(u.broker); err != nil {
			return misuse(err)
		}
	}
	follows, stopTracing, err := a.openTracing(ctx)
	if err != nil {
		return err
	}
	defer stopTracing()
	home, err := openHome(u.data)
	if err != nil {
		return err
	}
	defer home.close()
	a.signal.announce.Store(true)
	if u.reset {
		if err := home.reset(ctx); err != nil {
			return err
		}
	}
	r := &running{}
	defer r.close()
	if err := a.startAll(ctx, &u, home, r); err != nil {
		if ctx.Err() != nil {
			return context.Canceled // by a signal
		}
		return err
	}
	api, telemetry, err := a.newAPI(r.engine, u.serving, given, map[string]http.Handler{"/caught": r.mails.Handler()}, follows)
	if err != nil {
		return err
	}
	parts := workerParts{r.engine, a.log, telemetry, follows}
	work := u.worker(parts, r.sinks)
	for i := range r.relays {
		r.relays[i].handle(work, parts)
	}
	return a.runAll(ctx, u, home, r, api, work)
}

// startAll opens the ports, so that one that is taken is told at once, and then
// starts what takes time.
func (a *app) startAll(ctx context.Context, u *up, home *home, r *running) (err error) {
	if r.listener, err = listenOn("listen", u.listen); err != nil {
		return err
	}
	r.later(func() { r.listener.Close() })
	r.mails, err = catcher.Start(catcher.Config{Addr: u.smtpListen, Dir: home.path("mails"), Logger: a.log})
	if err != nil {
		return portErrorOf("smtp-listen", u.smtpListen, err)
	}
	r.later(func() { r.mails.Close() })
	real := u.smtpURL != ""
	if !real {
		u.smtpURL = "smtp://" + reachable(r.mails.Addr()) + "?tls=none"
	}
	made, closeSinks, err := u.open()
	if err != nil {
		return err
	}
	r.sinks = made
	r.later(closeSinks)
	if server, ok := made[email.Queue].(interface{ Server() string }); ok && real {
		u.delivers = server.Server()
	}
	home.tell(state{HTTP: "http://" + reachable(r.listener.Addr().String())})
	start := a.startOnPostgres
	if u.engine == onRedis {
		start = a.startOnRedis
	}
	if err := start(ctx, u, home, r); err != nil {
		return err
	}
	return a.startRelay(ctx, u, r)
}

func (a *app) startOnPostgres(ctx context.Context, u *up, home *home, r *running) error {
	pg, err := a.startPostgres(ctx, u, home)
	if err != nil {
		return err
	}
	r.database = pg
	r.later(func() { a.stopStore(u, pg) })
	if err := install(ctx, pg.URL(), postgres.MigrateOptions{Log: a.quietly()}); err != nil {
		return err
	}
	engine, err := postgres.Open(ctx, pg.URL(), postgres.WithLogger(a.log))
	if err != nil {
		return err
	}
	r.engine = engine
	r.later(engine.Close)
	return nil
}

func (a *app) startOnRedis(ctx context.Context, u *up, home *home, r *running) error {
	fmt.Fprintln(a.stderr, "posthaste: starting Redis")
	server, err := startRedis(ctx, home, u.redisPort)
	if err != nil {
		return err
	}
	r.database = server
	r.later(func() { a.stopStore(u, server) })
	db := database{redisURL: server.URL(), engine: onRedis}
	if r.engine, err = db.open(ctx, a.log); err != nil {
		return err
	}
	r.later(r.engine.Close)
	return db.prepare(ctx, r.engine)
}

// easyRelay is the relay of `up`.
func easyRelay(broker string) ([]relayConfig, error) {
	relays, err := setRelays([]string{relayQueue}, broker, nil)
	if err != nil {
		return nil, err
	}
	if easy := relays[0].kind.Easy; easy != nil {
		var set []string
		for key, value := range easy(relayQueue) {
			set = append(set, key+"="+value)
		}
		relays, err = setRelays([]string{relayQueue}, broker, set)
	}
	for i := range relays {
		relays[i].place = func(string) string { return "--broker" } // the only flag that says something of it
	}
	return relays, err
}

// startRelay makes the queue that is relayed, and the sink for the broker.
func (a *app) startRelay(ctx context.Context, u *up, r *running) error {
	if u.broker == "" {
		return nil
	}
	if err := r.engine.CreateQueue(ctx, relayQueue, posthaste.QueueOptions{}); err != nil && posthaste.CodeOf(err) != posthaste.CodeConflict {
		return err
	}
	relays, closeSinks, err := openRelays(u.relays, a.log)
	if err != nil {
		return err
	}
	r.relays = relays
	r.later(closeSinks)
	if err := relays[0].checkQueue(ctx, r.engine); err != nil {
		return err
	}
	return relays[0].check(ctx, a.log)
}

// startPostgres starts the embedded PostgreSQL with its log in the data
// directory, and shows how far it is.
func (a *app) startPostgres(ctx context.Context, u *up, home *home) (*devpg.Server, error) {
	log, err := home.create("postgres.log")
	if err != nil {
		return nil, err
	}
	show := newProgress(a.stderr)
	pg, err := devpg.Start(ctx, devpg.Config{
		DataDir: home.dir, Port: u.postgresPort, BinDir: u.postgresBin, Log: log, Progress: show.stage,
	})
	show.end()
	if err == nil {
		home.closers = append(home.closers, log)
		return pg, nil
	}
	log.Close()
	e, ok := err.(*posthaste.Error)
	if !ok {
		return nil, err
	}
	switch e.Field { // devpg knows no flags
	case "port":
		return nil, portErrorOf("postgres-port", fmt.Sprintf("127.0.0.1:%d", u.postgresPort), err)
	case "bin_dir":
		return nil, &posthaste.Error{Code: e.Code, Field: "postgres-bin", Message: e.Message, Hint: "name the directory that holds initdb and postgres with --postgres-bin", Cause: err}
	case "version":
		return nil, &posthaste.Error{Code: e.Code, Field: "postgres-bin", Message: e.Message, Hint: "name binaries of that version with --postgres-bin, use another directory with --data, or start over with --reset", Cause: err}
	}
	return nil, err
}

// stopPatience is how long the store may take to write everything out.
const stopPatience = 30 * time.Second

func (a *app) stopStore(u *up, store localStore) {
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	if err := store.Stop(ctx); err != nil {
		a.log.Error(u.storeName()+" did not stop in order; it recovers at the next start", "error", err)
	}
}

// storeName is what people call the store.
func (u *up) storeName() string {
	if u.engine == onRedis {
		return "Redis"
	}
	return "PostgreSQL"
}

// runAll runs the services and stops them in order.
func (a *app) runAll(ctx context.Context, u up, home *home, r *running, api *server.Server, work *worker.Worker) error {
	announced := make(chan struct{})
	go func() {
		defer close(announced)
		select {
		case <-work.Started():
			a.announce(u, home, r)
		case <-ctx.Done():
		}
	}()
	err := supervise(ctx, a.log,
		service{"server", func(ctx context.Context) error { return api.Serve(ctx, r.listener, u.grace) }},
		service{"worker", work.Run},
		service{"mail catcher", func(ctx context.Context) error {
			<-ctx.Done()
			return r.mails.Close()
		}},
		service{u.storeName(), func(ctx context.Context) error { return keepRunning(ctx, a.log, u.storeName(), r.database) }},
	)
	r.close() // engine, then PostgreSQL or Redis
	r.undo = nil
	if err == nil && !a.json {
		fmt.Fprintln(a.stderr, "posthaste: stopped")
	}
	return err
}

// keepRunning starts the store again when something has killed it.
func keepRunning(ctx context.Context, log *slog.Logger, name string, store localStore) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-store.Done():
		}
		log.Error(name + " ended, though nobody here stopped it; starting it again")
		if err := store.Restart(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("it ended and cannot be started again: %w", err)
		}
		log.Info(name + " runs again")
	}
}

// portErrorOf is portError where err says that something cannot be listened on.
func portErrorOf(flag, address string, err error) error {
	var op *net.OpError
	var dns *net.DNSError
	var addr *net.AddrError
	if asAny(err, &op, &dns, &addr) {
		return portError(flag, address, err)
	}
	return err
}

// reachable is an address to connect to where a server listens on address.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	switch ip := net.ParseIP(host); {
	case host == "" || ip != nil && ip.IsUnspecified() && ip.To4() != nil:
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

// shellQuote quotes text for a POSIX shell.
func shellQuote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
