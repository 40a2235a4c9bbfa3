package bench

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/kafka"
)

// kafkaPartitions is the number of partitions of the topic, and of connections at most.
const kafkaPartitions = 4

// kafkaPlace is a topic of Kafka.
type kafkaPlace struct {
	url     string
	options []kgo.Opt
	client  *kgo.Client
}

func openKafka(ctx context.Context, _ *run, url string) (place, error) {
	options, err := kafka.URL(url).ClientOptions("posthaste-bench")
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, notUsed(err)
	}
	if err := client.Ping(ctx); err != nil {
		client.Close()
		return nil, notUsed(err)
	}
	return &kafkaPlace{url, options, client}, nil
}

// remove deletes the topic if it exists.
func (p *kafkaPlace) remove(ctx context.Context) error {
	topic, request := relayPlace, kmsg.NewPtrDeleteTopicsRequest()
	request.TimeoutMillis = 10_000
	request.TopicNames, request.Topics = []string{topic}, []kmsg.DeleteTopicsRequestTopic{{Topic: &topic}}
	answer, err := request.RequestWith(ctx, p.client)
	if err == nil {
		err = kerr.ErrorForCode(answer.Topics[0].ErrorCode)
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return nil
	}
	return err
}

func (p *kafkaPlace) fresh(ctx context.Context) error {
	if err := p.remove(ctx); err != nil {
		return err
	}
	request := kmsg.NewPtrCreateTopicsRequest()
	request.TimeoutMillis = 10_000
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = relayPlace, kafkaPartitions, -1
	request.Topics = []kmsg.CreateTopicsRequestTopic{topic}
	return p.eventually(ctx, kerr.TopicAlreadyExists, func() error { // until it is deleted
		answer, err := request.RequestWith(ctx, p.client)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(answer.Topics[0].ErrorCode)
	})
}

// eventually repeats do while it fails with a temporary error.
func (p *kafkaPlace) eventually(ctx context.Context, passes error, do func() error) error {
	for {
		err := do()
		if !errors.Is(err, passes) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *kafkaPlace) count(ctx context.Context) (n int64, err error) {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = relayPlace
	for i := range int32(kafkaPartitions) {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = i, -1 // its end
		topic.Partitions = append(topic.Partitions, partition)
	}
	request.Topics = []kmsg.ListOffsetsRequestTopic{topic}
	answer, err := request.RequestWith(ctx, p.client)
	if err != nil {
		return 0, err
	}
	for _, t := range answer.Topics {
		for _, partition := range t.Partitions {
			if err := kerr.ErrorForCode(partition.ErrorCode); err != nil {
				return 0, err
			}
			n += partition.Offset
		}
	}
	return n, nil
}

func (p *kafkaPlace) sink(log *slog.Logger) (posthaste.Sink, error) {
	return kafka.NewSink(kafka.SinkConfig{URL: kafka.URL(p.url), Topic: relayPlace, Logger: log})
}

func (p *kafkaPlace) close() {
	ctx, cancel := context.WithTimeout(context.Background(), clearing)
	defer cancel()
	_ = p.remove(ctx)
	p.client.Close()
}

type kafkaPublisher struct{ client *kgo.Client }

// publisher returns an idempotent producer with the default acknowledgment of all in-sync
// replicas.
func (p *kafkaPlace) publisher(_ context.Context, window int) (publisher, error) {
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.DefaultProduceTopic(relayPlace), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.MaxBufferedRecords(window), kgo.UnknownTopicRetries(-1)}, p.options...)...)
	if err != nil {
		return nil, err
	}
	return kafkaPublisher{client}, nil
}

func (p kafkaPublisher) close() { p.client.Close() }

func (p kafkaPublisher) publish(ctx context.Context, until time.Time) (int64, error) {
	var published atomic.Int64
	var fault atomic.Pointer[error]
	confirmed := func(_ *kgo.Record, err error) {
		if err != nil {
			fault.CompareAndSwap(nil, &err)
		} else {
			published.Add(1)
		}
	}
	for n := 0; time.Now().Before(until) && fault.Load() == nil; n++ {
		p.client.Produce(ctx, &kgo.Record{Value: payload, Headers: []kgo.RecordHeader{{Key: kafka.HeaderMessageID, Value: []byte(strconv.Itoa(n))},
			{Key: kafka.HeaderContentType, Value: []byte(posthaste.ContentTypeJSON)}, {Key: "posthaste-queue", Value: []byte("relay")}}}, confirmed)
	}
	if err := p.client.Flush(ctx); err != nil {
		return 0, err
	}
	if err := fault.Load(); err != nil {
		return 0, *err
	}
	return published.Load(), nil
}
