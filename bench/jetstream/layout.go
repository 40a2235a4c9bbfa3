package main

import (
	"context"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A layout is how a queue lies in its stream: the retention, the subjects and the consumers.
type layout struct {
	retention jetstream.RetentionPolicy
	// filters are the literal subjects of the workers' consumer. Messages are sent to the first.
	filters []string
	// others are the subjects that no worker takes.
	others []string
	// keepers are filters of consumers that are never pulled. Without one, a stream with
	// interest retention drops a schedule, a dead letter or a record at once.
	keepers []string
	// retry is the prefix of a retry's schedule, and target its subject when it is due.
	retry, target string
}

// layoutOf returns the layout of a queue whose subjects start with prefix.
func layoutOf(prefix string, interest bool) layout {
	queue, lying := prefix+"q.1", prefix+"s."
	if !interest {
		return layout{retention: jetstream.WorkQueuePolicy, filters: []string{queue},
			others: []string{prefix + "i.*", lying + "*", prefix + "r.*"}, retry: prefix + "r.", target: queue}
	}
	retried, kept := prefix+"r.default.1", []string{lying + ">", prefix + "d.>", prefix + "i.>"}
	return layout{retention: jetstream.InterestPolicy, filters: []string{queue, retried},
		others: kept, keepers: kept, retry: lying + "r.", target: retried}
}

// stream completes the configuration of a stream.
func (l layout) stream(c jetstream.StreamConfig) jetstream.StreamConfig {
	c.Retention, c.Replicas, c.Storage = l.retention, servers, jetstream.FileStorage
	c.Subjects = append(append([]string{}, l.filters...), l.others...)
	return c
}

// consumers makes the workers' consumer and the keepers.
func (l layout) consumers(ctx context.Context, s jetstream.Stream, ackWait time.Duration, pending int) (jetstream.Consumer, error) {
	for i, filter := range l.keepers {
		if _, err := s.CreateConsumer(ctx, jetstream.ConsumerConfig{Durable: "keeper" + strconv.Itoa(i),
			FilterSubject: filter, AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
			return nil, err
		}
	}
	c := jetstream.ConsumerConfig{Durable: consumerName, AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait,
		MaxAckPending: pending, MaxDeliver: -1}
	if len(l.filters) == 1 {
		c.FilterSubject = l.filters[0]
	} else {
		c.FilterSubjects = l.filters
	}
	return s.CreateConsumer(ctx, c)
}
