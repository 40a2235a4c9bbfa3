// Package remote is a store behind the HTTP API of a server, for callers with a token and without
// access to the database. It has all operations of operators, sending, receiving and settling.
// What only workers and servers need fails with [posthaste.CodeUnsupported].
package remote

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// Config says which server a [Store] calls, and how.
type Config struct {
	// URL is the address of the server, such as https://mq.example.com. It may have a path, under
	// which a proxy serves the API.
	URL string
	// Token authorizes the calls. Without one, they are sent without authorization.
	Token string
	// AllowPlainHTTP allows http:// to a host other than this machine: the token and all
	// messages can then be read on the way.
	AllowPlainHTTP bool
	// Program is the name and version of the program: the User-Agent of requests.
	Program string
}

// Store is a server's store. It is safe for concurrent use.
//
// Its errors are those of the server, with their codes, fields and messages. If the server cannot
// be reached the code is [posthaste.CodeUnavailable]. If a response was lost it is
// [posthaste.CodeOutcomeUnknown], unless the call only reads.
type Store struct {
	posthaste.NoCharts

	base    *url.URL
	token   string
	program string
	client  *http.Client
}

var _ posthaste.Store = (*Store)(nil)

// Open returns the store of a server. It does not connect.
func Open(config Config) (*Store, error) {
	base, err := CheckURL(config.URL, config.AllowPlainHTTP)
	if err != nil {
		return nil, err
	}
	if config.Token != "" && !wire.IsVisible(config.Token) {
		return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "server-token", Message: "the token for " + base.Host + " is not valid: a token has visible ASCII characters without spaces",
			Hint: "check that it was copied completely, without quotes and line breaks"}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: connectTimeout}).DialContext
	transport.TLSHandshakeTimeout = connectTimeout
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	return &Store{base: base, token: config.Token, program: config.Program, client: &http.Client{
		Transport: transport,
		// A redirect could lead to a server that must not get the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// connectTimeout is the time for connecting, and that for the TLS handshake.
const connectTimeout = 10 * time.Second

// CheckURL parses the URL of a server. Its errors do not quote the URL, which can have a password
// in a wrong place.
func CheckURL(text string, allowPlainHTTP bool) (*url.URL, error) {
	fault := func(message, hint string) error {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "server-url", Message: message, Hint: hint}
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Opaque != "":
		return nil, fault("--server-url is not a valid URL", "for example https://mq.example.com")
	case u.Scheme != "https" && u.Scheme != "http":
		return nil, fault("--server-url must begin with https:// or http://", "for example https://mq.example.com")
	case u.User != nil:
		return nil, fault("--server-url must not contain a user or a password", "give a token with --server-token-file")
	case u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "":
		return nil, fault("--server-url must be the address of a server, without parameters", "for example https://mq.example.com")
	case u.Scheme == "http" && !allowPlainHTTP && !isLoopback(u.Hostname()):
		return nil, &posthaste.Error{Code: posthaste.CodeRefused, Field: "server-url", Message: "http:// to " + u.Hostname() + " would send the token and all messages unencrypted",
			Hint: "use https://, or add --allow-plain-http if the network is trusted"}
	}
	u.Path, u.RawPath = strings.TrimSuffix(u.Path, "/"), strings.TrimSuffix(u.RawPath, "/")
	return u, nil
}

func isLoopback(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().IsLoopback()
	}
	return strings.EqualFold(host, "localhost")
}

// Close implements [posthaste.Engine].
func (s *Store) Close() { s.client.CloseIdleConnections() }

// Ready implements [posthaste.Engine].
func (s *Store) Ready(ctx context.Context) error { return s.get(ctx, "/readyz", nil, nil) }

// Capabilities implements [posthaste.Observer]. The server's store may lack some of them.
func (s *Store) Capabilities() posthaste.Capabilities {
	return posthaste.Capabilities{Subscriptions: true, MaxLag: true, Limits: true, Ordered: true, OrderedRuns: true, StopOnDead: true, PauseKinds: true, Exact: true, AtMostOnce: true, Idempotency: true, Attempts: true, Totals: true, Charts: true,
		Search: true, Withdrawal: true, Updates: true, Unique: true, Schedules: true}
}
