package nats

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
)

// SinkConfig configures a sink. Only URL is required. The fields with a key can be set in
// a file of relays.
type SinkConfig struct {
	URL URL `yaml:"-"`
	// Credentials is the path of the user's credentials (.creds), if the server requires
	// them. The file is read at each connection.
	Credentials string `yaml:"credentials"`
	// Subject is the template of the subject (default "{{.Queue}}"). Values from messages
	// must be tokens, without spaces and wildcards.
	Subject string `yaml:"subject"`
	// Stream is the stream that must take the messages (default: whichever takes the
	// subject). Any other stream refuses them.
	Stream string `yaml:"stream"`
	// InboxPrefix is the prefix of the subjects to which acknowledgments are sent
	// (default "_INBOX"), for users who may not subscribe to others.
	InboxPrefix string `yaml:"inbox_prefix"`
	// Mapping configures the id, the headers and the format of messages. Headers that
	// begin with "Nats-" are commands to the server; only those in Mapping are sent.
	Mapping relay.Mapping `yaml:",inline"`
	// Connections is the number of connections that publish in parallel (default 2; 1 to
	// 100).
	Connections int `yaml:"connections"`
	// Outstanding is the maximum number of unacknowledged messages of a connection
	// (default 4096; 1 to 65536).
	Outstanding int `yaml:"outstanding"`
	// DialTimeout bounds the opening of a connection (default 10 s).
	DialTimeout time.Duration `yaml:"-"`
	// Heartbeat is the interval of pings (default 10 s). A connection is lost when two
	// pings are unanswered.
	Heartbeat time.Duration `yaml:"-"`
	// TLS is used with tls:// and with servers that require it; ServerName and
	// MinVersion get defaults. Nil trusts the system's certificate authorities.
	TLS *tls.Config `yaml:"-"`
	// Name is the name of the connections that the server shows (default "posthaste
	// relay").
	Name string `yaml:"-"`
	// Logger logs when the server becomes unreachable and when it is back. Nil disables
	// logging.
	Logger *slog.Logger `yaml:"-"`
}

// target is a checked SinkConfig.
type target struct {
	SinkConfig
	endpoint endpoint
	subject  *relay.Template
	mapper   *relay.Mapper
	// commands are the headers of the configuration that are commands to the server.
	commands map[string]bool
	// encoded says whether headers with eventPrefix are percent-encoded.
	encoded bool
}

// parseSink checks the configuration and fills in defaults. Errors never hold the URL,
// because it may hold a password.
func parseSink(c SinkConfig) (*target, error) {
	t := &target{commands: map[string]bool{}, endpoint: endpoint{URL: c.URL, Credentials: c.Credentials, InboxPrefix: c.InboxPrefix,
		DialTimeout: c.DialTimeout, Heartbeat: c.Heartbeat, TLS: c.TLS, Name: cmp.Or(c.Name, "posthaste relay")}}
	err := t.endpoint.check()
	if err != nil {
		return nil, err
	}
	if strings.ContainsAny(c.Stream, notInNames) {
		return nil, posthaste.Invalidf("stream", "stream %q is not a stream's name: it holds a space, a dot, a slash or a wildcard", c.Stream)
	}
	if c.InboxPrefix != "" && !plainSubject(c.InboxPrefix) {
		return nil, posthaste.Invalidf("inbox_prefix", "inbox_prefix %q is not a subject: it must be tokens separated by dots, without spaces and wildcards", c.InboxPrefix)
	}
	if err := relay.BoundedLoad(&c.Connections, &c.Outstanding); err != nil {
		return nil, err
	}
	c.Subject = cmp.Or(c.Subject, "{{.Queue}}")
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if t.subject, err = relay.Compile("subject", c.Subject); err != nil {
		return nil, err
	}
	if subject, static := t.subject.Static(); static {
		if err := checkSubject(subject); err != nil {
			return nil, err
		}
	}
	if t.mapper, err = relay.NewMapper(c.Mapping, eventPrefix); err != nil {
		return nil, err
	}
	for name := range c.Mapping.Headers {
		switch {
		case !validName(name):
			return nil, posthaste.Invalidf("headers."+name, "NATS does not allow the header name %q: use letters, digits and -_.!#$%%&'*+^`|~", name)
		case strings.EqualFold(name, natsgo.MsgIdHdr), strings.EqualFold(name, natsgo.ExpectedStreamHdr):
			return nil, posthaste.Invalidf("headers."+name, "the relay sets the header %s: use message_id and stream", name)
		case strings.EqualFold(name, HeaderContentType):
			return nil, posthaste.Invalidf("headers."+name, "the relay sets the header %s to the content type of the message", name)
		case isCommand(name):
			t.commands[name] = true
		}
	}
	t.SinkConfig = c
	t.encoded = c.Mapping.CloudEvents != nil && c.Mapping.CloudEvents.Mode != relay.Structured
	return t, nil
}
