// Package kafka says how the brokers of a Kafka cluster are reached, for the sink and
// the source.
package kafka

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	posthaste "github.com/posthaste-mq/posthaste"
)

// Brokers says how brokers are reached.
type Brokers struct {
	// URL is kafka://user:password@host:9092,host2:9092, or kafkas:// with TLS.
	URL string
	// Mechanism is how a user logs in: scram-sha-512 where it is empty, scram-sha-256
	// or plain.
	Mechanism string
	// DialTimeout bounds the opening of a connection (10 s where it is 0).
	DialTimeout time.Duration
	// TLS is for kafkas://; nil trusts the system's authorities.
	TLS *tls.Config
	// Name is what brokers show of the client.
	Name string
	// Dial opens connections in tests.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Options are those of a client, and the brokers' addresses. Errors never hold a part of
// the URL, for each may be one of the password.
func (b *Brokers) Options() (options []kgo.Opt, address string, err error) {
	u, err := brokers(b.URL)
	if err != nil {
		return nil, "", &posthaste.Error{Code: posthaste.Invalid, Field: "url", Message: "the brokers' URL cannot be used: " + err.Error(),
			Hint: "kafka://user:password@host:9092,host2:9092 or kafkas://, with special characters percent-encoded, such as / as %2F"}
	}
	if options, err = b.login(u); err != nil {
		return nil, "", err
	}
	options = append(options, kgo.SeedBrokers(hosts(u)...), kgo.ClientID(b.Name), kgo.DialTimeout(cmp.Or(b.DialTimeout, 10*time.Second)),
		kgo.RetryBackoffFn(backoff))
	switch {
	case b.Dial != nil:
		options = append(options, kgo.Dialer(b.Dial))
	case u.Scheme == "kafkas":
		config := b.TLS.Clone()
		if config == nil {
			config = &tls.Config{}
		}
		config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
		options = append(options, kgo.DialTLSConfig(config))
	}
	return options, strings.Join(hosts(u), ","), nil
}

// backoff is the pause after so many failures in a row. The library's own grows to
// seconds, in which brokers that are back are not used.
func backoff(failures int) time.Duration {
	pause := min(125*time.Millisecond<<min(failures, 10), time.Second)
	return pause - rand.N(pause/4)
}

// login is how the user in a URL logs in.
func (b *Brokers) login(u *url.URL) ([]kgo.Opt, error) {
	user := u.User.Username()
	password, _ := u.User.Password()
	var how sasl.Mechanism
	switch b.Mechanism {
	case "", "scram-sha-512":
		how = scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	case "scram-sha-256":
		how = scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case "plain":
		how = plain.Auth{User: user, Pass: password}.AsMechanism()
	default:
		return nil, posthaste.Invalidf("mechanism", "mechanism must be scram-sha-512, scram-sha-256 or plain, and is %q", b.Mechanism)
	}
	if user == "" {
		return nil, nil
	}
	return []kgo.Opt{kgo.SASL(how)}, nil
}

// brokers takes apart the URL: its host is the list.
func brokers(text string) (*url.URL, error) {
	// A port in the middle of a list is none to package url.
	scheme, rest, _ := strings.Cut(text, "://")
	if scheme != "kafka" && scheme != "kafkas" {
		return nil, errors.New("it must begin with kafka:// or kafkas://")
	}
	at := strings.LastIndexByte(rest, '@')
	u, err := url.Parse(scheme + "://" + rest[:at+1] + "host")
	if err != nil || u.Host != "host" { // package url's words may be of the password
		return nil, errors.New("its user and password cannot be read")
	}
	u.Host = strings.TrimSuffix(rest[at+1:], "/")
	for _, one := range hosts(u) {
		if host, port, err := net.SplitHostPort(one); err != nil || host == "" || port == "" || strings.ContainsAny(one, "/?#") {
			return nil, errors.New("behind the user there must be nothing but hosts with ports, separated by commas")
		}
	}
	return u, nil
}

// hosts are the brokers of a URL.
func hosts(u *url.URL) []string {
	all := strings.Split(u.Host, ",")
	for i, one := range all {
		if one = strings.TrimSpace(one); !strings.Contains(one[strings.LastIndexByte(one, ']')+1:], ":") && one != "" {
			one = net.JoinHostPort(strings.Trim(one, "[]"), "9092")
		}
		all[i] = one
	}
	return all
}

// AtStart says whether an error of connecting is one of the configuration.
func AtStart(err error) error {
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

// CheckTopic refuses what no topic can be called.
func CheckTopic(topic string) error {
	if topic != "" && topic != "." && topic != ".." && len(topic) <= 249 && !strings.ContainsFunc(topic, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
	}) {
		return nil
	}
	if len(topic) > 100 {
		topic = topic[:100] + "…"
	}
	return posthaste.Invalidf("topic", "no topic can be called %q: up to 249 letters, digits, dots, dashes and underscores", topic)
}
