//go:build unix

package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/worker"
)

// warehouse is a store with many queues, messages and dead letters, for tests of pages.
type warehouse struct {
	*stage
	queues []string
	// named is the id of a message with a reference, story that of a dead letter with many
	// attempts, and dead those of other dead letters.
	named, story posthaste.MessageID
	dead         []posthaste.MessageID
}

// Queues of a warehouse with a purpose of their own. The others have messages that wait.
const (
	busyQueue  = "busy"  // half of all messages
	deadQueues = 20      // so many queues have dead letters
	storyQueue = "story" // one dead letter with many attempts
	doneQueue  = "done"  // a tenth of the messages was handled
)

// fill creates the queues, and sends so many messages, of which so many die.
func (s *stage) fill(queues, messages, dead int) *warehouse {
	s.Helper()
	begun := time.Now()
	w := &warehouse{stage: s, queues: []string{busyQueue, doneQueue, storyQueue}}
	s.must(s.engine.CreateQueue(s.ctx, busyQueue, posthaste.QueueOptions{}))
	s.must(s.engine.CreateQueue(s.ctx, doneQueue, posthaste.QueueOptions{}))
	s.must(s.engine.CreateQueue(s.ctx, storyQueue, posthaste.QueueOptions{MaxAttempts: 20, BackoffBase: time.Millisecond, BackoffMax: time.Millisecond}))
	for i := range queues - len(w.queues) {
		name := fmt.Sprintf("shop-%04d", i)
		s.must(s.engine.CreateQueue(s.ctx, name, posthaste.QueueOptions{MaxAttempts: 1 + i/deadQueues, Fair: i%10 == 9 && i >= deadQueues}))
		if i%10 == 5 {
			s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "test"), name, "archive", posthaste.SubscriptionOptions{}))
		}
		w.queues = append(w.queues, name)
	}
	shops := w.queues[3:]
	w.send(dead, func(i int) posthaste.Message { return letter(shops[i%deadQueues], i) })
	w.send(messages/10, func(i int) posthaste.Message { return letter(doneQueue, i) })
	w.send(1, func(i int) posthaste.Message { return letter(storyQueue, i) })
	w.handle(shops[:deadQueues], dead, messages/10)
	s.Logf("%d dead letters after %s", dead, time.Since(begun).Round(time.Second))
	w.send(messages*4/10, func(i int) posthaste.Message { return letter(shops[deadQueues+i%(len(shops)-deadQueues)], i) })
	w.send(messages*5/10, func(i int) posthaste.Message { return letter(busyQueue, i) })
	_, err := s.engine.Maintain(s.ctx, posthaste.UpkeepSpace)
	s.must(err)
	if !s.redis() { // as autovacuum does in time
		_, err := s.conn().Exec(s.ctx, "vacuum analyze")
		s.must(err)
	}
	w.examples()
	s.Logf("%d messages after %s", messages, time.Since(begun).Round(time.Second))
	return w
}

// letter is message i of a queue.
func letter(queue string, i int) posthaste.Message {
	m := posthaste.Message{Queue: queue, Kind: fmt.Sprintf("kind-%d", i%20),
		Payload: json.RawMessage(fmt.Sprintf(`{"order": %d, "customer": "customer %d", "note": "as large as a small payload is"}`, i, i%1000))}
	if i%4 == 0 {
		m.Key = fmt.Sprintf("customer-%d", i%1000)
	}
	if i%20 == 0 {
		m.Reference, m.Terms = fmt.Sprintf("%s-%d", queue, i), []string{fmt.Sprintf("mail-%d@example.com", i%5000)}
	}
	if i%100 == 50 {
		m.Delay = 24 * time.Hour
	}
	return m
}

// send sends n messages.
func (w *warehouse) send(n int, message func(i int) posthaste.Message) {
	w.Helper()
	const batch = 4000
	var next atomic.Int64
	g, ctx := errgroup.WithContext(w.ctx)
	for range 4 {
		g.Go(func() error {
			for {
				to := int(next.Add(batch))
				messages := make([]posthaste.Message, 0, batch)
				for i := to - batch; i < min(to, n); i++ {
					messages = append(messages, message(i))
				}
				if len(messages) == 0 {
					return nil
				}
				if _, err := w.engine.Send(ctx, messages...); err != nil {
					return err
				}
			}
		})
	}
	w.must(g.Wait())
}

// handle lets so many messages die, those of the queue done be done, and the story end.
func (w *warehouse) handle(dying []string, dead, done int) {
	w.Helper()
	var died, handled, tried atomic.Int64
	runs := worker.New(w.open(), worker.Config{Concurrency: 1000, Logger: slog.New(slog.DiscardHandler)})
	for _, queue := range dying {
		worker.HandleRaw(runs, queue, func(_ context.Context, d posthaste.RawDelivery) error {
			n := died.Add(1)
			return posthaste.Permanent(fmt.Errorf("order %d of customer \"%d\": card %d was declined by bank %c", n, n%1000, n%17, 'A'+n%7))
		})
	}
	worker.HandleRaw(runs, doneQueue, func(context.Context, posthaste.RawDelivery) error { handled.Add(1); return nil })
	worker.HandleRaw(runs, storyQueue, func(_ context.Context, d posthaste.RawDelivery) error {
		tried.Add(1)
		return errors.New("the bank does not answer")
	})
	stop := w.run(runs)
	later := int64(done / 100) // those with a due time
	w.until("messages are dead or done", func() bool {
		return died.Load() >= int64(dead-dead/100) && handled.Load() >= int64(done)-later && tried.Load() >= 20
	})
	stop()
}

// examples looks for messages to show.
func (w *warehouse) examples() {
	w.Helper()
	found, err := w.engine.Messages(w.ctx, posthaste.MessageFilter{Queue: busyQueue, Reference: busyQueue + "-400"})
	w.must(err)
	w.named = found.Items[0].ID
	letters, err := w.engine.DeadLetters(w.ctx, posthaste.DeadLetterFilter{Queue: storyQueue})
	w.must(err)
	w.story = letters.Items[0].ID
	letters, err = w.engine.DeadLetters(w.ctx, posthaste.DeadLetterFilter{Queue: w.queues[3], Limit: 100})
	w.must(err)
	for _, d := range letters.Items {
		w.dead = append(w.dead, d.ID)
	}
}
