package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

const (
	// natsQueue is the queue of scenario nats.
	natsQueue = "bench"
	// natsIdleQueues is the number of queues of the worker that sleeps.
	natsIdleQueues = 10
	// natsIdle is the share of the duration in which it is measured.
	natsIdle = 0.15
	// natsMost is the maximum of the messages that wait.
	natsMost = 200_000
)

// natsPair is one way to use the engine, and the same with the raw client.
type natsPair struct {
	name string
	// Each is a measurement for some time. It returns the number of messages and the time they took.
	engine, raw func(ctx context.Context, during time.Duration) (int64, time.Duration, error)
	result      NATSWay
	ratios      []float64
	ours, its   natsCost
}

// natsCost sums the CPU time of one side of a pair.
type natsCost struct {
	server, client time.Duration
	unknown        bool
	messages       int64
}

// compareNATS compares the engine on NATS with the raw client, by turns.
func compareNATS(ctx context.Context, r *run) error {
	s := r.nats
	if err := s.engine.CreateQueue(ctx, natsQueue, posthaste.QueueOptions{}); err != nil {
		return err
	}
	if _, err := s.engine.Send(ctx, posthaste.Message{Queue: natsQueue, Payload: payload}); err != nil {
		return err
	}
	raw, err := s.openRaw(ctx, natsQueue)
	if err != nil {
		return err
	}
	own, err := s.queueStream(ctx, natsQueue)
	if err != nil {
		return err
	}
	pairs, idle := natsPairs(r, raw), natsIdle
	if r.o.Way != "" {
		pairs, idle = slices.DeleteFunc(pairs, func(p *natsPair) bool { return p.name != r.o.Way }), 0
	}
	r.begin()
	r.phase("warming up")
	each := r.part((1 - warming - idle) / float64(rounds*2*len(pairs)))
	clear := func() error { return errors.Join(own.Purge(ctx), raw.stream.Purge(ctx)) }
	for _, p := range pairs {
		if err := p.turn(ctx, r, false, r.part(warming)/time.Duration(2*len(pairs)), clear); err != nil {
			return err
		}
		p.ratios, p.result.Rounds, p.result.RawRounds, p.ours, p.its = nil, nil, nil, natsCost{}, natsCost{}
	}
	for round := range rounds {
		if round > 0 && r.late() {
			break
		}
		for _, p := range pairs {
			r.phase(p.name)
			if err := p.turn(ctx, r, round == rounds-1, each, clear); err != nil {
				return err
			}
		}
	}
	return natsResult(ctx, r, pairs)
}

// turn measures a pair once. The side that is first changes from turn to turn.
func (p *natsPair) turn(ctx context.Context, r *run, last bool, during time.Duration, clear func() error) error {
	var speeds [2]float64
	for i := range 2 {
		side, f := (i+len(p.ratios))%2, p.engine
		if side == 1 {
			f = p.raw
		}
		var n int64
		var took time.Duration
		err := r.profiled(last && side == 0 && (r.o.Way != "" || p.name == natsWays[len(natsWays)-1]), func() (err error) {
			n, took, err = f(ctx, during)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		speeds[side] = rate(n, took)
		if err := clear(); err != nil {
			return err
		}
	}
	p.result.Rounds, p.result.RawRounds = append(p.result.Rounds, *known(speeds[0])), append(p.result.RawRounds, *known(speeds[1]))
	p.ratios = append(p.ratios, speeds[0]/speeds[1])
	return nil
}

// measured adds the CPU time of f to a cost. f returns the number of messages.
func (c *natsCost) measured(s *natsStore, f func() (int64, time.Duration, error)) (int64, time.Duration, error) {
	server, ok := s.used()
	client := ownCPU()
	n, took, err := f()
	c.client += ownCPU() - client
	after, still := s.used()
	c.server += after - server
	c.unknown = c.unknown || !ok || !still
	c.messages += n
	return n, took, err
}

func (c *natsCost) perMessage() (server, client *float64) {
	if c.messages == 0 {
		return nil, nil
	}
	if !c.unknown {
		server = known(float64(c.server.Microseconds()) / float64(c.messages))
	}
	return server, known(float64(c.client.Microseconds()) / float64(c.messages))
}

// natsPairs returns the pairs in the order of the result.
func natsPairs(r *run, raw *natsRaw) []*natsPair {
	engine, client := r.nats.engine, posthaste.NewClient(r.nats.engine)
	message := posthaste.Message{Queue: natsQueue, Payload: payload}
	pairs := []*natsPair{
		natsSends("singly", r.nats, singles, 1,
			func(ctx context.Context) error { _, err := engine.Send(ctx, message); return err },
			func(ctx context.Context) error { return raw.one(ctx) }),
		natsSends("gathered", r.nats, natsOutstanding, 1,
			func(ctx context.Context) error { _, err := client.Send(ctx, message); return err }, raw.pipelined),
	}
	for _, n := range []int{10, 100, 1000} {
		messages := make([]posthaste.Message, n)
		for i := range messages {
			messages[i] = message
		}
		pairs = append(pairs, natsSends("batches-"+strconv.Itoa(n), r.nats, natsBatchers, n,
			func(ctx context.Context) error { _, err := engine.Send(ctx, messages...); return err },
			func(ctx context.Context) error { return raw.batch(ctx, n) }))
	}
	return append(pairs, natsHandling(r, raw))
}

// natsSends returns a pair whose sides are called by some goroutines.
func natsSends(name string, s *natsStore, goroutines, batch int, engine, raw func(ctx context.Context) error) *natsPair {
	p := &natsPair{name: name}
	side := func(c *natsCost, once func(ctx context.Context) error) func(context.Context, time.Duration) (int64, time.Duration, error) {
		return func(ctx context.Context, during time.Duration) (int64, time.Duration, error) {
			return c.measured(s, func() (int64, time.Duration, error) {
				return forAWhile(ctx, goroutines, during, func(ctx context.Context, _ int) (int64, error) { return int64(batch), once(ctx) })
			})
		}
	}
	p.engine, p.raw = side(&p.ours, engine), side(&p.its, raw)
	return p
}

// one publishes a message and waits for its confirmation.
func (r *natsRaw) one(ctx context.Context) error {
	_, err := r.js.PublishMsg(ctx, r.message(), jetstream.WithMsgID(natsgo.NewInbox()[len(natsgo.InboxPrefix):]))
	return err
}

// pipelined is one, for many goroutines: it publishes asynchronously.
func (r *natsRaw) pipelined(ctx context.Context) error {
	ack, err := r.js.PublishMsgAsync(r.message(), jetstream.WithMsgID(natsgo.NewInbox()[len(natsgo.InboxPrefix):]))
	if err != nil {
		return err
	}
	return acknowledged(ctx, ack)
}

// natsHandling empties a filled queue by a worker, and a filled stream by fetches with pipelined
// double acknowledgments.
func natsHandling(r *run, raw *natsRaw) *natsPair {
	p := &natsPair{name: "handled"}
	q := &natsDrain{run: r}
	rates := [2]float64{5000, 5000} // as in the last round
	side := func(i int, c *natsCost, fill func(context.Context, int) error, empty func(context.Context, int) (time.Duration, error)) func(context.Context, time.Duration) (int64, time.Duration, error) {
		return func(ctx context.Context, during time.Duration) (int64, time.Duration, error) {
			n := min(natsMost, max(2000, int(rates[i]*during.Seconds()/2)))
			if err := fill(ctx, n); err != nil {
				return 0, 0, fmt.Errorf("filling: %w", err)
			}
			_, took, err := c.measured(r.nats, func() (int64, time.Duration, error) {
				took, err := empty(ctx, n)
				return int64(n), took, err
			})
			rates[i] = rate(int64(n), took)
			return int64(n), took, err
		}
	}
	p.engine, p.raw = side(0, &p.ours, q.fill, q.empty), side(1, &p.its, raw.fill, raw.empty)
	return p
}

func (r *natsRaw) fill(ctx context.Context, n int) error {
	return inParallel(natsBatchers, n, 1000, func(_, n int) error { return r.batch(ctx, n) })
}

// empty fetches all messages. It confirms each by a double acknowledgment, and waits for the
// confirmations at the end.
func (r *natsRaw) empty(ctx context.Context, n int) (time.Duration, error) {
	inbox, all := r.conn.NewInbox(), make(chan bool)
	var confirmed atomic.Int64
	subscription, err := r.conn.Subscribe(inbox, func(m *natsgo.Msg) {
		if m.Header.Get("Status") == "" && confirmed.Add(1) == int64(n) {
			close(all)
		}
	})
	if err != nil {
		return 0, err
	}
	defer func() { _ = subscription.Unsubscribe() }()
	if err := subscription.SetPendingLimits(-1, -1); err != nil {
		return 0, err
	}
	begun := time.Now()
	for taken := 0; taken < n; {
		batch, err := r.consumer.Fetch(min(natsFetch, n-taken), jetstream.FetchMaxWait(3*time.Second))
		if err != nil {
			return 0, err
		}
		for m := range batch.Messages() {
			taken++
			if err := r.conn.PublishMsg(&natsgo.Msg{Subject: m.Reply(), Reply: inbox, Data: []byte("+ACK")}); err != nil {
				return 0, err
			}
		}
		if err := errors.Join(batch.Error(), ctx.Err()); err != nil {
			return 0, fmt.Errorf("%d of %d messages were fetched: %w", taken, n, err)
		}
	}
	select {
	case <-all:
		return time.Since(begun), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("%d of %d acknowledgments were confirmed: %w", confirmed.Load(), n, ctx.Err())
	}
}

// natsDrain is a queue that a worker empties.
type natsDrain struct{ run *run }

func (q *natsDrain) fill(ctx context.Context, n int) error {
	messages := make([]posthaste.Message, min(n, 1000))
	for i := range messages {
		messages[i] = posthaste.Message{Queue: natsQueue, Payload: payload}
	}
	return inParallel(natsBatchers, n, len(messages), func(_, n int) error {
		_, err := q.run.nats.engine.Send(ctx, messages[:n]...)
		return err
	})
}

// empty starts a worker and returns the time until the last of n messages was settled.
func (q *natsDrain) empty(ctx context.Context, n int) (took time.Duration, err error) {
	watched := watchSettled(q.run.nats.engine)
	w := worker.New(watched, worker.Config{Logger: quiet(q.run.o.Log)})
	worker.Handle(w, natsQueue, func(context.Context, posthaste.Delivery[json.RawMessage]) error { return nil })
	begun := time.Since(epoch)
	ctx, cancel := context.WithTimeout(ctx, q.run.part(1)+q.run.o.drain)
	defer cancel()
	stop := runUntilStopped(ctx, w)
	defer func() { err = errors.Join(err, stop()) }()
	if err := watched.until(ctx, int64(n)); err != nil {
		return 0, err
	}
	return time.Duration(watched.last.Load()) - begun, nil
}

// natsSleeps measures a worker that has nothing to do, in this process.
func natsSleeps(ctx context.Context, r *run, res *NATSResult) (err error) {
	r.phase("falling asleep")
	w := worker.New(r.nats.engine, worker.Config{Logger: quiet(r.o.Log)})
	for i := range natsIdleQueues {
		name := fmt.Sprint("idle-", i+1)
		if err := r.nats.engine.CreateQueue(ctx, name, posthaste.QueueOptions{}); err != nil {
			return err
		}
		worker.Handle(w, name, func(context.Context, posthaste.Delivery[json.RawMessage]) error { return nil })
	}
	var pulls atomic.Int64
	heard, err := r.nats.conn.Subscribe("$JS.API.CONSUMER.MSG.NEXT.>", func(*natsgo.Msg) { pulls.Add(1) })
	if err != nil {
		return err
	}
	defer func() { _ = heard.Unsubscribe() }()
	stop := runUntilStopped(ctx, w)
	defer func() { err = errors.Join(err, stop()) }()
	during := r.part(natsIdle)
	if err := pause(ctx, during/3); err != nil {
		return err
	}
	r.phase("counting pulls of an idle worker")
	var c natsCost
	before, begun := pulls.Load(), time.Now()
	if _, _, err := c.measured(r.nats, func() (int64, time.Duration, error) { return 1, 0, pause(ctx, during*2/3) }); err != nil {
		return err
	}
	took := time.Since(begun)
	res.IdleQueues = natsIdleQueues
	res.IdlePulls = *known(rate(pulls.Load()-before, took))
	res.IdleClientPercent = *known(100 * c.client.Seconds() / took.Seconds())
	if !c.unknown {
		res.IdleServerPercent = known(100 * c.server.Seconds() / took.Seconds())
	}
	return nil
}

// natsResult sets the figures.
func natsResult(ctx context.Context, r *run, pairs []*natsPair) error {
	res := &NATSResult{Servers: r.nats.servers}
	for _, p := range pairs {
		w := &p.result
		w.Way, w.PerSecond, w.RawPerSecond, w.Ratio = p.name, *known(median(w.Rounds)), *known(median(w.RawRounds)), known(median(p.ratios))
		w.ServerCPU, w.ClientCPU = p.ours.perMessage()
		w.RawServerCPU, w.RawClientCPU = p.its.perMessage()
		res.NATSWays = append(res.NATSWays, *w)
	}
	if r.o.Way == "" {
		if err := natsSleeps(ctx, r, res); err != nil {
			return err
		}
	}
	handled := pairs[len(pairs)-1]
	r.result.NATSResult = res
	r.result.PerSecond, r.result.Ratio, r.result.Messages = known(handled.result.PerSecond), handled.result.Ratio, handled.ours.messages
	r.result.ServerCPU, r.result.ClientCPU = handled.result.ServerCPU, handled.result.ClientCPU
	return nil
}
