package kafka

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/posthaste-mq/posthaste/broker/brokertest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/sink/sinktest"
)

// broker is shared by tests that use topics of their own in it and do not stop it.
var broker *devbroker.Kafka

// certificates are the certificates of broker.
var certificates *devbroker.Certificates

func TestMain(m *testing.M) {
	devbroker.MainTLS(m, &broker, &certificates, func(ctx context.Context, dir string, c *devbroker.Certificates) (*devbroker.Kafka, error) {
		return devbroker.StartKafkaTLS(ctx, dir, c, "group.initial.rebalance.delay.ms=0")
	})
}

// names numbers the topics of tests.
var names atomic.Int64

// until waits for a condition.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	testrun.Until(t, time.Minute, what, done)
}

// createTopic creates a topic and waits until the broker has heard of it from the controller.
// settings are names and values.
func createTopic(t *testing.T, client *kgo.Client, name string, partitions int, settings ...string) {
	t.Helper()
	request := kmsg.NewPtrCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, int32(partitions), 1
	for i := 0; i < len(settings); i += 2 {
		topic.Configs = append(topic.Configs, kmsg.CreateTopicsRequestTopicConfig{Name: settings[i], Value: &settings[i+1]})
	}
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(t.Context(), client)
	if err == nil {
		err = kerr.ErrorForCode(answer.Topics[0].ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the broker has the topic", func() bool {
		known, err := describeTopic(t.Context(), client, name)
		return err == nil && len(known.Partitions) == partitions &&
			!slices.ContainsFunc(known.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.ErrorCode != 0 })
	})
}

// endOffset returns the offset after the last record of a partition.
func endOffset(ctx context.Context, t *testing.T, client *kgo.Client, topic string, number int32) int64 {
	t.Helper()
	list := kmsg.NewPtrListOffsetsRequest()
	partition := kmsg.NewListOffsetsRequestTopicPartition()
	partition.Partition, partition.Timestamp = number, -1
	list.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: topic, Partitions: []kmsg.ListOffsetsRequestTopicPartition{partition}}}
	answer, err := list.RequestWith(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	return answer.Topics[0].Partitions[0].Offset
}

// sinkTopic is a topic of one test and the records in it.
type sinkTopic struct {
	t      *testing.T
	name   string
	client *kgo.Client
	proxy  *faultproxy.Proxy

	mu      sync.Mutex
	records []*kgo.Record
}

// isProduce reports whether data of a connection begins with a request to produce.
func isProduce(piece []byte) bool {
	return len(piece) > 8 && piece[4] == 0 && piece[5] == 0 && piece[6] == 0
}

// newSinkTopic creates a topic.
func newSinkTopic(t *testing.T, partitions int, settings ...string) *sinkTopic {
	t.Helper()
	return newSinkTopicOn(t, broker, partitions, settings...)
}

func newSinkTopicOn(t *testing.T, broker *devbroker.Kafka, partitions int, settings ...string) *sinkTopic {
	t.Helper()
	o := &sinkTopic{t: t, name: fmt.Sprint("t", names.Add(1)), proxy: faultproxy.Start(t, broker.Address(), isProduce)}
	var err error
	if o.client, err = kgo.NewClient(kgo.SeedBrokers(broker.Address()), kgo.ConsumeTopics(o.name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.MetadataMinAge(50*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.client.Close)
	if partitions > 0 {
		createTopic(t, o.client, o.name, partitions, settings...)
	}
	return o
}

func (o *sinkTopic) sink(change func(*SinkConfig)) *Sink {
	o.t.Helper()
	return sinktest.Open(o.t, NewSink, SinkConfig{URL: URL("kafka://" + o.proxy.Address()), Topic: o.name, dial: dialing(o.proxy)}, change)
}

// dialing returns a function that connects to a proxy, because the broker tells clients its own
// address.
func dialing(proxy *faultproxy.Proxy) func(ctx context.Context, network, _ string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, proxy.Address())
	}
}

// all returns the records that have arrived so far.
func (o *sinkTopic) all() []*kgo.Record {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	known, err := describeTopic(ctx, o.client, o.name)
	if err != nil {
		o.t.Fatal(err)
	}
	var end int64
	for _, p := range known.Partitions {
		end += endOffset(ctx, o.t, o.client, o.name, p.Partition)
	}
	for int64(len(o.records)) < end {
		fetched := o.client.PollFetches(ctx)
		if ctx.Err() != nil {
			o.t.Fatalf("%d of %d records arrived", len(o.records), end)
		}
		o.records = append(o.records, fetched.Records()...)
	}
	return o.records
}

func header(r *kgo.Record, name string) (value string) {
	for _, h := range r.Headers {
		if h.Key == name {
			value += string(h.Value)
		}
	}
	return value
}

func (o *sinkTopic) count(n int) int {
	return brokertest.Count(o.all(), n, func(r *kgo.Record) string { return header(r, HeaderMessageID) })
}
