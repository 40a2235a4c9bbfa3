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
)

// relayPlace is what messages are relayed to: the broker's queue, topic, stream.
const relayPlace = "posthaste-bench-relay"

// brokerKind is a kind of broker that relays are measured on.
type brokerKind struct {
	// name is how a person calls it, and word how [Options.Broker] names the one of
	// this machine.
	name, word string
	schemes    []string
	// install says how it gets on the machine.
	install string
	open    func(ctx context.Context, r *run, url string) (place, error)
}

// place is where in a broker a relay is measured. Its methods are called one at a time.
type place interface {
	// fresh makes it anew, without messages.
	fresh(ctx context.Context) error
	// count is how many messages it has.
	count(ctx context.Context) (int64, error)
	// publisher is the broker's client alone, on a connection of its own, with at most
	// window messages that are not confirmed.
	publisher(ctx context.Context, window int) (publisher, error)
	// sink is the relay's, as it is by default.
	sink(log *slog.Logger) (posthaste.Sink, error)
	// close removes it.
	close()
}

// publisher publishes what a relay would.
type publisher interface {
	// publish goes on until the time is up and all is confirmed, and says how many
	// messages that were.
	publish(ctx context.Context, until time.Time) (int64, error)
	close()
}

var rabbitmqBroker = &brokerKind{"RabbitMQ", "rabbitmq", []string{"amqp", "amqps"}, "Debian: apt-get install rabbitmq-server", openRabbitMQ}

var redisBroker = &brokerKind{"Redis Streams", "redis", []string{"redis", "rediss"}, "Debian: apt-get install redis-server", openRedisStream}

// brokerKinds are those that there are; the first is the default.
var brokerKinds = []*brokerKind{
	rabbitmqBroker,
	{"Kafka", "kafka", []string{"kafka", "kafkas"}, "Java, and its jars: make needs fetches them", openKafka},
	{"NATS JetStream", "nats", []string{"nats", "tls"}, "go install github.com/nats-io/nats-server/v2@latest", openNATS},
	redisBroker,
}

// kindOf is the kind of a broker that is named by its URL or its word, RabbitMQ where
// it is not named at all. own says that it is the one of this machine, which the run
// starts.
func kindOf(broker string) (kind *brokerKind, own bool, err error) {
	scheme, _, isURL := strings.Cut(broker, "://")
	if broker == "" {
		scheme = rabbitmqBroker.word
	}
	for _, k := range brokerKinds {
		if !isURL && scheme == k.word || isURL && slices.Contains(k.schemes, scheme) {
			return k, !isURL, nil
		}
	}
	// The rest of what was said may hold a password.
	return nil, false, posthaste.Invalidf("broker", "broker must be a URL that begins with amqp://, kafka://, nats:// or redis://, or rabbitmq, kafka, nats or redis for the one of this machine")
}

// notUsed says that a broker refuses what the run needs of it.
func notUsed(cause error) error {
	var u *url.Error
	if errors.As(cause, &u) {
		cause = u.Err // the rest of its text is the URL, with its password
	}
	return &posthaste.Error{Code: posthaste.Unavailable, Field: "broker", Message: "the broker cannot be used: " + cause.Error(), Hint: "check --broker", Cause: cause}
}
