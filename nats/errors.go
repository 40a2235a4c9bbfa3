package nats

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

// Codes of the server's errors.
const (
	codeNoMessage         = 10037
	codeNoSequence        = 10043
	codeWrongStream       = 10060 // another stream has the subject: the queue was dropped and created again
	codeWrongLastSequence = 10071 // the subject's last message is another one: a record exists
	codeMayYetFail        = 10164 // a conflict with a write that can still fail: repeat
	codeIncomplete        = 10176 // the first parts of a batch went to a leader before this one
	codeInProcess         = 10158 // a message with this id is being stored, by an attempt before

	codeAccountFull = 10002 // the account's limit of storage is reached
	codeServersFull = 10023 // that of the servers
	codeServerFull  = 10047
	codeStoreFailed = 10077 // the disk is full, among other causes
)

// isFull reports whether the servers have rejected a write because their storage is full.
func isFull(err error) bool {
	var api jetstream.JetStreamError
	if !errors.As(err, &api) || api.APIError() == nil {
		return false
	}
	switch api.APIError().ErrorCode {
	case codeAccountFull, codeServersFull, codeServerFull, codeStoreFailed:
		return true
	}
	return false
}

func unavailable(what string, cause error) error {
	if cause != nil {
		what += ": " + cause.Error()
	}
	return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: what, Cause: cause, Hint: "check that the NATS servers run, that a majority of them can be reached, and that their disks have room"}
}

func outcomeUnknown(cause error) error {
	return &posthaste.Error{Code: posthaste.CodeOutcomeUnknown, Message: "no majority of the NATS servers has answered, so the operation may or may not have happened: " + cause.Error(), Cause: cause,
		Hint: "repeat it with an idempotency key or a dedupe key, or look for the message; check that a majority of the servers can be reached, and that their disks have room"}
}

func unsupported(field, format string, args ...any) error {
	return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: field, Message: fmt.Sprintf(format, args...) + " on NATS",
		Hint: "see the differences in docs/production/nats-engine.md, or use PostgreSQL or Redis"}
}

func notFound(field, format string, args ...any) error {
	return &posthaste.Error{Code: posthaste.CodeNotFound, Field: field, Message: fmt.Sprintf(format, args...)}
}

func noQueue(name string) error {
	return notFound("queue", "queue %s does not exist", quoted(name))
}

// errWrongStream is the cause of the error of a write for a queue that was dropped and created again.
var errWrongStream = &jetstream.APIError{ErrorCode: codeWrongStream}

// wasReplaced reports whether a write failed because another queue has the name of its queue now.
func wasReplaced(err error) bool { return errors.Is(err, errWrongStream) }

// errUnsubscribed says that a delivery ended with its subscription.
var errUnsubscribed = errors.New("nats: the subscription was removed")

// endedDelivery reports whether a delivery ended with its queue or its subscription.
func endedDelivery(err error) bool { return wasReplaced(err) || errors.Is(err, errUnsubscribed) }

// readError returns the error of a call that reads, or that may be repeated. If the servers do not answer,
// it also looks for a server that does, see leaveIfCutOff.
func (e *Engine) readError(err error) error {
	var api jetstream.JetStreamError
	switch {
	case err == nil:
		return nil
	case posthaste.CodeOf(err) != "":
		return err
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, natsgo.ErrPermissionViolation):
		return denied(err)
	case errors.Is(err, natsgo.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, natsgo.ErrTimeout), errors.Is(err, context.DeadlineExceeded), errors.Is(err, natsgo.ErrConnectionClosed),
		errors.Is(err, natsgo.ErrDisconnected), errors.Is(err, natsgo.ErrReconnectBufExceeded), errors.Is(err, natsgo.ErrConnectionReconnecting):
		if denial := e.denials.recent(); denial != nil {
			return denial
		}
		e.leaveIfCutOff()
		return unavailable("NATS does not answer", err)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return &posthaste.Error{Code: posthaste.CodeUnsupported, Message: "this NATS server has no JetStream for this account", Cause: err, Hint: "start the server with JetStream (nats-server -js), and enable it for the user's account"}
	case isFull(err):
		return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "the storage of the NATS servers is full: " + err.Error(), Cause: err,
			Hint: "let workers handle messages, purge queues, or raise max_file_store of the servers and the limits of the account"}
	case errors.As(err, &api) && api.APIError() != nil && (api.APIError().Code == 503 || api.APIError().Code == 500):
		e.leaveIfCutOff()
		return unavailable("NATS cannot do this now", err)
	}
	return fmt.Errorf("nats: %w", err)
}

// connectError classifies an error of connecting.
func connectError(err error) error {
	var authority *tls.CertificateVerificationError
	e := &posthaste.Error{Code: posthaste.CodeDenied, Field: "url", Message: "connecting to NATS: " + err.Error(), Cause: err}
	switch {
	case errors.Is(err, natsgo.ErrAuthorization), errors.Is(err, natsgo.ErrAuthExpired), errors.Is(err, natsgo.ErrAuthRevoked), errors.Is(err, natsgo.ErrAccountAuthExpired), errors.Is(err, natsgo.ErrNkeysNotSupported):
		e.Hint = "check user and password or token in the URL, percent-encoded, or the credentials"
	case errors.As(err, &authority):
		e.Code, e.Hint = posthaste.CodeInvalid, "name the certificate authority of the server with the parameter ca of the URL"
	case errors.Is(err, natsgo.ErrSecureConnWanted), errors.Is(err, natsgo.ErrSecureConnRequired):
		e.Code, e.Hint = posthaste.CodeInvalid, "use tls:// if the server has TLS, and nats:// if it has not"
	default:
		return unavailable("NATS cannot be reached", err)
	}
	return e
}

func quoted(name string) string { return quote.Name(name) }

// queueError is readError for a call about a queue's stream, which may fail because the queue was dropped.
func (e *Engine) queueError(ctx context.Context, q *queue, err error) error {
	if err == nil {
		return nil
	}
	if _, gone := e.freshQueue(ctx, q.Name); posthaste.CodeOf(gone) == posthaste.CodeNotFound {
		return gone
	}
	return e.readError(err)
}

// writeError returns the error of a write that may have happened and must not be repeated blindly.
func (e *Engine) writeError(err error) error {
	if _, perhaps := classifyPublish(err); perhaps {
		return outcomeUnknown(err)
	}
	return e.readError(err)
}
