package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// exchangeTime limits the time for sending a request and for reading a response, so that
// slow clients cannot hold connections without end.
const exchangeTime = 2 * time.Minute

func allowWriting(c *http.ResponseController) {
	// The writers of tests support no deadlines and need none.
	_ = c.SetWriteDeadline(time.Now().Add(exchangeTime))
}

// writeJSON writes value as the response. An error means that the caller did not receive it.
func (s *Server) writeJSON(w http.ResponseWriter, status int, value any) error {
	return s.writeBody(w, "application/json", status, value)
}

// writeCreated answers 201 with the address of the new resource.
func (s *Server) writeCreated(w http.ResponseWriter, location string, value any) error {
	w.Header().Set("Location", location)
	return s.writeJSON(w, http.StatusCreated, value)
}

func (s *Server) writeBody(w http.ResponseWriter, contentType string, status int, value any) error {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		s.log.Error("a response could not be encoded", "error", err)
		status, contentType = http.StatusInternalServerError, "application/problem+json"
		body.Reset()
		body.WriteString(`{"type":"urn:posthaste:error:internal","title":"Internal server error","status":500,` +
			`"detail":"the response could not be encoded","code":"internal"}` + "\n")
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

// lostAnswer reports that the connection did not take the whole response.
type lostAnswer struct{ cause error }

func (e *lostAnswer) Error() string {
	return "the response was not sent completely: " + e.cause.Error()
}
func (e *lostAnswer) Unwrap() error { return e.cause }
