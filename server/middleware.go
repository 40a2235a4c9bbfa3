package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/posthaste-mq/posthaste"
)

// middleware wraps the mux for every request. It sets the request id, deadlines and
// security headers, logs the request, recovers panics, and replaces the plain-text errors
// of the mux with problems.
func (s *Server) middleware(mux *http.ServeMux) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		response := &recorder{ResponseWriter: w, exchange: exchange{id: newRequestID(r)}}
		r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, &response.exchange))
		w.Header().Set("X-Request-Id", response.exchange.id)
		protectAnswer(w.Header())
		controller := http.NewResponseController(w)
		_ = controller.SetReadDeadline(start.Add(exchangeTime))
		allowWriting(controller)

		defer func() {
			if p := recover(); p != nil {
				s.recovered(response, r, p)
			}
			s.logRequest(r, response, time.Since(start))
		}()
		switch err := cmp.Or(s.limitAddress(response, r), checkOrigin(protection, r)); {
		case err != nil:
			s.writeError(response, r, err)
		case unclean(r):
			s.writeError(response, r, notRouted(r))
		default:
			s.route(mux, response, r)
		}
	})
}

// route passes the request to the mux. If no route takes it, the mux decides between 404,
// 405 and a redirect to the clean path; the first two are answered by problems.
func (s *Server) route(mux *http.ServeMux, w *recorder, r *http.Request) {
	w.routing = true
	mux.ServeHTTP(w, r)
	w.routing = false
	switch w.refused {
	case 0:
	case http.StatusMethodNotAllowed:
		s.writeError(w, r, wrongMethod(r, w.Header().Get("Allow")))
	default:
		s.writeError(w, r, notRouted(r))
	}
}

func wrongMethod(r *http.Request, allowed string) error {
	return &httpError{status: http.StatusMethodNotAllowed, err: &posthaste.Error{
		Code: posthaste.CodeInvalid, Field: "method", Message: r.URL.Path + " does not support the method " + r.Method, Hint: "use " + allowed,
	}}
}

func notRouted(r *http.Request) error {
	return &posthaste.Error{Code: posthaste.CodeNotFound, Message: "no resource at " + r.URL.EscapedPath(), Hint: "/openapi.json describes the API"}
}

// unclean reports whether the mux would redirect a request that may change something to
// another path, without dots and empty parts. Such requests are not redirected: a client
// that follows DELETE /v1/queues/orders/subscriptions/.. would drop the queue.
func unclean(r *http.Request) bool {
	is := r.URL.EscapedPath()
	clean := path.Clean(is)
	return clean != strings.TrimSuffix(is, "/") && clean != is && r.Method != http.MethodGet && r.Method != http.MethodHead
}

// protectAnswer prevents pages of other sites from showing, running or loading the
// response. Handlers of pages replace the policy with their own.
func protectAnswer(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
}

// recovered answers a panic with a problem. If the response has begun, it aborts the
// connection, so that the client does not take a part of the response for all of it.
func (s *Server) recovered(w *recorder, r *http.Request, p any) {
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.log.LogAttrs(r.Context(), slog.LevelError, "panic while answering a request", slog.String("request_id", w.exchange.id),
		slog.String("method", r.Method), slog.String("route", r.Pattern), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
	if w.status != 0 {
		panic(http.ErrAbortHandler)
	}
	s.writeError(w, r, errors.New("panic"))
}

// logRequest logs the route instead of the path, and no headers or parameters, because
// those may hold confidential data.
func (s *Server) logRequest(r *http.Request, w *recorder, took time.Duration) {
	level := slog.LevelDebug
	if w.status >= 500 && r.Context().Err() == nil { // a caller that left is no failure
		level = slog.LevelWarn
	}
	s.log.LogAttrs(r.Context(), level, "request", slog.String("request_id", w.exchange.id), slog.String("method", r.Method),
		slog.String("route", r.Pattern), slog.Int("status", w.status), slog.Int64("bytes", w.written), slog.Duration("took", took))
}

// newRequestID returns the caller's X-Request-Id if it is safe to log, or a new id.
func newRequestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	unsafe := strings.ContainsFunc(id, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '_' && c != '.'
	})
	if id != "" && len(id) <= 64 && !unsafe {
		return id
	}
	return uuid.NewString()
}

// recorder records the response of one exchange.
type recorder struct {
	http.ResponseWriter
	exchange exchange
	status   int
	written  int64
	// routing is set while the mux runs. An error response that the mux writes before it has
	// found a route is dropped, and only its status is kept in refused.
	routing bool
	refused int
}

// Unwrap gives [http.ResponseController] the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) WriteHeader(status int) {
	if w.routing && w.exchange.route == nil && status >= 400 {
		w.refused = status
		return
	}
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(body []byte) (int, error) {
	if w.refused != 0 && w.routing {
		return len(body), nil
	}
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(body)
	w.written += int64(n)
	return n, err
}
