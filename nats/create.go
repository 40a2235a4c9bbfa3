package nats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
)

// duplicateWindow covers the repetitions of a send by the same call: see storeOne.
const duplicateWindow = 2 * time.Minute

// CreateQueue implements [posthaste.QueueAdmin].
func (e *Engine) CreateQueue(ctx context.Context, name string, options posthaste.QueueOptions) error {
	if err := posthaste.CheckName("name", name); err != nil {
		return err
	}
	wanted := options
	if err := options.Complete(); err != nil {
		return err
	}
	if err := checkOptions(&options); err != nil {
		return err
	}
	if err := e.ready(ctx); err != nil {
		return err
	}
	for {
		q, err := e.freshQueue(ctx, name)
		if err == nil {
			return checkSameOptions(q, wanted)
		}
		if posthaste.CodeOf(err) != posthaste.CodeNotFound {
			return err
		}
		q, err = e.beginQueue(ctx, name, options)
		if conflicts(err) {
			continue // another process creates it
		}
		if err != nil {
			return e.readError(err)
		}
		if err := e.completeQueue(ctx, q); err != nil {
			return err
		}
	}
}

// beginQueue stores the entry of a new queue, which is not ready yet. If another process has begun the
// queue, which may have been killed, it returns that entry.
func (e *Engine) beginQueue(ctx context.Context, name string, options posthaste.QueueOptions) (*queue, error) {
	q := &queue{Name: name, Options: options, CreatedAt: e.clock.now(), subjects: e.subjectsOf(name),
		Subscriptions: []subscription{{Name: posthaste.DefaultSubscription, CreatedAt: e.clock.now(), AckWait: e.ackWait}}}
	entry, err := e.kv.Get(ctx, queueKey+subjectToken(name))
	switch {
	case err == nil:
		begun, err := e.readQueue(entry) // its options are those of the process that began it
		if err != nil || !begun.Dropping {
			return begun, err
		}
		if err := e.finishDrop(ctx, begun); err != nil {
			return nil, err
		}
		return nil, jetstream.ErrKeyExists // look again
	case !errors.Is(err, jetstream.ErrKeyNotFound):
		return nil, err
	}
	if q.No, err = e.takeNumber(ctx, name); err != nil {
		return nil, err
	}
	if q.Born, err = e.sequence(ctx); err != nil {
		return nil, err
	}
	q.stream = e.streamOf(name, q.Born)
	body, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	q.revision, err = e.kv.Create(ctx, queueKey+subjectToken(name), body)
	return q, err
}

// takeNumber takes the lowest free number. A process that is killed before it stores the queue leaves its
// number taken, until a queue of that name is created.
func (e *Engine) takeNumber(ctx context.Context, name string) (int, error) {
	keys, err := e.kv.ListKeysFiltered(ctx, "number.>")
	if err != nil {
		return 0, err
	}
	taken := map[string]bool{}
	for key := range keys.Keys() {
		taken[key] = true
	}
	for no := 1; no <= maxQueues; no++ {
		key := "number." + strconv.Itoa(no)
		if taken[key] {
			if entry, err := e.kv.Get(ctx, key); err == nil && string(entry.Value()) == name {
				return no, nil
			}
			continue
		}
		if _, err := e.kv.Create(ctx, key, []byte(name)); err == nil {
			return no, nil
		} else if !errors.Is(err, jetstream.ErrKeyExists) {
			return 0, err
		}
	}
	return 0, unsupported("queue", "more than %d queues are not supported", maxQueues)
}

// completeQueue makes the stream and its consumers, and then stores that the queue is ready.
func (e *Engine) completeQueue(ctx context.Context, q *queue) error {
	if err := e.ensureStream(ctx, e.queueStream(q)); err != nil {
		return err
	}
	if err := e.ensureConsumers(ctx, q); err != nil {
		return err
	}
	next := *q
	next.Ready = true
	_, err := e.putQueue(ctx, &next)
	if conflicts(err) { // another process completed it
		return nil
	}
	if err != nil {
		return e.readError(err)
	}
	return e.record(ctx, "create", q.Name, 0, nil)
}

func (e *Engine) queueStream(q *queue) jetstream.StreamConfig {
	return jetstream.StreamConfig{Name: q.stream, Subjects: []string{q.subjects.under(">")}, Retention: jetstream.InterestPolicy, Replicas: e.replicas, Storage: jetstream.FileStorage,
		Duplicates: duplicateWindow, AllowMsgTTL: true, AllowAtomicPublish: true, AllowMsgSchedules: true, AllowDirect: true, AllowRollup: true,
		Description: fmt.Sprintf("posthaste queue %s", q.Name)}
}

// keepers are consumers from which no process pulls. Without them the stream, which has interest retention,
// would not store entries on their subjects. The counts of the first two are those of scheduled messages
// and retries, and of dead letters.
var keepers = map[string]string{"keep-s": "s.>", "keep-d": "d.>", "keep-i": "i.>", "keep-n": "n.>"}

// ensureConsumers makes the consumers of a queue that do not exist.
func (e *Engine) ensureConsumers(ctx context.Context, q *queue) error {
	for name, filter := range keepers {
		c := jetstream.ConsumerConfig{Durable: name, FilterSubject: q.subjects.under(filter), AckPolicy: jetstream.AckExplicitPolicy}
		if err := e.ensureConsumer(ctx, q, c); err != nil {
			return err
		}
	}
	for i := range q.Subscriptions {
		for _, c := range q.consumersOf(&q.Subscriptions[i]) {
			if err := e.ensureConsumer(ctx, q, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *Engine) ensureConsumer(ctx context.Context, q *queue, c jetstream.ConsumerConfig) error {
	_, err := e.js.Consumer(ctx, q.stream, c.Durable)
	if !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return e.readError(err)
	}
	c.Replicas = 0 // as the stream
	if _, err = e.js.CreateConsumer(ctx, q.stream, c); errors.Is(err, jetstream.ErrConsumerExists) {
		return nil
	}
	return e.readError(err)
}

// ensurePriority makes the consumers of a priority before the first message with it is sent, because the
// stream would not store that otherwise.
func (e *Engine) ensurePriority(ctx context.Context, q *queue, priority int) (*queue, error) {
	if priority == 0 || slices.Contains(q.Priorities, priority) {
		return q, nil
	}
	// The consumers of all subscriptions are made before the entry is stored, which fails if a subscription
	// was added meanwhile. So a process that reads the priority in the entry can rely on its consumers.
	return e.changeQueue(ctx, q.Name, func(q *queue) (bool, error) {
		if slices.Contains(q.Priorities, priority) {
			return false, nil
		}
		q.Priorities = append(q.Priorities, priority)
		slices.Sort(q.Priorities)
		return true, e.ensureConsumers(ctx, q)
	})
}

// checkSameOptions returns an error if an existing queue has other options than the wanted ones.
func checkSameOptions(q *queue, wanted posthaste.QueueOptions) error {
	if differences := q.Options.Differences(wanted); len(differences) > 0 {
		return posthaste.ConflictError(q.Name, differences)
	}
	return nil
}

// UpdateQueue implements [posthaste.QueueAdmin].
func (e *Engine) UpdateQueue(ctx context.Context, name string, update posthaste.QueueUpdate) error {
	if err := posthaste.CheckName("queue", name); err != nil {
		return err
	}
	var changes []posthaste.OptionChange
	_, err := e.changeQueue(ctx, name, func(q *queue) (bool, error) {
		next, differences, err := update.Apply(name, q.Options)
		if err != nil {
			return false, err
		}
		if err := checkOptions(&next); err != nil {
			return false, err
		}
		if q.Options.Ordered && next.Lanes != q.Options.Lanes {
			return false, unsupported("lanes", "the lanes of an ordered queue cannot be changed")
		}
		q.Options, changes = next, differences
		return len(changes) > 0, nil
	})
	if err != nil || len(changes) == 0 {
		return err
	}
	return e.record(ctx, "update", name, 0, posthaste.ChangeDetails(changes))
}
