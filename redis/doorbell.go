package redis

import (
	"context"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

const (
	// lookAnyway bounds a sleep, in case a ring is lost.
	lookAnyway = time.Minute
	// armedFor is how long a queue remembers that a process sleeps.
	armedFor = 4 * lookAnyway
	// subscribing bounds the wait for Redis to confirm a subscription.
	subscribing = 5 * time.Second
	// pinging is the interval of pings on a silent connection.
	pinging = 5 * time.Second
)

// doorbell listens over one connection for all queues. A queue rings only after a process
// has recorded that it sleeps, so that sending to busy workers publishes nothing.
type doorbell struct {
	e      *Engine
	pubsub *goredis.PubSub
	closed chan struct{}
	once   sync.Once

	mu    sync.Mutex
	lines map[string]*line // by channel
}

// line receives the rings of one queue.
type line struct {
	rung      chan struct{} // holds one ring
	confirmed chan struct{} // closed once Redis has confirmed the subscription
	confirm   sync.Once
}

// Doorbell implements [posthaste.Engine]. While the queues of the process together get
// messages more often than about every 5 ms, it polls every few milliseconds instead of
// waiting for rings.
func (e *Engine) Doorbell(ctx context.Context) (posthaste.Doorbell, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b := &doorbell{e: e, closed: make(chan struct{}), lines: map[string]*line{}, pubsub: e.client.Subscribe(context.WithoutCancel(ctx))}
	go b.listen(b.pubsub.ChannelWithSubscriptions(goredis.WithChannelHealthCheckInterval(pinging)))
	return e.pacer.Pace(b), nil
}

// probe reports which subscriptions have messages. It reports one that it cannot read as
// ready, because a claim returns its error. It fails only if Redis answers for none.
func (e *Engine) probe(ctx context.Context, refs []posthaste.QueueRef) ([]bool, error) {
	ready := make([]bool, len(refs))
	var queues []*queue
	var at []int
	for i, ref := range refs {
		q, err := e.registry.find(ctx, ref)
		if err != nil {
			ready[i] = true
			continue
		}
		queues, at = append(queues, q), append(at, i)
	}
	answers, err := e.runEach(ctx, beatScript, queues, func(q *queue) arguments { return looking(q, e.leases.kindsHere(q.ref())) })
	for i, answer := range answers {
		if answer != nil {
			err = nil
		}
		all, ok := answer.([]any)
		ready[at[i]] = !ok || len(all) == 0 || str(all[0]) == "1"
	}
	return ready, readError(err)
}

// listen runs until the doorbell is closed. A new subscription after a lost connection counts
// as a ring, because messages may have been sent in between.
func (b *doorbell) listen(heard <-chan any) {
	for event := range heard {
		switch m := event.(type) {
		case *goredis.Subscription:
			if strings.HasSuffix(m.Kind, "unsubscribe") {
				continue
			}
			if l := b.line(m.Channel); l != nil {
				l.confirm.Do(func() { close(l.confirmed) })
				l.ring()
			}
		case *goredis.Message:
			if l := b.line(m.Channel); l != nil {
				l.ring()
			}
		}
	}
}

func (l *line) ring() {
	select {
	case l.rung <- struct{}{}:
	default:
	}
}

func (b *doorbell) line(channel string) *line {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lines[channel]
}

// open returns the line of a queue once the subscription is confirmed.
func (b *doorbell) open(ctx context.Context, queue string) (*line, error) {
	channel := b.e.keys.bell(queue)
	b.mu.Lock()
	l := b.lines[channel]
	if l == nil {
		l = &line{rung: make(chan struct{}, 1), confirmed: make(chan struct{})}
		b.lines[channel] = l
		b.mu.Unlock()
		// If this fails, the next connection subscribes again.
		_ = b.pubsub.Subscribe(ctx, channel)
	} else {
		b.mu.Unlock()
	}
	late := time.NewTimer(subscribing)
	defer late.Stop()
	select {
	case <-l.confirmed:
		return l, nil
	case <-late.C:
		return nil, &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "Redis did not confirm the subscription to the doorbell", Hint: "try again"}
	case <-b.closed:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Sleep implements [posthaste.Doorbell].
func (b *doorbell) Sleep(ctx context.Context, queue string, look func(context.Context) (posthaste.LookReply, error)) error {
	l, err := b.open(ctx, queue)
	if err != nil || l == nil {
		return err
	}
	select {
	case <-l.rung: // before this sleep
	default:
	}
	if _, err := armScript.run(ctx, b.e.client, []string{b.e.keys.of(queue, "asleep")}, arguments{{"ms", armedFor.Milliseconds()}}); err != nil {
		return readError(err)
	}
	found, err := look(ctx)
	if err != nil || found.Found {
		return err
	}
	wait := lookAnyway
	if found.NextDue >= 0 {
		wait = min(wait, found.NextDue)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-l.rung:
	case <-timer.C:
	case <-b.closed:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Wake implements [posthaste.Doorbell].
func (b *doorbell) Wake(queue string) {
	if l := b.line(b.e.keys.bell(queue)); l != nil {
		l.ring()
	}
}

// Close implements [posthaste.Doorbell].
func (b *doorbell) Close() {
	b.once.Do(func() {
		close(b.closed)
		_ = b.pubsub.Close()
	})
}
