package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

const (
	// loopConnections is how many connections the loops of scenario redis have.
	loopConnections = 50
	// redisShare is the part of a round that each way takes to empty what waits.
	// Filling takes as long again, on the engine.
	redisShare = (1 - warming) / (rounds * 6)
	// mostWaiting bounds what waits in memory.
	mostWaiting = 500_000
)

// way is one way to take what waits in Redis.
type way struct {
	name string
	cost cost
	// fill lets n messages wait, and empty takes them all and tells how long that took.
	fill   func(ctx context.Context, n int) error
	empty  func(ctx context.Context, n int) (time.Duration, error)
	rounds []float64
}

// redisFlow empties queues that were filled beforehand: by the runtime, which
// handles each message, and by the loops that are usual.
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
			// Rates of few messages say little: the next round has more, or fewer.
			sizes[i] = min(mostWaiting, max(1000, int(speed*r.part(redisShare).Seconds())))
		}
	}
	r.redisResult(ways[0], ways[1], ways[2], ways[3])
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

func (r *run) redisResult(least, most, move, pop *way) {
	res := r.result
	leastRate, mostRate, moveRate, popRate := median(least.rounds), median(most.rounds), median(move.rounds), median(pop.rounds)
	res.PerSecond, res.Ratio, res.Messages = known(leastRate), quotient(leastRate, moveRate), least.cost.messages
	res.ServerCPU, res.ClientCPU = least.cost.serverPerMessage(), least.cost.clientPerMessage()
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

// redisQueue is a queue that the runtime empties.
type redisQueue struct {
	run  *run
	name string
	once bool // handing out settles
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

// empty starts a worker and takes the time until the last of n messages was settled,
// or handled where handing out settles.
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
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(running) }()
	defer func() { stop(); err = errors.Join(err, <-ended) }()
	select {
	case <-all:
	case <-ctx.Done():
		return 0, fmt.Errorf("%d of %d messages were handled: %w", handled.Load(), n, ctx.Err())
	}
	if q.once {
		return time.Duration(last.Load()) - begun, nil
	}
	for watched.count.Load() < int64(n) {
		select {
		case <-watched.changed:
		case <-ctx.Done():
			return 0, fmt.Errorf("%d of %d messages were settled: %w", watched.count.Load(), n, ctx.Err())
		}
	}
	return time.Duration(watched.last.Load()) - begun, nil
}

// redisLoop is a list that loops empty, each on a connection of its own.
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

// move takes each message as jiggler and others do that lose none: into a list of
// what is being worked on, and out of it when it is done.
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

// pop takes each message off the list, and loses it with its process.
func (l *redisLoop) pop(ctx context.Context, n int) (time.Duration, error) {
	return l.loop(n, func(int) error { return l.store.client.BRPop(ctx, 10*time.Second, l.work).Err() })
}

func (l *redisLoop) loop(n int, take func(i int) error) (time.Duration, error) {
	begun := time.Now()
	err := inParallel(loopConnections, n, 1, func(i, _ int) error { return take(i) })
	return time.Since(begun), err
}

// inParallel calls once from several goroutines, each with its number and at most batch
// of what is left of n, until nothing is left or a call failed.
func inParallel(goroutines, n, batch int, once func(i, n int) error) error {
	var wait sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(n))
	faults := make([]error, goroutines)
	for i := range goroutines {
		wait.Go(func() {
			for faults[i] == nil {
				some := min(int64(batch), left.Add(-int64(batch))+int64(batch))
				if some <= 0 {
					return
				}
				faults[i] = once(i, int(some))
			}
		})
	}
	wait.Wait()
	return errors.Join(faults...)
}
