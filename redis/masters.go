package redis

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

// about returns the fields of INFO by name.
func about(ctx context.Context, c goredis.Cmdable) (map[string]string, error) {
	text, err := c.Info(ctx).Result()
	if err != nil {
		return nil, readError(err)
	}
	about := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			about[name] = value
		}
	}
	return about, nil
}

// masters calls do for each master of a cluster, or for the only server. Errors of a cluster
// name the server. An unreachable master is not an error if another one answers, so that the
// queues of the others remain usable.
func (e *Engine) masters(ctx context.Context, c goredis.Cmdable, do func(context.Context, goredis.Cmdable) error) error {
	cluster, ok := c.(*goredis.ClusterClient)
	if !ok {
		return do(ctx, c)
	}
	var mu sync.Mutex
	var away, refused error
	answers := 0
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, m *goredis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		err := do(ctx, m)
		var said *posthaste.Error
		if errors.As(err, &said) {
			of := *said
			of.Message = "server " + m.Options().Addr + " of the cluster: " + of.Message
			err = &of
		}
		switch {
		case err == nil:
			answers++
		case posthaste.CodeOf(err) == posthaste.CodeUnavailable && !answered(err):
			away = cmp.Or(away, err)
		default:
			refused = cmp.Or(refused, err)
		}
		return nil
	})
	if refused == nil && answers == 0 {
		refused = away
	}
	return cmp.Or(refused, readError(err))
}
