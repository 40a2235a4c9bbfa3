package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// pushes is the floor on Redis: messages are pushed to a list, so many with a command,
// and nothing else.
type pushes struct {
	client *goredis.Client
	list   string
	batch  int
}

func (p *pushes) measure(ctx context.Context, n int, during time.Duration) (messages int64, took time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	batch := make([]any, p.batch)
	for i := range batch {
		batch[i] = []byte(payload)
	}
	var total atomic.Int64
	var wait sync.WaitGroup
	begun := time.Now()
	for range n {
		wait.Go(func() {
			for once := true; once || time.Since(begun) < during; once = false {
				if err := p.client.RPush(ctx, p.list, batch...).Err(); err != nil {
					cancel(fmt.Errorf("pushing to a list failed: %w", err))
					return
				}
				total.Add(int64(p.batch))
			}
		})
	}
	wait.Wait()
	took, err = time.Since(begun), context.Cause(ctx)
	if err == nil {
		err = p.client.Unlink(ctx, p.list).Err() // memory is what it would fill
	}
	return total.Load(), took, err
}

func (*pushes) turn() {}

func (*pushes) close() {}
