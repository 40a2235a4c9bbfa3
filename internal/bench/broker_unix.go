//go:build unix

package bench

import (
	"context"
	"fmt"

	"github.com/posthaste-mq/posthaste/internal/devbroker"
)

// startBroker starts the broker of this machine with the given word, with its data in dir.
func startBroker(ctx context.Context, word, dir string) (url string, stop func(), err error) {
	switch word {
	case "rabbitmq":
		return started(devbroker.StartRabbitMQ(ctx, dir))
	case "kafka":
		return started(devbroker.StartKafka(ctx, dir))
	case "redis":
		return started(devbroker.StartRedis(ctx, dir, "--appendfsync", "everysec"))
	case "nats":
		return started(devbroker.StartNATS(ctx, dir))
	}
	return "", nil, fmt.Errorf("unknown broker %q", word)
}

func started[B interface {
	URL() string
	Stop()
}](b B, err error) (string, func(), error) {
	if err != nil {
		return "", nil, err
	}
	return b.URL(), b.Stop, nil
}
