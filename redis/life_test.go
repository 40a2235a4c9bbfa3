package redis

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// life is one life of the program.
type life struct {
	*fate
	ctx    context.Context
	e      *Engine
	w      posthaste.WorkerID
	number int64
	held   []posthaste.RawDelivery
}

// live is one life, until its end or until gone says so.
func (f *fate) live(url string, gone func() bool) {
	f.lives++
	l := &life{fate: f, ctx: f.t.Context()}
	defer func() {
		if l.e != nil {
			l.e.Close()
		}
	}()
	open := func() (err error) {
		l.e, err = Open(l.ctx, url, WithPrefix(f.sound.keys.prefix))
		return err
	}
	for i, step := range slices.Concat([]func() error{open}, l.creates(), l.sends(), l.handles(), l.operates(), l.receives(), l.ends()) {
		for tries := 0; ; tries++ {
			err := step()
			if gone() || f.broken != "" {
				return
			}
			if err == nil {
				break
			}
			if code := posthaste.CodeOf(err); code != posthaste.CodeUnavailable && code != posthaste.CodeOutcomeUnknown || tries > 5 {
				f.broke("step %d, try %d: %v", i, tries, err)
				return
			}
		}
	}
}

// operator returns the context of an operator's calls.
func (l *life) operator() context.Context { return posthaste.WithActor(l.ctx, "ada") }

// ofKinds returns a message of each kind, which is also its dedupe key.
func ofKinds(kinds ...string) (all []posthaste.Message) {
	for _, kind := range kinds {
		all = append(all, posthaste.Message{Queue: jobs, Kind: kind, Payload: kind, DedupeKey: kind, DedupeWindow: time.Hour})
	}
	return all
}

func (l *life) send(all ...posthaste.Message) error {
	ids, err := posthaste.IDs(l.e.Send(l.ctx, all...))
	if err == nil {
		l.sent(ids, all)
	}
	return err
}

func (l *life) claim(subscription string, most int) error {
	if l.held != nil {
		return nil
	}
	reply, err := l.e.Claim(l.ctx, posthaste.ClaimRequest{Worker: l.w, Number: l.number + 1, QueueRef: posthaste.QueueRef{Queue: jobs, Subscription: subscription}, Max: most, AllowAlone: true})
	if err == nil {
		l.number++
		l.held = reply.Deliveries
		l.came(l.held)
	}
	return err
}

func (l *life) settle(outcomes ...posthaste.Outcome) error {
	var all []posthaste.Settlement
	for i, d := range l.held {
		all = append(all, posthaste.Settlement{Delivery: d.ID, Outcome: outcomes[i%len(outcomes)], Error: "x"})
	}
	_, err := l.e.Settle(l.ctx, all)
	if err == nil {
		for i, d := range l.held {
			l.ended[of(d)] = l.ended[of(d)] || outcomes[i%len(outcomes)] == posthaste.OutcomeDone
		}
		l.held = nil
	}
	return err
}

func (l *life) drain(subscription string) error {
	for {
		if err := l.claim(subscription, 10); err != nil {
			return err
		}
		if len(l.held) == 0 {
			l.held = nil
			return nil
		}
		if err := l.settle(posthaste.OutcomeDone); err != nil {
			return err
		}
	}
}

func (l *life) creates() []func() error {
	return []func() error{
		func() error {
			return l.e.CreateQueue(l.ctx, jobs, posthaste.QueueOptions{MaxAttempts: 3, BackoffBase: time.Microsecond, BackoffMax: time.Microsecond, Retention: time.Hour})
		},
		func() error { return l.e.CreateQueue(l.ctx, "side", posthaste.QueueOptions{}) },
		func() error {
			return l.e.Subscribe(l.operator(), jobs, "audit", posthaste.SubscriptionOptions{From: posthaste.FromOldest})
		},
	}
}

func (l *life) sends() []func() error {
	return []func() error{
		func() error { return l.send(ofKinds("a", "b", "c", "d", "e", "f")...) },
		func() error {
			all := ofKinds("g", "h")
			for i := range all {
				all[i].DedupeKey, all[i].DedupeWindow = "", 0
			}
			sent, _, err := l.e.SendOnce(l.ctx, posthaste.Idempotency{Key: "gh", Digest: []byte("gh"), Window: time.Hour}, all...)
			ids, err := posthaste.IDs(sent, err)
			if err == nil {
				l.sent(ids, all)
			}
			return err
		},
		func() error {
			all := ofKinds("due")
			all[0].Delay = time.Hour
			return l.send(all...)
		},
		func() error { // by itself it must not be sent again where that is unsure
			m := posthaste.Message{Queue: jobs, Kind: fmt.Sprint("plain", l.lives), Payload: 1}
			err := l.send(m)
			if posthaste.CodeOf(err) == posthaste.CodeOutcomeUnknown {
				l.unsure[m.Kind] = true
				return nil
			}
			return err
		},
	}
}

func (l *life) handles() []func() error {
	return []func() error{
		func() (err error) {
			l.w, err = l.e.Register(l.ctx, posthaste.WorkerInfo{Name: "w", Lease: time.Hour})
			return err
		},
		func() error { return l.claim("", 4) },
		func() error {
			_, err := l.e.Heartbeat(l.ctx, posthaste.Heartbeat{Worker: l.w, Queues: []posthaste.QueueRef{{Queue: jobs}}})
			return err
		},
		func() error {
			return l.settle(posthaste.OutcomeDone, posthaste.OutcomeRetried, posthaste.OutcomeDead, posthaste.OutcomeReleased)
		},
		func() error {
			left, err := l.e.Unsettled(l.ctx, l.w, l.number)
			if err == nil && len(left) > 0 {
				l.broke("%d deliveries are told as unsettled that were settled", len(left))
			}
			return err
		},
	}
}

func (l *life) operates() []func() error {
	return []func() error{
		func() error {
			dead, err := l.e.DeadLetters(l.ctx, posthaste.DeadLetterFilter{Queue: jobs})
			for _, d := range dead.Items {
				if _, err := l.e.Replay(l.operator(), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{d.ID}}); err != nil {
					return err
				}
			}
			return err
		},
		func() error {
			l.back["f"] = true
			were, err := l.e.Cancel(l.operator(), l.ids["f"])
			for _, w := range were {
				if w.InTime {
					l.ended[w.Subscription+" f"] = true
				}
			}
			return err
		},
		func() error {
			_, err := l.e.Reschedule(l.operator(), l.ids["due"], time.UnixMilli(1))
			return err
		},
		func() error { return l.e.Pause(l.operator(), posthaste.OfQueue(jobs), posthaste.PauseOptions{}) },
		func() error { return l.e.Resume(l.operator(), posthaste.OfQueue(jobs)) },
		func() error {
			return l.e.UpdateQueue(l.operator(), jobs, posthaste.QueueUpdate{Options: posthaste.QueueOptions{Limits: posthaste.QueueLimits{Concurrency: 100}}})
		},
	}
}

func (l *life) receives() []func() error {
	return []func() error{
		func() error {
			reply, err := l.e.Receive(l.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 2, Lease: time.Hour})
			if l.held = reply.Deliveries; err == nil {
				l.came(l.held)
			}
			return err
		},
		func() error {
			if len(l.held) == 0 {
				return nil
			}
			return l.settle(posthaste.OutcomeDone, posthaste.OutcomeSetAside)
		},
		func() error { l.held = nil; return nil },
		func() error { return l.drain("") },
		func() error { return l.drain("audit") },
	}
}

func (l *life) ends() []func() error {
	return []func() error{
		func() error { return l.send(ofKinds("p", "q")...) },
		func() error {
			l.back["p"], l.back["q"] = true, true
			_, err := l.e.PurgeQueue(l.operator(), jobs)
			if err == nil {
				for _, kind := range []string{"p", "q"} {
					l.ended["default "+kind], l.ended["audit "+kind] = true, true
				}
			}
			return err
		},
		func() error {
			for name := range l.ended { // another one of its name gets what the others still want
				if name[:5] == "audit" {
					delete(l.ended, name)
				}
			}
			return ignore(l.e.Unsubscribe(l.operator(), jobs, "audit", posthaste.DropOptions{}), posthaste.CodeNotFound)
		},
		func() error { return l.e.Unregister(l.ctx, l.w) },
		func() error {
			return ignore(l.e.DropQueue(l.ctx, "side", posthaste.DropOptions{}), posthaste.CodeNotFound)
		},
	}
}
