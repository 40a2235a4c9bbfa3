// Package redisstream relays messages to Redis Streams and takes entries of streams into
// queues.
//
// An entry has the fields message_id, content_type and payload, and one field for each
// header.
//
// # The sink
//
// [NewSink] returns a sink. Streams do not deduplicate: consumers recognize a repeated
// message by message_id, which is the same in each entry. An attempt ends in one of these
// ways:
//
//   - The server replies to XADD, and with Replicas to WAIT: delivered. Durability
//     depends on the server: with "appendfsync always" the entry is on disk, with
//     "everysec" a crash loses up to a second, and without appendonly a crash loses everything. A server
//     whose maxmemory-policy evicts keys also evicts streams: use noeviction.
//   - The server replies with an error (OOM, READONLY, MISCONF, WRONGTYPE, NOPERM), or
//     fewer replicas than required have the entry: retried with backoff, and
//     dead-lettered after max_attempts. The error has the server's reason. Each message
//     has a reply of its own.
//   - The connection is lost before the reply: the stream may or may not have the entry,
//     so it is added again with the same message id.
//   - A template names a missing header, or the message is larger than the server's limit
//     (proto-max-bulk-len): dead-lettered at once.
//
// While the server is unreachable, loads its data or refuses the login, an attempt waits
// until the queue's timeout before it fails. Meanwhile a worker claims no more than its
// batches hold.
//
// In a Redis Cluster, each message goes to the master that has its stream. If the server
// redirects it, it follows within the same attempt. While a master is down, its messages
// wait until it is back or a replica has replaced it. A message that only the failed master
// had is lost with it, even if it was confirmed: set Replicas to the number of replicas of
// a master.
//
// # The source
//
// [NewSource] returns a source that reads a stream as a consumer of a group. See package
// source for its guarantees.
//
// An unacknowledged entry stays with the consumer that read it. A consumer that stops
// returns its entries; those of one that crashed are claimed by others after ClaimAfter.
// Entries are deduplicated by their field message_id; an entry without it, by its id in the
// stream. Acknowledgments are as durable as the server's persistence.
//
// Entries that the queue rejects for good are added to another stream, by default the same
// name with the suffix ".refused", with their fields and the reason. They are acknowledged
// once the server has replied.
//
// In a Redis Cluster, the source reads from the master that has the stream, and from its
// replacement after a failover. Acknowledgments that the replica did not have are lost;
// those entries are read again and recognized by their ids.
package redisstream

import (
	"errors"

	"github.com/posthaste-mq/posthaste"
)

// The fields of an entry beside the headers. The sink rejects a message with a header of
// such a name. The source reads an entry without a payload as a JSON object of all its
// fields.
const (
	FieldMessageID   = "message_id"
	FieldContentType = "content_type"
	FieldPayload     = "payload"
)

// reserved reports whether a field of that name is not a header.
func reserved(name string) bool {
	return name == FieldMessageID || name == FieldContentType || name == FieldPayload
}

// eventPrefix precedes the attributes of a CloudEvent in fields. CloudEvents has no binding
// to Redis; this is the prefix of the binding to Kafka.
const eventPrefix = "ce_"

// URL names the server: redis://user:password@host:6379/0, or rediss:// with TLS, with the
// number of the database. For a Redis Cluster, name several servers, separated by commas;
// one of them must answer at first. User and password are percent-encoded. Use redis://
// only on the same machine or in a trusted network, because it is unencrypted.
type URL string

// invalidURL returns the error of a URL. cause never holds a part of the URL, because any
// part may belong to a password that is not encoded.
func invalidURL(cause error) error {
	return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "url", Message: "invalid URL of the server: " + cause.Error(),
		Hint: "redis://user:password@host:6379/0 or rediss://, with special characters percent-encoded, such as / as %2F"}
}

// errAlone is the error of one of several servers that does not show their relation.
var errAlone = errors.New("the URL names several servers, but this one does not report that it is part of a cluster")
