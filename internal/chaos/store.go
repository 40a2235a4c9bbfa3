//go:build unix

package chaos

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/redis"
)

// The engines that a rig runs on.
const (
	OnPostgres = "postgres"
	OnRedis    = "redis"
)

// store is the server of a run's messages, with everything that depends on the engine.
type store interface {
	// cast returns the roles of a run's processes, by place.
	cast() []string
	// queues returns the queues that the engine supports.
	queues() []string
	// deadliest is the fault that kills the server with work in flight.
	deadliest() Fault
	// strikes returns the faults that only this engine has.
	strikes() map[Fault]strike
	// start starts the server, and opens an engine directly to it.
	start(ctx context.Context) (posthaste.Store, error)
	// address returns the server's address, "host:port".
	address() string
	// variable is the environment variable that names the server to the shipped program.
	variable() string
	// urlAt returns the server's URL for a process that reaches it at an address.
	urlAt(address, process string) (string, error)
	// tellsEnd reports whether data from the server says that a request was done.
	tellsEnd(sent []byte) bool
	// look records the content of the server after all messages were settled.
	look(ctx context.Context) error
	// stop ends it, if it was started.
	stop(ctx context.Context) error
}

// newStore returns the store of the run's engine.
func (r *rig) newStore() (store, error) {
	switch r.Engine {
	case OnPostgres:
		return &postgresStore{rig: r}, nil
	case OnRedis:
		return &redisStore{rig: r}, nil
	}
	return nil, fmt.Errorf("the engine must be %s or %s, and is %q", OnPostgres, OnRedis, r.Engine)
}

// open opens a child's engine, whose server may be unavailable.
func (t task) open(ctx context.Context, log *slog.Logger) (posthaste.Store, error) {
	if t.Engine == OnRedis {
		return redis.Open(ctx, t.URL, redis.WithLazyConnect())
	}
	return postgres.Open(ctx, t.URL, postgres.WithLogger(log), postgres.WithLazyConnect())
}
