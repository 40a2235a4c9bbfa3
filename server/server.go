// Package server is Posthaste's HTTP API: messages, deliveries, queues, dead
// letters and e-mails as JSON under /v1, with health, metrics and the API's own
// description beside it. One resource is one file, and openapi.yaml describes
// them all.
//
// Nothing is answered with 2xx before the store has committed it. Errors are
// RFC 9457 problems that carry a stable code and the field at fault.
package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/posthaste-mq/posthaste"
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
	// Tokens may call the API, each within its scopes. Without any, everybody
	// who reaches the address may do everything: see [CheckListen].
	Tokens []Token
	// Mount adds handlers, by path such as "/caught"; what lies below the path
	// belongs to the handler too. They need the scope admin.
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
	tokens   []Token
	emails   string
	timeout  time.Duration
	spec     []byte
	gatherer *gatherer
	ready    readiness
	handler  http.Handler
}

// New makes a server. It does not touch the store yet, so it can be made and
// asked for its health while the store is down.
func New(config Config) (*Server, error) {
	if config.Engine == nil {
		return nil, posthaste.Invalidf("Engine", "server: Config.Engine is required")
	}
	for _, token := range config.Tokens {
		if err := token.check(); err != nil {
			return nil, err
		}
	}
	s := &Server{
		engine: config.Engine, client: config.Client, log: config.Logger, metrics: config.Metrics,
		tokens: config.Tokens, emails: config.EmailsQueue, timeout: config.OperationTimeout,
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
	scope Scope
	// answer writes the success, or returns the error to be told.
	answer func(w http.ResponseWriter, r *http.Request) error
}

func (s *Server) routes() []route {
	routes := []route{
		{"POST", "/v1/queues/{queue}/messages", ScopeSend, s.sendMessages},
		{"POST", "/v1/queues/{queue}/receive", ScopeReceive, s.receive},
		{"POST", "/v1/deliveries/ack", ScopeReceive, s.settle(ackFields)},
		{"POST", "/v1/deliveries/fail", ScopeReceive, s.settle(failFields)},
		{"POST", "/v1/deliveries/release", ScopeReceive, s.settle(releaseFields)},
		{"POST", "/v1/deliveries/extend", ScopeReceive, s.extend},
		{"GET", "/v1/messages", ScopeAdmin, s.listMessages},
		{"GET", "/v1/messages/{id}", ScopeAdmin, s.showMessage},
		{"DELETE", "/v1/messages/{id}", ScopeAdmin, notYet("cancelling a message")},
		{"GET", "/v1/queues", ScopeAdmin, s.listQueues},
		{"GET", "/v1/queues/{queue}", ScopeAdmin, s.showQueue},
		{"PUT", "/v1/queues/{queue}", ScopeAdmin, s.putQueue},
		{"DELETE", "/v1/queues/{queue}", ScopeAdmin, s.dropQueue},
		{"POST", "/v1/queues/{queue}/pause", ScopeAdmin, notYet("pausing a queue")},
		{"POST", "/v1/queues/{queue}/resume", ScopeAdmin, notYet("resuming a queue")},
		{"GET", "/v1/dead-letters", ScopeAdmin, s.listDeadLetters},
		{"POST", "/v1/dead-letters/replay", ScopeAdmin, s.decideDeadLetters(s.engine.Replay)},
		{"POST", "/v1/dead-letters/discard", ScopeAdmin, s.decideDeadLetters(s.engine.Discard)},
		{"GET", "/v1/workers", ScopeAdmin, s.listWorkers},
		{"POST", "/v1/emails", ScopeSend, s.sendEmail},
		{"GET", "/v1/emails", ScopeAdmin, s.listEmails},
		{"GET", "/v1/emails/{id}", ScopeAdmin, s.showEmail},
		{"GET", "/healthz", "", s.healthz},
		{"GET", "/readyz", "", s.readyz},
		{"GET", "/openapi.json", "", s.openapi},
	}
	if s.metrics != nil {
		routes = append(routes, route{"GET", "/metrics", ScopeAny, s.showMetrics})
	}
	return routes
}

// notYet answers operations that the product has and this version does not.
func notYet(what string) func(http.ResponseWriter, *http.Request) error {
	return func(http.ResponseWriter, *http.Request) error {
		return &posthaste.Error{Code: posthaste.Unsupported, Message: what + " is not supported yet"}
	}
}

func (s *Server) mux(mounts map[string]http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		mux.Handle(r.method+" "+r.path, s.guard(r.scope, r.answer))
	}
	for path, handler := range mounts {
		mounted := s.guard(ScopeAdmin, func(w http.ResponseWriter, r *http.Request) error {
			handler.ServeHTTP(w, r)
			return nil
		})
		mux.Handle(path, mounted)
		if path[len(path)-1] != '/' {
			mux.Handle(path+"/", mounted)
		}
	}
	return mux
}

// guard lets a request through to answer if its token allows, and writes the
// error that answer returns.
func (s *Server) guard(scope Scope, answer func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r, err := s.authorize(r, scope)
		if err == nil {
			err = refuseIdempotencyKey(r)
		}
		if err == nil {
			err = answer(w, r)
		}
		if err != nil {
			s.writeError(w, r, err)
		}
	})
}

// refuseIdempotencyKey refuses what is not honoured yet: a client that sends
// the header would otherwise believe that a repetition is harmless.
func refuseIdempotencyKey(r *http.Request) error {
	if r.Header.Get("Idempotency-Key") == "" {
		return nil
	}
	return &posthaste.Error{
		Code: posthaste.Unsupported, Field: "Idempotency-Key",
		Message: "the header Idempotency-Key is not supported yet", Hint: "leave it out; a request that is repeated may be stored twice",
	}
}

// operation bounds what one request asks of the store.
func (s *Server) operation(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), s.timeout)
}
