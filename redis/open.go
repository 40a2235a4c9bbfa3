package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/pacedbell"
)

// layoutVersion is the version of the keys and their contents. It rises when programs with
// the previous layout would lose messages beside this one. Programs with layout 1 know no
// further subscriptions, and remove contents that those still need. Programs with layout 2
// take due messages with a priority above 0 for messages that are due decades later.
const layoutVersion = "3"

// layoutBefore is the layout that this program can read. It sets layoutVersion then.
const layoutBefore = "2"

// Option changes how an engine is opened.
type Option func(*settings)

type settings struct {
	prefix string
	kept   int
	lazy   bool
}

// WithPrefix makes all keys begin with prefix instead of "posthaste", so that several
// stores can share a Redis. A prefix consists of letters, digits, "-", "_" and ".".
func WithPrefix(prefix string) Option { return func(s *settings) { s.prefix = prefix } }

// WithKept keeps the outcome of the last n settled messages of each queue without
// retention, so that they can be looked up by id (default 1,000, at least 0).
func WithKept(n int) Option { return func(s *settings) { s.kept = n } }

// WithLazyConnect makes [Open] return before it has connected. Every method returns Unavailable
// until Redis can be reached. Each call then makes the checks of Open, until they succeed.
// [New] ignores this option.
func WithLazyConnect() Option { return func(s *settings) { s.lazy = true } }

// Open connects to Redis at a URL (redis:// or rediss://, with user, password and
// database number) and checks that the server does not lose messages. A URL with the
// parameter cluster=true, or with further servers as addr=host:port, is that of a cluster.
// The caller closes the engine.
func Open(ctx context.Context, url string, options ...Option) (*Engine, error) {
	s, err := settingsOf(options)
	if err != nil {
		return nil, err
	}
	client, err := dial(url)
	if err != nil {
		return nil, err
	}
	e := newEngine(client, s)
	e.owned = true
	if s.lazy {
		client.AddHook(checkFirst{&e.begun, func(ctx context.Context) error { return e.begin(ctx, client) }})
		return e, nil
	}
	if err := e.begin(ctx, client); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// New is [Open] for a client of the caller, which the caller closes. For a cluster, make
// the client by [ClusterClient].
func New(ctx context.Context, client goredis.UniversalClient, options ...Option) (*Engine, error) {
	s, err := settingsOf(options)
	if err != nil {
		return nil, err
	}
	switch c := client.(type) {
	case *goredis.ClusterClient:
		if o := c.Options(); o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
			return nil, stale("client")
		}
	case *goredis.Ring:
		return nil, &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "client", Message: "a Ring moves keys to another server when one is unreachable, and messages would be lost from sight",
			Hint: "pass a client of one Redis (NewClient) or of a cluster (NewClusterClient)"}
	}
	e := newEngine(client, s)
	if err := e.begin(ctx, client); err != nil {
		return nil, err
	}
	return e, nil
}

func settingsOf(options []Option) (settings, error) {
	s := settings{prefix: "posthaste", kept: 1000}
	for _, o := range options {
		o(&s)
	}
	if err := posthaste.CheckName("prefix", strings.ToLower(s.prefix)); err != nil {
		return s, err
	}
	if s.kept < 0 {
		return s, posthaste.Invalidf("kept", "kept must not be negative, got %d", s.kept)
	}
	return s, nil
}

func newEngine(client goredis.UniversalClient, s settings) *Engine {
	e := &Engine{client: client, keys: keys{prefix: s.prefix}}
	_, e.cluster = client.(*goredis.ClusterClient)
	e.registry = registry{client: client, keys: e.keys, kept: s.kept, byName: map[string]*queue{}, byNo: map[int64]*queue{}}
	e.leases = newLeases()
	e.ticker = ticker{failed: map[string]time.Time{}}
	e.pacer = pacedbell.New(e.probe)
	return e
}

// begin checks that the server does not lose messages, and sets the layout of its keys or
// rejects an unknown one.
func (e *Engine) begin(ctx context.Context, c goredis.Cmdable) error {
	if err := e.masters(ctx, c, e.check); err != nil {
		return err
	}
	// Read the layout first: a Redis that is out of memory rejects every SET, and the workers
	// that start now are needed to free memory.
	have, err := c.Get(ctx, e.keys.layout()).Result()
	if errors.Is(err, goredis.Nil) {
		if err = c.SetNX(ctx, e.keys.layout(), layoutVersion, 0).Err(); err == nil {
			have, err = c.Get(ctx, e.keys.layout()).Result()
		}
	}
	if have == layoutBefore && err == nil {
		// If Redis is out of memory, a later start sets it.
		if err = c.Set(ctx, e.keys.layout(), layoutVersion, 0).Err(); posthaste.CodeOf(readError(err)) == posthaste.CodeUnavailable && answered(err) {
			err = nil
		}
		have = layoutVersion
	}
	if err != nil {
		return readError(err)
	}
	if have != layoutVersion {
		return &posthaste.Error{Code: posthaste.CodeSchemaNew, Message: fmt.Sprintf("the keys with prefix %q have layout %.20q, and this program expects %s", e.keys.prefix, have, layoutVersion),
			Hint: "use a program of the version that created them, or another prefix"}
	}
	e.begun.Store(true)
	return nil
}

// check rejects a server that lacks a function or would lose messages.
func (e *Engine) check(ctx context.Context, c goredis.Cmdable) error {
	about, err := about(ctx, c)
	if err != nil {
		return err
	}
	version := about["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < 7 {
		return &posthaste.Error{Code: posthaste.CodeUnsupported, Message: "Redis " + version + " is older than 7.0",
			Hint: "use Redis 7.0 or newer"}
	}
	if about["role"] == "slave" {
		return &posthaste.Error{Code: posthaste.CodeReadOnly, Message: "this Redis is a replica and accepts no writes", Hint: "connect to the master"}
	}
	if policy := about["maxmemory_policy"]; about["maxmemory"] != "0" && strings.HasPrefix(policy, "allkeys-") {
		return &posthaste.Error{Code: posthaste.CodeUnsupported, Message: "this Redis removes any key when its memory is full (maxmemory-policy " + policy + "): messages would be lost",
			Hint: "set maxmemory-policy noeviction"}
	}
	return e.permitted(ctx, c)
}

// Ready implements [posthaste.Engine].
func (e *Engine) Ready(ctx context.Context) error {
	have, err := e.client.Get(ctx, e.keys.layout()).Result()
	switch {
	case errors.Is(err, goredis.Nil):
		return &posthaste.Error{Code: posthaste.CodeSchemaOld, Message: "Redis has lost the keys with prefix " + e.keys.prefix, Hint: "it was emptied or did not persist its data: check its persistence, then restart this program"}
	case err != nil:
		return readError(err)
	case have != layoutVersion && have != layoutBefore:
		return &posthaste.Error{Code: posthaste.CodeSchemaNew, Message: "the keys have a layout that this program does not know", Hint: "use a program of the version that created them"}
	}
	return nil
}
