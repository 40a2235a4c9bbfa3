// Package server is Posthaste's HTTP API: messages, deliveries, queues, dead
// letters and e-mails as JSON under /v1, with health, metrics and the API's own
// description beside it. One resource is one file, and openapi.yaml describes
// them all.
//
// Nothing is answered with 2xx before the store has committed it. Errors are
// RFC 9457 problems that carry a stable code and the field at fault.
package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// Sender stores messages; a [posthaste.Engine] is one, and so is a client that
// gathers concurrent callers into one transaction.
type Sender interface {
	// Send stores all messages or none, and returns their ids in order once
	// they are committed.
	Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.MessageID, error)
}

// Config is what a server is made of. Only Engine is required.
type Config struct {
	// Engine is where messages live. The caller closes it, after the server.
	Engine posthaste.Engine
	// Client sends messages (default: Engine). Give a client that gathers
	// concurrent callers where many small requests are expected.
	Client Sender
	// Logger receives one record per request and per fault (default: none).
	Logger *slog.Logger
	// Metrics answers /metrics (default: there is no /metrics).
	Metrics http.Handler
	// Tracing follows what is sent and settled (default: none). Without it a
	// request's traceparent still travels on with the messages that it sends.
	Tracing posthaste.Tracing
	// Tokens may call the API, each within its scopes, beside those that the
	// engine has. Without any, everybody who reaches the address may do
	// everything until the engine's first token is made: see [CheckListen].
	Tokens []posthaste.Token
	// RequireToken lets nobody in without a token, also before there is one.
	RequireToken bool
	// Limits bound what callers may ask for.
	Limits Limits
	// Mount adds handlers, by path such as "/caught"; what lies below the path
	// belongs to the handler too. They need the scope admin, and take a token as the
	// password of basic authentication as well, which browsers ask for.
	Mount map[string]http.Handler
	// EmailsQueue is the queue of e-mails (default "emails").
	EmailsQueue string
	// Version is the program's version, shown by /openapi.json (default "dev").
	Version string
	// OperationTimeout bounds what one request asks of the store, waiting for
	// messages not included (default 30 s).
	OperationTimeout time.Duration
	// LookInterval is how often a queue with waiting receivers is looked at
	// when nothing rings, which finds retries and messages that fall due
	// (default 500 ms). New messages do not wait for it.
	LookInterval time.Duration
}

// Server answers HTTP requests. It is an [http.Handler], safe for concurrent
// use; the caller ends it by [Server.Close], or lets [Server.Serve] do both.
type Server struct {
	engine   posthaste.Engine
	client   Sender
	log      *slog.Logger
	metrics  http.Handler
	tracing  posthaste.Tracing
	tokens   *tokens
	emails   string
	timeout  time.Duration
	spec     []byte
	gatherer *gatherer
	// addresses and callers are the limits on rates, waiting that on receivers.
	addresses, callers *limiter
	waiting            places
	ready              readiness
	handler            http.Handler
}

// New makes a server. It does not touch the store yet, so it can be made and
// asked for its health while the store is down.
func New(config Config) (*Server, error) {
	if config.Engine == nil {
		return nil, posthaste.Invalidf("Engine", "server: Config.Engine is required")
	}
	for _, token := range config.Tokens {
		if err := token.Check(); err != nil {
			return nil, err
		}
	}
	if err := config.Limits.check(); err != nil {
		return nil, err
	}
	s := &Server{
		engine: config.Engine, client: config.Client, log: config.Logger, metrics: config.Metrics, tracing: config.Tracing,
		tokens: newTokens(config.Engine, config.Tokens, config.RequireToken), emails: config.EmailsQueue, timeout: config.OperationTimeout,
	}
	if s.client == nil {
		s.client = config.Engine
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.emails == "" {
		s.emails = "emails"
	}
	if s.timeout <= 0 {
		s.timeout = 30 * time.Second
	}
	version := config.Version
	if version == "" {
		version = "dev"
	}
	spec, err := describe(version)
	if err != nil {
		return nil, fmt.Errorf("server: openapi.yaml: %w", err)
	}
	s.spec = spec
	s.gatherer = newGatherer(config.Engine, s.log, s.timeout, config.LookInterval)
	s.ready.engine = config.Engine
	s.addresses, s.callers = newLimiter(config.Limits.AddressRate), newLimiter(config.Limits.TokenRate)
	s.waiting.most = int64(cmp.Or(config.Limits.MaxWaiting, 10_000))
	s.handler = s.middleware(s.mux(config.Mount))
	return s, nil
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Close ends all waiting for messages and lets go of the doorbell. It is called
// after the last request was answered, and may be called twice.
func (s *Server) Close() { s.gatherer.close() }

// route is one operation of the API. openapi.yaml has the same ones: a test
// walks both ways.
type route struct {
	method string
	path   string
	// scope is what a token must have; "" lets everybody in.
	scope  Scope
	answer answer
}

// answer writes the success, or returns the error to be told.
type answer func(w http.ResponseWriter, r *http.Request) error

func (s *Server) routes() []route {
	routes := []route{
		{"POST", "/v1/queues/{queue}/messages", ScopeSend, bare(s.sendMessages)},
		{"POST", "/v1/queues/{queue}/receive", ScopeReceive, s.receive},
		{"POST", "/v1/deliveries/ack", ScopeReceive, bare(s.settle(ackFields))},
		{"POST", "/v1/deliveries/fail", ScopeReceive, bare(s.settle(failFields))},
		{"POST", "/v1/deliveries/release", ScopeReceive, bare(s.settle(releaseFields))},
		{"POST", "/v1/deliveries/extend", ScopeReceive, bare(s.extend)},
		{"GET", "/v1/messages", ScopeAdmin, s.listMessages},
		{"GET", "/v1/messages/{id}", ScopeAdmin, bare(s.showMessage)},
		{"DELETE", "/v1/messages/{id}", ScopeAdmin, plain(s.cancelMessage)},
		{"POST", "/v1/messages/{id}/reschedule", ScopeAdmin, bare(s.rescheduleMessage)},
		{"POST", "/v1/queues/{queue}/subscriptions/{subscription}", ScopeAdmin, bare(s.subscribe)},
		{"DELETE", "/v1/queues/{queue}/subscriptions/{subscription}", ScopeAdmin, s.done(func(ctx context.Context, r *http.Request) error {
			return s.engine.QueueUnsubscribe(ctx, caller(r), r.PathValue("queue"), r.PathValue("subscription"))
		})},
		{"POST", "/v1/queues/{queue}/purge", ScopeAdmin, plain(s.purgeQueue)},
		{"GET", "/v1/doctor", ScopeAdmin, bare(s.doctor)},
		{"GET", "/v1/queues", ScopeAdmin, listing(s, func(ctx context.Context) ([]posthaste.QueueInfo, error) { return s.engine.Queues(ctx) }, wire.NewQueue)},
		{"GET", "/v1/queues/{queue}", ScopeAdmin, bare(s.showQueue)},
		{"PUT", "/v1/queues/{queue}", ScopeAdmin, bare(s.putQueue)},
		{"DELETE", "/v1/queues/{queue}", ScopeAdmin, s.done(func(ctx context.Context, r *http.Request) error {
			return s.engine.QueueDrop(ctx, r.PathValue("queue"))
		})},
		{"POST", "/v1/queues/{queue}/pause", ScopeAdmin, plain(s.decideQueue(s.engine.QueuePause))},
		{"PUT", "/v1/queues/{queue}/limits", ScopeAdmin, bare(s.limitQueue)},
		{"POST", "/v1/queues/{queue}/keys/pause", ScopeAdmin, bare(s.decideKey(s.engine.KeyPause))},
		{"POST", "/v1/queues/{queue}/keys/resume", ScopeAdmin, bare(s.decideKey(s.engine.KeyResume))},
		{"POST", "/v1/queues/{queue}/resume", ScopeAdmin, plain(s.decideQueue(s.engine.QueueResume))},
		{"GET", "/v1/dead-letters", ScopeAdmin, s.listDeadLetters},
		{"POST", "/v1/dead-letters/replay", ScopeAdmin, bare(s.decideDeadLetters(s.engine.Replay, s.engine.ReplayMatching))},
		{"POST", "/v1/dead-letters/discard", ScopeAdmin, bare(s.decideDeadLetters(s.engine.Discard, s.engine.DiscardMatching))},
		{"GET", "/v1/actions", ScopeAdmin, s.listActions},
		{"GET", "/v1/schedules", ScopeAdmin, listing(s, func(ctx context.Context) ([]posthaste.ScheduleInfo, error) { return s.engine.Schedules(ctx) }, wire.NewSchedule)},
		{"GET", "/v1/schedules/{schedule}", ScopeAdmin, bare(s.showSchedule)},
		{"PUT", "/v1/schedules/{schedule}", ScopeAdmin, bare(s.putSchedule)},
		{"DELETE", "/v1/schedules/{schedule}", ScopeAdmin, s.done(func(ctx context.Context, r *http.Request) error {
			return s.engine.ScheduleDrop(ctx, r.PathValue("schedule"))
		})},
		{"POST", "/v1/schedules/{schedule}/pause", ScopeAdmin, plain(s.pauseSchedule)},
		{"POST", "/v1/schedules/{schedule}/resume", ScopeAdmin, plain(s.resumeSchedule)},
		{"POST", "/v1/erase", ScopeAdmin, bare(s.erase)},
		{"GET", "/v1/workers", ScopeAdmin, listing(s, s.engine.Workers, wire.NewWorker)},
		{"POST", "/v1/emails", ScopeSend, bare(s.sendEmail)},
		{"GET", "/v1/emails", ScopeAdmin, s.listEmails},
		{"GET", "/v1/emails/{id}", ScopeAdmin, bare(s.showEmail)},
		{"GET", "/healthz", "", s.healthz},
		{"GET", "/readyz", "", s.readyz},
		{"GET", "/openapi.json", "", s.openapi},
	}
	if s.metrics != nil {
		routes = append(routes, route{"GET", "/metrics", ScopeAny, s.showMetrics})
	}
	return routes
}

func (s *Server) mux(mounts map[string]http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		mux.Handle(r.method+" "+r.path, s.guard(r.scope, r.answer))
	}
	for path, handler := range mounts {
		mounted := withPassword(s.guard(ScopeAdmin, func(w http.ResponseWriter, r *http.Request) error {
			handler.ServeHTTP(w, r)
			return nil
		}))
		mux.Handle(path, mounted)
		if path[len(path)-1] != '/' {
			mux.Handle(path+"/", mounted)
		}
	}
	return mux
}

// guard lets a request through to answer if its token allows, and writes the
// error that answer returns.
func (s *Server) guard(scope Scope, answer answer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, err := s.authorize(r, scope)
		if err == nil {
			err = s.limitToken(r)
		}
		if err == nil {
			err = cmp.Or(checkPath(r), refuseIdempotencyKey(r))
		}
		if err == nil {
			err = answer(w, r)
		}
		if err != nil {
			s.writeError(w, r, err)
		}
	})
}

// operation bounds what one request asks of the store.
func (s *Server) operation(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), s.timeout)
}
