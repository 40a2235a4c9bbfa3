package pacedbell

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// sleeper is a Sleep whose looks return the test's results.
type sleeper struct {
	looks []time.Duration // times of the looks, since the start
	ended chan error
}

func (s *store) sleeps(bell posthaste.Doorbell, queue string, answer func(n int) posthaste.LookReply) *sleeper {
	one := &sleeper{ended: make(chan error, 1)}
	began := time.Now()
	go func() {
		one.ended <- bell.Sleep(s.Context(), queue, func(context.Context) (posthaste.LookReply, error) {
			one.looks = append(one.looks, time.Since(began))
			return answer(len(one.looks)), nil
		})
	}()
	return one
}

// polls makes the process poll for another queue until the test closes the doorbell.
func (s *store) polls(p *Pacer) (bell posthaste.Doorbell) {
	bell = p.Pace(s.ringing())
	p.Served(posthaste.QueueRef{Queue: "other"})
	dense(p)
	p.mu.Lock()
	p.tempo.stay = time.Hour
	p.mu.Unlock()
	s.sleeps(bell, "other", func(int) posthaste.LookReply { return posthaste.LookReply{NextDue: -1} })
	return bell
}

// With several queues, a poll makes one look of its own, because only that returns the other
// events that its caller waits for, and another one when something is due.
func TestPollLooksWhenDue(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *store) {
		p := New(s.probe)
		bell := s.polls(p)
		p.Served(posthaste.QueueRef{Queue: "q"})
		const due = 3 * time.Second
		one := s.sleeps(bell, "q", func(n int) posthaste.LookReply { return posthaste.LookReply{Found: n == 3, NextDue: due} })
		if err := <-one.ended; err != nil || len(one.looks) != 3 {
			t.Fatalf("the sleep ended with %v after looks at %v", err, one.looks)
		}
		for i, want := range []time.Duration{lookAnyway, lookAnyway + due, lookAnyway + 2*due} {
			if at := one.looks[i]; at < want || at > want+50*time.Millisecond {
				t.Errorf("look %d was after %s, want %s", i+1, at, want)
			}
		}
		bell.Close()
	})
}

// A probe cannot ask for a queue without recent claims from any subscription. Its own look is
// used in each round.
func TestPollOfAnUnknownSubscriptionLooks(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *store) {
		bell := s.polls(New(s.probe))
		one := s.sleeps(bell, "unknown", func(n int) posthaste.LookReply { return posthaste.LookReply{Found: n == 3, NextDue: -1} })
		<-one.ended
		if last := one.looks[2]; last > 3*(emptyPause+probeTakes) {
			t.Errorf("the third look was after %s", last)
		}
		bell.Close()
	})
}

// A probe asks for each subscription that this process claimed from in the last minute, and
// for no other.
func TestProbeAsksForWhatIsServed(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *store) {
		var asked []posthaste.QueueRef
		p := New(func(ctx context.Context, refs []posthaste.QueueRef) ([]bool, error) {
			asked = refs
			return s.probe(ctx, refs)
		})
		p.Served(posthaste.QueueRef{Queue: "q", Subscription: "before"})
		time.Sleep(servedFor + time.Second)
		p.Served(posthaste.QueueRef{Queue: "q"})
		p.Served(posthaste.QueueRef{Queue: "q", Subscription: posthaste.DefaultSubscription})
		p.Served(posthaste.QueueRef{Queue: "q", Subscription: "second"})
		bell := s.polls(p)
		one := s.sleeps(bell, "q", func(int) posthaste.LookReply { return posthaste.LookReply{Found: true} })
		<-one.ended
		got := map[posthaste.QueueRef]int{}
		for _, ref := range asked {
			got[ref]++
		}
		for _, ref := range []posthaste.QueueRef{{Queue: "other", Subscription: "default"}, {Queue: "q", Subscription: "default"}, {Queue: "q", Subscription: "second"}} {
			if got[ref] != 1 {
				t.Errorf("%v was asked for %d times in one probe", ref, got[ref])
			}
		}
		if len(got) != 3 {
			t.Errorf("a probe asked for %v", asked)
		}
		bell.Close()
	})
}

// A message that waits for a limit becomes available by a settlement and not by a send, so the
// process does not poll for it.
func TestNoPollAtALimit(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *store) {
		bell := s.polls(New(s.probe))
		for range 3 {
			one := s.sleeps(bell, "q", func(int) posthaste.LookReply { return posthaste.LookReply{AtLimit: true, NextDue: time.Minute} })
			time.Sleep(time.Second)
			bell.Wake("q")
			<-one.ended
			if len(one.looks) > 2 { // one as it polls, one as it falls asleep
				t.Errorf("at its limit a queue is looked at after %v", one.looks)
			}
		}
		bell.Close()
	})
}

// If a probe fails, every queue sleeps on the doorbell, which sees the error.
func TestProbeFails(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *store) {
		p := New(s.probe)
		bell := s.polls(p)
		s.mu.Lock()
		s.probing = errors.New("the store is away")
		s.mu.Unlock()
		one := s.sleeps(bell, "q", func(int) posthaste.LookReply { return posthaste.LookReply{NextDue: -1} })
		time.Sleep(time.Second)
		if _, _, _, arms := s.counts(); p.polling() || arms != 2 {
			t.Errorf("after a failed probe %d of 2 queues sleep by the doorbell", arms)
		}
		p.mu.Lock()
		if p.tempo.left.IsZero() || p.tempo.short == 0 {
			t.Errorf("polling that a failed probe ends is not remembered: %+v", p.tempo)
		}
		p.mu.Unlock()
		bell.Close()
		<-one.ended
		synctest.Wait()
	})
}

// dense makes a pacer poll.
func dense(p *Pacer) {
	for !p.polling() {
		p.woke(0, 0)
	}
}

// Events other than a message that end a sleep also end it while the process polls.
func TestWhatEndsAPoll(t *testing.T) {
	t.Parallel()
	nothing := posthaste.LookReply{NextDue: -1}
	broken := errors.New("the look failed")
	for _, c := range []struct {
		name  string
		reply posthaste.LookReply
		err   error
		end   func(bell posthaste.Doorbell, cancel func())
		want  error
	}{
		{name: "Wake", reply: nothing, end: func(b posthaste.Doorbell, _ func()) { b.Wake("q") }},
		{name: "Close", reply: nothing, end: func(b posthaste.Doorbell, _ func()) { b.Close() }},
		{name: "context", reply: nothing, end: func(_ posthaste.Doorbell, cancel func()) { cancel() }, want: context.Canceled},
		{name: "find", reply: posthaste.LookReply{Found: true}},
		{name: "error", reply: nothing, err: broken, want: broken},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(s *store) {
				p := New(s.probe)
				bell := p.Pace(s.ringing())
				dense(p)
				ctx, cancel := context.WithCancel(s.Context())
				defer cancel()
				ended := make(chan error, 1)
				go func() {
					ended <- bell.Sleep(ctx, "q", func(context.Context) (posthaste.LookReply, error) { return c.reply, c.err })
				}()
				synctest.Wait()
				if c.end != nil {
					c.end(bell, cancel)
				} else {
					time.Sleep(longestPause)
				}
				synctest.Wait()
				select {
				case err := <-ended:
					if !errors.Is(err, c.want) {
						t.Errorf("the sleep ended with %v, want %v", err, c.want)
					}
				default:
					t.Error("the sleep does not end")
					cancel()
				}
				if s.arms > 0 || s.letGo != 1 {
					t.Errorf("it armed %d times and let go of keys %d times", s.arms, s.letGo)
				}
			})
		})
	}
}

// A Wake also counts in the moment between the end of polling and the doorbell's sleep.
func TestWakeBeforeArming(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *store) {
		p := New(s.probe)
		inner := s.ringing()
		bell := p.Pace(inner)
		dense(p)
		s.onArm = func(queue string) {
			bell.Wake(queue)
			<-inner.channel(queue) // the doorbell did not notice
		}
		began := time.Now()
		if err := bell.Sleep(s.Context(), "q", func(context.Context) (posthaste.LookReply, error) {
			return posthaste.LookReply{NextDue: time.Minute}, nil
		}); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the sleep ended after %s", took)
		}
	})
}

// A probe that hangs blocks no queue for long: the polls look themselves. If probes keep
// hanging, the process sleeps on the doorbell.
func TestProbeHangs(t *testing.T) {
	t.Parallel()
	for _, hang := range []int{1, 100} {
		t.Run(fmt.Sprint(hang), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(s *store) {
				var probes atomic.Int64
				p := New(func(ctx context.Context, refs []posthaste.QueueRef) ([]bool, error) {
					if probes.Add(1) <= int64(hang) {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return s.probe(ctx, refs)
				})
				bell := s.polls(p)
				p.Served(posthaste.QueueRef{Queue: "q"})
				for i := range 6 {
					one := s.sleeps(bell, "q", func(int) posthaste.LookReply { return s.look("q") })
					time.Sleep(time.Millisecond)
					s.send("q")
					sent := time.Now()
					<-one.ended
					if took := time.Since(sent); took > 250*time.Millisecond {
						t.Errorf("message %d was found after %s", i, took)
					}
					s.take("q")
				}
				if _, _, _, arms := s.counts(); (arms > 0) != (hang > 1) {
					t.Errorf("while %d probes hang, the doorbell is armed %d times", hang, arms)
				}
				bell.Close()
				time.Sleep(probeTimeout) // until the hanging ones end
				p.mu.Lock()
				defer p.mu.Unlock()
				if p.late != 0 {
					t.Errorf("%d probes count as late after all have ended", p.late)
				}
			})
		})
	}
}

// A subscription stays served while its poll lasts, even if another subscription keeps the
// queue known.
func TestPollKeepsItsSubscriptionServed(t *testing.T) {
	t.Parallel()
	for _, due := range []time.Duration{-1, time.Hour} {
		t.Run(fmt.Sprint(due), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(s *store) {
				first := posthaste.QueueRef{Queue: "q", Subscription: "first"}
				var waits atomic.Bool
				p := New(func(_ context.Context, refs []posthaste.QueueRef) ([]bool, error) {
					ready := make([]bool, len(refs))
					for i, ref := range refs {
						ready[i] = waits.Load() && ref == first
					}
					return ready, nil
				})
				bell := s.polls(p)
				p.Served(first)
				one := s.sleeps(bell, "q", func(int) posthaste.LookReply {
					p.Served(first) // as each claim does
					return posthaste.LookReply{Found: waits.Load(), NextDue: due}
				})
				for range 100 {
					p.Served(posthaste.QueueRef{Queue: "q", Subscription: "second"})
					time.Sleep(time.Second)
				}
				synctest.Wait()
				waits.Store(true)
				sent := time.Now()
				<-one.ended
				if took := time.Since(sent); took > 2*emptyPause {
					t.Errorf("after 100 s a message was found after %s", took)
				}
				if len(one.looks) > 20 {
					t.Errorf("the poll looked %d times for nothing", len(one.looks))
				}
				bell.Close()
			})
		})
	}
}

// Only one Sleep per queue at a time, also while it polls.
func TestSecondSleepIsRefused(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *store) {
		bell := s.polls(New(s.probe))
		synctest.Wait() // until it polls
		looked := false
		err := bell.Sleep(s.Context(), "other", func(context.Context) (posthaste.LookReply, error) {
			looked = true
			return posthaste.LookReply{Found: true}, nil
		})
		if posthaste.CodeOf(err) != posthaste.CodeRefused || looked {
			t.Errorf("a second sleep on a queue: %v, looked %v", err, looked)
		}
		bell.Close()
	})
}
