//go:build unix

package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/sink/rabbitmq"
)

// relayer relays messages to RabbitMQ as it is shipped, and records each before and
// after.
type relayer struct {
	*rabbitmq.Sink
	r *history.Recorder
}

// Deliver implements [posthaste.Sink]. Between the confirms and the settling it takes
// a while, in which it can be killed.
func (s relayer) Deliver(ctx context.Context, batch []posthaste.RawDelivery) []posthaste.SinkResult {
	all := make([]seen, len(batch))
	whole := make([]bool, len(batch))
	for i := range batch {
		d := &batch[i]
		all[i], whole[i] = arrived(s.r, d.MessageID, d.Attempt, d.Alone, d.Payload)
	}
	results := s.Sink.Deliver(ctx, batch)
	var pause time.Duration
	for i := range all {
		if !whole[i] {
			results[i] = posthaste.SinkResult{Err: posthaste.Permanent(errDamaged)}
			continue
		}
		pause = max(pause, work(all[i].content, false))
	}
	time.Sleep(pause)
	for i := range all {
		if whole[i] {
			all[i].left(s.r, results[i].Err)
		}
	}
	return results
}

// broker is the RabbitMQ of a run, behind a proxy. Nobody reads from it until all is
// over, so that what it has is what was relayed.
type broker struct {
	server *devbroker.RabbitMQ
	proxy  *faultproxy.Proxy
	// control is held by faults that need the broker, or end it.
	control sync.Mutex
}

// startBroker starts it, with the queue that messages are relayed to.
func startBroker(ctx context.Context, dir string) (b *broker, err error) {
	dir = filepath.Join(dir, "rabbitmq")
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
	// What was declared must be on disk when it is killed for the first time.
	if _, err := b.server.Control(ctx, "eval", "mnesia:sync_log()."); err != nil {
		return nil, err
	}
	b.proxy, err = faultproxy.New(b.server.Address(), publishes)
	return b, err
}

// publishes reports whether a piece of what a client sends holds a basic.publish: cut
// after any other piece, a handshake or a heartbeat, the relay would lose no confirm.
func publishes(piece []byte) bool { return bytes.Contains(piece, []byte{0, 60, 0, 40}) }

func (b *broker) close() {
	if b.proxy != nil {
		b.proxy.Close()
	}
	b.server.Stop()
}

// url is where it is reached through the proxy.
func (b *broker) url() string { return "amqp://guest:guest@" + b.proxy.Address() + "/" }

// use opens a channel, past the proxy.
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

// relayed records what the broker has.
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

// killBroker kills the broker and starts it again after a moment.
func (r *rig) killBroker() func(context.Context) error {
	away := time.Duration(r.random.Int64N(int64(time.Second)))
	return func(ctx context.Context) error {
		r.broker.control.Lock()
		defer r.broker.control.Unlock()
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
	return func(context.Context) error {
		return r.during(CutBroker, "", func() (struck int, err error) {
			struck = r.broker.proxy.Connections()
			r.broker.proxy.CutAll()
			return struck, nil
		})
	}
}

// cutConfirm cuts a connection when the broker has answered what was sent on it, and
// the relay has not seen that.
func (r *rig) cutConfirm() func(context.Context) error {
	return func(ctx context.Context) error {
		return r.during(CutConfirm, "", func() (int, error) {
			select {
			case <-r.broker.proxy.CutAfter():
				return 1, nil
			case <-time.After(10 * time.Second):
				return 0, errors.New("nothing was published")
			}
		})
	}
}

// alarm makes the broker believe that its disk is full: it blocks who publishes.
func (r *rig) alarm() func(context.Context) error {
	long := time.Duration(r.random.Int64N(int64(3 * time.Second)))
	return func(ctx context.Context) error {
		r.broker.control.Lock()
		defer r.broker.control.Unlock()
		return r.during(BrokerAlarm, "", func() (struck int, err error) {
			always := context.WithoutCancel(ctx)
			if _, err = r.broker.server.Control(always, "set_disk_free_limit", "100000GB"); err == nil {
				struck = 1
			}
			hold(ctx, long)
			// However it went: a run must not end with it.
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
