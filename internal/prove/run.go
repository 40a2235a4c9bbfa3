//go:build unix

package prove

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/postgres"
)

// Database is the PostgreSQL that the proof kills. Kill ends all its processes with SIGKILL,
// and Restart starts it again on the same port.
type Database interface {
	URL() string
	Kill() error
	Restart(ctx context.Context) error
}

// Options are the parameters of a proof.
type Options struct {
	// Command starts a process that calls [Child].
	Command []string
	// Dir is the folder of the histories, which must be empty.
	Dir string
	// Database has the schema, and no queue of the proof yet.
	Database Database
	// Duration is how long messages are sent and processes killed.
	Duration time.Duration
	// Rate is how many messages are sent per second.
	Rate float64
	// Workers is the number of worker processes.
	Workers int
	// Seed determines which faults come when.
	Seed uint64
	// Words receives the logs of the processes.
	Words io.Writer
	// Tell reports the progress, one line per call, at a time since the begin.
	Tell func(at time.Duration, line string)

	// For tests: the planted bug, and how long to wait at the end.
	sabotage string
	patience time.Duration
}

const (
	senders = 2
	// firstFault is the time before the first fault, pause the time between two.
	firstFault = 2 * time.Second
	leastPause = 2 * time.Second
	mostPause  = 4 * time.Second
	// drainPatience is how long to wait at the end for one more message to be handled, by default.
	// All of them may take much longer: the rate may be above that at which they are handled.
	drainPatience = 90 * time.Second
	stopPatience  = 40 * time.Second
	pollEvery     = 20 * time.Millisecond
)

// proof is a run.
type proof struct {
	Options
	recorder *history.Recorder
	follower *follower
	random   *rand.Rand
	begun    time.Duration
	faults   int
	workers  []*process
	senders  []*process
	born     map[string]int // processes started, by role
	graves   []*process     // that ended by themselves
}

// Run sends, handles, kills and accounts. When ctx ends it stops early and still accounts.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := createQueue(ctx, o.Database.URL()); err != nil {
		return nil, err
	}
	r, err := history.Open(o.Dir, "prove")
	if err != nil {
		return nil, err
	}
	o.patience = cmp.Or(o.patience, drainPatience)
	r.Record(history.Event{Kind: Began})
	p := &proof{Options: o, recorder: r, follower: newFollower(o.Dir), begun: history.Now(), born: map[string]int{},
		random: rand.New(rand.NewPCG(o.Seed, 0))}
	defer p.killAll()
	for range o.Workers {
		if err := p.replace(&p.workers, -1, roleWorker); err != nil {
			return nil, err
		}
	}
	for range senders {
		if err := p.replace(&p.senders, -1, roleSender); err != nil {
			return nil, err
		}
	}
	if err := p.strikeAll(ctx); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		p.tell("interrupted; accounting for the messages sent so far; a second Ctrl-C leaves the files in %s", filepath.Dir(o.Dir))
	}
	if err := p.drain(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	events, err := history.Read(o.Dir)
	if err != nil {
		return nil, err
	}
	report, err := Check(events)
	if err != nil {
		return nil, err
	}
	for _, g := range p.graves {
		report.broken("%s ended by itself: %v", g.name, g.err)
	}
	report.Seed, report.Workers, report.Rate, report.Interrupted = o.Seed, o.Workers, o.Rate, ctx.Err() != nil
	report.Histories, err = filepath.Abs(o.Dir)
	return report, err
}

func createQueue(ctx context.Context, url string) error {
	engine, err := postgres.Open(ctx, url, postgres.WithPoolSize(1), postgres.WithPollingOnly())
	if err != nil {
		return err
	}
	defer engine.Close()
	return engine.CreateQueue(posthaste.WithActor(ctx, "prove"), queue, posthaste.QueueOptions{MaxAttempts: 1000})
}

func (p *proof) tell(format string, args ...any) { p.tellOf(history.Now(), format, args...) }

// tellOf tells an event that began at a time.
func (p *proof) tellOf(at time.Duration, format string, args ...any) {
	p.Tell(at-p.begun, fmt.Sprintf(format, args...))
}

// strikeAll strikes one fault after the other until the time is over or ctx ends.
func (p *proof) strikeAll(ctx context.Context) error {
	over := time.After(p.Duration)
	pause := firstFault
	for round := []Fault{}; ; pause = leastPause + time.Duration(p.random.Int64N(int64(mostPause-leastPause))) {
		select {
		case <-ctx.Done():
			return nil
		case <-over:
			return nil
		case <-time.After(pause):
		}
		if len(round) == 0 { // a worker and the database first, for short runs
			round = []Fault{KillWorker, KillDatabase, KillWorker, KillSender}
			if p.faults > 0 {
				p.random.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
			}
		}
		kind := round[0]
		round = round[1:]
		var err error
		switch kind {
		case KillWorker:
			err = p.strikeProcess(ctx, kind, &p.workers, roleWorker)
		case KillSender:
			err = p.strikeProcess(ctx, kind, &p.senders, roleSender)
		case KillDatabase:
			err = p.strikeDatabase(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// strikeProcess kills one of several processes and starts another in its place.
func (p *proof) strikeProcess(ctx context.Context, kind Fault, all *[]*process, role string) error {
	which := p.random.IntN(len(*all))
	victim := (*all)[which]
	if err := p.follower.poll(); err != nil {
		return err
	}
	struck := p.begins(kind, victim.name, p.follower.open[victim.name])
	if victim.gone() {
		p.graves = append(p.graves, victim)
	}
	victim.kill()
	down := p.downAt(struck)
	if err := p.replace(all, which, role); err != nil {
		return err
	}
	p.recorder.Record(history.Event{Kind: Healed, Token: struck.Token})
	doing := "running"
	if role == roleSender {
		doing = "sending"
	}
	return p.toldFlow(ctx, struck.At, down, fmt.Sprintf("killed %s while it was %s %s; %s takes its place",
		victim.name, doing, counted(struck.Count, "message"), (*all)[which].name))
}

// strikeDatabase kills PostgreSQL and starts it again.
func (p *proof) strikeDatabase(ctx context.Context) error {
	if err := p.follower.poll(); err != nil {
		return err
	}
	inFlight := 0
	for _, of := range [][]*process{p.workers, p.senders} {
		for _, one := range of {
			inFlight += p.follower.open[one.name]
		}
	}
	struck := p.begins(KillDatabase, "PostgreSQL", inFlight)
	if err := p.Database.Kill(); err != nil {
		return err
	}
	down := p.downAt(struck)
	// A moment without a database, in which sends fail.
	time.Sleep(time.Duration(p.random.IntN(500)) * time.Millisecond)
	if err := p.Database.Restart(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	p.recorder.Record(history.Event{Kind: Healed, Token: struck.Token})
	return p.toldFlow(ctx, struck.At, down, fmt.Sprintf("killed PostgreSQL with all its processes while %s in flight; it accepted connections again after %s",
		were(struck.Count), seconds(history.Now()-down)))
}

// begins records the begin of a fault.
func (p *proof) begins(kind Fault, whom string, inFlight int) history.Event {
	p.faults++
	e := history.Event{Kind: Struck, Token: fmt.Sprintf("fault-%d", p.faults), Note: string(kind), Whom: whom, Count: inFlight}
	p.recorder.Record(e)
	e.At = history.Now()
	return e
}

// downAt records that the target of a fault is gone.
func (p *proof) downAt(struck history.Event) time.Duration {
	p.recorder.Record(history.Event{Kind: Down, Token: struck.Token})
	return history.Now()
}

// toldFlow waits until a message that was sent after a kill is handled, and tells both.
func (p *proof) toldFlow(ctx context.Context, struck, down time.Duration, line string) error {
	until := history.Now() + flowPatience
	for p.follower.newest <= down {
		if err := p.follower.poll(); err != nil {
			return err
		}
		if history.Now() > until || ctx.Err() != nil {
			p.tellOf(struck, "%s; nothing that was sent since then was handled yet", line)
			return nil
		}
		time.Sleep(pollEvery)
	}
	p.tellOf(struck, "%s; messages flowed again after %s", line, seconds(history.Now()-down))
	return nil
}

// drain ends the senders, waits until every message is handled, and ends the workers.
func (p *proof) drain(ctx context.Context) error {
	p.end(p.senders)
	p.recorder.Record(history.Event{Kind: Calm})
	engine, err := postgres.Open(ctx, p.Database.URL(), postgres.WithPoolSize(1), postgres.WithPollingOnly())
	if err != nil {
		return err
	}
	defer engine.Close()
	p.tell("stopped sending; waiting until every message is handled")
	begun := history.Now()
	still := standstill{since: begun}
	for {
		if err := p.follower.poll(); err != nil {
			return err
		}
		// Messages of sends with an unknown outcome are not due, so the queue is asked too.
		waiting := 1
		if len(p.follower.due) == 0 {
			if waiting, err = unsettled(ctx, engine); err != nil {
				return err
			}
		}
		if waiting == 0 {
			p.tell("every message is handled, %s later", seconds(history.Now()-begun))
			break
		}
		if still.lasts(len(p.follower.handled), history.Now()) > p.patience {
			p.tell("%s not handled, and no other one for %s", were(len(p.follower.due)), p.patience)
			break
		}
		time.Sleep(10 * pollEvery)
	}
	p.end(p.workers)
	return nil
}

// standstill measures how long no further message was handled.
type standstill struct {
	handled int
	since   time.Duration
}

// lasts returns the time since the number of handled messages grew.
func (s *standstill) lasts(handled int, now time.Duration) time.Duration {
	if handled > s.handled {
		*s = standstill{handled, now}
	}
	return now - s.since
}

// unsettled returns the number of messages of the queue that wait or run.
func unsettled(ctx context.Context, engine posthaste.Store) (int, error) {
	all, err := engine.Queues(ctx, queue)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, q := range all {
		for _, s := range q.Subscriptions {
			n += int(s.Depth + s.InFlight)
		}
	}
	return n, nil
}
