// Package kafka relays messages to Kafka and takes records of Kafka topics into queues.
//
// # The sink
//
// [NewSink] returns a sink that produces messages with an idempotent producer. A message
// is delivered once all in-sync replicas have acknowledged it (acks=all).
//
// The message id is sent as record header message-id, the content type as content-type.
// The record's key is the message's key. It selects the partition the way the Java
// client does. Records without a key are spread over the partitions.
//
// An attempt ends in one of these ways:
//
//   - The brokers acknowledge the record: delivered. If the connection is lost before
//     that, the producer repeats the record, and the broker does not store it twice.
//   - The topic does not exist, the user may not write to it, or the topic refuses the
//     record: retried with backoff, and dead-lettered after max_attempts. The error
//     has the broker's reason.
//   - The attempt times out: the topic may or may not have the record, so it is produced
//     again with the same message id.
//   - The topic name is invalid, a template names a missing header, or the record is
//     larger than MaxMessageBytes or the topic's limit: dead-lettered at once.
//
// While the brokers are unreachable, refuse the login, or have fewer in-sync replicas
// than the topic requires (min.insync.replicas), an attempt waits until the queue's
// timeout before it fails. Meanwhile a worker claims no more than its batches hold.
//
// Brokers refuse records by the batch, and a batch can hold records of several messages.
// The sink produces the records of a refused batch once more, one by one, so that each
// message gets its own result.
//
// # The source
//
// [NewSource] returns a source that reads a topic as a member of a consumer group. See
// package source for its guarantees.
//
// Offsets are committed after the send has committed, per partition, and only up to the
// first record that is not yet in the queue. The records of a partition are stored in
// order. Records are deduplicated by their header message-id; a record without it, by
// topic, partition and offset.
//
// Records that the queue rejects for good are produced to another topic, by default the
// same name with the suffix ".refused", with their key, their headers and the reason.
// Their offsets are committed once all in-sync replicas have acknowledged that.
package kafka

import (
	"context"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/posthaste-mq/posthaste"
)

// Record headers that hold the message id and the content type. Headers of the message
// or its mapping cannot replace them.
const (
	HeaderMessageID   = "message-id"
	HeaderContentType = "content-type"
)

// reserved reports whether a record header of that name is not a header of the message.
func reserved(name string) bool { return name == HeaderMessageID || name == HeaderContentType }

// eventPrefix precedes the attributes of a CloudEvent in record headers, as the Kafka
// protocol binding of CloudEvents specifies.
const eventPrefix = "ce_"

// checkTopic returns an Invalid error unless a topic can have this name.
func checkTopic(topic string) error {
	if topic != "" && topic != "." && topic != ".." && len(topic) <= 249 && !strings.ContainsFunc(topic, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
	}) {
		return nil
	}
	if len(topic) > 100 {
		topic = topic[:100] + "…"
	}
	return posthaste.Invalidf("topic", "invalid topic %q: a topic has 1 to 249 letters, digits, dots, dashes and underscores", topic)
}

// describeTopic returns the brokers' metadata of a topic, and their error for it.
func describeTopic(ctx context.Context, client *kgo.Client, name string) (*kmsg.MetadataResponseTopic, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{{Topic: &name}}
	answer, err := request.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	if len(answer.Topics) != 1 {
		return nil, kerr.UnknownTopicOrPartition
	}
	return &answer.Topics[0], kerr.ErrorForCode(answer.Topics[0].ErrorCode)
}

// brokerError returns an error with the brokers' addresses.
func brokerError(address string, err error) error { return fmt.Errorf("kafka at %s: %w", address, err) }
