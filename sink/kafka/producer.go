package kafka

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/semaphore"

	"github.com/posthaste-mq/posthaste/relay"
)

// producer is a client for as long as it is in order. It is used by several batches
// at the same time. When the time of one is up, it is replaced: what is left in it
// would be produced some time, again and again with each attempt, for a client that
// was told to forget a record forgets all that wait behind it.
type producer struct {
	relay.Users
	client *kgo.Client
	window *semaphore.Weighted // bounds what is without an acknowledgement

	mu      sync.Mutex
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

// release takes back use. The last one closes a producer that is retired.
func (p *producer) release() {
	if p.Leave() {
		p.client.Close()
	}
}

// Close ends the producer. What is being produced stays unknown.
func (p *producer) Close() {
	p.Retire()
	p.client.Close()
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
