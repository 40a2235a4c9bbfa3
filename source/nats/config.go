// Package nats is the source that takes messages of a stream of NATS JetStream into a
// queue of the ledger, by a durable pull consumer. See package source for what is
// promised.
//
// A message is known again by its header Nats-Msg-Id, or else by its sequence in the
// stream. One that was handed over and not acknowledged comes again: at once where the
// source knows of it, as when it stops or connects anew, and else, as where the process
// died or the message was on its way on a connection that was lost, after the
// consumer's AckWait, which is 30 seconds where the source makes the consumer. While
// it holds messages it keeps that from running out.
//
// What the ledger refuses for good is published to another subject, with its headers
// and the reason; it is acknowledged once a stream has it. Where server or stream have
// no room for message and reason together, it is published as it came, and behind it
// the reason in a message of its own, whose header [HeaderRefusedAt] says where it is.
package nats

import (
	"cmp"
	"crypto/tls"
	"strings"
	"time"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/nats"
	"github.com/posthaste-mq/posthaste/source"
)

// HeaderContentType is the header of a message's content type.
const HeaderContentType = "content-type"

// Config says which messages are taken from where. Queue, URL and Stream are required.
type Config struct {
	source.Config
	// URL names the servers of a cluster, separated by commas:
	// nats://user:password@host:4222, nats://token@host or tls://host. User,
	// password and token are percent-encoded. Unencrypted it is meant for the same
	// machine or a trusted network.
	URL string
	// Credentials is the file of a user's credentials (.creds), if the server asks
	// for such. It is read at each connection.
	Credentials string
	// Stream is the stream. It has to be there.
	Stream string
	// Consumer is the durable pull consumer (default "posthaste"). It is made if there
	// is none, and begins with the oldest message then.
	Consumer string
	// Subject is what a consumer that is made passes on, with wildcards (default: all
	// of the stream).
	Subject string
	// Refused is the subject for what the ledger refuses (default
	// "posthaste.refused." with the stream's name, for which a stream is made, if
	// there is none). Another stream than Stream has to take it.
	Refused string
	// InboxPrefix is where answers come to (default "_INBOX"), for users who may
	// subscribe to nothing else.
	InboxPrefix string
	// DialTimeout bounds the opening of a connection (default 10 s).
	DialTimeout time.Duration
	// TLS is used for tls:// and for servers that ask for it; ServerName and
	// MinVersion get defaults. Nil trusts the system's authorities.
	TLS *tls.Config
	// Name is what the server shows of the connections (default "posthaste source").
	Name string
}

// eventPrefix goes before a CloudEvent's attributes in headers, as in the standard's
// binding to NATS.
const eventPrefix = "ce-"

// New checks the configuration and returns a source into the ledger, which is a
// [posthaste.Engine]. It connects to nobody yet. Errors are *posthaste.Error with the
// field, and hold no password.
func New(ledger source.Ledger, c Config) (*source.Source, error) {
	b := &broker{}
	var err error
	if b.address, err = nats.Address(c.URL, c.Credentials); err != nil {
		return nil, err
	}
	c.Consumer = cmp.Or(c.Consumer, "posthaste")
	for _, f := range [...]struct{ field, name string }{{"stream", c.Stream}, {"consumer", c.Consumer}} {
		if f.name == "" || strings.ContainsAny(f.name, " \t\r\n.*>/\\") {
			return nil, posthaste.Invalidf(f.field, "%s %q is no name: it is empty, or holds a space, a dot, a slash or a wildcard", f.field, f.name)
		}
	}
	b.makes = c.Refused == ""
	if c.Refused = cmp.Or(c.Refused, "posthaste.refused."+c.Stream); strings.ContainsAny(c.Refused, " \t\r\n*>") {
		return nil, posthaste.Invalidf("refused", "refused %q is no subject: tokens separated by dots, without spaces and wildcards", c.Refused)
	}
	if c.TLS != nil || strings.HasPrefix(c.URL, "tls:") {
		if c.TLS = c.TLS.Clone(); c.TLS == nil {
			c.TLS = &tls.Config{}
		}
		c.TLS.MinVersion = max(c.TLS.MinVersion, tls.VersionTLS12)
	}
	c.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	c.Name = cmp.Or(c.Name, "posthaste source")
	b.Config = c
	return source.New(ledger, c.Config, b)
}
