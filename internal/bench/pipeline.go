package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/rabbitmq"
	"github.com/posthaste-mq/posthaste/codec/msgpack"
	"github.com/posthaste-mq/posthaste/inbox"
	"github.com/posthaste-mq/posthaste/internal/brokers"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/relay"
	"github.com/posthaste-mq/posthaste/source"
	"github.com/posthaste-mq/posthaste/worker"
)

const (
	pipelineDue     = "notifications" // due in the ledger
	pipelineBroker  = "posthaste-bench-pipeline"
	pipelineSending = "sending" // from the broker
	// pipelineChunk is the number of notifications in a message of the broker.
	pipelineChunk = 10
	// pipelineTrial is the number of notifications before the measurement, whose rate
	// determines how many are measured.
	pipelineTrial = 10_000
	// pipelineShare is the share of the duration for the measured ones.
	pipelineShare = 0.6
	// handlersEach is the number of concurrent handlers of a consumer.
	handlersEach = 150
	mostNotified = 5_000_000
)

var pipelineChunks = relay.Chunks{Size: pipelineChunk, Codec: msgpack.Codec}

// pipelined is the notification pipeline. Notifications fall due in the ledger and go through
// RabbitMQ in chunks. Consumers unpack them and handle each one behind an inbox, and a queue
// with retention keeps them as a log.
type pipelined struct {
	*run
	*traffic          // of the ledger; settled counts confirmed messages
	sending  *settled // handled notifications
	calls    sync.Map // by reference: how often the handler was called
	repeated atomic.Int64
	broker   string
	inbox    string // the URL of its Redis
}

func pipeline(ctx context.Context, r *run) (err error) {
	broker, stop, err := openBroker(ctx, r)
	if err != nil {
		return err
	}
	defer stop()
	// The inbox of each handler is in Redis, as in the article.
	store, stopStore, err := startOwn(ctx, r, brokers.Redis)
	if err != nil {
		return err
	}
	defer stopStore()
	drop, err := pipelineQueue(broker)
	if err != nil {
		return err
	}
	defer drop()
	url, err := r.server.database(ctx, "pipeline")
	if err != nil {
		return err
	}
	t, err := newTraffic(ctx, r, home{URL: url}, pipelineDue, posthaste.QueueOptions{})
	if err != nil {
		return err
	}
	defer t.engine.Close()
	// The log of sent notifications, by reference, for a month.
	if err := t.engine.CreateQueue(ctx, pipelineSending, posthaste.QueueOptions{Retention: 30 * 24 * time.Hour, RetainPayload: true}); err != nil {
		return err
	}
	p := &pipelined{run: r, traffic: t, sending: watchSettled(t.engine), broker: broker, inbox: store}

	r.begin()
	r.phase("measuring the rate of a trial")
	took, _, err := p.through(ctx, url, pipelineTrial)
	if err != nil {
		return err
	}
	n := int(min(mostNotified, max(pipelineTrial, 1.3*rate(pipelineTrial, took)*r.part(pipelineShare).Seconds())))
	took, own, err := p.through(ctx, url, n)
	if err != nil {
		return err
	}
	if err := p.inspect(ctx, pipelineTrial+n); err != nil {
		return err
	}
	res := r.result
	perSecond := rate(int64(n), took)
	res.PerSecond, res.Messages = known(perSecond), int64(n)
	own.into(res)
	res.PipelineResult = &PipelineResult{PerMinute: *known(60 * perSecond), Consumers: r.o.Consumers, HandlersEach: handlersEach,
		HandlerMS: float64(r.o.Handler.Microseconds()) / 1000, ChunkSize: pipelineChunk, Inbox: "redis"}
	return nil
}

// pipelineQueue creates the broker's queue without messages.
func pipelineQueue(broker string) (drop func(), err error) {
	conn, err := amqp.Dial(broker)
	if err != nil {
		return nil, &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "broker", Message: "the broker cannot be used", Hint: "check --broker", Cause: err}
	}
	ch, err := conn.Channel()
	if err == nil {
		_, err = ch.QueueDelete(pipelineBroker, false, false, false)
	}
	if err == nil {
		_, err = ch.QueueDeclare(pipelineBroker, true, false, false, false, nil)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("the broker's queue %s cannot be created: %w", pipelineBroker, err)
	}
	return func() {
		for _, name := range []string{pipelineBroker, pipelineBroker + ".refused"} {
			_, _ = ch.QueueDelete(name, false, false, false)
		}
		conn.Close()
	}, nil
}

// through sends n notifications, starts relay and consumers once they are due, and waits until
// all are handled. It returns the time from the start to the last settle.
func (p *pipelined) through(ctx context.Context, url string, n int) (took time.Duration, own cost, err error) {
	if n > pipelineTrial {
		p.phase("sending notifications")
	}
	due := time.Now().Add(2 * time.Second)
	if err := p.plan(ctx, n, due); err != nil {
		return 0, own, err
	}
	if late := time.Until(due); late > 0 {
		select {
		case <-time.After(late):
		case <-ctx.Done():
			return 0, own, ctx.Err()
		}
	}
	if n > pipelineTrial {
		p.phase("notifying")
	}
	before := p.sending.count.Load()
	own.meter = p.server.meter
	end := own.span()
	begun := time.Since(epoch)
	stop, err := p.start(ctx, url)
	if err != nil {
		return 0, own, err
	}
	err = p.profiled(n > pipelineTrial, func() error {
		for p.sending.count.Load() < before+int64(n) {
			select {
			case <-p.sending.changed:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	end(int64(n))
	took = time.Duration(p.sending.last.Load()) - begun
	return took, own, errors.Join(err, stop())
}

// plan sends notifications that fall due at a time.
func (p *pipelined) plan(ctx context.Context, n int, due time.Time) error {
	const batch = 10_000
	for n > 0 {
		messages := make([]posthaste.Message, min(n, batch))
		for i := range messages {
			messages[i] = posthaste.Message{Queue: pipelineDue, Payload: payload, SendAt: due, Reference: fmt.Sprint("appointment-", p.sent.Load()+int64(i))}
		}
		if _, err := p.client.Send(ctx, messages...); err != nil {
			return err
		}
		p.sent.Add(int64(len(messages)))
		n -= len(messages)
	}
	return nil
}

// start starts the relay and the consumers, each with an engine of its own.
func (p *pipelined) start(ctx context.Context, url string) (stop func() error, err error) {
	running, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	var mu sync.Mutex
	var faults []error
	var closers []func()
	stop = func() error {
		cancel()
		all.Wait()
		for _, f := range closers {
			f()
		}
		return errors.Join(faults...)
	}
	goes := func(f func(context.Context) error) {
		all.Go(func() {
			if err := f(running); err != nil {
				mu.Lock()
				defer mu.Unlock()
				faults = append(faults, err)
			}
		})
	}
	log := quiet(p.o.Log)
	to, err := rabbitmq.NewSink(rabbitmq.SinkConfig{URL: rabbitmq.URL(p.broker), RoutingKey: pipelineBroker, Logger: log})
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	closers = append(closers, func() { to.Close() })
	w := worker.New(p.settled, worker.Config{Logger: log})
	worker.HandleSink(w, pipelineDue, pipelineChunks.Sink(to), worker.WithBatchSize(relay.DefaultBatch), worker.WithConcurrency(relay.DefaultConcurrency))
	goes(w.Run)
	for range p.o.Consumers {
		engine, err := postgres.Open(ctx, url, postgres.WithLogger(p.o.Log))
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		closers = append(closers, engine.Close)
		from, err := rabbitmq.NewSource(engine, rabbitmq.SourceConfig{URL: rabbitmq.URL(p.broker), FromQueue: pipelineBroker,
			Config: source.Config{Queue: pipelineSending, Unpack: pipelineChunks.Unpack, Logger: log}})
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		options, err := goredis.ParseURL(p.inbox)
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		client := goredis.NewClient(options)
		closers = append(closers, func() { client.Close() })
		once, err := inbox.NewRedis(client, inbox.RedisConfig{Consumer: "notifier"})
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		w := worker.New(&settledInto{engine, p.sending}, worker.Config{Logger: log, Concurrency: handlersEach})
		worker.HandleRaw(w, pipelineSending, once.Middleware(p.notify))
		goes(from.Run)
		goes(w.Run)
	}
	return stop, nil
}

// notify waits without CPU, as for the response of a provider.
func (p *pipelined) notify(ctx context.Context, d posthaste.RawDelivery) error {
	if _, again := p.calls.LoadOrStore(d.Reference, true); again {
		p.repeated.Add(1)
	}
	select {
	case <-time.After(p.o.Handler):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// inspect invalidates the result if notifications were lost or repeated, and looks some up in
// the log.
func (p *pipelined) inspect(ctx context.Context, n int) error {
	if again := p.repeated.Load(); again > 0 {
		p.invalid("%d notifications were handled twice", again)
	}
	handled := 0
	p.calls.Range(func(any, any) bool { handled++; return true })
	if handled != n {
		p.invalid("%d notifications of %d were handled", handled, n)
	}
	for _, i := range []int{0, n / 2, n - 1} {
		found, err := p.engine.Messages(ctx, posthaste.MessageFilter{Queue: pipelineSending, Reference: fmt.Sprint("appointment-", i)})
		if err != nil {
			return err
		}
		if len(found.Items) != 1 || found.Items[0].Subscriptions[0].State != posthaste.StateDone {
			p.invalid("the log has notification %d %d times", i, len(found.Items))
		}
	}
	return nil
}
