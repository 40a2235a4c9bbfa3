//go:build unix

package chaos

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/posthaste-mq/posthaste/internal/catcher"
	"github.com/posthaste-mq/posthaste/internal/history"
)

// leastTime is the minimum duration of a fault, even if the time for faults is over.
const leastTime = 3 * time.Second

// strikeAll injects faults until loaded ends: first each kind once in a random order, however
// long that takes, then random ones. They may overlap. Targets, variants and times are drawn
// here, so that a seed repeats them.
func (r *rig) strikeAll(ctx, loaded context.Context) {
	var striking sync.WaitGroup
	defer striking.Wait()
	hold(loaded, time.Second)
	var turn []int
	for n := 0; loaded.Err() == nil || n < len(r.Kinds) && ctx.Err() == nil; n++ {
		if len(turn) == 0 {
			turn = r.random.Perm(len(r.Kinds))
		}
		kind := r.Kinds[turn[0]]
		turn = turn[1:]
		strike := r.can[kind]()
		pause := 500*time.Millisecond + time.Duration(r.random.Int64N(int64(2500*time.Millisecond)))
		bring := func() {
			// A late fault also needs time to strike.
			least, cancel := context.WithTimeout(ctx, leastTime)
			defer cancel()
			lasting := loaded
			if end, _ := loaded.Deadline(); time.Until(end) < leastTime {
				lasting = least
			}
			if err := strike(lasting); err != nil && lasting.Err() == nil {
				r.Log.Info("a fault could not be injected", "fault", kind, "error", err)
			}
		}
		if n := natures[kind]; n == outage || n == crash {
			bring() // and time to recover before the next one
			pause += 2 * time.Second
		} else {
			striking.Go(bring)
		}
		hold(loaded, pause)
	}
}

// hold waits for a duration, or until ctx ends.
func hold(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// during injects a fault and records it. do returns the number of targets that it struck, such
// as processes, connections or backends: a fault that struck none, or failed before, proves
// nothing.
func (r *rig) during(kind Fault, whom string, do func() (struck int, err error)) error {
	return r.marked(kind, whom, func() (int, string, error) {
		struck, err := do()
		return struck, "", err
	})
}

// marked is during for faults that also report their outcome.
func (r *rig) marked(kind Fault, whom string, do func() (struck int, became string, err error)) error {
	r.mu.Lock()
	r.faults++
	token := strconv.Itoa(r.faults)
	r.mu.Unlock()
	r.record.Record(history.Event{Kind: Struck, Token: token, Note: string(kind), Whom: whom})
	r.Log.Info(string(kind), "whom", whom)
	struck, became, err := do()
	r.record.Record(history.Event{Kind: Healed, Token: token, Count: struck, Note: became})
	return err
}

// strike draws the parameters of a fault, and returns the function that injects it.
type strike func() func(ctx context.Context) error

// strikes returns the faults of every engine.
func (r *rig) strikes() map[Fault]strike {
	return map[Fault]strike{
		KillWorker: func() func(context.Context) error {
			return r.kill(KillWorker, r.mortal(append([]string{roleSQLReceiver, roleHTTPReceiver}, workerRoles...)...))
		},
		KillSender: func() func(context.Context) error {
			return r.kill(KillSender, r.mortal(roleSender, roleSQLSender, roleHTTPSender))
		},
		KillServer: func() func(context.Context) error { return r.kill(KillServer, r.some(roleServer)) },
		Pause: func() func(context.Context) error {
			place := r.some(append([]string{roleSender, roleSQLSender, roleHTTPSender, roleSQLReceiver, roleServer}, workerRoles...)...)
			most := (r.Lease - beat(r.Lease) - time.Second) * 4 / 5
			return r.pause(Pause, place, most/4, most)
		},
		LongPause: func() func(context.Context) error {
			place := r.some(append([]string{roleSQLReceiver}, workerRoles...)...)
			lease := r.leaseOf(r.cast[place])
			return r.pause(LongPause, place, lease*5/4, lease*3/2)
		},
		Cut:          r.cut,
		CutStatement: func() func(context.Context) error { return r.sever(CutStatement, severStatement) },
		CutAnswer:    func() func(context.Context) error { return r.sever(CutAnswer, severAnswer) },
		CutReply:     func() func(context.Context) error { return r.sever(CutReply, severReply) },
		HalfOpen:     r.halfOpen,
		Slow:         r.slow,
		Replace:      r.replace,
		KillBroker:   r.killBroker,
		CutBroker:    r.cutBroker,
		CutConfirm:   r.cutConfirm,
		BrokerAlarm:  r.alarm,
		RefuseMails: func() func(context.Context) error {
			return r.mailFault(RefuseMails, catcher.Fault{Code: 451, Text: "not now"})
		},
		CutMails: func() func(context.Context) error {
			return r.mailFault(CutMails, catcher.Fault{Kept: true, Drop: true})
		},
	}
}

// storeRoles are the roles that connect to the store.
var storeRoles = append([]string{roleServer, roleSender, roleSQLSender, roleSQLReceiver}, workerRoles...)

// kill kills a process while it has work in flight, and waits for its end.
func (r *rig) kill(kind Fault, place int) func(context.Context) error {
	return func(ctx context.Context) error {
		p := r.at(place)
		defer r.freeze(p)()
		return r.during(kind, p.name, func() (int, error) {
			struck := p.alive()
			r.mu.Lock()
			p.killed, r.killed[p.name] = true, true
			r.mu.Unlock()
			p.signal(syscall.SIGKILL)
			<-p.ended
			return struck, nil
		})
	}
}

// freeze stops a process while it has work in flight, and returns the function that resumes
// it. While the store is unavailable this takes longer.
func (r *rig) freeze(p *running) (thaw func()) {
	thaw = func() { p.signal(syscall.SIGCONT) }
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(3 * time.Millisecond) {
		p.signal(syscall.SIGSTOP)
		time.Sleep(time.Millisecond) // the signal may not have been delivered yet
		if slices.ContainsFunc(r.witnesses(p), r.inFlight) {
			return thaw
		}
		thaw()
	}
	return thaw
}

// witnesses returns the processes whose histories show a process's work in flight: its own,
// and for the server those of its callers.
func (r *rig) witnesses(p *running) (names []string) {
	if p.role != roleServer {
		return []string{p.name}
	}
	for place, role := range r.cast {
		if role == roleHTTPSender || role == roleHTTPReceiver {
			names = append(names, r.at(place).name)
		}
	}
	return names
}

// whileInFlight waits for a limited time until one of the processes has work in flight.
func (r *rig) whileInFlight(ctx context.Context, names func() []string) {
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end) && ctx.Err() == nil; hold(ctx, 2*time.Millisecond) {
		if slices.ContainsFunc(names(), r.inFlight) {
			return
		}
	}
}

// inFlight reports whether a process's history has an event that started and did not end.
func (r *rig) inFlight(name string) bool {
	content, err := os.ReadFile(filepath.Join(r.Dir, name+".history"))
	if err != nil {
		return false // it has not started yet
	}
	open := 0
	for kind, n := range map[history.Kind]int{Intent: 1, history.Started: 1, history.Handled: -1, history.Failed: -1,
		history.Sent: -1, Refused: -1, RolledBack: -1, Unsure: -1} {
		open += n * bytes.Count(content, fmt.Appendf(nil, `{"kind":%q,`, kind))
	}
	return open > 0
}

// outage ends the store, and starts it again after a moment.
func (r *rig) outage(kind Fault, end, start func(context.Context) error) func(context.Context) error {
	away := time.Duration(r.random.Int64N(int64(1500 * time.Millisecond)))
	return func(ctx context.Context) error {
		return r.during(kind, "", func() (int, error) {
			if err := end(ctx); err != nil {
				return 0, err
			}
			hold(ctx, away)
			return 1, start(context.WithoutCancel(ctx))
		})
	}
}

func (r *rig) pause(kind Fault, place int, least, most time.Duration) func(context.Context) error {
	long := least + time.Duration(r.random.Int64N(int64(most-least)))
	return func(ctx context.Context) error {
		p := r.at(place)
		defer r.freeze(p)()
		return r.during(kind, p.name, func() (int, error) {
			struck := p.alive()
			p.signal(syscall.SIGSTOP)
			hold(ctx, long)
			return struck, nil
		})
	}
}

func (r *rig) cut() func(context.Context) error {
	place := r.some(storeRoles...)
	return func(ctx context.Context) error {
		p := r.at(place)
		for len(r.proxy.of(p.name)) == 0 && ctx.Err() == nil { // the database was unavailable a moment ago
			hold(ctx, 10*time.Millisecond)
			p = r.at(place)
		}
		defer r.freeze(p)()
		return r.during(Cut, p.name, func() (int, error) {
			links := r.proxy.of(p.name)
			for _, l := range links {
				l.cut()
			}
			return len(links), nil
		})
	}
}

// sever cuts each connection of a process at its next occasion of a kind, and some
// immediately. If there is no connection, it waits for one for a while.
func (r *rig) sever(kind Fault, when int32) func(context.Context) error {
	place, most := r.some(storeRoles...), 1+r.random.IntN(3)
	return func(ctx context.Context) error {
		p := r.at(place)
		return r.during(kind, p.name, func() (int, error) {
			return severing(ctx, func() []*link {
				links := r.proxy.of(p.name)
				return links[:min(most, len(links))]
			}, when), nil
		})
	}
}

// severing cuts each current link at its next occasion, and returns how many had one.
func severing(ctx context.Context, there func() []*link, when int32) (struck int) {
	for range 10 {
		links := there()
		for _, l := range links {
			l.sever.Store(when)
		}
		hold(ctx, 500*time.Millisecond)
		for _, l := range links {
			if !l.sever.CompareAndSwap(when, 0) {
				struck++
			}
		}
		if struck > 0 || ctx.Err() != nil {
			break
		}
	}
	return struck
}

func (r *rig) halfOpen() func(context.Context) error {
	place, long := r.some(storeRoles...), time.Second+time.Duration(r.random.Int64N(int64(r.Lease)))
	return func(ctx context.Context) error {
		p := r.at(place)
		return r.during(HalfOpen, p.name, func() (int, error) {
			links := r.proxy.of(p.name)
			for _, l := range links {
				l.deaf.Store(true)
			}
			hold(ctx, long)
			for _, l := range links {
				l.cut()
			}
			return len(links), nil
		})
	}
}

func (r *rig) slow() func(context.Context) error {
	place := r.some(storeRoles...)
	long := time.Second + time.Duration(r.random.Int64N(int64(4*time.Second)))
	delay := 5*time.Millisecond + time.Duration(r.random.Int64N(int64(100*time.Millisecond)))
	return func(ctx context.Context) error {
		p := r.at(place)
		return r.during(Slow, p.name, func() (int, error) {
			links := r.proxy.of(p.name)
			for _, l := range links {
				l.delay.Store(int64(delay))
			}
			hold(ctx, long)
			for _, l := range links {
				l.delay.Store(0)
			}
			return len(links), nil
		})
	}
}

// replace asks one worker after the other to end. Another one takes its place.
func (r *rig) replace() func(context.Context) error {
	return func(ctx context.Context) error {
		return r.during(Replace, "", func() (struck int, err error) {
			for place, role := range r.cast {
				if !slices.Contains(workerRoles, role) || r.spared(place) || ctx.Err() != nil {
					continue
				}
				p := r.at(place)
				r.mu.Lock()
				p.asked = true
				r.mu.Unlock()
				r.record.Record(history.Event{Kind: Asked, Whom: p.name})
				p.signal(syscall.SIGTERM)
				select {
				case <-p.ended:
					struck++
				case <-ctx.Done():
				}
			}
			return struck, nil
		})
	}
}
