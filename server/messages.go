package server

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// sendMessages stores one message, or an array of messages in one transaction.
func (s *Server) sendMessages(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(w, r, false)
	if err != nil {
		return err
	}
	messages, single, err := wire.ParseMessages(r.PathValue("queue"), body)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(r)
	if err != nil {
		return err
	}
	sent, err := s.send(r, key, body, messages...)
	if err != nil {
		return err
	}
	if single {
		return s.writeJSON(w, sentStatus(sent), wire.NewSent(sent[0]))
	}
	return s.writeJSON(w, sentStatus(sent), wire.NewSentMany(sent))
}

// sentStatus is 201 if a message was stored, and else 200: all were duplicates or replaced others.
func sentStatus(sent []posthaste.Sent) int {
	if slices.ContainsFunc(sent, func(s posthaste.Sent) bool { return !s.Duplicate && !s.Replaced }) {
		return http.StatusCreated
	}
	return http.StatusOK
}

// send stores the messages of a request. Requests with the same key are deduplicated: a
// repetition gets the same result. Keys belong to the caller and the path.
func (s *Server) send(r *http.Request, key string, body []byte, messages ...posthaste.Message) ([]posthaste.Sent, error) {
	ctx, cancel := s.operation(r)
	defer cancel()
	continueTrace(r, messages)
	ended := func([]posthaste.Sent, error) {}
	if s.tracing != nil {
		ctx, messages, ended = s.tracing.Sending(ctx, messages)
	}
	if key == "" {
		sent, err := s.client.Send(ctx, messages...)
		ended(sent, err)
		return sent, err
	}
	digest := sha256.Sum256(body)
	sent, err := s.engine.SendOnce(ctx, posthaste.Idempotency{
		Scope: caller(r) + " " + r.URL.Path, Key: key, Digest: digest[:], Window: idempotencyWindow,
	}, messages...)
	ended(sent, err)
	return sent, err
}

func (s *Server) showMessage(w http.ResponseWriter, r *http.Request) error {
	id, err := pathMessageID(r)
	if err != nil {
		return err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	message, err := s.engine.Message(ctx, id)
	if err != nil {
		return err
	}
	if message.Version != "" {
		w.Header().Set("ETag", strconv.Quote(message.Version))
	}
	return s.writeJSON(w, http.StatusOK, wire.NewMessage(message, true))
}

func (s *Server) listMessages(w http.ResponseWriter, r *http.Request) error {
	q := readQuery(r, "queue", "reference", "key", "term", "state", "limit", "before")
	filter := posthaste.MessageFilter{
		Queue: q.text("queue"), Reference: q.text("reference"), Key: q.text("key"), Term: q.text("term"), State: posthaste.State(q.text("state")),
		Before: q.messageID("before"), Limit: q.int("limit", defaultListed, 1, maxListed),
	}
	if filter.State != "" && !slices.Contains(posthaste.States(), filter.State) {
		q.fail("state", "must be one of "+words(posthaste.States())+", got "+strconv.Quote(string(filter.State)))
	}
	if q.err != nil {
		return q.err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	messages, err := s.engine.Messages(ctx, filter)
	if err != nil {
		return err
	}
	linkNext(w, r, messages.Next)
	return s.writeJSON(w, http.StatusOK, shown(messages.Items, func(m posthaste.MessageInfo) wire.Message { return wire.NewMessage(m, false) }))
}

func (s *Server) cancelMessage(w http.ResponseWriter, r *http.Request) error {
	return s.withdraw(w, r, s.engine.Cancel)
}

func (s *Server) rescheduleMessage(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(w, r, false)
	if err != nil {
		return err
	}
	o, err := wire.ParseObject("", body)
	if err != nil {
		return err
	}
	if !o.Has("send_at") {
		o.Fail("send_at", "is required, for example 2030-01-31T12:00:00Z")
	}
	at := o.Time("send_at")
	if err := o.Finish(); err != nil {
		return err
	}
	return s.withdraw(w, r, func(ctx context.Context, id posthaste.MessageID) ([]posthaste.Withdrawal, error) {
		return s.engine.Reschedule(ctx, id, at.In(time.UTC))
	})
}

// updateMessage changes the waiting message in the path, in the version of the header If-Match.
func (s *Server) updateMessage(w http.ResponseWriter, r *http.Request) error {
	id, err := pathMessageID(r)
	if err != nil {
		return err
	}
	version, err := ifMatch(r)
	if err != nil {
		return err
	}
	body, err := readJSON(w, r, false)
	if err != nil {
		return err
	}
	update, err := wire.ParseUpdate(body)
	if err != nil {
		return err
	}
	update.Version = version
	ctx, cancel := s.operation(r)
	defer cancel()
	done, err := s.engine.UpdateMessage(ctx, id, update)
	if err != nil {
		return err
	}
	if done.Version != "" {
		w.Header().Set("ETag", strconv.Quote(done.Version))
	}
	answer := updated{ID: done.ID, Version: done.Version}
	if done.ID != id {
		answer.ReplayOf = id
	}
	return s.writeJSON(w, http.StatusOK, answer)
}

// updated is the result of an update. ReplayOf is the dead letter that the message replaces.
type updated struct {
	ID       posthaste.MessageID `json:"id"`
	Version  string              `json:"version,omitempty"`
	ReplayOf posthaste.MessageID `json:"replay_of,omitzero"`
}

// ifMatch returns the version in the header If-Match, or "" for "*".
func ifMatch(r *http.Request) (string, error) {
	const field = "If-Match"
	text := r.Header.Get(field)
	if text == "" {
		return "", &posthaste.Error{Code: posthaste.CodeInvalid, Field: field, Message: "a change needs the header If-Match", Hint: "set it to the ETag of GET " + r.URL.Path + ", or to * for any version"}
	}
	if text == "*" {
		return "", nil
	}
	version, err := strconv.Unquote(text)
	if err != nil || version == "" {
		return "", &posthaste.Error{Code: posthaste.CodeInvalid, Field: field, Message: "If-Match must be one ETag in quotes, or *, got " + strconv.Quote(text), Hint: "GET " + r.URL.Path + " returns the ETag"}
	}
	return version, nil
}

// runMessage makes the message in the path due now.
func (s *Server) runMessage(w http.ResponseWriter, r *http.Request) error {
	id, err := pathMessageID(r)
	if err != nil {
		return err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	all, err := s.engine.RunMessage(ctx, id)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(r posthaste.RunResult) bool { return r.Due }) {
		var states []string
		for _, each := range all {
			states = append(states, string(each.State)+" in "+each.Subscription)
		}
		return &posthaste.Error{Code: posthaste.CodeConflict, Field: "id", Message: fmt.Sprintf("message %s was not changed, because it is no longer waiting: it is %s", id, strings.Join(states, ", ")),
			Hint: "GET /v1/messages/" + id.String() + " shows it"}
	}
	return s.writeJSON(w, http.StatusOK, wire.NewRunResults(all))
}

// withdraw cancels or reschedules the message in the path and answers with its state in
// each subscription.
func (s *Server) withdraw(w http.ResponseWriter, r *http.Request, do func(context.Context, posthaste.MessageID) ([]posthaste.Withdrawal, error)) error {
	id, err := pathMessageID(r)
	if err != nil {
		return err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	all, err := do(ctx, id)
	if err != nil {
		return err
	}
	shown := wire.NewWithdrawals(all)
	if !slices.ContainsFunc(all, func(w posthaste.Withdrawal) bool { return w.InTime }) {
		return &httpError{withdrawals: shown, err: &posthaste.Error{
			Code: posthaste.CodeConflict, Field: "id", Message: fmt.Sprintf("message %s was not changed, because it is no longer waiting: it is %s", id, statesOf(all)),
			Hint: "GET /v1/messages/" + id.String() + " shows it",
		}}
	}
	return s.writeJSON(w, http.StatusOK, shown)
}

// statesOf lists the states of a message in its subscriptions.
func statesOf(all []posthaste.Withdrawal) string {
	var states []string
	for _, w := range all {
		states = append(states, string(w.State)+" in "+w.Subscription)
	}
	return strings.Join(states, ", ")
}

func words[T ~string](all []T) string {
	texts := make([]string, len(all))
	for i, each := range all {
		texts[i] = string(each)
	}
	return strings.Join(texts, ", ")
}
