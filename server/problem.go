package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// Codes that only the server uses.
const (
	codeTooMany  posthaste.Code = "too_many_requests"
	codeInternal posthaste.Code = "internal"
)

// httpError is an error whose response carries more than its code says.
type httpError struct {
	err error
	// status replaces the status of the code, unless it is 0.
	status int
	// challenge is the value of the header WWW-Authenticate.
	challenge string
	// retryAfter is the value of the header Retry-After in seconds, unless it is 0.
	retryAfter  int
	ids         []string
	deliveries  []wire.Settled
	withdrawals []wire.Withdrawal
	// asked reports that the request asked for the state of the store, so the error is the
	// response and no failure.
	asked bool
}

func (e *httpError) Error() string { return e.err.Error() }
func (e *httpError) Unwrap() error { return e.err }

// retryAfter is the Retry-After in seconds while the store is unavailable.
const retryAfter = 2

// statusOf maps a code to a status. Each code has one status, except Unsupported: 400 if
// the caller can leave a field out, 501 if the operation is not supported at all.
func statusOf(e *posthaste.Error) int {
	switch e.Code {
	case posthaste.CodeInvalid:
		return http.StatusBadRequest
	case posthaste.CodeNotFound:
		return http.StatusNotFound
	case posthaste.CodeConflict, posthaste.CodeUniqueConflict, posthaste.CodeRefused, posthaste.CodeWorkerLost:
		return http.StatusConflict
	case posthaste.CodeStale:
		return http.StatusPreconditionFailed
	case posthaste.CodeKeyReused:
		return http.StatusUnprocessableEntity
	case posthaste.CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case posthaste.CodeUnsupported:
		if e.Field != "" {
			return http.StatusBadRequest
		}
		return http.StatusNotImplemented
	case posthaste.CodeDenied:
		return http.StatusForbidden
	case posthaste.CodeUnavailable, posthaste.CodeReadOnly, posthaste.CodeOutcomeUnknown, posthaste.CodeSchemaOld, posthaste.CodeSchemaNew:
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

var titles = map[posthaste.Code]string{
	posthaste.CodeInvalid:        "Invalid request",
	posthaste.CodeNotFound:       "Not found",
	posthaste.CodeConflict:       "Conflict with the current state",
	posthaste.CodeUniqueConflict: "Unique key held by another message",
	posthaste.CodeStale:          "Changed since that version",
	posthaste.CodeKeyReused:      "Idempotency key used for another request",
	posthaste.CodeTooLarge:       "Too large",
	posthaste.CodeUnsupported:    "Not supported",
	posthaste.CodeUnavailable:    "Store unavailable",
	posthaste.CodeReadOnly:       "Store is read-only",
	posthaste.CodeSchemaOld:      "Store needs a migration",
	posthaste.CodeSchemaNew:      "Store is newer than this program",
	posthaste.CodeDenied:         "Not allowed",
	posthaste.CodeRefused:        "Refused for safety",
	posthaste.CodeWorkerLost:     "Worker was declared lost",
	posthaste.CodeOutcomeUnknown: "Outcome unknown",
	codeTooMany:                  "Too many requests",
	codeInternal:                 "Internal server error",
}

// writeError writes err as a problem response. It logs failures of the server and the store.
func (s *Server) writeError(w http.ResponseWriter, r *http.Request, err error) {
	e := classify(r, err)
	status, exchange := statusOf(e), exchangeOf(r)
	var extra httpError
	if found, ok := errors.AsType[*httpError](err); ok {
		extra = *found
	}
	if extra.status != 0 {
		status = extra.status
	}
	p := wire.Problem{
		Type: "urn:posthaste:error:" + string(e.Code), Title: titles[e.Code], Status: status, Detail: e.Message,
		Code: e.Code, Field: e.Field, Hint: wire.Hint(e, wire.HTTP), RequestID: exchange.id,
		IDs: extra.ids, Deliveries: extra.deliveries, Subscriptions: extra.withdrawals,
	}
	if p.Title == "" {
		p.Title = http.StatusText(status)
	}
	if faults := email.Faults(err); len(faults) > 1 {
		for _, f := range faults {
			p.Faults = append(p.Faults, wire.Fault{Field: f.Field, Detail: f.Message})
		}
	}
	if extra.challenge != "" {
		w.Header().Set("WWW-Authenticate", extra.challenge)
	}
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	if extra.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(extra.retryAfter))
	}
	if !extra.asked {
		s.logFailure(r, status, e, err)
	}
	_ = s.writeBody(w, "application/problem+json", status, p) // the caller is gone
}

// logFailure logs an error of the server, as opposed to one of the caller.
func (s *Server) logFailure(r *http.Request, status int, e *posthaste.Error, err error) {
	if status >= 500 && status != http.StatusNotImplemented && r.Context().Err() == nil {
		s.log.LogAttrs(r.Context(), slog.LevelError, "request failed", slog.String("request_id", exchangeOf(r).id),
			slog.String("method", r.Method), slog.String("route", r.Pattern), slog.String("code", string(e.Code)), slog.Any("error", rootOf(err)))
	}
}

// rootOf adds the cause to an error for the log. Responses do not contain it.
func rootOf(err error) error {
	var e *posthaste.Error
	if errors.As(err, &e) && e.Cause != nil {
		return errors.Join(err, e.Cause)
	}
	return err
}

const hintUnsure = "check whether it was stored before you send it again"

// classify returns the *posthaste.Error in err, or one that reveals nothing internal.
func classify(r *http.Request, err error) *posthaste.Error {
	var e *posthaste.Error
	if errors.As(err, &e) && e.Code != "" {
		if e.Code == posthaste.CodeOutcomeUnknown {
			unsure := *e
			unsure.Message = "the reply of the store was lost, so the request may or may not have been stored (" + e.Message + ")"
			if unsure.Hint == "" {
				unsure.Hint = hintUnsure
			}
			return &unsure
		}
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "the store did not answer in time", Hint: "try again"}
		}
		return &posthaste.Error{
			Code: posthaste.CodeOutcomeUnknown, Message: "the store did not answer in time, so the request may or may not have been stored", Hint: hintUnsure,
		}
	}
	return &posthaste.Error{Code: codeInternal, Message: "the request failed because of an error in the server", Hint: "the server's log has the details under the request id"}
}

func bodyTooLarge(limit int64) error {
	return &posthaste.Error{Code: posthaste.CodeTooLarge, Message: fmt.Sprintf("the body is larger than %d MiB", limit>>20)}
}
