package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// problem is an RFC 9457 problem. The type is the code as a URN: stable, and
// about nothing but the code.
type problem struct {
	Type   string         `json:"type"`
	Title  string         `json:"title"`
	Status int            `json:"status"`
	Detail string         `json:"detail"`
	Code   posthaste.Code `json:"code"`
	// Field names the field, parameter or header at fault, if one is.
	Field string `json:"field,omitempty"`
	Hint  string `json:"hint,omitempty"`
	// RequestID is in the server's log too.
	RequestID string `json:"request_id,omitempty"`
	// IDs are the ids that the problem is about.
	IDs []string `json:"ids,omitempty"`
	// Deliveries tells, where some were settled and others not, of each.
	Deliveries []settled `json:"deliveries,omitempty"`
	// Subscriptions tells, of a message that could not be taken back, what it is to each.
	Subscriptions []wire.Withdrawal `json:"subscriptions,omitempty"`
	// Faults tells each fault where several were found.
	Faults []fault `json:"faults,omitempty"`
}

// fault is one of several faults of a request.
type fault struct {
	Field  string `json:"field,omitempty"`
	Detail string `json:"detail"`
}

// codeInternal is told where the server itself is at fault.
const codeInternal posthaste.Code = "internal"

// httpError is an error whose answer carries more than the code says.
type httpError struct {
	err error
	// status replaces the code's own, unless 0.
	status int
	// challenge is for the header WWW-Authenticate.
	challenge string
	// retryAfter is for the header Retry-After, in seconds, unless 0.
	retryAfter  int
	ids         []string
	deliveries  []settled
	withdrawals []wire.Withdrawal
	// asked says that the state of things was asked for, so this is no failure.
	asked bool
}

func (e *httpError) Error() string { return e.err.Error() }
func (e *httpError) Unwrap() error { return e.err }

// retryAfter is how many seconds clients are asked to wait while the store is away.
const retryAfter = 2

// statusOf maps a code to a status. The same code always answers the same,
// but for what is not supported: 400 where leaving a field out helps, 501
// where the whole operation is missing.
func statusOf(e *posthaste.Error) int {
	switch e.Code {
	case posthaste.Invalid:
		return http.StatusBadRequest
	case posthaste.NotFound:
		return http.StatusNotFound
	case posthaste.Conflict, posthaste.Refused, posthaste.WorkerLost:
		return http.StatusConflict
	case posthaste.KeyReused:
		return http.StatusUnprocessableEntity
	case posthaste.TooLarge:
		return http.StatusRequestEntityTooLarge
	case posthaste.Unsupported:
		if e.Field != "" {
			return http.StatusBadRequest
		}
		return http.StatusNotImplemented
	case posthaste.Denied:
		return http.StatusForbidden
	case posthaste.Unavailable, posthaste.ReadOnly, posthaste.OutcomeUnsure, posthaste.SchemaOld, posthaste.SchemaNew:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

var titles = map[posthaste.Code]string{
	posthaste.Invalid:       "The request is wrong",
	posthaste.NotFound:      "There is no such thing",
	posthaste.Conflict:      "This is not so any more",
	posthaste.KeyReused:     "The key was used for another request",
	posthaste.TooLarge:      "Something is too large",
	posthaste.Unsupported:   "This is not supported",
	posthaste.Unavailable:   "The store cannot be reached",
	posthaste.ReadOnly:      "The store accepts no writes",
	posthaste.SchemaOld:     "The store needs a migration",
	posthaste.SchemaNew:     "The store is newer than this program",
	posthaste.Denied:        "This is not allowed",
	posthaste.Refused:       "This was refused for safety",
	posthaste.WorkerLost:    "The worker was declared lost",
	posthaste.OutcomeUnsure: "The outcome is unknown",
	codeTooMany:             "This comes too often",
	codeInternal:            "The server is at fault",
}

// writeError answers with the problem that err is, and logs what the caller
// cannot mend.
func (s *Server) writeError(w http.ResponseWriter, r *http.Request, err error) {
	e := classify(r, err)
	status := statusOf(e)
	var extra *httpError
	if errors.As(err, &extra) && extra.status != 0 {
		status = extra.status
	}
	p := problem{
		Type: "urn:posthaste:error:" + string(e.Code), Title: titles[e.Code], Status: status, Detail: e.Message,
		Code: e.Code, Field: e.Field, Hint: wire.Hint(e, wire.HTTP), RequestID: requestID(r),
	}
	if p.Title == "" {
		p.Title = http.StatusText(status)
	}
	if extra != nil {
		p.IDs, p.Deliveries, p.Subscriptions = extra.ids, extra.deliveries, extra.withdrawals
		if extra.challenge != "" {
			w.Header().Set("WWW-Authenticate", extra.challenge)
			if status == http.StatusUnauthorized && r.Context().Value(pageKey{}) != nil {
				w.Header().Add("WWW-Authenticate", `Basic realm="posthaste", charset="UTF-8"`)
			}
		}
	}
	if faults := email.Faults(err); len(faults) > 1 {
		for _, f := range faults {
			p.Faults = append(p.Faults, fault{Field: f.Field, Detail: f.Message})
		}
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	if extra != nil && extra.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(extra.retryAfter))
	}
	if status >= 500 && status != http.StatusNotImplemented && r.Context().Err() == nil && !(extra != nil && extra.asked) {
		s.log.LogAttrs(r.Context(), slog.LevelError, "request failed", slog.String("request_id", p.RequestID),
			slog.String("method", r.Method), slog.String("route", r.Pattern), slog.String("code", string(e.Code)), slog.Any("error", rootOf(err)))
	}
	s.writeBody(w, "application/problem+json", status, p)
}

// rootOf digs out the cause for the log: what callers see has none.
func rootOf(err error) error {
	var e *posthaste.Error
	if errors.As(err, &e) && e.Cause != nil {
		return errors.Join(err, e.Cause)
	}
	return err
}

// classify finds the *posthaste.Error in err, or makes one that tells nothing
// of the inside.
func classify(r *http.Request, err error) *posthaste.Error {
	var e *posthaste.Error
	if errors.As(err, &e) && e.Code != "" {
		if e.Code == posthaste.OutcomeUnsure {
			told := *e
			told.Message = "the answer of the store was lost: what was asked for may or may not have been stored (" + e.Message + ")"
			if told.Hint == "" {
				told.Hint = "look whether it is there before you repeat it"
			}
			return &told
		}
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			return &posthaste.Error{Code: posthaste.Unavailable, Message: "the store did not answer in time", Hint: "try again"}
		}
		return &posthaste.Error{
			Code: posthaste.OutcomeUnsure, Message: "the store did not answer in time: what was asked for may or may not have been stored",
			Hint: "look whether it is there before you repeat it",
		}
	}
	return &posthaste.Error{Code: codeInternal, Message: "the request could not be answered because of a fault of the server", Hint: "its log tells more under the request id"}
}

// writeJSON answers with value. The error says that the caller did not get it.
func (s *Server) writeJSON(w http.ResponseWriter, status int, value any) error {
	return s.writeBody(w, "application/json", status, value)
}

func (s *Server) writeBody(w http.ResponseWriter, contentType string, status int, value any) error {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		s.log.Error("an answer could not be encoded", "error", err)
		status, contentType = http.StatusInternalServerError, "application/problem+json"
		body.Reset()
		body.WriteString(`{"type":"urn:posthaste:error:internal","title":"The server is at fault","status":500,` +
			`"detail":"the answer could not be encoded","code":"internal"}` + "\n")
	}
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	h.Set("Cache-Control", "no-store")
	controller := http.NewResponseController(w)
	allowWriting(controller)
	w.WriteHeader(status)
	if _, err := w.Write(body.Bytes()); err != nil {
		return &lostAnswer{err}
	}
	if err := controller.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return &lostAnswer{err}
	}
	return nil
}

// lostAnswer says that the connection did not take the whole answer.
type lostAnswer struct{ cause error }

func (e *lostAnswer) Error() string { return "the answer was not sent whole: " + e.cause.Error() }
func (e *lostAnswer) Unwrap() error { return e.cause }
