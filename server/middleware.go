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

// exchangeTime bounds how long a client may take to send a request or to take
// an answer, so that slow ones do not hold connections for ever.
const exchangeTime = 2 * time.Minute

func allowWriting(c *http.ResponseController) {
	// Writers that know no deadlines (in tests) need none.
	_ = c.SetWriteDeadline(time.Now().Add(exchangeTime))
}

// middleware is what every request goes through: its id, deadlines, the log,
// panics, and problems in place of the mux's plain texts.
func (s *Server) middleware(mux *http.ServeMux) http.Handler {
	protection := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		id := newRequestID(r)
		r = r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id))
		w.Header().Set("X-Request-Id", id)
		protectAnswer(w.Header())
		answer := &recorder{ResponseWriter: w}
		controller := http.NewResponseController(w)
		_ = controller.SetReadDeadline(start.Add(exchangeTime))
		allowWriting(controller)

		defer func() {
			if p := recover(); p != nil {
				s.recovered(answer, r, p)
			}
			s.logRequest(r, answer, time.Since(start))
		}()
		if err := cmp.Or(s.limitAddress(r), checkOrigin(protection, r)); err != nil {
			s.writeError(answer, r, err)
			return
		}
		if handler, pattern := mux.Handler(r); pattern == "" || unclean(r) {
			s.unrouted(answer, r, handler)
			return
		}
		mux.ServeHTTP(answer, r)
	})
}

// unclean says that the mux would redirect to another path, without dots and empty
// parts. Only what changes nothing may be led there: a client that follows DELETE
// /v1/queues/orders/subscriptions/.. would drop the queue.
func unclean(r *http.Request) bool {
	is := r.URL.EscapedPath()
	clean := path.Clean(is)
	return clean != strings.TrimSuffix(is, "/") && clean != is && r.Method != http.MethodGet && r.Method != http.MethodHead
}

// protectAnswer keeps what is answered from pages of other sites: none may show
// it, run it or load it. Handlers of pages replace the policy by their own.
func protectAnswer(h http.Header) {
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
}

// recovered answers a panic, unless an answer has begun: then the connection
// is cut, so that nobody takes half an answer for a whole one.
func (s *Server) recovered(w *recorder, r *http.Request, p any) {
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.log.LogAttrs(r.Context(), slog.LevelError, "panic while answering a request", slog.String("request_id", requestID(r)),
		slog.String("method", r.Method), slog.String("route", r.Pattern), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
	if w.status != 0 {
		panic(http.ErrAbortHandler)
	}
	s.writeError(w, r, errors.New("panic"))
}

// unrouted answers what no route takes. The mux's own handler knows whether
// it is 404, 405 or a redirect to the clean path.
func (s *Server) unrouted(w *recorder, r *http.Request, handler http.Handler) {
	probe := &statusProbe{header: http.Header{}}
	handler.ServeHTTP(probe, r)
	switch {
	case probe.status == http.StatusMethodNotAllowed:
		allow := probe.header.Get("Allow")
		w.Header().Set("Allow", allow)
		s.writeError(w, r, &httpError{status: probe.status, err: &posthaste.Error{
			Code: posthaste.Invalid, Field: "method", Message: r.URL.Path + " does not take " + r.Method, Hint: "it takes " + allow,
		}})
	case probe.status >= 300 && probe.status < 400 && !unclean(r):
		handler.ServeHTTP(w, r)
	default:
		s.writeError(w, r, &posthaste.Error{Code: posthaste.NotFound, Message: "nothing is at " + r.URL.EscapedPath(), Hint: "/openapi.json tells what there is"})
	}
}

// logRequest writes what was asked and answered: the route rather than the
// path, and no headers or parameters, which may hold what is nobody's business.
func (s *Server) logRequest(r *http.Request, w *recorder, took time.Duration) {
	level := slog.LevelDebug
	if w.status >= 500 && r.Context().Err() == nil { // who has left is no fault
		level = slog.LevelWarn
	}
	s.log.LogAttrs(r.Context(), level, "request", slog.String("request_id", requestID(r)), slog.String("method", r.Method),
		slog.String("route", r.Pattern), slog.Int("status", w.status), slog.Int64("bytes", w.written), slog.Duration("took", took))
}

type requestIDKey struct{}

func requestID(r *http.Request) string {
	id, _ := r.Context().Value(requestIDKey{}).(string)
	return id
}

// newRequestID takes the caller's X-Request-Id where it is fit for a log.
func newRequestID(r *http.Request) string {
	id := r.Header.Get("X-Request-Id")
	unfit := strings.ContainsFunc(id, func(c rune) bool {
		return (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '_' && c != '.'
	})
	if id != "" && len(id) <= 64 && !unfit {
		return id
	}
	return uuid.NewString()
}

// recorder remembers what was answered.
type recorder struct {
	http.ResponseWriter
	status  int
	written int64
}

// Unwrap lets [http.ResponseController] reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) WriteHeader(status int) {
	if w.status == 0 && status >= 200 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(body []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(body)
	w.written += int64(n)
	return n, err
}

// statusProbe learns a handler's status and headers and drops the rest.
type statusProbe struct {
	header http.Header
	status int
}

func (p *statusProbe) Header() http.Header         { return p.header }
func (p *statusProbe) Write(b []byte) (int, error) { return len(b), nil }
func (p *statusProbe) WriteHeader(status int)      { p.status = status }
