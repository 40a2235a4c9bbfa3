//go:build unix

package cli

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/catcher"
	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/postgres"
)

// localStore is the server of an engine that up has started.
type localStore interface {
	// URL returns the URL of the server, and DataDir its data directory.
	URL() string
	DataDir() string
	// Done returns a channel that is closed when the process ends. Restart starts it again.
	Done() <-chan struct{}
	Restart(ctx context.Context) error
	// Stop shuts the server down.
	Stop(ctx context.Context) error
}

// localEngine is an engine whose server up can start.
type localEngine struct {
	engine string
	flags  []string // that apply to it alone
	start  func(ctx context.Context, a *app, u *upFlags, home *home, r *running) error
}

// localEngines are the engines of `up --engine`. The first one is the default.
var localEngines = []localEngine{
	{onPostgres, []string{"postgres-port", "postgres-bin"}, startOnPostgres},
	{onRedis, []string{"redis-port"}, startOnRedis},
	{onNATS, []string{"nats-port"}, startOnNATS},
}

// localEngineNames returns the names of [localEngines].
func localEngineNames() []string {
	names := make([]string, len(localEngines))
	for i, e := range localEngines {
		names[i] = e.engine
	}
	return names
}

// running holds the services that up has started, in order.
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

// startAll opens the ports first, to fail early if one is in use, and then starts the store
// and the relay.
func startAll(ctx context.Context, a *app, u *upFlags, home *home, r *running) (err error) {
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
	local := slices.IndexFunc(localEngines, func(e localEngine) bool { return e.engine == u.engine }) // checkStore has checked it
	if err := localEngines[local].start(ctx, a, u, home, r); err != nil {
		return err
	}
	return startRelay(ctx, a, u, r)
}

func startOnPostgres(ctx context.Context, a *app, u *upFlags, home *home, r *running) error {
	pg, err := startPostgres(ctx, a, u, home)
	if err != nil {
		return err
	}
	r.database = pg
	r.later(func() { stopStore(a, u.storeName(), pg) })
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

func startOnRedis(ctx context.Context, a *app, u *upFlags, home *home, r *running) error {
	fmt.Fprintln(a.stderr, "posthaste: starting Redis")
	server, err := startRedis(ctx, home, u.redisPort)
	if err != nil {
		return err
	}
	return useLocal(ctx, a, u, r, server)
}

func startOnNATS(ctx context.Context, a *app, u *upFlags, home *home, r *running) error {
	fmt.Fprintln(a.stderr, "posthaste: starting NATS")
	server, err := startNATS(ctx, home, u.natsPort)
	if err != nil {
		return err
	}
	return useLocal(ctx, a, u, r, server)
}

// useLocal opens the engine on a server that was started, and stops both at the end.
func useLocal(ctx context.Context, a *app, u *upFlags, r *running, server localStore) (err error) {
	r.database = server
	r.later(func() { stopStore(a, u.storeName(), server) })
	db := databaseAt(u.engine, server.URL())
	if r.engine, err = db.open(ctx, a.log); err != nil {
		return err
	}
	r.later(r.engine.Close)
	return db.prepare(ctx, r.engine)
}

// easyRelay returns the relay of `up --broker`.
func easyRelay(broker string) ([]relayConfig, error) {
	relays, err := setRelays([]string{relayQueue}, broker, "", nil)
	if err != nil {
		return nil, err
	}
	if easy := relays[0].kind.Easy; easy != nil {
		var set []string
		for key, value := range easy(relayQueue) {
			set = append(set, key+"="+value)
		}
		relays, err = setRelays([]string{relayQueue}, broker, "", set)
	}
	for i := range relays {
		relays[i].place = func(string) string { return "--broker" } // the only flag of this relay
	}
	return relays, err
}

// startRelay creates the relayed queue and the sink of the broker.
func startRelay(ctx context.Context, a *app, u *upFlags, r *running) error {
	if u.broker == "" {
		return nil
	}
	if err := r.engine.CreateQueue(posthaste.WithActor(ctx, caller()), relayQueue, posthaste.QueueOptions{}); err != nil && posthaste.CodeOf(err) != posthaste.CodeConflict {
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

// startPostgres starts the embedded PostgreSQL, which logs to the data directory, and shows
// the progress.
func startPostgres(ctx context.Context, a *app, u *upFlags, home *home) (*devpg.Server, error) {
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
	switch e.Field { // devpg does not know the flags
	case "port":
		return nil, portErrorOf("postgres-port", fmt.Sprintf("127.0.0.1:%d", u.postgresPort), err)
	case "bin_dir":
		return nil, &posthaste.Error{Code: e.Code, Field: "postgres-bin", Message: e.Message, Hint: "set --postgres-bin to the directory of initdb and postgres", Cause: err}
	case "version":
		return nil, &posthaste.Error{Code: e.Code, Field: "postgres-bin", Message: e.Message, Hint: "set --postgres-bin to binaries of that version, use another directory with --data, or remove all data with --reset", Cause: err}
	}
	return nil, err
}

// stopTimeout bounds the shutdown of the store.
const stopTimeout = 30 * time.Second

func stopStore(a *app, name string, store localStore) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := store.Stop(ctx); err != nil {
		a.log.Error(name+" did not shut down cleanly; it recovers at the next start", "error", err)
	}
}
