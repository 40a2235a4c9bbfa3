// Package server is Posthaste's HTTP API. It serves messages, deliveries, queues, dead letters
// and e-mails as JSON under /v1. It also serves health checks, metrics and the OpenAPI
// description.
//
// A 2xx response means that the store has committed the change. Errors are RFC 9457 problem
// documents with a stable code and the field at fault.
//
// routes.go lists the operations, each resource has a file of its own, and openapi.yaml
// describes the API.
package server

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Sender stores messages. A [posthaste.Store] is a Sender, and so is a
// [posthaste.Client], which gathers concurrent callers into one transaction.
type Sender interface {
	// Send stores all messages or none. It returns their ids in order after the commit.
	Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.Sent, error)
}

// Server answers HTTP requests. It is an [http.Handler] and safe for concurrent use. Call
// [Server.Close] after the last request, or use [Server.Serve], which closes the server.
type Server struct {
	engine   posthaste.Store
	client   Sender
	log      *slog.Logger
	metrics  http.Handler
	tracing  posthaste.Tracing
	tokens   *tokens
	emails   string
	timeout  time.Duration
	spec     []byte
	gatherer *gatherer
	options  queueOptions
	// addresses and callers limit the request rates; waiting limits the receivers that wait.
	addresses, callers *limiter
	waiting            waitLimit
	ready              readiness
	// pages, sealer and cookiePath are of the mounted pages.
	pages      Pages
	sealer     *sealer
	cookiePath string
	stopping   chan struct{}
	stopOnce   sync.Once
	handler    http.Handler
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Close ends all waiting for messages and closes the doorbell. Call it after the last
// request was answered. Further calls do nothing.
func (s *Server) Close() {
	s.stop()
	s.gatherer.close()
}

// stop tells handlers that stream to return.
func (s *Server) stop() { s.stopOnce.Do(func() { close(s.stopping) }) }

// operation limits the time of one request's operation on the store.
func (s *Server) operation(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), s.timeout)
}
