package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

const (
	// redisShare is the part of a round in which each way empties its queue or list. Filling it
	// takes about the same time, on the engine.
	redisShare = (1 - warming) / (rounds * 6)
	// mostWaiting is the maximum of the messages that wait in memory.
	mostWaiting = 500_000
)

// way is one way to receive messages from Redis.
type way struct {
	name string
	cost cost
	// fill sends n messages, and empty receives them all and returns the time that it took.
	fill   func(ctx context.Context, n int) error
	empty  func(ctx context.Context, n int) (time.Duration, error)
	rounds []float64
}

// redisFlow empties filled queues by the runtime, which handles each message, and filled lists
// by the usual loops.
func redisFlow(ctx context.Context, r *run) error {
	var ways []*way
	for _, mode := range []posthaste.Mode{posthaste.AtLeastOnce, posthaste.AtMostOnce} {
		q := &redisQueue{run: r, name: "redis-" + string(mode), once: mode == posthaste.AtMostOnce}
		if err := r.redis.engine.CreateQueue(ctx, q.name, posthaste.QueueOptions{Mode: mode}); err != nil {
			return err
		}
		ways = append(ways, &way{name: string(mode), fill: q.fill, empty: q.empty})
	}
	l := &redisLoop{store: r.redis, work: r.redis.loopKey("work")}
	ways = append(ways, &way{name: "BLMOVE and LREM", fill: l.fill, empty: l.move}, &way{name: "BRPOP", fill: l.fill, empty: l.pop})

	r.begin()
	r.phase("warming up")
	sizes := make([]int, len(ways))
	for i, w := range ways {
		w.cost.meter = r.redis.meter
		const few = 2000
		if _, err := w.once(ctx, few); err != nil { // cold
			return err
		}
		took, err := w.once(ctx, few)
		if err != nil {
			return err
		}
		sizes[i] = min(mostWaiting, max(few, int(rate(few, took)*r.part(redisShare).Seconds())))
	}
	for round := range rounds {
		if round > 0 && r.late() {
			break
		}
		for i, w := range ways {
			r.phase(w.name)
			if err := w.fill(ctx, sizes[i]); err != nil {
				return fmt.Errorf("%s: filling: %w", w.name, err)
			}
			end := w.cost.span()
			var took time.Duration
			err := r.profiled(round == rounds-1 && i == 0, func() (err error) {
				took, err = w.empty(ctx, sizes[i])
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			end(int64(sizes[i]))
			speed := rate(int64(sizes[i]), took)
			w.rounds = append(w.rounds, speed)
			// The next round has as many messages as this rate allows.
			sizes[i] = min(mostWaiting, max(1000, int(speed*r.part(redisShare).Seconds())))
		}
	}
	redisResult(r, ways[0], ways[1], ways[2], ways[3])
	return nil
}

func (w *way) once(ctx context.Context, n int) (time.Duration, error) {
	if err := w.fill(ctx, n); err != nil {
		return 0, fmt.Errorf("%s: filling: %w", w.name, err)
	}
	took, err := w.empty(ctx, n)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", w.name, err)
	}
	return took, nil
}

func redisResult(r *run, least, most, move, pop *way) {
	res := r.result
	leastRate, mostRate, moveRate, popRate := median(least.rounds), median(most.rounds), median(move.rounds), median(pop.rounds)
	res.PerSecond, res.Ratio, res.Messages = known(leastRate), quotient(leastRate, moveRate), least.cost.messages
	least.cost.into(res)
	res.RedisResult = &RedisResult{
		AtMostOncePerSecond: *known(mostRate), BLMovePerSecond: *known(moveRate), BRPopPerSecond: *known(popRate),
		AtLeastOnceRatio: res.Ratio, AtMostOnceRatio: quotient(mostRate, popRate),
		AtMostOnceServerCPU: most.cost.serverPerMessage(), AtMostOnceClientCPU: most.cost.clientPerMessage(),
		BLMoveServerCPU: move.cost.serverPerMessage(), BLMoveClientCPU: move.cost.clientPerMessage(),
		BRPopServerCPU: pop.cost.serverPerMessage(), BRPopClientCPU: pop.cost.clientPerMessage(),
		AtLeastOnceRounds: rounded(least.rounds), AtMostOnceRounds: rounded(most.rounds),
		BLMoveRounds: rounded(move.rounds), BRPopRounds: rounded(pop.rounds),
	}
}

// redisQueue is a queue that a worker empties.
type redisQueue struct {
	run  *run
	name string
	once bool // a claim settles
}

func (q *redisQueue) fill(ctx context.Context, n int) error {
	messages := make([]posthaste.Message, min(n, 1000))
	for i := range messages {
		messages[i] = posthaste.Message{Queue: q.name, Payload: payload}
	}
	client := posthaste.NewClient(q.run.redis.engine)
	return inParallel(fillers, n, len(messages), func(_, n int) error {
		_, err := client.Send(ctx, messages[:n]...)
		return err
	})
}

// empty starts a worker and returns the time until the last of n messages was settled, or
// handled if a claim settles.
func (q *redisQueue) empty(ctx context.Context, n int) (took time.Duration, err error) {
	watched := watchSettled(q.run.redis.engine)
	w := worker.New(watched, worker.Config{Logger: quiet(q.run.o.Log)})
	var handled, last atomic.Int64
	all := make(chan struct{})
	worker.Handle(w, q.name, func(context.Context, posthaste.Delivery[json.RawMessage]) error {
		if handled.Add(1) == int64(n) {
			last.Store(int64(time.Since(epoch)))
			close(all)
		}
		return nil
	})
	begun := time.Since(epoch)
	ctx, cancel := context.WithTimeout(ctx, q.run.part(1)+q.run.o.drain)
	defer cancel()
	stop := runUntilStopped(ctx, w)
	defer func() { err = errors.Join(err, stop()) }()
	select {
	case <-all:
	case <-ctx.Done():
		return 0, fmt.Errorf("%d of %d messages were handled: %w", handled.Load(), n, ctx.Err())
	}
	if q.once {
		return time.Duration(last.Load()) - begun, nil
	}
	if err := watched.until(ctx, int64(n)); err != nil {
		return 0, err
	}
	return time.Duration(watched.last.Load()) - begun, nil
}

// redisLoop is a list that loops empty, each on its own connection.
type redisLoop struct {
	store *redisStore
	work  string
}

func (l *redisLoop) fill(ctx context.Context, n int) error {
	var sent atomic.Int64
	return inParallel(fillers, n, 1000, func(_, n int) error {
		batch := make([]any, n)
		for i := range batch { // LREM finds a message by its bytes
			number := strconv.FormatInt(sent.Add(1), 10)
			batch[i] = number + strings.Repeat("x", payloadBytes-len(number))
		}
		return l.store.client.LPush(ctx, l.work, batch...).Err()
	})
}

// move receives each message as jiggler and other reliable queues do: into a list of messages
// in progress, from which it is removed when it is done.
func (l *redisLoop) move(ctx context.Context, n int) (time.Duration, error) {
	return l.loop(n, func(i int) error {
		busy := l.store.loopKey("busy" + strconv.Itoa(i))
		m, err := l.store.client.BLMove(ctx, l.work, busy, "RIGHT", "LEFT", 10*time.Second).Result()
		if err != nil {
			return err
		}
		return l.store.client.LRem(ctx, busy, 1, m).Err()
	})
}

// pop removes each message from the list. If its process ended, the message would be lost.
func (l *redisLoop) pop(ctx context.Context, n int) (time.Duration, error) {
	return l.loop(n, func(int) error { return l.store.client.BRPop(ctx, 10*time.Second, l.work).Err() })
}

func (l *redisLoop) loop(n int, take func(i int) error) (time.Duration, error) {
	begun := time.Now()
	err := inParallel(loopConnections, n, 1, func(i, _ int) error { return take(i) })
	return time.Since(begun), err
}
