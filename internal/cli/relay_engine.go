package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/brokers"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/sink/funnel"
)

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
	k, known := kindOfURL(c.ToEngine)
	address, err := addressOf(c.ToEngine)
	if !known || err != nil {
		var schemes []string
		for _, k := range engines {
			schemes = append(schemes, k.schemes...)
		}
		return nil, c.fault("to_engine", "to_engine is not the URL of an engine", "expected a URL that begins with "+strings.Join(schemes, "://, ")+"://")
	}
	if c.Token != "" && k.engine != onHTTP {
		return nil, c.fault("token", "token is set, but to_engine is not a server", "omit token, and put user and password into the URL")
	}
	return c.sinkInto(k, address), nil
}

// addressOf returns the hosts of a URL and its path, without its secrets.
func addressOf(text string) (string, error) {
	var all []string
	for _, one := range servers(text) {
		u, err := url.Parse(one)
		if err != nil || u.Host == "" { // the error may quote a password
			return "", errors.New("not a URL")
		}
		all = append(all, u.Host+strings.TrimSuffix(u.Path, "/"))
	}
	return strings.Join(all, ","), nil
}

// sinkInto returns the kind of sinks that send to an engine at an address.
func (c *relayConfig) sinkInto(k engineKind, address string) *brokers.Kind {
	at := c.relayTarget
	return &brokers.Kind{Name: cmp.Or(k.target, k.name), Schemes: k.schemes, Sink: func(string) (any, brokers.OpenSink) {
		config := &funnel.Config{Name: address}
		return config, func(log *slog.Logger) (brokers.Sink, error) {
			target, err := k.open(context.Background(), opening{url: at.ToEngine, lazy: true, log: log, token: at.Token, postgres: []postgres.Option{postgres.WithPoolSize(at.Concurrency)}})
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
