package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/kafka"
	"github.com/posthaste-mq/posthaste/relay"
)

// The producers: alone is for what was refused in company, one by one.
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

// New checks the configuration and returns a sink. It connects to nobody yet.
// Errors are *posthaste.Error with the field, and hold no password.
func New(c Config) (*Sink, error) {
	t, err := parse(c)
	if err != nil {
		return nil, err
	}
	return &Sink{target: t, producers: relay.NewConnections(2, "kafka", t.address, t.Logger, t.open), aloneTurn: make(chan struct{}, 1)}, nil
}

// Broker returns the brokers' addresses, "host:port", separated by commas.
func (s *Sink) Broker() string { return s.target.address }

// Away says whether the broker could not be used when it was tried last: messages wait
// for it then. It is safe for concurrent use.
func (s *Sink) Away() bool { return s.producers.Away() }

// Close ends the connections. What is being produced stays unknown, and deliveries
// after it fail and can be retried. It may be called again.
func (s *Sink) Close() error {
	s.producers.Close()
	return nil
}

// Check connects and looks whether the brokers will take messages as configured:
// the login and the topic, as far as it is the same for all messages. What is wrong
// with the configuration is a *posthaste.Error of code Invalid with the field;
// brokers that do not answer one of code Unavailable.
func (s *Sink) Check(ctx context.Context) error {
	p, err := s.target.open(ctx)
	if err != nil {
		return kafka.AtStart(err)
	}
	defer p.client.Close()
	topic, static := s.target.topic.Static()
	if !static || s.target.Create {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.target.DialTimeout)
	defer cancel()
	request := kmsg.NewPtrMetadataRequest()
	request.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	answer, err := request.RequestWith(ctx, p.client)
	if err == nil && len(answer.Topics) == 1 {
		err = kerr.ErrorForCode(answer.Topics[0].ErrorCode)
	}
	invalid := &posthaste.Error{Code: posthaste.Invalid, Field: "topic", Message: fmt.Sprintf("kafka at %s: topic %q: %v", s.target.address, topic, err), Cause: err}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		invalid.Hint = "make the topic, or let the brokers make it (create: true)"
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		invalid.Hint = "let the user describe the topic and write to it"
	default:
		return kafka.AtStart(fmt.Errorf("kafka at %s: %w", s.target.address, err))
	}
	return invalid
}
