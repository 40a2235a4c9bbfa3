//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/internal/history"
)

// Config configures a rig.
type Config struct {
	// Program is the shipped program, bin/posthaste.
	Program string
	// Engine is OnPostgres, the default, or OnRedis.
	Engine string
	// Dir is the directory of the histories, the processes' output and the store's data. It
	// must be empty.
	Dir string
	// Duration is the time for faults and draining together.
	Duration time.Duration
	// Seed makes the same faults strike the same processes in the same order.
	Seed uint64
	// Kinds are the faults to inject. If empty, they depend on Duration: the four most
	// important ones below two minutes, and all otherwise.
	Kinds []Fault
	// Without are faults to leave out. A run of at least five minutes fails if others are left
	// out because they are not possible here.
	Without []Fault
	// Lease is the lease of workers and of receives. Default 10 s.
	Lease time.Duration
	// Rate is the number of messages per second of all senders together. Default 250.
	Rate float64
	// Postgres configures a PostgreSQL server. The rig chooses DataDir.
	Postgres devpg.Config
	// Fsync is when Redis flushes its append-only file: everysec, the default, or always.
	Fsync string
	// Slack is added to the checker's bounds of time, and to Duration if draining takes
	// longer.
	Slack time.Duration
	// Queues are the queues of the run: Plain and any others. Default all that the engine
	// supports.
	Queues []string
	// Children is the program for the senders and receivers. Default this program.
	Children string
	// Clocks are builds of this program with wrong clocks. If there are any, some workers and
	// senders use them.
	Clocks []string
	// Sabotage is SQL that breaks the ledger after it is installed, to test whether that is
	// found. The Redis engine is part of the programs: build broken ones.
	Sabotage string
	// Log receives the rig's actions.
	Log *slog.Logger
}

func (c Config) withDefaults() (_ Config, err error) {
	if c.Engine == "" {
		c.Engine = OnPostgres
	}
	if c.Fsync == "" {
		c.Fsync = fsyncEverySecond
	}
	if c.Fsync != fsyncEverySecond && c.Fsync != fsyncAlways {
		return c, fmt.Errorf("appendfsync must be %s or %s, and is %q", fsyncEverySecond, fsyncAlways, c.Fsync)
	}
	if c.Children == "" {
		if c.Children, err = os.Executable(); err != nil {
			return c, err
		}
	}
	if c.Lease == 0 {
		c.Lease = 10 * time.Second
	}
	if c.Rate == 0 {
		c.Rate = 250
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// rig is a run.
type rig struct {
	Config
	random *rand.Rand
	record *history.Recorder
	words  *os.File // output of all processes
	store  store
	cast   []string // roles of the run's processes, by place
	can    map[Fault]strike
	left   map[Fault]history.Event // faults left out of the run, and why
	proxy  *proxy
	engine posthaste.Store // directly to the store
	api    string          // the HTTP server's address
	broker *broker         // target of the relays; nil without that queue

	mu          sync.Mutex
	places      []*running                   // the current processes, by place
	stopped     map[int]bool                 // no process is started there again
	killed      map[string]bool              // processes that the rig killed
	mailServers map[string]*mailServer       // the mail servers of processes
	heard       map[string]*history.Recorder // of relays, whose connections the rig observes
	born        int
	faults      int
	all         sync.WaitGroup // of all processes
}

// Run runs a rig, and returns the result of the checker. The histories stay in c.Dir. The
// error says that there was no run.
func Run(ctx context.Context, c Config) (v *Verdict, err error) {
	if c, err = c.withDefaults(); err != nil {
		return nil, err
	}
	r := &rig{Config: c, random: rand.New(rand.NewPCG(c.Seed, 1)), stopped: map[int]bool{}, killed: map[string]bool{},
		mailServers: map[string]*mailServer{}, heard: map[string]*history.Recorder{}, left: map[Fault]history.Event{}}
	if err := r.choose(); err != nil {
		return nil, err
	}
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
	r.announce()
	r.play(ctx)
	if err := errors.Join(r.look(context.WithoutCancel(ctx)), r.end()); err != nil {
		return nil, err
	}
	events, err := history.Read(c.Dir)
	if err != nil {
		return nil, err
	}
	return Check(events, Bounds{Slack: c.Slack, Busy: true})
}

// prepare starts the store and all processes.
func (r *rig) prepare(ctx context.Context) error {
	engine, err := r.store.start(ctx)
	if err != nil {
		return err
	}
	r.engine = engine // not before, because an interface with a nil pointer is not nil
	if len(r.Kinds) == 0 {
		return errors.New("no fault is left to inject")
	}
	options := map[string]posthaste.QueueOptions{Plain: {Lanes: 2}, Ordered: {Ordered: true, Lanes: 4}, Once: {Mode: posthaste.AtMostOnce},
		Limited: {Limits: posthaste.QueueLimits{Concurrency: limit, RateLimit: posthaste.Rate{Limit: limitRate, Per: time.Second, Burst: limitBurst}}}}
	for _, queue := range r.Queues {
		o := options[queue]
		if o.Mode != posthaste.AtMostOnce {
			o.MaxAttempts, o.BackoffBase, o.BackoffMax = 1000, 100*time.Millisecond, time.Second
		}
		// Migrations have created the queue of mails.
		if err := r.engine.CreateQueue(ctx, queue, o); err != nil && (queue != Mails || posthaste.CodeOf(err) != posthaste.CodeConflict) {
			return err
		}
		for _, s := range subscriptions(queue) {
			if s == "" {
				continue
			}
			if err := r.engine.Subscribe(posthaste.WithActor(ctx, "rig"), queue, s, posthaste.SubscriptionOptions{}); err != nil {
				return err
			}
		}
	}
	if slices.Contains(r.Queues, Ticks) {
		if err := r.schedule(ctx); err != nil {
			return err
		}
	}
	r.proxy = newProxy(r.store.address(), r.store.tellsEnd)
	if slices.Contains(r.Queues, Relayed) {
		if r.broker, err = r.startBroker(ctx); err != nil {
			return err
		}
	}
	// The API's port stays the same when the server restarts.
	port, err := devbroker.TakePort()
	if err != nil {
		return err
	}
	r.api = fmt.Sprint("127.0.0.1:", port)
	for place := range r.cast {
		if err := r.spawn(place); err != nil {
			return err
		}
	}
	return nil
}

// program returns a call of the shipped program with a store's URL.
func (r *rig) program(ctx context.Context, url string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.Program, args...)
	cmd.Env = append(os.Environ(), "DATABASE_URL=", "REDIS_URL=", r.store.variable()+"="+url)
	return cmd
}

// spawn starts a new process at a place, and again whenever it ends before it was told to.
func (r *rig) spawn(place int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped[place] {
		return nil
	}
	role := r.cast[place]
	r.born++
	name := fmt.Sprintf("%s-%d", role, r.born)
	address, err := r.proxy.open(name)
	if err != nil {
		return err
	}
	u, err := r.store.urlAt(address, name)
	if err != nil {
		return err
	}
	e := history.Event{Kind: Born, Whom: name, Note: role, Took: r.leaseOf(role), Count: 5}
	if slices.Contains(workerRoles, role) {
		e.Count = holds
	}
	r.record.Record(e)
	p, after, err := r.startAt(place, role, name, u)
	if err != nil {
		return err
	}
	r.places[place] = p
	r.all.Go(func() {
		<-p.ended
		r.proxy.forget(p.name)
		how := r.died(p)
		after()
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

// startAt starts a process of a role. The caller calls after once the process has ended.
func (r *rig) startAt(place int, role, name, url string) (p *running, after func(), err error) {
	switch role {
	case roleServer, roleMailWorker, roleRelay:
		cmd, after, err := r.shippedCommand(role, name, url)
		if err != nil {
			return nil, nil, err
		}
		p, err = start(name, role, cmd, r.words, nil)
		return p, after, err
	}
	// The rate is divided among the sequences of sends.
	rate := r.Rate / 10
	if role == roleSQLSender {
		rate *= 2
	}
	input, err := json.Marshal(task{Role: role, Name: name, Dir: r.Dir, Engine: r.Engine, URL: url, Server: "http://" + r.api,
		Queues: r.Queues, Mix: r.mix(), Seed: r.Seed, Lease: r.Lease, Rate: rate})
	if err != nil {
		return nil, nil, err
	}
	cmd := exec.Command(r.executable(place, name))
	cmd.Env = append(os.Environ(), childEnv+"=1")
	p, err = start(name, role, cmd, r.words, append(input, '\n'))
	return p, func() {}, err
}

// died records the end of a process, and returns how it ended.
func (r *rig) died(p *running) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	how := Failed
	switch {
	case p.killed:
		how = Killed
	case p.asked && (p.err == nil || p.terminated()): // before it could end gracefully
		how = Ended
	}
	r.record.Record(history.Event{Kind: Died, Whom: p.name, Note: how})
	return how
}

// leaseOf returns the lease of processes of a role.
func (r *rig) leaseOf(role string) time.Duration {
	if role == roleMailWorker || role == roleRelay {
		return shippedLease
	}
	return r.Lease
}

// mix returns the queues, repeated by weight: half of them are plain.
func (r *rig) mix() (mix []string) {
	for _, queue := range r.Queues {
		mix = append(mix, slices.Repeat([]string{queue}, map[string]int{Plain: 10, Ordered: 5, Effects: 3, Once: 2, Mails: 3, Relayed: 4, Shared: 3, Deduped: 2, Limited: 1}[queue])...)
	}
	return mix
}

// executable returns the program of a place's process. Every other place uses a program with a
// wrong clock, if there are any.
func (r *rig) executable(place int, name string) string {
	if len(r.Clocks) == 0 || place%2 == 0 {
		return r.Children
	}
	r.faults++
	r.record.Record(history.Event{Kind: Struck, Token: strconv.Itoa(r.faults), Note: string(Clock), Whom: name, Count: 1})
	return r.Clocks[place/2%len(r.Clocks)]
}

// at returns the process at a place.
func (r *rig) at(place int) *running {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.places[place]
}

// some returns a place of one of the roles.
func (r *rig) some(roles ...string) int {
	var places []int
	for i, role := range r.cast {
		if slices.Contains(roles, role) {
			places = append(places, i)
		}
	}
	return places[r.random.IntN(len(places))]
}

// end ends all processes and the store.
func (r *rig) end() error {
	r.stop(r.everywhere()...)
	r.all.Wait()
	if r.engine != nil {
		r.engine.Close()
	}
	if r.proxy != nil {
		r.proxy.close()
	}
	if r.broker != nil {
		r.broker.close()
	}
	var err error
	for _, heard := range r.heard {
		err = errors.Join(err, heard.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(err, r.store.stop(ctx))
}

func (r *rig) everywhere() (places []int) {
	for i := range r.cast {
		places = append(places, i)
	}
	return places
}

// stop ends the processes at some places permanently: gracefully, or with SIGKILL if that
// takes too long.
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
		case <-time.After(40 * time.Second): // its grace period is 20 s
			r.Log.Error("a process does not end when it is asked to", "process", p.name)
			p.signal(syscall.SIGQUIT) // its goroutines are written to the log
			select {
			case <-p.ended:
			case <-time.After(5 * time.Second):
				p.signal(syscall.SIGKILL)
				<-p.ended
			}
		}
	}
}
