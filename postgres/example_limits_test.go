package postgres_test

import (
	"context"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
)

// At most five webhooks run at a time, and at most 50 start per second, over all processes.
func limitedQueue(ctx context.Context, engine *postgres.Engine) error {
	return engine.CreateQueue(ctx, "webhooks", posthaste.QueueOptions{Limits: posthaste.QueueLimits{
		Concurrency: 5,
		RateLimit:   posthaste.Rate{Limit: 50, Per: time.Second},
	}})
}

// A customer with many messages delays only their own.
func fairQueue(ctx context.Context, engine *postgres.Engine) error {
	return engine.CreateQueue(ctx, "exports", posthaste.QueueOptions{Fair: true})
}

func Example_limits() {
	ctx := context.Background()
	engine, err := postgres.Open(ctx, "postgres://posthaste@127.0.0.1:5484/posthaste")
	if err != nil {
		return
	}
	defer engine.Close()
	_, _ = limitedQueue(ctx, engine), fairQueue(ctx, engine)
}
