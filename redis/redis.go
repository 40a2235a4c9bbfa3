// Package redis is the engine on Redis 7.0 or newer, on one server or a cluster. Methods that
// it does not support return an error with code [posthaste.CodeUnsupported].
// docs/production/redis-engine.md lists them and explains the engine.
//
// The engine's guarantees depend on the durability of Redis: messages that its append-only file
// or its replicas lose are lost. Each step that moves a message is one script, which Redis runs
// atomically.
package redis

import (
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste/internal/pacedbell"
)

// Engine implements [posthaste.Engine]. It is safe for concurrent use.
//
// Each of its parts has a lock of its own. None is held during a call to Redis. Code that
// needs several takes registry.mu before leases.mu, and ticker.mu last.
type Engine struct {
	client  goredis.UniversalClient
	keys    keys
	owned   bool        // Close closes the client
	cluster bool        // the keys of several queues cannot be in one script
	begun   atomic.Bool // begin found the server and the layout of its keys right

	registry registry
	leases   leases
	ticker   ticker
	charted  charted
	pacer    *pacedbell.Pacer
}

// Close implements [posthaste.Engine].
func (e *Engine) Close() {
	if e.owned {
		_ = e.client.Close()
	}
}
