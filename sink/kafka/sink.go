package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	posthaste "github.com/posthaste-mq/posthaste"
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
		return s.atStart(err)
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
		return s.atStart(fmt.Errorf("kafka at %s: %w", s.target.address, err))
	}
	return invalid
}

// atStart says whether an error of connecting is one of the configuration.
func (s *Sink) atStart(err error) error {
	var authority *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	e := &posthaste.Error{Code: posthaste.Invalid, Field: "url", Message: err.Error(), Cause: err}
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, kerr.IllegalSaslState):
		e.Hint = "check user and password in the URL, percent-encoded, and that the user exists in the cluster"
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		e.Field, e.Hint = "mechanism", "use a mechanism that the brokers have: scram-sha-512, scram-sha-256 or plain"
	case errors.As(err, &authority):
		e.Hint = "let the certificate be for the name in the URL, and by an authority that this machine trusts"
	case errors.As(err, &plain):
		e.Hint = "use kafkas:// with a listener that has TLS, and kafka:// with one that has not"
	default:
		return &posthaste.Error{Code: posthaste.Unavailable, Message: err.Error(), Cause: err, Hint: "start the brokers, or check hosts, ports and whether they have TLS in the URL"}
	}
	return e
}
