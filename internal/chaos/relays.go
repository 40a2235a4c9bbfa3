//go:build unix

package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/history"
)

// broker is the RabbitMQ of a run, behind a proxy that observes its connections. Its queue is
// read only at the end, so its content is exactly the relayed messages.
type broker struct {
	server *devbroker.RabbitMQ
	proxy  *proxy
	// control is held by faults that need the broker, or end it.
	control sync.Mutex
}

// startBroker starts it, with the target queue of the relays.
func (r *rig) startBroker(ctx context.Context) (b *broker, err error) {
	dir := filepath.Join(r.Dir, "rabbitmq")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	b = &broker{}
	if b.server, err = devbroker.StartRabbitMQ(ctx, dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	if err := b.use(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(Relayed, true, false, false, false, nil)
		return err
	}); err != nil {
		return nil, err
	}
	// The queue's declaration must be on disk before the first kill.
	if err := b.server.Sync(ctx); err != nil {
		return nil, err
	}
	b.proxy = newProxy(b.server.Address(), confirms)
	b.proxy.delay, b.proxy.witness = 15*time.Millisecond, r.listen
	return b, nil
}

// listen returns the witness of a relay's connection. All connections of a relay share one
// history.
func (r *rig) listen(relay string) witness {
	r.mu.Lock()
	defer r.mu.Unlock()
	return &wiretap{r: r.heard[relay], open: map[uint64]seen{}, killed: func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.killed[relay]
	}}
}

func (b *broker) close() {
	if b.proxy != nil {
		b.proxy.close()
	}
	b.server.Stop()
}

// use opens a channel, not through the proxy.
func (b *broker) use(do func(ch *amqp.Channel) error) error {
	conn, err := amqp.Dial(b.server.URL())
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	return do(ch)
}

// relayed records the broker's messages.
func (b *broker) relayed(r *history.Recorder) error {
	return b.use(func(ch *amqp.Channel) error {
		for {
			d, any, err := ch.Get(Relayed, true)
			if err != nil || !any {
				return err
			}
			came(r, d.Body)
		}
	})
}

// whilePublishing waits for a limited time until a relay has published a message that is not
// confirmed yet.
func (r *rig) whilePublishing(ctx context.Context) {
	r.whileInFlight(ctx, func() (relays []string) {
		for place, role := range r.cast {
			if role == roleRelay {
				relays = append(relays, r.at(place).name)
			}
		}
		return relays
	})
}

// killBroker kills the broker and starts it again after a moment.
func (r *rig) killBroker() func(context.Context) error {
	away := time.Duration(r.random.Int64N(int64(time.Second)))
	return func(ctx context.Context) error {
		r.broker.control.Lock()
		defer r.broker.control.Unlock()
		if err := ctx.Err(); err != nil {
			return err // other faults held it for too long
		}
		r.whilePublishing(ctx)
		return r.during(KillBroker, "", func() (int, error) {
			r.broker.server.Kill()
			hold(ctx, away)
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
			defer cancel()
			return 1, r.broker.server.Start(ctx)
		})
	}
}

// cutBroker cuts all connections to the broker.
func (r *rig) cutBroker() func(context.Context) error {
	return func(ctx context.Context) error {
		r.whilePublishing(ctx)
		return r.during(CutBroker, "", func() (struck int, err error) {
			links := r.broker.proxy.of("")
			for _, l := range links {
				l.cut()
			}
			return len(links), nil
		})
	}
}

// cutConfirm cuts connections after the broker has confirmed and before the relay gets the
// confirm.
func (r *rig) cutConfirm() func(context.Context) error {
	return func(ctx context.Context) error {
		return r.during(CutConfirm, "", func() (int, error) {
			struck := severing(ctx, func() []*link { return r.broker.proxy.of("") }, severAnswer)
			if struck == 0 {
				return 0, errors.New("nothing was published")
			}
			return struck, nil
		})
	}
}

// alarm makes the broker believe that its disk is full, so that it blocks publishers.
func (r *rig) alarm() func(context.Context) error {
	long := time.Duration(r.random.Int64N(int64(3 * time.Second)))
	return func(ctx context.Context) error {
		r.broker.control.Lock()
		defer r.broker.control.Unlock()
		if err := ctx.Err(); err != nil {
			return err // other faults held it for too long
		}
		return r.during(BrokerAlarm, "", func() (struck int, err error) {
			always := context.WithoutCancel(ctx)
			if _, err = r.broker.server.Control(always, "set_disk_free_limit", "100000GB"); err == nil {
				struck = 1
			}
			hold(ctx, long)
			// Always end the alarm: a run must not end with it.
			for range 10 {
				_, last := r.broker.server.Control(always, "set_disk_free_limit", "50MB")
				if last == nil {
					return struck, err
				}
				err = fmt.Errorf("the alarm cannot be ended: %w", last)
				time.Sleep(time.Second)
			}
			return struck, err
		})
	}
}
