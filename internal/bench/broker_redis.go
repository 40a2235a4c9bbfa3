package bench

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/broker/redisstream"
)

// redisPlace is a stream of Redis.
type redisPlace struct {
	url     string
	options goredis.Options
	client  *goredis.Client
}

func openRedisStream(ctx context.Context, _ *run, url string) (place, error) {
	options, err := goredis.ParseURL(url)
	if err != nil {
		return nil, posthaste.Invalidf("broker", "broker is not a valid Redis URL, such as redis://user:password@host:6379/0")
	}
	options.PoolSize, options.MaxRetries = 1, -1
	client := goredis.NewClient(options)
	if err := client.Ping(ctx).Err(); err != nil {
		client.Close()
		return nil, notUsed(err)
	}
	return &redisPlace{url, *options, client}, nil
}

func (p *redisPlace) fresh(ctx context.Context) error { return p.client.Del(ctx, relayPlace).Err() }

func (p *redisPlace) count(ctx context.Context) (int64, error) {
	return p.client.XLen(ctx, relayPlace).Result()
}

func (p *redisPlace) sink(log *slog.Logger) (posthaste.Sink, error) {
	return redisstream.NewSink(redisstream.SinkConfig{URL: redisstream.URL(p.url), Stream: relayPlace, Logger: log})
}

func (p *redisPlace) close() {
	ctx, cancel := context.WithTimeout(context.Background(), clearing)
	defer cancel()
	_ = p.client.Del(ctx, relayPlace).Err()
	p.client.Close()
}

type redisPublisher struct {
	client *goredis.Client
	window int
}

func (p *redisPlace) publisher(_ context.Context, window int) (publisher, error) {
	options := p.options
	return &redisPublisher{goredis.NewClient(&options), window}, nil
}

func (p *redisPublisher) close() { p.client.Close() }

// publish repeatedly writes window commands and reads their replies.
func (p *redisPublisher) publish(ctx context.Context, until time.Time) (published int64, err error) {
	for time.Now().Before(until) {
		pipe := p.client.Pipeline()
		for n := range p.window {
			pipe.XAdd(ctx, &goredis.XAddArgs{Stream: relayPlace, Values: []any{redisstream.FieldMessageID, strconv.FormatInt(published+int64(n), 10),
				redisstream.FieldContentType, posthaste.ContentTypeJSON, redisstream.FieldPayload, []byte(payload), "posthaste-queue", "relay"}})
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return published, err
		}
		published += int64(p.window)
	}
	return published, nil
}
