package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/brokers"
	"github.com/posthaste-mq/posthaste/internal/remote"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/redis"
	"github.com/posthaste-mq/posthaste/sink/funnel"
)

// engineKind is an engine that a relay sends to.
type engineKind struct {
	name    string
	schemes []string // of its URLs
	// open opens it without connecting.
	open func(c *relayTarget, log *slog.Logger) (funnel.Target, error)
}

var engineKinds = []engineKind{
	{"PostgreSQL", []string{"postgres", "postgresql"}, func(c *relayTarget, log *slog.Logger) (funnel.Target, error) {
		return postgres.Open(context.Background(), c.ToEngine, postgres.WithLogger(log), postgres.WithLazyConnect(), postgres.WithPoolSize(c.Concurrency))
	}},
	{"Redis", []string{"redis", "rediss"}, func(c *relayTarget, _ *slog.Logger) (funnel.Target, error) {
		return redis.Open(context.Background(), c.ToEngine, redis.WithLazyConnect())
	}},
	{"Posthaste server", []string{"https", "http"}, func(c *relayTarget, _ *slog.Logger) (funnel.Target, error) {
		return remote.Open(remote.Config{URL: c.ToEngine, Token: c.Token, Program: "posthaste/" + version()})
	}},
}

// engine returns the kind of the engine to which the relay sends, in the form of a broker's.
func (c *relayConfig) engine() (*brokers.Kind, error) {
	const hint = "set the variable, or write the value itself"
	var err error
	if c.ToEngine, err = expand(c.ToEngine); err != nil {
		return nil, c.fault("to_engine", err.Error(), hint)
	}
	if c.Token, err = expand(c.Token); err != nil {
		return nil, c.fault("token", err.Error(), hint)
	}
	// The error of a URL may quote its password.
	u, err := url.Parse(c.ToEngine)
	var schemes []string
	for _, k := range engineKinds {
		schemes = append(schemes, k.schemes...)
		if err == nil && u.Host != "" && slices.Contains(k.schemes, u.Scheme) {
			if c.Token != "" && k.schemes[0] != "https" {
				return nil, c.fault("token", "token is set, but to_engine is not a server", "omit token, and put user and password into the URL")
			}
			return c.sinkInto(k, u.Host+strings.TrimSuffix(u.Path, "/")), nil
		}
	}
	return nil, c.fault("to_engine", "to_engine is not the URL of an engine", "expected a URL that begins with "+strings.Join(schemes, "://, ")+"://")
}

// sinkInto returns the kind of sinks that send to an engine at an address.
func (c *relayConfig) sinkInto(k engineKind, address string) *brokers.Kind {
	at := c.relayTarget
	return &brokers.Kind{Name: k.name, Schemes: k.schemes, Sink: func(string) (any, brokers.OpenSink) {
		config := &funnel.Config{Name: address}
		return config, func(log *slog.Logger) (brokers.Sink, error) {
			target, err := k.open(&at, log)
			if err != nil {
				return nil, engineFault(err)
			}
			config.Target = target
			sink, err := funnel.New(*config)
			if err != nil {
				target.Close()
				return nil, err
			}
			return sink, nil
		}
	}}
}

// engineFault words an error of opening an engine for relays.
func engineFault(err error) error {
	e := &posthaste.Error{Code: posthaste.CodeOf(err), Field: "to_engine", Message: fmt.Sprint("to_engine: ", err), Cause: err}
	if e.Code == posthaste.CodeRefused { // plain HTTP
		e.Code = posthaste.CodeInvalid
	}
	e.Message = strings.NewReplacer("--server-url", "it", "server-token", "token", ", or add --allow-plain-http if the network is trusted", "").Replace(e.Message)
	return e
}
