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

// startNATSServers starts one NATS server of this machine, or a cluster of three, with their data in
// dir.
func startNATSServers(ctx context.Context, dir string, servers int) (url string, pids []int, stop func(), err error) {
	if servers == 1 {
		n, err := devbroker.StartNATS(ctx, dir)
		if err != nil {
			return "", nil, nil, err
		}
		return n.URL(), []int{n.PID()}, n.Stop, nil
	}
	c, err := devbroker.StartNATSClusterDirect(ctx, dir)
	if err != nil {
		return "", nil, nil, err
	}
	for _, n := range c.Nodes {
		pids = append(pids, n.PID())
	}
	return c.Nodes[0].URL(), pids, c.Stop, nil // all connections to the same one
}
