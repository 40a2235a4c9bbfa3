package server

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Config configures a [Server]. Only Engine is required.
type Config struct {
	// Engine stores the messages. The caller closes it after the server.
	Engine posthaste.Store
	// Client sends messages; the default is Engine. Use a [posthaste.Client] if many small
	// requests are expected.
	Client Sender
	// Logger receives one record per request and per failure; the default discards them.
	Logger *slog.Logger
	// Metrics answers /metrics. If it is nil, the server has no /metrics.
	Metrics http.Handler
	// Tracing observes sends and settlements; nil disables it. The traceparent of a request
	// is added to the messages that it sends in either case.
	Tracing posthaste.Tracing
	// Tokens may call the API within their scopes, in addition to the tokens that the engine
	// stores. If there are none, all callers may do everything until the first token is
	// added to the engine: see [CheckListen].
	Tokens []posthaste.Token
	// RequireToken rejects callers without a token even before the first token is added.
	RequireToken bool
	// Limits bounds the request rates and the receivers that wait.
	Limits Limits
	// Mount adds pages for browsers by path, such as "/caught", and all paths below it. Browsers
	// sign in with a token; programs send it as for the API.
	Mount map[string]Mount
	// Pages configures the mounted pages.
	Pages Pages
	// EmailsQueue is the queue for e-mails; the default is "emails".
	EmailsQueue string
	// Version is the program's version in /openapi.json; the default is "dev".
	Version string
	// OperationTimeout limits the time of one request's operation on the store, without the
	// time that a receiver waits for messages. The default is 30 s.
	OperationTimeout time.Duration
	// LookInterval is the interval at which the server polls a queue with waiting receivers.
	// Polling finds retries and scheduled messages that become due; new messages wake the
	// receivers at once. The default is 500 ms.
	LookInterval time.Duration
}

// New returns a server. It does not connect to the store, so the server can start and
// answer health checks while the store is down.
func New(config Config) (*Server, error) {
	s, err := newServer(config)
	if err != nil {
		return nil, err
	}
	if s.spec, err = describe(cmp.Or(config.Version, "dev")); err != nil {
		return nil, fmt.Errorf("server: openapi.yaml: %w", err)
	}
	s.handler = s.middleware(s.mux(s.routes(), config.Mount))
	return s, nil
}

// NewPages returns a server of the mounted pages alone, without the API.
func NewPages(config Config) (*Server, error) {
	s, err := newServer(config)
	if err != nil {
		return nil, err
	}
	s.handler = s.middleware(s.mux(nil, config.Mount))
	return s, nil
}

// newServer returns a server without its handler.
func newServer(config Config) (*Server, error) {
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
	if err := config.Pages.check(); err != nil {
		return nil, err
	}
	sealer, err := newSealer(config.Pages.Key)
	if err != nil {
		return nil, fmt.Errorf("server: session key: %w", err)
	}
	s := &Server{
		engine: config.Engine, client: config.Client, log: config.Logger, metrics: config.Metrics, tracing: config.Tracing,
		tokens: newTokens(config.Engine, config.Tokens, config.RequireToken), emails: cmp.Or(config.EmailsQueue, "emails"), timeout: config.OperationTimeout,
		addresses: newLimiter(config.Limits.AddressRate), callers: newLimiter(config.Limits.TokenRate), pages: config.Pages, sealer: sealer, stopping: make(chan struct{}),
	}
	if s.client == nil {
		s.client = config.Engine
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.timeout <= 0 {
		s.timeout = 30 * time.Second
	}
	s.gatherer = newGatherer(config.Engine, s.log, s.timeout, config.LookInterval)
	s.ready.engine = config.Engine
	s.waiting.most = int64(cmp.Or(config.Limits.MaxWaiting, 10_000))
	return s, nil
}
