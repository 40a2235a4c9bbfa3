package pacedbell

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Durations of the test store's operations, in virtual time.
const (
	armTakes, lookTakes, probeTakes = 300 * time.Microsecond, 700 * time.Microsecond, time.Millisecond
)

// store has queues that only count messages, and doorbells that ring if a process sleeps.
type store struct {
	*testing.T
	mu      sync.Mutex
	waits   map[string]int
	asleep  map[string]map[*ringing]bool
	rings   int // sends that rang
	looks   int
	probes  int
	arms    int
	letGo   int
	onArm   func(queue string)
	probing error
	// lookFirst makes doorbells look before they arm, which loses messages sent in between.
	lookFirst bool
	// lookTakes makes looks claim, so that only one of several processes finds a message.
	lookTakes bool
	// slow is the factor by which everything is slower; 0 means 1.
	slow int
	// ringTakes is the time until a ring wakes a process. Until then other sends ring, too.
	ringTakes time.Duration
}

func inBubble(t *testing.T, test func(s *store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(&store{T: t, waits: map[string]int{}, asleep: map[string]map[*ringing]bool{}})
		time.Sleep(emptyPause + probeTakes) // rounds end within this time once nothing polls
	})
}

func (s *store) send(queue string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits[queue]++
	if len(s.asleep[queue]) > 0 {
		s.rings++
	}
	for r := range s.asleep[queue] {
		select {
		case r.channel(queue) <- struct{}{}:
		default:
		}
	}
}

func (s *store) spend(d time.Duration) { time.Sleep(d * time.Duration(max(s.slow, 1))) }

func (s *store) take(queue string) (n int) {
	s.spend(lookTakes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	n, s.waits[queue] = s.waits[queue], 0
	return n
}

func (s *store) look(queue string) posthaste.LookReply {
	s.spend(lookTakes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	return posthaste.LookReply{Found: s.waits[queue] > 0, NextDue: -1}
}

func (s *store) probe(_ context.Context, refs []posthaste.QueueRef) ([]bool, error) {
	s.spend(probeTakes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.probes++
	ready := make([]bool, len(refs))
	for i, ref := range refs {
		ready[i] = s.waits[ref.Queue] > 0
	}
	return ready, s.probing
}

// counts returns the counts and resets them.
func (s *store) counts() (rings, looks, probes, arms int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rings, looks, probes, arms = s.rings, s.looks, s.probes, s.arms
	s.rings, s.looks, s.probes, s.arms = 0, 0, 0, 0
	return
}

func (s *store) waiting(queue string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waits[queue]
}

// ringing is the doorbell of one process.
type ringing struct {
	s      *store
	mu     sync.Mutex
	rungs  map[string]chan struct{}
	closed chan struct{}
}

func (s *store) ringing() *ringing {
	return &ringing{s: s, rungs: map[string]chan struct{}{}, closed: make(chan struct{})}
}

func (r *ringing) channel(queue string) chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rungs[queue] == nil {
		r.rungs[queue] = make(chan struct{}, 1)
	}
	return r.rungs[queue]
}

func (r *ringing) arm(queue string) {
	r.s.mu.Lock()
	before := r.s.onArm
	r.s.mu.Unlock()
	if before != nil {
		before(queue)
	}
	r.s.spend(armTakes)
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.arms++
	if r.s.asleep[queue] == nil {
		r.s.asleep[queue] = map[*ringing]bool{}
	}
	r.s.asleep[queue][r] = true
}

func (r *ringing) Sleep(ctx context.Context, queue string, look func(context.Context) (posthaste.LookReply, error)) error {
	rung := r.channel(queue)
	select {
	case <-rung: // of an earlier sleep
	default:
	}
	defer func() {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		delete(r.s.asleep[queue], r)
	}()
	if !r.s.lookFirst {
		r.arm(queue)
	}
	reply, err := look(ctx)
	if r.s.lookFirst {
		r.arm(queue)
	}
	if err != nil || reply.Found {
		return err
	}
	var due <-chan time.Time
	if reply.NextDue >= 0 {
		due = time.After(reply.NextDue)
	}
	select {
	case <-rung:
		r.s.spend(r.s.ringTakes)
	case <-due:
	case <-r.closed:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (r *ringing) Wake(queue string) {
	select {
	case r.channel(queue) <- struct{}{}:
	default:
	}
}

func (r *ringing) Close() { close(r.closed) }

func (r *ringing) LetGo(string) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	r.s.letGo++
}

// process processes queues like a worker, until the test ends it.
type process struct {
	*store
	pacer  *Pacer
	bell   posthaste.Doorbell
	mu     sync.Mutex
	taken  int
	ctx    context.Context
	cancel func()
	ended  sync.WaitGroup
}

func (s *store) process(pacer *Pacer, queues ...string) *process {
	p := &process{store: s, pacer: pacer, bell: pacer.Pace(s.ringing())}
	p.ctx, p.cancel = context.WithCancel(s.Context())
	for _, queue := range queues {
		p.ended.Go(func() { p.work(queue) })
	}
	return p
}

func (p *process) work(queue string) {
	for p.ctx.Err() == nil {
		p.pacer.Served(posthaste.QueueRef{Queue: queue})
		p.claim(queue)
		err := p.bell.Sleep(p.ctx, queue, func(context.Context) (posthaste.LookReply, error) {
			if p.lookTakes {
				return posthaste.LookReply{Found: p.claim(queue) > 0, NextDue: -1}, nil
			}
			return p.look(queue), nil
		})
		if err != nil && p.ctx.Err() == nil {
			p.Error(err)
		}
	}
}

func (p *process) claim(queue string) (n int) {
	if n = p.take(queue); n > 0 {
		p.mu.Lock()
		p.taken += n
		p.mu.Unlock()
	}
	return n
}

// total returns the number of messages taken.
func (p *process) total() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

func (p *process) stop() {
	p.cancel()
	p.ended.Wait()
}

func names(n int) (queues []string) {
	for i := range n {
		queues = append(queues, fmt.Sprint("q", i))
	}
	return queues
}

// load sends to queues in turn for a while, at random times.
func (s *store) load(during time.Duration, perSecond float64, queues []string) (sent int) {
	random := rand.New(rand.NewPCG(1, 2))
	for end := time.Now().Add(during); ; sent++ {
		time.Sleep(time.Duration(random.ExpFloat64() * float64(time.Second) / perSecond))
		if time.Now().After(end) {
			return sent
		}
		s.send(queues[sent%len(queues)])
	}
}

// Dense traffic does not ring, whatever the number of queues. If each queue were counted
// separately, twenty queues with fifty messages per second each would ring all the time.
func TestDenseTrafficDoesNotRing(t *testing.T) {
	t.Parallel()
	const seconds = 3
	for _, c := range []struct {
		queues    int
		perSecond float64
		perQueue  bool // each queue has its own pace
	}{{1, 250, false}, {1, 500, false}, {1, 5000, false}, {20, 250, false}, {20, 1000, false}, {200, 500, false}, {20, 1000, true}} {
		t.Run(fmt.Sprintf("%d queues, %.0f a second, %v", c.queues, c.perSecond, c.perQueue), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(s *store) {
				queues := names(c.queues)
				shared := New(s.probe)
				for _, queue := range queues {
					pacer := shared
					if c.perQueue {
						pacer = New(s.probe)
					}
					defer s.process(pacer, queue).stop()
				}
				s.load(2*time.Second, c.perSecond, queues)
				s.counts()
				s.load(seconds*time.Second, c.perSecond, queues)
				rings, looks, probes, _ := s.counts()
				t.Logf("%d rings, %d looks, %d probes in %d s", rings, looks, probes, seconds)
				switch rang := rings >= 5*seconds; {
				case rang && !c.perQueue:
					t.Errorf("%d rings in %d s", rings, seconds)
				case !rang && c.perQueue:
					t.Errorf("counted for each queue by itself there were %d rings, so this test finds nothing", rings)
				}
			})
		})
	}
}

// Calm traffic rings once for each message and causes no polls.
func TestCalmTrafficRings(t *testing.T) {
	t.Parallel()
	for _, perSecond := range []float64{1, 20, 50} {
		t.Run(fmt.Sprint(perSecond), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(s *store) {
				queues := names(5)
				defer s.process(New(s.probe), queues...).stop()
				time.Sleep(time.Second)
				s.counts()
				sent := s.load(100*time.Second, perSecond, queues)
				rings, _, probes, _ := s.counts()
				t.Logf("%d sent, %d rings, %d probes", sent, rings, probes)
				if rings > sent || rings < sent*95/100 || probes > 100 {
					t.Errorf("%d messages caused %d rings and %d probes", sent, rings, probes)
				}
			})
		})
	}
}

// After dense traffic the process sleeps on the doorbell again, and does nothing.
func TestIdleAfterDenseTraffic(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *store) {
		queues := names(20)
		p := s.process(New(s.probe), queues...)
		defer p.stop()
		sent := s.load(5*time.Second, 2000, queues)
		time.Sleep(longestStay + time.Second)
		s.counts()
		time.Sleep(time.Hour)
		if rings, looks, probes, arms := s.counts(); rings+looks+probes+arms > 0 {
			t.Errorf("an idle process makes %d looks, %d probes and arms %d times", looks, probes, arms)
		}
		s.send("q7")
		synctest.Wait()
		time.Sleep(2 * lookTakes)
		if rings, _, _, _ := s.counts(); rings != 1 || p.total() != sent+1 {
			t.Errorf("after a pause a message rang %d times; %d of %d are taken", rings, p.total(), sent+1)
		}
	})
}

// A message sent while a process changes from polling to sleeping is taken. If the doorbell
// looked before it arms, a message would stay.
func TestNothingStaysWhenPollingEnds(t *testing.T) {
	t.Parallel()
	for _, lookFirst := range []bool{false, true} {
		t.Run(fmt.Sprintf("look first %v", lookFirst), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(s *store) {
				s.lookFirst = lookFirst
				queues := names(2)
				p := s.process(New(s.probe), queues...)
				defer p.stop()
				stayed, sent := 0, 0
				for after := time.Duration(0); after < 2*(armTakes+lookTakes); after += 50 * time.Microsecond {
					sent += s.load(500*time.Millisecond, 2000, queues)
					armed := make(chan struct{})
					var once sync.Once
					s.mu.Lock()
					s.onArm = func(queue string) {
						if queue == "q0" {
							once.Do(func() { close(armed) })
						}
					}
					s.mu.Unlock()
					<-armed // polling has ended
					time.Sleep(after)
					s.send("q0")
					sent++
					time.Sleep(5 * time.Second)
					if s.waiting("q0") > 0 {
						stayed++
						p.bell.Wake("q0")
						time.Sleep(time.Second)
					}
				}
				switch {
				case !lookFirst && (stayed > 0 || p.total() != sent):
					t.Errorf("%d messages stayed, and %d of %d were taken", stayed, p.total(), sent)
				case lookFirst && stayed == 0:
					t.Error("a doorbell that looks before it arms loses nothing, so this test finds nothing")
				}
			})
		})
	}
}

// A process whose messages are taken by another one finds nothing when it polls. It must not
// keep switching between polling and ringing.
func TestMessagesTakenElsewhere(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *store) {
		defer s.process(New(s.probe), "q0").stop()
		ended := make(chan struct{})
		defer func() { <-ended }()
		stop := time.Now().Add(25 * time.Second)
		go func() { // takes each message after a moment
			defer close(ended)
			for time.Now().Before(stop) {
				time.Sleep(200 * time.Microsecond)
				s.mu.Lock()
				s.waits["q0"] = 0
				s.mu.Unlock()
			}
		}()
		s.load(10*time.Second, 2000, []string{"q0"})
		s.counts()
		s.load(10*time.Second, 2000, []string{"q0"})
		if rings, _, _, _ := s.counts(); rings >= 20*10 {
			t.Errorf("%d rings in 10 s", rings)
		}
	})
}

// Two processes have separate paces: one that polls does not affect another's sleep.
func TestEachProcessHasItsOwnPace(t *testing.T) {
	t.Parallel()
	inBubble(t, func(s *store) {
		calm := s.process(New(s.probe), "calm", "dense")
		defer calm.stop()
		dense := s.process(New(s.probe), "dense")
		time.Sleep(time.Second)
		s.load(time.Second, 2000, []string{"dense"})
		dense.stop() // as if it were killed, without notice
		time.Sleep(2*longestStay + time.Second)
		before := calm.total()
		for _, queue := range []string{"calm", "dense"} {
			s.counts()
			s.send(queue)
			time.Sleep(10 * time.Millisecond)
			if rings, _, _, _ := s.counts(); rings != 1 {
				t.Errorf("a send to %q rang %d times", queue, rings)
			}
		}
		if calm.total() != before+2 {
			t.Errorf("%d of 2 messages were taken", calm.total()-before)
		}
	})
}

// If several processes share dense traffic, each finds something in few of its looks. They
// must not keep switching between polling and ringing.
func TestDenseTrafficOfSeveralProcesses(t *testing.T) {
	t.Parallel()
	const seconds, tries = 60, 8
	all := 0
	for range tries { // chance decides when a process falls asleep
		inBubble(t, func(s *store) {
			s.lookTakes, s.ringTakes, s.slow = true, time.Millisecond, 5
			for range 4 {
				defer s.process(New(s.probe), "q0").stop()
			}
			s.load(6*time.Second, 300, []string{"q0"})
			s.counts()
			s.load(seconds*time.Second, 300, []string{"q0"})
			rings, _, _, _ := s.counts()
			all += rings
		})
	}
	t.Logf("%d rings in %d s", all, seconds*tries)
	if all >= 2*seconds*tries { // three per second if polling lasts for at most 2 s
		t.Errorf("%d rings in %d s", all, seconds*tries)
	}
}
