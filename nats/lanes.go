package nats

// Each subscription has a consumer for each lane of its queue. The lanes of an ordered queue are its
// partitions, over which the keys are spread. Those of another queue are the priorities in use.

import (
	"hash/fnv"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
)

// consumersOf returns the consumers that deliver the messages of a subscription. Each has two literal
// filters: the messages of its lane for all subscriptions, and the retries and copies for this one.
func (q *queue) consumersOf(s *subscription) (all []jetstream.ConsumerConfig) {
	common := jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, AckWait: s.AckWait, MaxAckPending: -1, MaxDeliver: -1}
	if s.Name != posthaste.DefaultSubscription && s.From != posthaste.FromOldest {
		common.DeliverPolicy = jetstream.DeliverNewPolicy
	}
	if q.Options.Ordered {
		common.MaxAckPending = 1 // one message of a partition at a time
	}
	for _, lane := range q.lanes() {
		c := common
		c.Durable = q.consumer(s.Name, lane)
		c.FilterSubjects = []string{q.laneSubject(lane), q.subjects.under("r", subjectToken(s.Name), strconv.Itoa(lane))}
		all = append(all, c)
	}
	return all
}

// laneSubject returns the subject of the messages of a lane that wait for all subscriptions.
func (q *queue) laneSubject(lane int) string {
	if q.Options.Ordered {
		return q.subjects.under("o", strconv.Itoa(lane))
	}
	return q.subjects.under("q", strconv.Itoa(lane))
}

// lanes returns the lanes of the queue. Those that are priorities come most urgent first.
func (q *queue) lanes() []int {
	if !q.Options.Ordered {
		return q.priorities()
	}
	all := make([]int, q.partitions())
	for i := range all {
		all[i] = i
	}
	return all
}

// priorities returns the priorities that have consumers.
func (q *queue) priorities() []int { return append([]int{0}, q.Priorities...) }

// partitions returns the number of partitions of an ordered queue.
func (q *queue) partitions() int { return q.Options.Lanes }

// partition returns the partition of a key in an ordered queue.
func (q *queue) partition(key string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() % uint32(q.partitions()))
}

// laneOf returns the lane of a message: its priority, or the partition of its key.
func (q *queue) laneOf(m *meta) int {
	if q.Options.Ordered {
		return q.partition(m.Key)
	}
	return m.Priority
}

// consumer returns the name of the consumer of a lane.
func (q *queue) consumer(subscription string, lane int) string {
	return "sub-" + subjectToken(subscription) + "-" + strconv.Itoa(lane)
}

// deliverers returns the names of the consumers that deliver messages.
func (q *queue) deliverers() (names []string) {
	for _, s := range q.Subscriptions {
		for _, lane := range q.lanes() {
			names = append(names, q.consumer(s.Name, lane))
		}
	}
	return names
}

// waitSubject returns the subject of a message that waits for all subscriptions.
func (q *queue) waitSubject(m *meta) string { return q.laneSubject(q.laneOf(m)) }
