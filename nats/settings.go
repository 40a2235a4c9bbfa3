package nats

import (
	"cmp"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/login"
)

// callTimeout bounds a call to the server whose context has no deadline.
const callTimeout = 5 * time.Second

// Bounds of AckWait.
const (
	defaultAckWait = 15 * time.Second
	leastAckWait   = 3 * time.Second
)

// margin is how long before the server may redeliver a message its lease ends. A server that was restarted
// redelivers up to 1 s early.
const margin = 1200 * time.Millisecond

// Option changes how an engine is opened.
type Option func(*settings)

type settings struct {
	prefix   string
	replicas int           // 0: three in a cluster, otherwise one
	ackWait  time.Duration // of new consumers
	lazy     bool
	owned    bool // Close closes the connection
	denials  *denials
}

// WithPrefix makes the names of all streams and subjects begin with prefix instead of
// "posthaste", so that several stores can share an account. A prefix consists of letters,
// digits, "-" and "_".
func WithPrefix(prefix string) Option { return func(s *settings) { s.prefix = prefix } }

// WithReplicas sets the number of servers that store each new stream, 1 to 5; use an odd number. The default
// is 3 in a cluster, and 1 on a single server.
func WithReplicas(n int) Option { return func(s *settings) { s.replicas = n } }

// WithAckWait sets how long the servers wait for a sign of the holder of a delivery before they redeliver it,
// in queues and subscriptions that this engine creates (3 s to 1 h, default 15 s).
func WithAckWait(d time.Duration) Option { return func(s *settings) { s.ackWait = d } }

// WithLazyConnect makes [Open] return before it has connected. Until a server can be reached, every method
// fails with [posthaste.CodeUnavailable].
func WithLazyConnect() Option { return func(s *settings) { s.lazy = true } }

func (s settings) with(options []Option) (settings, error) {
	for _, o := range options {
		o(&s)
	}
	s.prefix, s.ackWait = cmp.Or(s.prefix, "posthaste"), cmp.Or(s.ackWait, defaultAckWait)
	switch err := posthaste.CheckName("prefix", strings.ToLower(s.prefix)); {
	case err != nil:
		return s, err
	case strings.Contains(s.prefix, "."):
		return s, posthaste.Invalidf("prefix", "prefix must not contain a dot, got %q", s.prefix)
	case s.replicas < 0 || s.replicas > 5:
		return s, posthaste.Invalidf("replicas", "replicas must be 1 to 5, got %d", s.replicas)
	case s.ackWait < leastAckWait || s.ackWait > time.Hour:
		return s, posthaste.Invalidf("ack_wait", "ack_wait must be %s to 1h, got %s", leastAckWait, s.ackWait)
	}
	return s, nil
}

// hintURL is the hint of errors about the URL. Their texts never quote it, because any part may
// belong to a password that is not percent-encoded.
const hintURL = "nats://user:password@host:4222 or tls://, with special characters percent-encoded, such as / as %2F; several separated by commas"

// parse splits a URL into the servers, settings and options of the connection.
func parse(text string) (servers string, s settings, further []natsgo.Option, err error) {
	fault := func(why string) error {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "url", Message: "invalid URL of the NATS server: " + why, Hint: hintURL}
	}
	servers, query, _ := strings.Cut(text, "?")
	for one := range strings.SplitSeq(servers, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		switch {
		case err != nil || login.Misread(one):
			return "", s, nil, fault("it cannot be parsed")
		case u.Scheme != "nats" && u.Scheme != "tls":
			return "", s, nil, fault("it must begin with nats:// or tls://")
		case u.Hostname() == "":
			return "", s, nil, fault("it names no host")
		}
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", s, nil, fault("its parameters cannot be parsed")
	}
	for name, value := range values {
		switch v := value[0]; name {
		case "credentials":
			if _, err := os.Stat(v); err != nil {
				return "", s, nil, fault("reading the credentials: " + err.Error())
			}
			further = append(further, natsgo.UserCredentials(v))
		case "ca":
			further = append(further, natsgo.RootCAs(v))
		case "prefix":
			s.prefix = v
		case "replicas":
			if s.replicas, err = strconv.Atoi(v); err != nil {
				return "", s, nil, fault("replicas must be a number")
			}
		case "ack_wait":
			if s.ackWait, err = time.ParseDuration(v); err != nil {
				return "", s, nil, fault("ack_wait must be a duration, such as 30s")
			}
		default:
			return "", s, nil, fault("it has an unknown parameter; there are credentials, ca, prefix, replicas and ack_wait")
		}
	}
	return servers, s, further, nil
}
