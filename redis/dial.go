package redis

import (
	"context"
	"net/url"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	servers "github.com/posthaste-mq/posthaste/internal/redis"
)

// The parameters of a URL that say that it is of a cluster.
const (
	inCluster = "cluster" // true
	further   = "addr"    // another of its servers, host:port; as often as is wanted
)

// dial makes the client that a URL names. It connects to nothing yet.
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
			return nil, &posthaste.Error{Code: posthaste.Invalid, Field: "url", Message: "a cluster of Redis has no databases by number", Hint: "leave out what follows the port"}
		}
		o, err := goredis.ParseClusterURL(u.String())
		if err != nil {
			return nil, noURL()
		}
		if o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
			return nil, stale("url")
		}
		// It has to ask another server where one does not answer or says who has a slot now;
		// scripts, which must not be repeated, say so themselves.
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
	o.MaxRetries, o.DialerRetries = -1, 1 // who calls knows better whether and when
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

// clusterOf reports whether a URL is of a cluster, and takes out what only we know.
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
	return false, &posthaste.Error{Code: posthaste.Invalid, Field: "url", Message: `the parameter cluster of a URL of Redis is "true" or left out`,
		Hint: "it looks like redis://user:password@host:6379?cluster=true&addr=host2:6379"}
}

// noURL says so without the cause, which could hold the password.
func noURL() error {
	return &posthaste.Error{Code: posthaste.Invalid, Field: "url", Message: "this is no URL of a Redis",
		Hint: "it looks like redis://user:password@host:6379/0, and for a cluster like redis://user:password@host:6379?cluster=true&addr=host2:6379"}
}

// stale refuses a client whose reads a replica may answer: one that has missed a
// queue's drop would let its keys be made anew, which no registry lists, and messages
// be sent there.
func stale(field string) error {
	return &posthaste.Error{Code: posthaste.Unsupported, Field: field, Message: "this client of a cluster reads from replicas, whose answers may be stale",
		Hint: "make it without ReadOnly, RouteByLatency and RouteRandomly"}
}

// lookFirst lets the commands of an engine that was opened lazily wait until the server
// was looked at and found right: what is not right is the answer to each of them.
type lookFirst struct{ e *Engine }

// looking marks the context of the look itself.
type looking struct{}

func (l lookFirst) look(ctx context.Context) error {
	if l.e.begun.Load() || ctx.Value(looking{}) != nil {
		return nil
	}
	return l.e.begin(context.WithValue(ctx, looking{}, true), l.e.client)
}

// DialHook implements [goredis.Hook].
func (lookFirst) DialHook(next goredis.DialHook) goredis.DialHook { return next }

// ProcessHook implements [goredis.Hook].
func (l lookFirst) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if err := l.look(ctx); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements [goredis.Hook].
func (l lookFirst) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		if err := l.look(ctx); err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		return next(ctx, cmds)
	}
}
