// Package pacedbell lets a process poll, instead of sleeping by a doorbell, while
// messages are sent to it often.
//
// A doorbell costs each sender that has to ring it. On PostgreSQL a notification takes a
// lock on the whole database at commit, so that senders that ring commit one after the
// other. A process therefore counts how often it is woken, over all its queues. As soon
// as that is more than about every 5 ms it stops arming the doorbell and looks at its
// queues every few milliseconds, with one call for all of them. When little has come for
// a while it sleeps by the doorbell again. Each such sleep is the doorbell's own, which
// arms, looks and then waits, so that nothing that was sent meanwhile is missed.
package pacedbell

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const (
	// lookAnyway is when a poll makes its first look of its own, although no probe found
	// anything. A probe tells only that something can be handed out now. The poll's own
	// look also tells when the next message falls due and whether the queue is at a limit.
	lookAnyway = 250 * time.Millisecond
	// servedFor is how long a subscription counts as served after a claim.
	servedFor = time.Minute
	// lookAgain bounds the time to the poll's next look of its own. Such a look claims, so
	// that the subscription stays served while the poll lasts.
	lookAgain = servedFor / 2
	// probeLate is how long a round waits for its probe. After that every poll looks for
	// itself: a part of the store that does not answer must not stop the queues of others.
	probeLate = 200 * time.Millisecond
	// mostLate is how many late probes may be under way. With more of them the store
	// answers too slowly for polling.
	mostLate = 3
	// probeTimeout bounds one probe.
	probeTimeout = 5 * time.Second
)

// Probe reports for each subscription whether it may have something to hand out now. It
// takes nothing. True is a safe answer where it does not know.
type Probe func(ctx context.Context, refs []posthaste.QueueRef) ([]bool, error)

// Pacer is the pace of one process, which all its doorbells share.
type Pacer struct {
	probe Probe

	mu      sync.Mutex
	tempo   tempo
	polls   map[*poll]struct{} // polls that wait for the next round
	running bool               // a goroutine makes rounds
	late    int                // late probes under way
	// served is when each subscription of a queue was claimed from last.
	served map[string]map[string]time.Time
}

// poll is one Sleep that polls.
type poll struct {
	queue string
	due   time.Time // its own look comes no later
	turn  chan turn // has room for one
}

// turn tells a poll what to do next.
type turn int

const (
	lookNow turn = iota
	sleepNow
)

// New returns the pace of a process that has not slept yet.
func New(probe Probe) *Pacer {
	return &Pacer{probe: probe, polls: map[*poll]struct{}{}, served: map[string]map[string]time.Time{}}
}

// Served notes that this process claims from a subscription. Rounds of looks ask for the
// subscriptions that it claimed from lately.
func (p *Pacer) Served(ref posthaste.QueueRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	subscriptions := p.served[ref.Queue]
	if subscriptions == nil {
		subscriptions = map[string]time.Time{}
		p.served[ref.Queue] = subscriptions
	}
	if ref.Subscription == "" {
		ref.Subscription = posthaste.DefaultSubscription
	}
	subscriptions[ref.Subscription] = time.Now()
}

func (p *Pacer) polling() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tempo.polling
}

func (p *Pacer) woke(slept, looking time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tempo.woke(time.Now(), slept, looking)
}

func (p *Pacer) found(took time.Duration, handed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tempo.found(handed)
	if len(p.polls) == 0 { // else the probe sets the pace
		p.tempo.lookTook(took)
	}
}

// join has the next round look for q. It returns false if the process does not poll.
func (p *Pacer) join(q *poll) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.tempo.polling {
		return false
	}
	p.polls[q] = struct{}{}
	if !p.running {
		p.running = true
		go p.run()
	}
	return true
}

func (p *Pacer) leave(q *poll) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.polls, q)
}

// run makes rounds of looks until no poll waits for one.
func (p *Pacer) run() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.running {
		began, pause := time.Now(), p.tempo.pause
		p.mu.Unlock()
		time.Sleep(pause)
		p.mu.Lock()
		if len(p.polls) > 0 {
			p.round(min(time.Since(began), 2*emptyPause))
		}
		// Whoever joins later begins with a pause of its own.
		p.running = len(p.polls) > 0
	}
}

// round lets those polls look that may find something. A single one looks without a
// probe, and all look if the probe is late. waited is bounded, because a process that
// stood still for longer says nothing of the traffic. p.mu is held, but not during the
// probe.
func (p *Pacer) round(waited time.Duration) {
	p.tempo.round(time.Now(), waited)
	var ready map[string]bool
	if p.tempo.polling && len(p.polls) > 1 {
		var err error
		if ready, err = p.ask(); err != nil {
			// Whatever is wrong, each Sleep by the doorbell finds out and deals with it.
			p.tempo.end(time.Now())
		}
	}
	now, alone := time.Now(), len(p.polls) == 1
	for q := range p.polls {
		next := lookNow
		switch {
		case !p.tempo.polling:
			next = sleepNow
		case !alone && !ready[q.queue] && now.Before(q.due):
			continue
		}
		delete(p.polls, q)
		q.turn <- next
	}
}

// ask probes all subscriptions of the queues that are polled. p.mu is held, but not
// during the probe.
func (p *Pacer) ask() (ready map[string]bool, err error) {
	ready = map[string]bool{}
	var refs []posthaste.QueueRef
	now := time.Now()
	for q := range p.polls {
		if _, asked := ready[q.queue]; asked {
			continue
		}
		ready[q.queue] = false
		before := len(refs)
		for name, at := range p.served[q.queue] {
			if now.Sub(at) > servedFor {
				delete(p.served[q.queue], name)
				continue
			}
			refs = append(refs, posthaste.QueueRef{Queue: q.queue, Subscription: name})
		}
		if len(refs) == before {
			ready[q.queue] = true // only its own look can tell
		}
	}
	if len(refs) == 0 {
		return ready, nil
	}
	answers, err := p.answers(refs)
	for i, may := range answers {
		if may {
			ready[refs[i].Queue] = true
			p.tempo.lookTook(time.Since(now))
		}
	}
	if errors.Is(err, errLate) {
		for queue := range ready {
			ready[queue] = true
		}
		return ready, nil
	}
	return ready, err
}

// errLate says that a probe goes on, and that nobody waits for its answer.
var errLate = errors.New("the probe is late")

// answers makes a probe. p.mu is held, but not during the probe.
func (p *Pacer) answers(refs []posthaste.QueueRef) ([]bool, error) {
	if p.late >= mostLate {
		return nil, errors.New("several probes are late")
	}
	type answer struct {
		ready []bool
		err   error
	}
	answered := make(chan answer, 1)
	p.mu.Unlock()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), probeTimeout)
		defer cancel()
		ready, err := p.probe(ctx, refs)
		answered <- answer{ready, err}
	}()
	timer := time.NewTimer(probeLate)
	defer timer.Stop()
	select {
	case a := <-answered:
		p.mu.Lock()
		return a.ready, a.err
	case <-timer.C:
	}
	p.mu.Lock()
	p.late++
	go func() {
		<-answered
		p.mu.Lock()
		defer p.mu.Unlock()
		p.late--
	}()
	return nil, errLate
}
