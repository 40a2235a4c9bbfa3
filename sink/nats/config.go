// Package nats is the sink that publishes messages to streams of NATS JetStream
// and answers only what a stream has acknowledged.
//
// # What an attempt ends with
//
//   - The stream's ack: delivered. With replicas that means on a majority of them.
//   - No stream takes the subject, the stream is full or refuses, the user may not
//     publish to the subject: tried again with backoff, with the server's words,
//     and dead after max_attempts.
//   - A connection lost before the ack: unknown whether the stream has it, so it is
//     published again, with the same message id.
//   - A subject or header that NATS cannot carry, a template that names a missing
//     header, a message above the server's or the stream's limit: dead at once.
//
// While the server cannot be reached or refuses the login, what is in hand waits
// as long as the queue's timeout allows before the attempt fails. Meanwhile
// a worker takes no more than its batches hold.
//
// # Once and the message id
//
// The message id goes along as Nats-Msg-Id. A stream drops a message whose id it
// has stored within its duplicate window (duplicate_window, 2 minutes by default)
// and acknowledges it all the same. So what is published again within the window
// is in the stream once; later than that it may be there twice. Make the window
// longer than the queue's timeout and its first backoffs together.
//
// Ids are unique in one database. Where several databases relay to one stream, or
// several subscriptions of a queue do, tell them apart by [relay.Mapping]'s
// MessageID, such as "orders-{{.MessageID}}": a stream would take the one for a
// repetition of the other, and drop it. The same holds for what is replayed within
// the window. A first attempt that the stream took for a repetition is logged.
package nats

import (
	"crypto/tls"
	"log/slog"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/nats"
	"github.com/posthaste-mq/posthaste/relay"
)

// Config says which server gets the messages and how. Only URL is required.
type Config struct {
	// URL names the servers of a cluster, separated by commas:
	// nats://user:password@host:4222, nats://token@host or tls://host. User,
	// password and token are percent-encoded. Unencrypted it is meant for the
	// same machine or a trusted network.
	URL string
	// Credentials is the file of a user's credentials (.creds), if the server asks
	// for such. It is read at each connection.
	Credentials string
	// Subject is the template of the subject (default "{{.Queue}}"). Texts from
	// messages must be tokens: without spaces and wildcards.
	Subject string
	// Stream is the stream that shall take the messages (default: whichever takes
	// the subject). Another one refuses them.
	Stream string
	// InboxPrefix is where acks come to (default "_INBOX"), for users who may
	// subscribe to nothing else.
	InboxPrefix string
	// Mapping is what goes along. Headers that begin with "Nats-" are orders to
	// the server: only those that stand here are passed on.
	Mapping relay.Mapping
	// Connections is how many publish side by side (default 2; 1 to 100).
	Connections int
	// Outstanding is how many messages of a connection may be without an ack
	// (default 4096; 1 to 65536).
	Outstanding int
	// DialTimeout bounds the opening of a connection (default 10 s).
	DialTimeout time.Duration
	// Heartbeat is how often connections are asked whether they live (default 10
	// s). One that misses two answers is lost.
	Heartbeat time.Duration
	// TLS is used for tls:// and for servers that ask for it; ServerName and
	// MinVersion get defaults. Nil trusts the system's authorities.
	TLS *tls.Config
	// Name is what the server shows of the connections (default "posthaste relay").
	Name string
	// Logger is told when the server was lost and when it is back (nil: nobody).
	Logger *slog.Logger
}

// target is a checked Config.
type target struct {
	Config
	address string // host:port, without user and password
	subject *relay.Template
	mapper  *relay.Mapper
	// ordered are the headers of the configuration that are orders to the server.
	ordered map[string]bool
	// encoded says that headers with eventPrefix are percent-encoded.
	encoded bool
}

// eventPrefix goes before a CloudEvent's attributes in headers, as in the
// standard's binding to NATS.
const eventPrefix = "ce-"

// orderPrefix is that of headers by which the server is told what to do.
const orderPrefix = "Nats-"

// parse checks the config and fills in defaults. Errors never hold the URL, for it
// may hold a password.
func parse(c Config) (*target, error) {
	t := &target{ordered: map[string]bool{}}
	var err error
	if t.address, err = nats.Address(c.URL, c.Credentials); err != nil {
		return nil, err
	}
	if strings.ContainsAny(c.Stream, " \t\r\n.*>/\\") {
		return nil, posthaste.Invalidf("stream", "stream %q is no stream's name: it holds a space, a dot, a slash or a wildcard", c.Stream)
	}
	if c.InboxPrefix != "" && !plainSubject(c.InboxPrefix) {
		return nil, posthaste.Invalidf("inbox_prefix", "inbox_prefix %q is no subject: tokens separated by dots, without spaces and wildcards", c.InboxPrefix)
	}
	if err := relay.Bounded("connections", &c.Connections, 2, 100); err != nil {
		return nil, err
	}
	if err := relay.Bounded("outstanding", &c.Outstanding, 4096, 1<<16); err != nil {
		return nil, err
	}
	if c.DialTimeout == 0 {
		c.DialTimeout = 10 * time.Second
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = 10 * time.Second
	}
	if c.Subject == "" {
		c.Subject = "{{.Queue}}"
	}
	if c.Name == "" {
		c.Name = "posthaste relay"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.TLS != nil {
		c.TLS = c.TLS.Clone()
		c.TLS.MinVersion = max(c.TLS.MinVersion, tls.VersionTLS12)
	}
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
			return nil, posthaste.Invalidf("headers."+name, "the header's name %q cannot go to NATS: letters, digits and -_.!#$%%&'*+^`|~ alone", name)
		case strings.EqualFold(name, natsgo.MsgIdHdr), strings.EqualFold(name, natsgo.ExpectedStreamHdr):
			return nil, posthaste.Invalidf("headers."+name, "the header %s is set by the relay: use message_id and stream", name)
		case strings.EqualFold(name, HeaderContentType):
			return nil, posthaste.Invalidf("headers."+name, "the header %s is set by the relay, to the content type of the message", name)
		case isOrder(name):
			t.ordered[name] = true
		}
	}
	t.Config = c
	t.encoded = c.Mapping.CloudEvents != nil && c.Mapping.CloudEvents.Mode != relay.Structured
	return t, nil
}
