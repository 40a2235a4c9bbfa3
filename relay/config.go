package relay

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/posthaste-mq/posthaste"
)

// Defaults of a relay: the maximum number of messages that are published together, and the
// number of such batches at a time.
const (
	DefaultBatch       = 500
	DefaultConcurrency = 4
)

// Bounded sets a setting of 0 to its default, and returns an error if it is not between 1
// and limit.
func Bounded(field string, n *int, by, limit int) error {
	if *n == 0 {
		*n = by
	}
	if *n < 1 || *n > limit {
		return posthaste.Invalidf(field, "%s must be 1 to %d, got %d", field, limit, *n)
	}
	return nil
}

// BoundedLoad is [Bounded] for the settings connections (default 2, at most 100) and outstanding
// (default 4096, at most 65536), the messages without an answer on each of them.
func BoundedLoad(connections, outstanding *int) error {
	if err := Bounded("connections", connections, 2, 100); err != nil {
		return err
	}
	return Bounded("outstanding", outstanding, 4096, 1<<16)
}

// ClientTLS returns a copy of a configuration (nil: an empty one) that demands TLS 1.2 or later
// and, unless it names another one, a certificate for the host. If host is empty, the name is
// left to the client.
func ClientTLS(c *tls.Config, host string) *tls.Config {
	if c = c.Clone(); c == nil {
		c = &tls.Config{}
	}
	c.ServerName = cmp.Or(c.ServerName, host)
	c.MinVersion = max(c.MinVersion, tls.VersionTLS12)
	return c
}

// Reworded returns an error with another text, which wraps its cause.
func Reworded(text string, cause error) error { return &rewordedError{text, cause} }

type rewordedError struct {
	text  string
	cause error
}

// Error implements error.
func (e *rewordedError) Error() string { return e.text }

// Unwrap returns the cause.
func (e *rewordedError) Unwrap() error { return e.cause }

// Failed returns an error with a cause (nil: unknown) that wraps ctx's error if ctx ended.
func Failed(ctx context.Context, what string, cause error) error {
	if cause != nil && !errors.Is(cause, ctx.Err()) {
		what += ": " + cause.Error()
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return errors.New(what)
}

// HintCertificate is the hint for a broker's certificate that cannot be verified.
const HintCertificate = "use a certificate that is valid for the name in the URL and issued by an authority that this machine trusts"
