package bench

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/brokers"
)

// relayPlace is the name of the broker's queue, topic or stream.
const relayPlace = "posthaste-bench-relay"

// place is the queue, topic or stream of a broker at which a relay is measured. It is not
// safe for concurrent use.
type place interface {
	// fresh deletes the place and creates it again, without messages.
	fresh(ctx context.Context) error
	// count returns the number of its messages.
	count(ctx context.Context) (int64, error)
	// publisher returns a publisher on a connection of its own that uses the broker's
	// client alone, with at most window unconfirmed messages.
	publisher(ctx context.Context, window int) (publisher, error)
	// sink returns a sink with the defaults of a relay.
	sink(log *slog.Logger) (posthaste.Sink, error)
	// close deletes the place.
	close()
}

// publisher publishes the messages of a relay without a relay.
type publisher interface {
	// publish publishes until a time, waits for the confirms, and returns the number of
	// messages.
	publish(ctx context.Context, until time.Time) (int64, error)
	close()
}

// kindOf returns the kind of a broker from its URL or its word; the default is the first
// kind. own reports that the run starts the broker itself.
func kindOf(broker string) (kind *brokers.Kind, own bool, err error) {
	scheme, _, isURL := strings.Cut(broker, "://")
	if broker == "" {
		scheme = brokers.All[0].Word
	}
	for _, k := range brokers.All {
		if k.Word != "" && (!isURL && scheme == k.Word || isURL && slices.Contains(k.Schemes, scheme)) {
			return k, !isURL, nil
		}
	}
	// Without the value, because it may hold a password.
	return nil, false, posthaste.Invalidf("broker", "broker must be a URL that begins with %s, or %s for the one of this machine",
		brokers.List(func(k *brokers.Kind) string { return k.Schemes[0] + "://" }), brokers.List(func(k *brokers.Kind) string { return k.Word }))
}

// notUsed returns the error of a broker that refuses a request of the run.
func notUsed(cause error) error {
	var u *url.Error
	if errors.As(cause, &u) {
		cause = u.Err // without the URL, which may hold a password
	}
	return &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "broker", Message: "the broker cannot be used: " + cause.Error(), Hint: "check --broker", Cause: cause}
}
