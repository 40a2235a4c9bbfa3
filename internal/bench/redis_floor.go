package bench

import (
	"context"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// pushes is the floor on Redis: it only pushes messages to a list, batch with each command.
type pushes struct {
	client *goredis.Client
	list   string
	batch  int
}

func (p *pushes) measure(ctx context.Context, n int, during time.Duration) (messages int64, took time.Duration, err error) {
	batch := make([]any, p.batch)
	for i := range batch {
		batch[i] = []byte(payload)
	}
	messages, took, err = forAWhile(ctx, n, during, func(ctx context.Context, _ int) (int64, error) {
		if err := p.client.RPush(ctx, p.list, batch...).Err(); err != nil {
			return 0, fmt.Errorf("pushing to a list failed: %w", err)
		}
		return int64(p.batch), nil
	})
	if err == nil {
		err = p.client.Unlink(ctx, p.list).Err() // because it would fill the memory
	}
	return messages, took, err
}

func (*pushes) turn() {}

func (*pushes) close() {}
