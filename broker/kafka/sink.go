package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
)

// The producers of a sink. The second one produces the records of refused batches one by
// one.
const (
	together = iota
	alone
)

// Sink produces messages to topics. It implements [posthaste.Sink].
type Sink struct {
	target    *target
	producers *relay.Connections[*producer]
	aloneTurn chan struct{}
}

var _ posthaste.Sink = (*Sink)(nil)

// NewSink checks the configuration and returns a sink, which connects at its first
// delivery. Errors are *posthaste.Error with the field, and hold no password.
func NewSink(c SinkConfig) (*Sink, error) {
	t, err := parseSink(c)
	if err != nil {
		return nil, err
	}
	return &Sink{target: t, producers: relay.NewConnections(2, relay.Server{Kind: "kafka", Address: t.address}, t.Logger, t.open), aloneTurn: make(chan struct{}, 1)}, nil
}

// Broker returns the brokers' addresses, "host:port", separated by commas.
func (s *Sink) Broker() string { return s.target.address }

// Away reports whether the last attempt to use the brokers failed. Messages wait for them
// then. It is safe for concurrent use.
func (s *Sink) Away() bool { return s.producers.Away() }

// Close closes the connections. Records in flight may or may not be stored. Later
// deliveries fail and can be retried. Close is idempotent.
func (s *Sink) Close() error {
	s.producers.Close()
	return nil
}

// Check connects and verifies that the brokers accept the login and have the topic, if
// all messages go to the same one. An error is a *posthaste.Error: Invalid with the field
// if the configuration is wrong, Unavailable if the brokers do not answer.
func (s *Sink) Check(ctx context.Context) error {
	p, err := s.target.open(ctx)
	if err != nil {
		return connectError(err)
	}
	defer p.client.Close()
	topic, static := s.target.topic.Static()
	if !static || s.target.Create {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.target.DialTimeout)
	defer cancel()
	_, err = describeTopic(ctx, p.client, topic)
	invalid := &posthaste.Error{Code: posthaste.CodeInvalid, Field: "topic", Message: fmt.Sprintf("kafka at %s: topic %q: %v", s.target.address, topic, err), Cause: err}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		invalid.Hint = "create the topic, or let the brokers create it (create: true)"
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		invalid.Hint = "allow the user to describe the topic and to write to it"
	default:
		return connectError(brokerError(s.target.address, err))
	}
	return invalid
}
