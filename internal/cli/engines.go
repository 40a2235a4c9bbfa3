package cli

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/remote"
	"github.com/posthaste-mq/posthaste/nats"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/redis"
)

// The engines, as --engine names them. A new one has its name here, its URL in [storeURLs] and
// an entry in [engines]; if `posthaste up` can start it, also one in localEngines.
const (
	onPostgres = "postgres"
	onRedis    = "redis"
	onNATS     = "nats"
	onHTTP     = "http"
)

// storeURLs has a URL for each of [engines]: those of the flags, of a context or of a result.
type storeURLs struct {
	DatabaseURL string `yaml:"database_url,omitempty" json:"database_url,omitempty"`
	RedisURL    string `yaml:"redis_url,omitempty" json:"redis_url,omitempty"`
	NATSURL     string `yaml:"nats_url,omitempty" json:"nats_url,omitempty"`
	ServerURL   string `yaml:"server_url,omitempty" json:"server_url,omitempty"`
}

// engineKind is a kind of store.
type engineKind struct {
	engine string // of --engine
	name   string // for a person
	target string // for a person, as the target of a relay
	// flag is the flag of the URL, and variable its common variable, or "".
	flag, variable        string
	noun, reason, example string // usage of flag
	schemes               []string
	// token is set if a user without a password in the URL is a token. several is set if the
	// URL can name several servers, each with a scheme, separated by commas.
	token, several bool
	// prepares is set if server and worker create the queue of e-mails. On PostgreSQL,
	// `migrate up` does it.
	prepares bool
	url      func(*storeURLs) *string
	open     func(context.Context, opening) (posthaste.Store, error)
}

// engines are the kinds of stores, in the order in which messages list them.
var engines = []engineKind{
	{engine: onPostgres, name: "PostgreSQL", flag: "database-url", variable: "DATABASE_URL", schemes: []string{"postgres", "postgresql"},
		noun: "PostgreSQL URL", example: "postgres://user:password@host:5432/database",
		url: func(u *storeURLs) *string { return &u.DatabaseURL }, open: openPostgres},
	{engine: onRedis, name: "Redis", flag: "redis-url", variable: "REDIS_URL", schemes: []string{"redis", "rediss"}, prepares: true,
		noun: "Redis URL", reason: ", to use Redis instead of PostgreSQL", example: "redis://user:password@host:6379/0",
		url: func(u *storeURLs) *string { return &u.RedisURL }, open: openRedis},
	{engine: onNATS, name: "NATS", flag: "nats-url", variable: "NATS_URL", schemes: []string{"nats", "tls"}, prepares: true, token: true, several: true,
		noun: "NATS URL", reason: ", to use NATS JetStream instead of PostgreSQL", example: "nats://user:password@host:4222",
		url: func(u *storeURLs) *string { return &u.NATSURL }, open: openNATS},
	{engine: onHTTP, name: "a server", target: "Posthaste server", flag: "server-url", schemes: []string{"https", "http"},
		noun: "URL of a Posthaste server", reason: ", to use its HTTP API instead of a database", example: "https://mq.example.com",
		url: func(u *storeURLs) *string { return &u.ServerURL }, open: openServer},
}

// opening says how a store is opened.
type opening struct {
	url  string
	lazy bool // without connecting
	log  *slog.Logger
	// postgres are further options of that engine. The others are for a server.
	postgres       []postgres.Option
	token          string
	allowPlainHTTP bool
}

func openPostgres(ctx context.Context, o opening) (posthaste.Store, error) {
	options := append([]postgres.Option{postgres.WithLogger(o.log)}, o.postgres...)
	if o.lazy {
		options = append(options, postgres.WithLazyConnect())
	}
	return opened(postgres.Open(ctx, o.url, options...))
}

func openRedis(ctx context.Context, o opening) (posthaste.Store, error) {
	var options []redis.Option
	if o.lazy {
		options = append(options, redis.WithLazyConnect())
	}
	return opened(redis.Open(ctx, o.url, options...))
}

func openNATS(ctx context.Context, o opening) (posthaste.Store, error) {
	var options []nats.Option
	if o.lazy {
		options = append(options, nats.WithLazyConnect())
	}
	return opened(nats.Open(ctx, o.url, options...))
}

func openServer(_ context.Context, o opening) (posthaste.Store, error) {
	return opened(remote.Open(remote.Config{URL: o.url, Token: o.token, AllowPlainHTTP: o.allowPlainHTTP, Program: "posthaste/" + version()}))
}

// opened returns an engine as a store: nil if there is an error.
func opened[E posthaste.Store](engine E, err error) (posthaste.Store, error) {
	if err != nil {
		return nil, err
	}
	return engine, nil
}

// openAt opens a store. The error of an invalid URL names its flag.
func (k engineKind) openAt(ctx context.Context, o opening) (posthaste.Store, error) {
	engine, err := k.open(ctx, o)
	if e, ok := errors.AsType[*posthaste.Error](err); ok && e.Field == "url" {
		e.Field = k.flag
	}
	return engine, err
}

// kindOf returns the kind that --engine names. There must be one.
func kindOf(engine string) engineKind {
	return engines[slices.IndexFunc(engines, func(k engineKind) bool { return k.engine == engine })]
}

// kindOfURL returns the kind of the store with a URL.
func kindOfURL(text string) (engineKind, bool) {
	scheme, _, _ := strings.Cut(text, "://")
	i := slices.IndexFunc(engines, func(k engineKind) bool { return slices.Contains(k.schemes, scheme) })
	if i < 0 {
		return engineKind{}, false
	}
	return engines[i], true
}

// servers returns the servers that the URL of a store names. A part that has no scheme belongs to
// the one before it, since a password can have a comma.
func servers(text string) []string {
	if k, ok := kindOfURL(text); !ok || !k.several {
		return []string{text}
	}
	var all []string
	for part := range strings.SplitSeq(text, ",") {
		if len(all) > 0 && !strings.Contains(part, "://") {
			all[len(all)-1] += "," + part
			continue
		}
		all = append(all, part)
	}
	return all
}

// flags adds the flags of all URLs.
func (u *storeURLs) flags(flags *pflag.FlagSet, usage func(engineKind) string) {
	for _, k := range engines {
		flags.StringVar(k.url(u), k.flag, "", usage(k))
	}
}

// usageOfURL returns the usage of the flag of a URL that selects the store of a command.
func usageOfURL(k engineKind) string {
	usage := k.noun + k.reason + ", " + k.example
	if k.variable != "" {
		usage += " (or " + k.variable + ")"
	}
	return usage
}

// set returns the kinds whose URL is set.
func (u *storeURLs) set() (kinds []engineKind) {
	for _, k := range engines {
		if *k.url(u) != "" {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// one returns the URL that is set, if it is a single one.
func (u *storeURLs) one() string {
	text := ""
	for _, k := range u.set() {
		text += *k.url(u)
	}
	return text
}

// engineNames returns the names of the engines that a condition holds for, or of all.
func engineNames(holds func(engineKind) bool) (names []string) {
	for _, k := range engines {
		if holds == nil || holds(k) {
			names = append(names, k.engine)
		}
	}
	return names
}

// orList joins words as "a, b or c", after a prefix each.
func orList(prefix string, words []string) string {
	text := ""
	for i, word := range words {
		switch {
		case i > 0 && i == len(words)-1:
			text += " or "
		case i > 0:
			text += ", "
		}
		text += prefix + word
	}
	return text
}

// urlNames returns the flags of all URLs, as "--database-url, --redis-url or --server-url".
func urlNames() string {
	var names []string
	for _, k := range engines {
		names = append(names, k.flag)
	}
	return orList("--", names)
}

// urlVariables returns the variables that set URLs.
func urlVariables() (names []string) {
	for _, k := range engines {
		names = append(names, envName(k.flag))
		if k.variable != "" {
			names = append(names, k.variable)
		}
	}
	return names
}
