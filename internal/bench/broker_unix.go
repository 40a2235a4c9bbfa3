//go:build unix

package bench

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/posthaste-mq/posthaste/internal/devbroker"
)

// startBroker starts the broker of this machine that goes by a word, with its data in
// dir.
func startBroker(ctx context.Context, word, dir string) (url string, stop func(), err error) {
	switch word {
	case "rabbitmq":
		return started(devbroker.StartRabbitMQ(ctx, dir))
	case "kafka":
		return started(devbroker.StartKafka(ctx, dir))
	case "redis":
		return started(devbroker.StartRedis(ctx, dir, "--appendfsync", "everysec"))
	case "nats": // in a process of its own, for this one is measured
		// It lasts until it is stopped, as the others do.
		c, err := startChild(context.WithoutCancel(ctx), "nats", order{Dir: dir})
		if err != nil {
			return "", nil, err
		}
		return c.ready.URL, func() {
			if err := c.end(); err != nil {
				slog.Warn("bench could not stop a broker", slog.Any("error", err))
			}
		}, nil
	}
	return "", nil, fmt.Errorf("there is no broker %q", word)
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

// natsServer is NATS until the parent lets go of it.
func natsServer(ctx context.Context, o *orders) error {
	n, err := devbroker.StartNATS(ctx, o.first.Dir, nil)
	if err != nil {
		return err
	}
	defer n.Stop()
	o.tell(report{Ready: true, URL: n.URL()})
	o.stay()
	return nil
}
