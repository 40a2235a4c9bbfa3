//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/catcher"
	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/postgres"
)

// Config says how a rig runs.
type Config struct {
	// Program is the shipped program, bin/posthaste.
	Program string
	// Dir is where the histories, the processes' words and PostgreSQL's data lie.
	// It must be empty.
	Dir string
	// Duration is the time for faults and draining together.
	Duration time.Duration
	// Seed makes the same faults strike the same processes in the same order.
	Seed uint64
	// Kinds are the faults to bring about. Empty means those that fit Duration:
	// the four that matter most below two minutes, and all from then on.
	Kinds []Fault
	// Lease of workers, and of what is received. Default 10 s.
	Lease time.Duration
	// Rate is how many messages a second all senders send together. Default 250.
	Rate float64
	// Postgres configures the server. DataDir is chosen by the rig.
	Postgres devpg.Config
	// Slack is added to the checker's bounds of time, and to Duration where it
	// takes longer to drain.
	Slack time.Duration
	// Queues are those to run with: Plain and any others. Default all.
	Queues []string
	// Clocks are builds of this very program whose clocks are off. If there are
	// any, some workers and senders are of these.
	Clocks []string
	// Sabotage is SQL that breaks the ledger once it is installed, to see whether
	// that is found.
	Sabotage string
	// Log gets what the rig does.
	Log *slog.Logger
}

// The four faults that matter most.
var mostImportant = []Fault{KillWorker, KillSender, KillPostgres, Cut}

func (c Config) withDefaults() Config {
	if c.Lease == 0 {
		c.Lease = 10 * time.Second
	}
	if c.Rate == 0 {
		c.Rate = 250
	}
	if len(c.Queues) == 0 {
		c.Queues = []string{Plain, Ordered, Effects, Once, Mails, Relayed}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if len(c.Kinds) == 0 {
		c.Kinds = mostImportant
		if c.Duration >= 2*time.Minute {
			c.Kinds = slices.DeleteFunc(AllFaults(), func(f Fault) bool {
				return strikes[f] == nil || ofBroker(f) && !slices.Contains(c.Queues, Relayed)
			})
		}
	}
	return c
}

// rig is a run.
type rig struct {
	Config
	random *rand.Rand
	record *history.Recorder
	words  *os.File // of all processes
	server *devpg.Server
	proxy  *proxy
	engine *postgres.Engine // straight to the server
	api    string           // the HTTP server's address
	mail   *catcher.Catcher // what mails are delivered to
	broker *broker          // what messages are relayed to; nil without that queue

	mu      sync.Mutex
	places  []*running   // the processes that shall be there, by their place
	stopped map[int]bool // nobody is started there again
	born    int
	faults  int
	all     sync.WaitGroup // of all processes
	small   string         // the file system of the data, if it is one of its own
}

// cast are the places of a run, by role.
var cast = []string{roleServer, roleSender, roleSender, roleSQLSender, roleHTTPSender,
	roleWorker, roleWorker, roleWorker, roleSQLReceiver, roleHTTPReceiver}

// Run runs a rig, and returns what the checker finds in its histories, which
// stay in c.Dir. The error says that there was no run.
func Run(ctx context.Context, c Config) (v *Verdict, err error) {
	c = c.withDefaults()
	r := &rig{Config: c, random: rand.New(rand.NewPCG(c.Seed, 1)), places: make([]*running, len(cast)), stopped: map[int]bool{}}
	if r.record, err = history.Open(c.Dir, "rig"); err != nil {
		return nil, err
	}
	defer r.record.Close()
	if r.words, err = os.Create(filepath.Join(c.Dir, "words.log")); err != nil {
		return nil, err
	}
	defer r.words.Close()
	if err := r.prepare(ctx); err != nil {
		return nil, errors.Join(err, r.end())
	}
	r.play(ctx)
	if err := errors.Join(r.look(context.WithoutCancel(ctx)), r.end()); err != nil {
		return nil, err
	}
	events, err := history.Read(c.Dir)
	if err != nil {
		return nil, err
	}
	bounds := Bounds{Slack: c.Slack}
	// In a short run only these make sure that something is in flight.
	if c.Duration >= 5*time.Minute {
		bounds.Kinds = r.Kinds
	} else {
		bounds.Kinds = intersection(mostImportant, c.Kinds)
	}
	return Check(events, bounds)
}

func intersection(a, b []Fault) (both []Fault) {
	for _, f := range a {
		if slices.Contains(b, f) {
			both = append(both, f)
		}
	}
	return both
}

// prepare starts PostgreSQL and everybody else.
func (r *rig) prepare(ctx context.Context) (err error) {
	pg := r.Postgres
	pg.DataDir = filepath.Join(r.Dir, "data")
	if err := r.makeSmall(pg.DataDir); err != nil {
		r.Log.Info("the disk cannot be filled", "error", err)
		r.Kinds = slices.DeleteFunc(slices.Clone(r.Kinds), func(f Fault) bool { return f == DiskFull })
	}
	serverLog, err := os.Create(filepath.Join(r.Dir, "postgres.log"))
	if err != nil {
		return err
	}
	pg.Log = serverLog
	if r.server, err = devpg.Start(ctx, pg); err != nil {
		return err
	}
	if out, err := r.program(ctx, "migrate", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("posthaste migrate up: %w: %s", err, out)
	}
	if r.engine, err = postgres.Open(ctx, r.server.URL(), postgres.WithPoolSize(4), postgres.Logger(r.Log)); err != nil {
		return err
	}
	options := map[string]posthaste.QueueOptions{Plain: {Lanes: 2}, Ordered: {Ordered: true, Lanes: 4}, Once: {Mode: posthaste.AtMostOnce}}
	for _, queue := range r.Queues {
		if queue == Mails {
			continue // migrations made it
		}
		o := options[queue]
		if o.Mode != posthaste.AtMostOnce {
			o.MaxAttempts, o.BackoffBase, o.BackoffMax = 1000, 100*time.Millisecond, time.Second
		}
		if err := r.engine.QueueCreate(ctx, queue, o); err != nil {
			return err
		}
	}
	// Slots are left after few positions, so that the ring goes on many times.
	err = r.sql(ctx, effectsTable, "update posthaste.settings set slot_rows = 4096", r.Sabotage)
	if err != nil {
		return err
	}
	if r.proxy, err = newProxy(fmt.Sprintf("127.0.0.1:%d", r.server.Port())); err != nil {
		return err
	}
	if r.mail, err = mailServer(); err != nil {
		return err
	}
	if slices.Contains(r.Queues, Relayed) {
		if r.broker, err = startBroker(ctx, r.Dir); err != nil {
			return err
		}
	}
	// A free port for the API, which is kept over its deaths.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	r.api = l.Addr().String()
	if err := l.Close(); err != nil {
		return err
	}
	for place := range cast {
		if err := r.spawn(place); err != nil {
			return err
		}
	}
	return nil
}

// program is a call of the shipped program, straight to the server.
func (r *rig) program(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.Program, args...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+r.server.URL())
	return cmd
}

// sql runs statements as the superuser, past the proxy. Empty ones are left out.
func (r *rig) sql(ctx context.Context, statements ...string) error {
	return r.connected(ctx, func(conn *pgx.Conn) error {
		for _, s := range statements {
			if _, err := conn.Exec(ctx, s); err != nil {
				return fmt.Errorf("%.80s: %w", s, err)
			}
		}
		return nil
	})
}

func (r *rig) connected(ctx context.Context, f func(conn *pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, r.server.URL())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return f(conn)
}

// urlFor is the database's address through the proxy, for a process by name.
func (r *rig) urlFor(name string) (string, error) {
	u, err := url.Parse(r.server.URL())
	if err != nil {
		return "", err
	}
	u.Host = r.proxy.address()
	q := u.Query()
	q.Set("application_name", name)
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// spawn starts a new process at a place, and again whenever it ends before it
// was told to.
func (r *rig) spawn(place int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped[place] {
		return nil
	}
	role := cast[place]
	r.born++
	name := fmt.Sprintf("%s-%d", role, r.born)
	u, err := r.urlFor(name)
	if err != nil {
		return err
	}
	e := history.Event{Kind: Born, Whom: name, Note: role, Took: r.Lease}
	if role == roleWorker {
		e.Count = holds
	} else {
		e.Count = 5
	}
	r.record.Record(e)
	var p *running
	if role == roleServer {
		cmd := r.program(context.Background(), "serve", "--listen", r.api)
		cmd.Env = append(cmd.Env, "DATABASE_URL="+u)
		p, err = start(name, role, cmd, r.words, nil)
	} else {
		// The rate is shared by lines of sends.
		rate := r.Rate / 10
		if role == roleSQLSender {
			rate *= 2
		}
		var input []byte
		var relayTo string
		if r.broker != nil {
			relayTo = r.broker.url()
		}
		input, err = json.Marshal(task{Role: role, Name: name, Dir: r.Dir, URL: u, Server: "http://" + r.api, Mail: r.mail.Addr(), Broker: relayTo,
			Queues: r.mix(), Seed: r.Seed, Lease: r.Lease, Rate: rate})
		if err != nil {
			return err
		}
		var exe string
		if exe, err = r.executable(place, name); err != nil {
			return err
		}
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), childEnv+"=1")
		p, err = start(name, role, cmd, r.words, append(input, '\n'))
	}
	if err != nil {
		return err
	}
	r.places[place] = p
	r.all.Go(func() {
		<-p.ended
		r.mu.Lock()
		how := Failed
		switch {
		case p.killed:
			how = Killed
		case p.asked && (p.err == nil || p.terminated()): // before it could do so in order
			how = Ended
		}
		r.record.Record(history.Event{Kind: Died, Whom: p.name, Note: how})
		r.mu.Unlock()
		if how == Failed {
			r.Log.Error("a process ended by itself", "process", p.name, "error", p.err)
			time.Sleep(100 * time.Millisecond)
		}
		if err := r.spawn(place); err != nil {
			r.Log.Error("a process cannot be started", "error", err)
		}
	})
	return nil
}

// mix is the queues, as often as senders choose them: half of it is plain.
func (r *rig) mix() (mix []string) {
	for _, queue := range r.Queues {
		mix = append(mix, slices.Repeat([]string{queue}, map[string]int{Plain: 10, Ordered: 5, Effects: 3, Once: 2, Mails: 2, Relayed: 4}[queue])...)
	}
	return mix
}

// executable is what a place's processes run: this program, or at every other
// place one of those whose clocks are off, which is a fault that lasts.
func (r *rig) executable(place int, name string) (string, error) {
	if len(r.Clocks) == 0 || place%2 == 0 {
		return os.Executable()
	}
	r.faults++
	r.record.Record(history.Event{Kind: Struck, Token: strconv.Itoa(r.faults), Note: string(Clock), Whom: name})
	return r.Clocks[place/2%len(r.Clocks)], nil
}

// at is the process at a place.
func (r *rig) at(place int) *running {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.places[place]
}

// some is a place of one of the roles.
func (r *rig) some(roles ...string) int {
	var places []int
	for i, role := range cast {
		if slices.Contains(roles, role) {
			places = append(places, i)
		}
	}
	return places[r.random.IntN(len(places))]
}

// end ends everybody, and PostgreSQL.
func (r *rig) end() error {
	r.stop(slices.Collect(allPlaces)...)
	r.all.Wait()
	if r.engine != nil {
		r.engine.Close()
	}
	if r.proxy != nil {
		r.proxy.close()
	}
	var err error
	if r.mail != nil {
		err = r.mail.Close()
	}
	if r.broker != nil {
		r.broker.close()
	}
	if r.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		err = errors.Join(err, r.server.Stop(ctx))
	}
	return errors.Join(err, r.dropSmall())
}

func allPlaces(yield func(int) bool) {
	for i := range cast {
		if !yield(i) {
			return
		}
	}
}

// stop ends the processes at some places for good: in order, and if that takes
// too long, at once.
func (r *rig) stop(places ...int) {
	r.mu.Lock()
	var ending []*running
	for _, i := range places {
		r.stopped[i] = true
		if p := r.places[i]; p != nil {
			p.asked = true
			p.signal(syscall.SIGCONT)
			p.signal(syscall.SIGTERM)
			ending = append(ending, p)
		}
	}
	r.mu.Unlock()
	for _, p := range ending {
		select {
		case <-p.ended:
		case <-time.After(40 * time.Second): // its grace is 20 s
			r.Log.Error("a process does not end when it is asked to", "process", p.name)
			p.signal(syscall.SIGKILL)
			<-p.ended
		}
	}
}

// drainTime is what is kept of a run's duration for draining: what was in flight
// when the last fault struck must be rescued, and of a long run more may wait.
func (r *rig) drainTime() time.Duration {
	return min(r.Duration/2, max(r.Lease+10*time.Second, r.Duration/20))
}

// play brings faults about until it is time to drain, and drains.
func (r *rig) play(ctx context.Context) {
	begun := time.Now()
	loaded, cancel := context.WithDeadline(ctx, begun.Add(r.Duration-r.drainTime()))
	defer cancel()
	stop := r.watchStalls()
	defer stop()
	r.strikeAll(ctx, loaded)
	// Senders end, and everything has to come to rest.
	var senders []int
	for i, role := range cast {
		if strings.HasSuffix(role, roleSender) {
			senders = append(senders, i)
		}
	}
	r.stop(senders...)
	r.record.Record(history.Event{Kind: Calm})
	r.Log.Info("draining", "after", time.Since(begun).Round(time.Millisecond))
	until, cancel := context.WithDeadline(context.WithoutCancel(ctx), begun.Add(r.Duration+r.Slack))
	defer cancel()
	if r.drain(until) {
		r.record.Record(history.Event{Kind: Drained})
	}
	r.Log.Info("drained", "after", time.Since(begun).Round(time.Millisecond))
}

// drain waits until no queue has anything left.
func (r *rig) drain(ctx context.Context) bool {
	var rest int64
	var where string
	for {
		begun := time.Now()
		_, err := r.engine.Maintain(ctx) // counts, too
		if err == nil {
			var infos []posthaste.QueueInfo
			infos, err = r.engine.Queues(ctx, r.Queues...)
			rest, where = 0, ""
			for _, q := range infos {
				s := q.Subscriptions[0]
				if rest += s.Depth + s.InFlight; s.Depth+s.InFlight > 0 {
					where += fmt.Sprintf("%s: %d waiting, %d in flight; ", q.Name, s.Depth, s.InFlight)
				}
				if s.CountedAt.Before(begun) {
					rest++
				}
			}
			if err == nil && rest == 0 {
				return true
			}
		}
		select {
		case <-ctx.Done():
			r.Log.Error("not drained", "left", where, "error", err)
			return false
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// watchStalls records when the machine stands still: a process that wants to run
// every 20 ms does not.
func (r *rig) watchStalls() (stop func()) {
	const tick, much = 20 * time.Millisecond, 300 * time.Millisecond
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		before := history.Now()
		for {
			select {
			case <-done:
				return
			case <-time.After(tick):
			}
			now := history.Now()
			if now-before > much {
				r.record.Record(history.Event{Kind: Stalled, Took: now - before})
			}
			before = history.Now()
		}
	})
	return func() {
		close(done)
		watching.Wait()
	}
}

// look records what is in the ledger at the end, and the effects.
func (r *rig) look(ctx context.Context) error {
	// Workers leave in order first: what they hold until then is nobody's.
	r.stop(slices.Collect(allPlaces)...)
	mailed(r.mail, r.record)
	if r.broker != nil {
		if err := r.broker.relayed(r.record); err != nil {
			return fmt.Errorf("what was relayed cannot be read: %w", err)
		}
	}
	return r.connected(ctx, func(conn *pgx.Conn) error {
		for what, query := range map[string]string{
			"open claims":                          "select count(*) from posthaste.claims c where posthaste.claim_open(c)",
			"parked messages":                      "select count(*) from posthaste.parked",
			"dead letters":                         "select count(*) from posthaste.dead_letters",
			"slots kept by claims or transactions": `select count(*) from posthaste.oldest_slot() where blocker not like 'subscription %'`,
			// Not the server's settings: a throw-away one may run without fsync, which
			// outlives what only kills processes.
			"faults that doctor finds": `select count(*) from posthaste.doctor() d where d.level = 'fault' and d."check" <> 'settings'`,
		} {
			var n int
			if err := conn.QueryRow(ctx, query).Scan(&n); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			if n > 0 {
				r.record.Record(history.Event{Kind: Left, Note: what, Count: n})
			}
		}
		var turns int
		if err := conn.QueryRow(ctx, "select max(epoch)::int from posthaste.slots").Scan(&turns); err != nil {
			return err
		}
		r.record.Record(history.Event{Kind: Turned, Count: turns})
		rows, err := conn.Query(ctx, "select token, part from chaos_effects")
		if err != nil {
			return err
		}
		effects, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
			Token string
			Part  int
		}])
		for _, e := range effects {
			r.record.Record(history.Event{Kind: Effect, Token: e.Token, Part: e.Part})
		}
		return err
	})
}
