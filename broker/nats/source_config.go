package nats

import (
	"cmp"
	"crypto/tls"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/source"
)

// SourceConfig configures a source. Queue, URL and Stream are required. The fields with a
// key can be set in a file of relays.
type SourceConfig struct {
	source.Config `yaml:",inline"`

	URL URL `yaml:"-"`
	// Credentials is the path of the user's credentials (.creds), if the server requires
	// them. The file is read at each connection.
	Credentials string `yaml:"credentials"`
	// Stream is the stream, which must exist.
	Stream string `yaml:"stream"`
	// Consumer is the durable pull consumer (default "posthaste"). If it does not exist,
	// it is created and begins with the oldest message.
	Consumer string `yaml:"consumer"`
	// Subject is the filter of a consumer that is created, with wildcards (default: all
	// subjects of the stream).
	Subject string `yaml:"subject"`
	// Refused is the subject for messages that the queue rejects (default
	// "posthaste.refused." and the stream's name, for which a stream is created if none
	// takes it). Another stream than Stream must take it.
	Refused string `yaml:"refused"`
	// InboxPrefix is the prefix of the subjects to which answers are sent (default
	// "_INBOX"), for users who may not subscribe to others.
	InboxPrefix string `yaml:"inbox_prefix"`
	// DialTimeout bounds the opening of a connection (default 10 s).
	DialTimeout time.Duration `yaml:"-"`
	// TLS is used with tls:// and with servers that require it; ServerName and
	// MinVersion get defaults. Nil trusts the system's certificate authorities.
	TLS *tls.Config `yaml:"-"`
	// Name is the name of the connections that the server shows (default "posthaste
	// source").
	Name string `yaml:"-"`
}

// NewSource checks the configuration and returns a source into the ledger, which is a
// [posthaste.Engine]. It connects when it runs. Errors are *posthaste.Error with the
// field, and hold no password.
func NewSource(ledger source.Ledger, c SourceConfig) (*source.Source, error) {
	b, err := parseSource(c)
	if err != nil {
		return nil, err
	}
	return source.New(ledger, c.Config, b)
}

// parseSource checks the configuration and fills in defaults.
func parseSource(c SourceConfig) (*sourceBroker, error) {
	b := &sourceBroker{createRefused: c.Refused == "", endpoint: endpoint{URL: c.URL, Credentials: c.Credentials, InboxPrefix: c.InboxPrefix,
		DialTimeout: c.DialTimeout, TLS: c.TLS, Name: cmp.Or(c.Name, "posthaste source")}}
	if err := b.endpoint.check(); err != nil {
		return nil, err
	}
	c.Consumer = cmp.Or(c.Consumer, "posthaste")
	for _, f := range [...]struct{ field, name string }{{"stream", c.Stream}, {"consumer", c.Consumer}} {
		if f.name == "" || strings.ContainsAny(f.name, notInNames) {
			return nil, posthaste.Invalidf(f.field, "invalid %s %q: it is empty, or holds a space, a dot, a slash or a wildcard", f.field, f.name)
		}
	}
	if c.Refused = cmp.Or(c.Refused, "posthaste.refused."+c.Stream); strings.ContainsAny(c.Refused, " \t\r\n*>") {
		return nil, posthaste.Invalidf("refused", "refused %q is not a subject: it must be tokens separated by dots, without spaces and wildcards", c.Refused)
	}
	b.SourceConfig = c
	return b, nil
}
