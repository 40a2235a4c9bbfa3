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

// store is a server that the messages of a run lie in, and what is its engine's alone.
// All else of a rig is common.
type store interface {
	// cast are the roles of a run's processes, by their place.
	cast() []string
	// queues are those that the engine can have.
	queues() []string
	// deadliest is the fault that ends the server in the middle of something.
	deadliest() Fault
	// strikes are the faults that no other engine has.
	strikes() map[Fault]strike
	// start starts the server, and opens an engine straight to it.
	start(ctx context.Context) (posthaste.Engine, error)
	// address is where the server listens, "host:port".
	address() string
	// variable is what names the server to the shipped program, in its environment.
	variable() string
	// urlAt is the server's URL for a process that reaches it at an address.
	urlAt(address, process string) (string, error)
	// tellsEnd reports whether what the server sent says that something was done.
	tellsEnd(sent []byte) bool
	// look records what is left in the server when everything has come to rest.
	look(ctx context.Context) error
	// stop ends it, if it was started.
	stop(ctx context.Context) error
}

// newStore is the one of the run's engine.
func (r *rig) newStore() (store, error) {
	switch r.Engine {
	case OnPostgres:
		return &postgresStore{rig: r}, nil
	case OnRedis:
		return &redisStore{rig: r}, nil
	}
	return nil, fmt.Errorf("the engine must be %s or %s, and is %q", OnPostgres, OnRedis, r.Engine)
}

// open opens a child's engine, whose server may be away.
func (t task) open(ctx context.Context, log *slog.Logger) (posthaste.Engine, error) {
	if t.Engine == OnRedis {
		return redis.Open(ctx, t.URL, redis.Lazily())
	}
	return postgres.Open(ctx, t.URL, postgres.Logger(log), postgres.Lazily())
}
