// Package pacedbell lets a process poll, instead of sleeping on a doorbell, while messages are
// frequent.
//
// A doorbell has a cost for each sender that must ring it. On PostgreSQL a notification takes
// a database-wide lock at commit, so that notifying senders commit one after the other. A
// process therefore measures how often it is woken, over all its queues. If wake-ups are more
// frequent than about every 5 ms, it stops arming the doorbell and polls its queues every few
// milliseconds, with one call for all of them. When few messages came for a while, it sleeps
// on the doorbell again. Each such sleep is the doorbell's own, which arms, looks and then
// waits, so that no message is missed.
package pacedbell

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const (
	// lookAnyway is the time after which a poll makes its first look although no probe found
	// anything. A probe reports only messages that can be handed out now. A look also returns
	// when the next message is due and whether the queue is at a limit.
	lookAnyway = 250 * time.Millisecond
	// servedFor is how long a subscription counts as served after a claim.
	servedFor = time.Minute
	// lookAgain bounds the time until the poll's next look. Such a look claims, so that the
	// subscription stays served while the poll lasts.
	lookAgain = servedFor / 2
	// probeLate is how long a round waits for its probe. After that every poll looks itself: a
	// part of the store that does not answer must not block the queues of others.
	probeLate = 200 * time.Millisecond
	// mostLate is the maximum number of late probes. With more of them the store is too slow
	// for polling.
	mostLate = 3
	// probeTimeout bounds one probe.
	probeTimeout = 5 * time.Second
)

// Probe reports for each subscription whether a message may be available now. It takes
// nothing. It may return true if it does not know.
type Probe func(ctx context.Context, refs []posthaste.QueueRef) ([]bool, error)

// Pacer is the pace of one process, shared by all its doorbells.
type Pacer struct {
	probe Probe

	mu      sync.Mutex
	tempo   tempo
	polls   map[*poll]struct{} // polls that wait for the next round
	running bool               // a goroutine runs rounds
	late    int                // late probes still running
	// served has the time of the last claim from each subscription of a queue.
	served map[string]map[string]time.Time
}

// poll is a Sleep that polls.
type poll struct {
	queue string
	due   time.Time // deadline of its own look
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

// Served records that this process claims from a subscription. Probes ask for the
// subscriptions of recent claims.
func (p *Pacer) Served(ref posthaste.QueueRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	subscriptions := p.served[ref.Queue]
	if subscriptions == nil {
		subscriptions = map[string]time.Time{}
		p.served[ref.Queue] = subscriptions
	}
	subscriptions[ref.Normal().Subscription] = time.Now()
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
	if len(p.polls) == 0 { // otherwise the probe sets the pace
		p.tempo.lookTook(took)
	}
}

// join adds q to the next round. It returns false if the process does not poll.
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

// run runs rounds until no poll waits for one.
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
		// A poll that joins later starts with its own pause.
		p.running = len(p.polls) > 0
	}
}

// round lets those polls look that may find something. A single poll looks without a probe,
// and all look if the probe is late. waited is bounded, because a longer stall of the process
// says nothing about the traffic. p.mu is held, but not during the probe.
func (p *Pacer) round(waited time.Duration) {
	p.tempo.round(time.Now(), waited)
	var ready map[string]bool
	if p.tempo.polling && len(p.polls) > 1 {
		var err error
		if ready, err = p.ask(); err != nil {
			// Whatever the error is, each Sleep on the doorbell will see and handle it.
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

// ask probes all subscriptions of the polled queues. p.mu is held, but not during the probe.
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

// errLate says that a probe is still running and its result will be ignored.
var errLate = errors.New("the probe is late")

// answers runs a probe. p.mu is held, but not during the probe.
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
