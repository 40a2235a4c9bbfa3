package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/sync/errgroup"
)

// ceiling is what the broker's client alone publishes, confirmed, in messages a second.
type ceiling struct {
	perSecond             float64
	outstanding, channels int
}

// The combinations that are tried; the best one counts.
var (
	ceilingOutstanding = []int{100, 1000, 10_000}
	ceilingChannels    = []int{1, 2, 4}
)

// measureCeiling tries them for so long together.
func measureCeiling(ctx context.Context, url, queue string, during time.Duration) (best ceiling, err error) {
	each := during / time.Duration(len(ceilingOutstanding)*len(ceilingChannels))
	for _, channels := range ceilingChannels {
		for _, outstanding := range ceilingOutstanding {
			perSecond, err := publishAlone(ctx, url, queue, channels, outstanding/channels, each)
			if err != nil {
				return best, err
			}
			if perSecond > best.perSecond {
				best = ceiling{perSecond, outstanding, channels}
			}
		}
	}
	return best, nil
}

// publishAlone publishes on so many channels, each on a connection of its own and
// with at most window messages without a confirm.
func publishAlone(ctx context.Context, url, queue string, channels, window int, during time.Duration) (perSecond float64, err error) {
	var all []*amqp.Channel
	for range channels {
		conn, err := amqp.Dial(url)
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		ch, err := conn.Channel()
		if err != nil {
			return 0, err
		}
		if err := ch.Confirm(false); err != nil {
			return 0, err
		}
		all = append(all, ch)
	}
	began := time.Now()
	until := began.Add(during)
	var published atomic.Int64
	var group errgroup.Group
	for _, ch := range all {
		group.Go(func() error {
			flying := make([]*amqp.DeferredConfirmation, 0, window)
			wait := func(c *amqp.DeferredConfirmation) error {
				if ok, err := c.WaitContext(ctx); err != nil || !ok {
					return fmt.Errorf("the broker did not confirm a message: %v", err)
				}
				published.Add(1)
				return nil
			}
			for n := 0; time.Now().Before(until); n++ {
				if len(flying) == window {
					if err := wait(flying[0]); err != nil {
						return err
					}
					flying = append(flying[:0], flying[1:]...)
				}
				c, err := ch.PublishWithDeferredConfirm("", queue, false, false, relayedMessage(strconv.Itoa(n)))
				if err != nil {
					return err
				}
				flying = append(flying, c)
			}
			for _, c := range flying {
				if err := wait(c); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = group.Wait()
	return rate(published.Load(), time.Since(began)), err
}

// relayedMessage is what the relay publishes of a message.
func relayedMessage(id string) amqp.Publishing {
	return amqp.Publishing{MessageId: id, ContentType: "application/json", DeliveryMode: amqp.Persistent, Timestamp: time.Now(), Body: payload,
		Headers: amqp.Table{"posthaste-queue": "relay"}}
}

// stopwatch measures from the commit of messages to the confirm of each.
type stopwatch struct {
	mu        sync.Mutex
	confirmed map[int64]time.Time
	took      []time.Duration
}

func (s *stopwatch) confirm(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.confirmed != nil {
		s.confirmed[id] = time.Now()
	}
}

// await waits for a message's confirm, and notes how long it took since.
func (s *stopwatch) await(ctx context.Context, id int64, since time.Time) error {
	for {
		s.mu.Lock()
		at, ok := s.confirmed[id]
		if ok {
			s.took = append(s.took, max(0, at.Sub(since)))
			delete(s.confirmed, id)
		}
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Microsecond):
		}
	}
}

// percentile is that of the samples, in milliseconds.
func (s *stopwatch) percentile(q float64) float64 {
	return percentile(slices.Sorted(slices.Values(s.took)), q).Seconds() * 1000
}
