package redis

import (
	"context"
	"net/url"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	servers "github.com/posthaste-mq/posthaste/internal/redis"
)

// The parameters of the URL of a cluster.
const (
	inCluster = "cluster" // true
	further   = "addr"    // another server of it, host:port; may be repeated
)

// dial makes a client for a URL. It does not connect.
func dial(address string) (goredis.UniversalClient, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, noURL()
	}
	of, err := clusterOf(u)
	if err != nil {
		return nil, err
	}
	if of {
		if u.Path != "" && u.Path != "/" && u.Path != "/0" {
			return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "url", Message: "a Redis cluster has no numbered databases", Hint: "leave out the path of the URL"}
		}
		o, err := goredis.ParseClusterURL(u.String())
		if err != nil {
			return nil, noURL()
		}
		if o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
			return nil, stale("url")
		}
		// Retries stay on: the client must ask another server if one does not answer or no
		// longer serves a slot. Scripts forbid a repetition themselves (once).
		o.DialerRetries = 1
		o.PoolSize, o.MaxActiveConns = connections, connections
		o.ContextTimeoutEnabled = true
		o.ClientName = "posthaste"
		return servers.ClusterClient(o), nil
	}
	o, err := goredis.ParseURL(address)
	if err != nil {
		return nil, noURL()
	}
	o.MaxRetries, o.DialerRetries = -1, 1 // callers decide about retries
	o.PoolSize, o.MaxActiveConns = connections, connections
	o.ContextTimeoutEnabled = true
	o.ClientName = "posthaste"
	return goredis.NewClient(o), nil
}

// ClusterClient makes a client of a cluster for [New] or package inbox. A master may stop
// answering without closing its connections. When another server takes its place, the client
// closes them and turns to the new master, usually within a second of the takeover, as the
// client of [Open] does. A client of go-redis alone waits for its timeouts, several of them
// one after the other. To ask who the masters are, ClusterClient uses the Dialer and the
// credentials in o. It changes o.
func ClusterClient(o *goredis.ClusterOptions) *goredis.ClusterClient { return servers.ClusterClient(o) }

// clusterOf reports whether a URL is that of a cluster, and removes the parameter cluster, which
// go-redis does not know.
func clusterOf(u *url.URL) (bool, error) {
	q := u.Query()
	switch said := q.Get(inCluster); said {
	case "":
		if q.Has(inCluster) {
			break
		}
		return q.Has(further), nil
	case "true":
		q.Del(inCluster)
		u.RawQuery = q.Encode()
		return true, nil
	}
	return false, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "url", Message: `the parameter cluster of a Redis URL must be "true" or left out`,
		Hint: "use a URL like redis://user:password@host:6379?cluster=true&addr=host2:6379"}
}

// noURL rejects a URL. It leaves out the cause, which may hold the password.
func noURL() error {
	return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "url", Message: "this is not the URL of a Redis server",
		Hint: "use a URL like redis://user:password@host:6379/0, and for a cluster like redis://user:password@host:6379?cluster=true&addr=host2:6379"}
}

// stale rejects a client whose reads a replica may answer. A replica that has not seen the
// drop of a queue would make the client create its keys again, and send messages to a queue
// that the registry does not list.
func stale(field string) error {
	return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: field, Message: "this client of a cluster reads from replicas, whose answers may be stale",
		Hint: "make it without ReadOnly, RouteByLatency and RouteRandomly"}
}

// checkFirst is the hook of an engine that was opened lazily. Each command first makes the
// checks of Open, until they have succeeded, and fails with their error.
type checkFirst struct {
	done  *atomic.Bool
	check func(context.Context) error // sets done
}

// checking marks the context of the checks, whose commands run at once.
type checking struct{}

func (c checkFirst) run(ctx context.Context) error {
	if c.done.Load() || ctx.Value(checking{}) != nil {
		return nil
	}
	return c.check(context.WithValue(ctx, checking{}, true))
}

// DialHook implements [goredis.Hook].
func (checkFirst) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// ProcessHook implements [goredis.Hook].
func (c checkFirst) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if err := c.run(ctx); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements [goredis.Hook].
func (c checkFirst) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		if err := c.run(ctx); err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		return next(ctx, cmds)
	}
}

// connections is the number of connections of a process, beside the one of the doorbell.
// Callers gather messages while they wait, so that more connections would not help.
const connections = 4
