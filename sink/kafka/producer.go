package kafka

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/semaphore"
)

// producer is a client for as long as it is in order. It is used by several batches
// at the same time. When the time of one is up, it is replaced: what is left in it
// would be produced some time, again and again with each attempt, for a client that
// was told to forget a record forgets all that wait behind it.
type producer struct {
	client *kgo.Client
	window *semaphore.Weighted // bounds what is without an acknowledgement

	mu      sync.Mutex
	users   int   // batches that use it
	retired bool  // it shall not be used again
	trouble error // of the last connection; nil if that was opened
}

// OnBrokerConnect implements the client library's HookBrokerConnect.
func (p *producer) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trouble = err
}

// why is what keeps the brokers from acknowledging, as far as is known.
func (p *producer) why() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trouble
}

// use says that a batch uses the producer, unless it shall not be used again.
func (p *producer) use() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retired {
		return false
	}
	p.users++
	return true
}

// release takes back use. The last one closes a producer that is retired.
func (p *producer) release() {
	p.mu.Lock()
	p.users--
	last := p.retired && p.users == 0
	p.mu.Unlock()
	if last {
		p.client.Close()
	}
}

// retire lets those who use the producer finish, and nobody use it again.
func (p *producer) retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired = true
}

// open makes a producer of which a broker has answered. The context bounds it.
func (t *target) open(ctx context.Context) (*producer, error) {
	p := &producer{window: semaphore.NewWeighted(int64(t.Outstanding))}
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.WithHooks(p)}, t.options...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka at %s: %w", t.address, err)
	}
	p.client = client
	within, cancel := context.WithTimeout(ctx, t.DialTimeout)
	defer cancel()
	if err := client.Ping(within); err != nil {
		client.Close()
		if within.Err() != nil {
			return nil, fmt.Errorf("kafka at %s does not answer: %w", t.address, within.Err())
		}
		return nil, fmt.Errorf("kafka at %s: %w", t.address, err)
	}
	return p, nil
}

// slot holds a producer and opens it anew.
type slot struct {
	turn     chan struct{} // held to look at producer
	producer *producer
}

func newSlot() *slot { return &slot{turn: make(chan struct{}, 1)} }

// Pauses between attempts to connect.
const (
	firstPause = 50 * time.Millisecond
	longPause  = 2 * time.Second
)

// get returns a producer, for the caller to release, and waits for the brokers as
// long as ctx lasts.
func (s *Sink) get(ctx context.Context, slot *slot) (*producer, error) {
	select {
	case slot.turn <- struct{}{}:
		defer func() { <-slot.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("no connection to kafka at %s: %w", s.target.address, ctx.Err())
	}
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		select {
		case <-s.done:
			return nil, errors.New("the relay to kafka was closed")
		default:
		}
		if slot.producer != nil && slot.producer.use() {
			return slot.producer, nil
		}
		var err error
		if slot.producer, err = s.target.open(ctx); err == nil {
			if s.down.Swap(false) {
				s.target.Logger.Info("the brokers are back", "brokers", s.target.address)
			}
			continue
		}
		if ctx.Err() == nil && !s.down.Swap(true) {
			s.target.Logger.Warn("the brokers cannot be used: messages wait, and it is tried again", "brokers", s.target.address, "error", err)
		}
		select {
		case <-ctx.Done():
			if errors.Is(err, ctx.Err()) {
				return nil, err
			}
			return nil, fmt.Errorf("%w (waited for it: %w)", err, ctx.Err())
		case <-s.done:
		case <-time.After(pause/2 + rand.N(pause/2)):
		}
	}
}
