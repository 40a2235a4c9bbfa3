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

// producer is a client that several batches use concurrently. It is replaced when a batch
// times out. Otherwise the records left in it would still be produced at some later time,
// once more for each attempt. They cannot be cancelled, because the client would also drop
// all records queued behind them.
type producer struct {
	relay.Users
	client *kgo.Client
	window *semaphore.Weighted // bounds the unacknowledged records

	mu      sync.Mutex
	trouble error // of the latest connection; nil if it was opened
}

// OnBrokerConnect implements the client library's HookBrokerConnect.
func (p *producer) OnBrokerConnect(_ kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trouble = err
}

// why returns the reason why the brokers do not acknowledge, if one is known.
func (p *producer) why() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trouble
}

// release undoes Use. The last user closes a retired producer.
func (p *producer) release() {
	if p.Leave() {
		p.client.Close()
	}
}

// Close closes the producer. Records in flight may or may not be stored.
func (p *producer) Close() {
	p.Retire()
	p.client.Close()
}

// open returns a producer that has reached a broker. The context bounds it.
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
