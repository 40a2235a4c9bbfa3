// Package redis is the engine on Redis 7.0 or newer, one server or a cluster. What
// it does not do yet is refused with an error whose code is Unsupported, and
// docs/redis-engine.md says how it works and what is missing.
//
// It promises what the [posthaste.Engine] promises, within what Redis keeps: what
// its append-only file or its replicas have lost is lost. Each step that moves a
// message is one script, which Redis runs whole or not at all.
package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/pacedbell"
)

// connections is how many connections a process has, beside one that listens at
// the doorbell. What gathers meanwhile goes in one call, so that more would not help.
const connections = 4

// layoutVersion is that of the keys and of what they hold. It rises when programs that
// know the last one would lose messages beside this one: those of 1 know no further
// subscriptions, and remove contents that these still want; those of 2 take what is due
// with a priority above 0 for due decades later.
const layoutVersion = "3"

// layoutBefore is one whose keys this program understands: it marks them as its own.
const layoutBefore = "2"

// Engine implements [posthaste.Engine]. It is safe for concurrent use.
type Engine struct {
	client goredis.UniversalClient
	owned  bool
	lazy   bool
	begun  atomic.Bool // the server was looked at, and its keys have the layout
	// cluster: keys of several queues cannot be in one script.
	cluster bool
	keys    keys
	keep    int

	mu       sync.RWMutex
	byName   map[string]*queue
	byNo     map[int64]*queue                                   // further subscriptions, too
	dropping map[string]string                                  // queues that are being dropped, as the registry has them
	joined   map[posthaste.WorkerID]map[posthaste.QueueRef]bool // the subscriptions that workers of this process claimed from
	stood    map[posthaste.WorkerID]string                      // what they are, as the registry said last

	pacer *pacedbell.Pacer

	ticking sync.Mutex
	failed  map[string]time.Time // queues of which no schedule was ticked since one failed, and when that was tried last
}

// Option changes how an engine is opened.
type Option func(*Engine)

// WithPrefix lets all keys begin with another word than "posthaste", so that
// several stores share a Redis. It consists of letters, digits, "-", "_" and ".".
func WithPrefix(prefix string) Option { return func(e *Engine) { e.keys.prefix = prefix } }

// WithKept keeps the outcome of the last n settled messages of each queue without
// retention, so that they can be looked up by id (default 1,000, at least 0).
func WithKept(n int) Option { return func(e *Engine) { e.keep = n } }

// Lazily makes [Open] return without having connected: Redis may come later, and
// until then every method answers Unavailable. What Open would have looked at is
// looked at by each call until it was found right. [New] ignores it.
func Lazily() Option { return func(e *Engine) { e.lazy = true } }

// Open connects to Redis at a URL (redis:// or rediss://, with user, password and
// database number), checks that it is one that messages can be trusted to, and
// begins to use it. With the parameter cluster=true, or further servers as addr=host:port,
// it is one of a cluster. The caller closes the engine.
func Open(ctx context.Context, url string, options ...Option) (*Engine, error) {
	e, err := newEngine(options)
	if err != nil {
		return nil, err
	}
	if e.client, err = dial(url); err != nil {
		return nil, err
	}
	e.owned = true
	_, e.cluster = e.client.(*goredis.ClusterClient)
	if e.lazy {
		e.client.AddHook(lookFirst{e})
		return e, nil
	}
	if err := e.begin(ctx, e.client); err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// New is [Open] for a client that the caller has and closes: of one server, or of a
// cluster, best by [ClusterClient].
func New(ctx context.Context, client goredis.UniversalClient, options ...Option) (*Engine, error) {
	e, err := newEngine(options)
	if err != nil {
		return nil, err
	}
	e.client = client
	switch c := client.(type) {
	case *goredis.ClusterClient:
		if o := c.Options(); o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
			return nil, stale("client")
		}
		e.cluster = true
	case *goredis.Ring:
		return nil, &posthaste.Error{Code: posthaste.Unsupported, Field: "client", Message: "a Ring puts keys on another server when one is away, and messages would be lost from sight",
			Hint: "give a client of one Redis (NewClient) or of a cluster (NewClusterClient)"}
	}
	if err := e.begin(ctx, client); err != nil {
		return nil, err
	}
	return e, nil
}

func newEngine(options []Option) (*Engine, error) {
	e := &Engine{keys: keys{prefix: "posthaste"}, keep: 1000,
		byName: map[string]*queue{}, byNo: map[int64]*queue{}, joined: map[posthaste.WorkerID]map[posthaste.QueueRef]bool{}, stood: map[posthaste.WorkerID]string{}}
	e.pacer = pacedbell.New(e.probe)
	for _, o := range options {
		o(e)
	}
	if err := posthaste.CheckName("prefix", strings.ToLower(e.keys.prefix)); err != nil {
		return nil, err
	}
	if e.keep < 0 {
		return nil, posthaste.Invalidf("kept", "kept must not be negative, got %d", e.keep)
	}
	return e, nil
}

// begin looks whether the server can be trusted with messages, and marks its keys
// with their layout, or refuses another one.
func (e *Engine) begin(ctx context.Context, c goredis.Cmdable) error {
	if err := e.masters(ctx, c, e.check); err != nil {
		return err
	}
	// It is read first: a Redis that is out of memory refuses to set even what is there,
	// and workers that start then are what empties it.
	have, err := c.Get(ctx, e.keys.layout()).Result()
	if errors.Is(err, goredis.Nil) {
		if err = c.SetNX(ctx, e.keys.layout(), layoutVersion, 0).Err(); err == nil {
			have, err = c.Get(ctx, e.keys.layout()).Result()
		}
	}
	if have == layoutBefore && err == nil {
		// Out of memory that is refused, and done by who starts later.
		if err = c.Set(ctx, e.keys.layout(), layoutVersion, 0).Err(); posthaste.CodeOf(readError(err)) == posthaste.Unavailable && answered(err) {
			err = nil
		}
		have = layoutVersion
	}
	if err != nil {
		return readError(err)
	}
	if have != layoutVersion {
		return &posthaste.Error{Code: posthaste.SchemaNew, Message: fmt.Sprintf("the keys below %q have the layout %.20q, and this program knows %s", e.keys.prefix, have, layoutVersion),
			Hint: "use a program of the version that made them, or another prefix"}
	}
	e.begun.Store(true)
	return nil
}

// about is what a server says of itself: INFO by its names.
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

// masters calls do for each master of a cluster, or for the one Redis that there is. Those
// of a cluster are asked one by one, and told by their addresses. One that is away is left
// out if another answers: it keeps nobody from the queues of the others.
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
		case posthaste.CodeOf(err) == posthaste.Unavailable && !answered(err):
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

// check refuses a Redis that cannot do what is needed, or would lose messages.
func (e *Engine) check(ctx context.Context, c goredis.Cmdable) error {
	about, err := about(ctx, c)
	if err != nil {
		return err
	}
	version := about["redis_version"]
	major, _, _ := strings.Cut(version, ".")
	if n, err := strconv.Atoi(major); err != nil || n < 7 {
		return &posthaste.Error{Code: posthaste.Unsupported, Message: "Redis " + version + " is older than 7.0",
			Hint: "use Redis 7.0 or newer"}
	}
	if about["role"] == "slave" {
		return &posthaste.Error{Code: posthaste.ReadOnly, Message: "this Redis is a replica, which takes no writes", Hint: "connect to the master"}
	}
	if policy := about["maxmemory_policy"]; about["maxmemory"] != "0" && strings.HasPrefix(policy, "allkeys-") {
		return &posthaste.Error{Code: posthaste.Unsupported, Message: "this Redis removes any key when its memory is full (maxmemory-policy " + policy + "): messages would be lost",
			Hint: "set maxmemory-policy noeviction"}
	}
	return e.permitted(ctx, c)
}

// Ready implements [posthaste.Engine].
func (e *Engine) Ready(ctx context.Context) error {
	have, err := e.client.Get(ctx, e.keys.layout()).Result()
	switch {
	case errors.Is(err, goredis.Nil):
		return &posthaste.Error{Code: posthaste.SchemaOld, Message: "Redis has lost the keys below " + e.keys.prefix, Hint: "it was emptied, or its data was not kept: look at its persistence, then start anew"}
	case err != nil:
		return readError(err)
	case have != layoutVersion && have != layoutBefore:
		return &posthaste.Error{Code: posthaste.SchemaNew, Message: "the keys have another layout than this program knows"}
	}
	return nil
}

// Close implements [posthaste.Engine].
func (e *Engine) Close() {
	if e.owned {
		_ = e.client.Close()
	}
}

// Vitals implements [posthaste.Admin].
func (e *Engine) Vitals(ctx context.Context) (v posthaste.Vitals, err error) {
	workers, err := e.Workers(ctx)
	if err != nil {
		return v, err
	}
	theirs, err := e.client.Time(ctx).Result()
	if err != nil {
		return v, readError(err)
	}
	for _, w := range workers {
		if w.LostAt.IsZero() {
			v.Workers++
			v.HeartbeatAge = max(v.HeartbeatAge, theirs.Sub(w.HeartbeatAt))
		} else {
			v.OverdueWorkers++
		}
	}
	return v, nil
}
