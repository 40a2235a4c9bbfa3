// Package nats relays messages to streams of NATS JetStream and takes messages of such
// streams into queues.
//
// # The sink
//
// [NewSink] returns a sink. A message is delivered once a stream has acknowledged it. An
// attempt ends in one of these ways:
//
//   - The stream acknowledges: delivered. A replicated stream does so once a majority of
//     its replicas has the message.
//   - No stream takes the subject, the stream is full or rejects it, or the user may not
//     publish to the subject: retried with backoff, and dead-lettered after max_attempts.
//     The error has the server's reason.
//   - The connection is lost before the acknowledgment: the stream may or may not have
//     the message, so it is published again with the same message id.
//   - NATS cannot carry the subject or a header, a template names a missing header, or
//     the message is larger than the server's or the stream's limit: dead-lettered at
//     once.
//
// While the server is unreachable or refuses the login, an attempt waits until the
// queue's timeout before it fails. Meanwhile a worker claims no more than its batches
// hold.
//
// # Deduplication by the stream
//
// The message id is sent as Nats-Msg-Id. A stream drops a message whose id it has stored
// within its duplicate window (duplicate_window, 2 minutes by default), and acknowledges
// it nevertheless. A message that is published again within the window is therefore
// stored once; later than that, it may be stored twice. Make the window longer than the
// queue's timeout and its first backoffs together.
//
// Message ids are unique in one database. If several databases, or several subscriptions
// of one queue, relay to one stream, make their ids distinct with the MessageID of
// [relay.Mapping], such as "orders-{{.MessageID}}". Otherwise the stream drops a message
// as the duplicate of another one. The same applies to replayed messages within the
// window. The sink logs when a stream drops a first attempt.
//
// # The source
//
// [NewSource] returns a source that reads a stream with a durable pull consumer. See
// package source for its guarantees.
//
// Messages are deduplicated by their header Nats-Msg-Id; a message without it, by its
// sequence in the stream. A delivered message that is not acknowledged is redelivered: at
// once if the source stops or reconnects, and otherwise after the consumer's AckWait,
// such as after a crash or if the message was in flight on a lost connection. AckWait is
// 30 seconds if the source creates the consumer. The source extends it for messages that
// it holds.
//
// Messages that the queue rejects for good are published to another subject with their
// headers and the reason, and acknowledged once a stream has them. If message and reason
// together are larger than the server or the stream allows, the message is published
// unchanged, and the reason after it in a message of its own, whose header
// [HeaderRefusedAt] says where the message is.
package nats

import (
	"errors"
	"strings"
	"unicode/utf8"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Headers beside those of NATS and of package relay.
const (
	// HeaderContentType holds the content type of a message.
	HeaderContentType = "content-type"
	// HeaderRefusedAt says where a refused message is that was published without the
	// reason, as "STREAM/SEQUENCE".
	HeaderRefusedAt = "posthaste-refused-at"
)

// eventPrefix precedes the attributes of a CloudEvent in headers, as the NATS protocol
// binding of CloudEvents specifies.
const eventPrefix = "ce-"

// commandPrefix precedes the names of headers that are commands to the server.
const commandPrefix = "Nats-"

// notInNames are characters that names of streams and consumers cannot have.
const notInNames = " \t\r\n.*>/\\"

// plainSubject reports whether a text is a subject without wildcards.
func plainSubject(subject string) bool {
	if !utf8.ValidString(subject) || strings.ContainsFunc(subject, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return false
	}
	for token := range strings.SplitSeq(subject, ".") {
		if token == "" || token == "*" || token == ">" {
			return false
		}
	}
	return true
}

// withoutJetStream reports whether an error says that JetStream is not available, for
// which hintJetStream is the hint.
func withoutJetStream(err error) bool {
	return errors.Is(err, natsgo.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount)
}

const hintJetStream = "start the server with JetStream (nats-server --jetstream), and enable it for the user's account"
