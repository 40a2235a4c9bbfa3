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

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
)

// URL names brokers of a cluster, separated by commas:
// kafka://user:password@host:9092,host2:9092, or kafkas:// with TLS. User and password
// are percent-encoded. Use kafka:// only on the same machine or in a trusted network,
// because it is unencrypted.
type URL string

// ClientOptions returns the options of a client of package kgo that connects to the
// brokers under a name and logs in with scram-sha-512. It is for programs that use the
// cluster beside a relay. Errors never hold a part of the URL.
func (u URL) ClientOptions(name string) ([]kgo.Opt, error) {
	options, _, err := (&endpoint{URL: u, Name: name}).options()
	return options, err
}

// endpoint says how to connect to the brokers. The sink and the source share it.
type endpoint struct {
	URL URL
	// Mechanism is scram-sha-512 (if empty), scram-sha-256 or plain.
	Mechanism string
	// DialTimeout bounds the opening of a connection (10 s if 0).
	DialTimeout time.Duration
	// TLS is used with kafkas://. Nil trusts the system's certificate authorities.
	TLS *tls.Config
	// Name is the client id that the brokers show.
	Name string
	// Dial opens connections in tests.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// options returns the options of a client, and the brokers' addresses. Errors never hold
// a part of the URL, because any part may belong to a password that is not encoded.
func (b *endpoint) options() (options []kgo.Opt, address string, err error) {
	u, err := b.URL.parse()
	if err != nil {
		return nil, "", &posthaste.Error{Code: posthaste.CodeInvalid, Field: "url", Message: "invalid URL of the brokers: " + err.Error(),
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
		options = append(options, kgo.DialTLSConfig(relay.ClientTLS(b.TLS, "")))
	}
	return options, strings.Join(hosts(u), ","), nil
}

// backoff returns the pause after a number of failures in a row. The library's own
// backoff grows to several seconds, which would delay the first use of a broker that is
// back.
func backoff(failures int) time.Duration {
	pause := min(125*time.Millisecond<<min(failures, 10), time.Second)
	return pause - rand.N(pause/4)
}

// login returns the options with which the user in a URL logs in.
func (b *endpoint) login(u *url.URL) ([]kgo.Opt, error) {
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
		return nil, posthaste.Invalidf("mechanism", "mechanism must be scram-sha-512, scram-sha-256 or plain, got %q", b.Mechanism)
	}
	if user == "" {
		return nil, nil
	}
	return []kgo.Opt{kgo.SASL(how)}, nil
}

// parse parses the URL. The result's host is the comma-separated list.
func (u URL) parse() (*url.URL, error) {
	// The list is parsed here because package url rejects a port in the middle of it.
	scheme, rest, _ := strings.Cut(string(u), "://")
	if scheme != "kafka" && scheme != "kafkas" {
		return nil, errors.New("it must begin with kafka:// or kafkas://")
	}
	at := strings.LastIndexByte(rest, '@')
	out, err := url.Parse(scheme + "://" + rest[:at+1] + "host")
	if err != nil || out.Host != "host" { // the error of package url may quote the password
		return nil, errors.New("its user and password cannot be parsed")
	}
	out.Host = strings.TrimSuffix(rest[at+1:], "/")
	for _, one := range hosts(out) {
		if host, port, err := net.SplitHostPort(one); err != nil || host == "" || port == "" || strings.ContainsAny(one, "/?#") {
			return nil, errors.New("the part after the user must be hosts with ports, separated by commas")
		}
	}
	return out, nil
}

// hosts returns the addresses of the brokers of a URL.
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

// connectError classifies an error of connecting: Invalid with the field and a hint if the
// configuration is at fault, Unavailable otherwise.
func connectError(err error) error {
	var authority *tls.CertificateVerificationError
	var plain tls.RecordHeaderError
	e := &posthaste.Error{Code: posthaste.CodeInvalid, Field: "url", Message: err.Error(), Cause: err}
	switch {
	case errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, kerr.IllegalSaslState):
		e.Hint = "check user and password in the URL, percent-encoded, and that the cluster has the user"
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		e.Field, e.Hint = "mechanism", "use a mechanism that the brokers support: scram-sha-512, scram-sha-256 or plain"
	case errors.As(err, &authority):
		e.Hint = relay.HintCertificate
	case errors.As(err, &plain):
		e.Hint = "use kafkas:// if the listener has TLS, and kafka:// if it has not"
	default:
		return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: err.Error(), Cause: err, Hint: "start the brokers, or check the URL: hosts, ports, and kafkas:// if they have TLS"}
	}
	return e
}
