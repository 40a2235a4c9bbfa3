//go:build unix

package bench

import (
	"context"

	"github.com/posthaste-mq/posthaste/internal/devbroker"
)

// startRedis starts the one that is installed, with its data in dir.
func startRedis(ctx context.Context, dir string) (url string, stop func(), err error) {
	b, err := devbroker.StartRedis(ctx, dir, "--appendfsync", "everysec")
	if err != nil {
		return "", nil, err
	}
	return b.URL(), b.Stop, nil
}

// startRabbitMQ starts the one that is installed, with its data in dir.
func startRabbitMQ(ctx context.Context, dir string) (url string, stop func(), err error) {
	b, err := devbroker.StartRabbitMQ(ctx, dir)
	if err != nil {
		return "", nil, err
	}
	return b.URL(), b.Stop, nil
}
