package server

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// sendMessage stores one message.
func (s *Server) sendMessage(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(w, r, false)
	if err != nil {
		return err
	}
	message, err := wire.ParseMessage(r.PathValue("queue"), body)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(r)
	if err != nil {
		return err
	}
	sent, err := s.send(w, r, key, body, message)
	if err != nil {
		return err
	}
	if status := sentStatus(sent); status != http.StatusCreated {
		return s.writeJSON(w, status, wire.NewSent(sent[0]))
	}
	return s.writeCreated(w, "/v1/messages/"+sent[0].ID.String(), wire.NewSent(sent[0]))
}

// sendMessages stores the messages of {"messages": […]} in one transaction.
func (s *Server) sendMessages(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(w, r, false)
	if err != nil {
		return err
	}
	messages, err := wire.ParseBatch(r.PathValue("queue"), body)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(r)
	if err != nil {
		return err
	}
	sent, err := s.send(w, r, key, body, messages...)
	if err != nil {
		return err
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
func (s *Server) send(w http.ResponseWriter, r *http.Request, key string, body []byte, messages ...posthaste.Message) ([]posthaste.Sent, error) {
	ctx, cancel := s.operation(r)
	defer cancel()
	continueTrace(r, messages)
	recordSender(exchangeOf(r).caller, messages)
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
	sent, replayed, err := s.engine.SendOnce(ctx, posthaste.Idempotency{
		Scope: caller(r) + " " + r.URL.Path, Key: key, Digest: digest[:], Window: idempotencyWindow,
	}, messages...)
	ended(sent, err)
	if replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	return sent, err
}

func (s *Server) showMessage(w http.ResponseWriter, r *http.Request) error {
	message, err := s.findMessage(r)
	if err != nil {
		return err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	view := wire.NewMessage(message, true)
	if err := s.addReplays(ctx, &view); err != nil {
		return err
	}
	if !seesPayload(r, message) {
		view.HidePayload()
	}
	if message.Version != "" {
		w.Header().Set("ETag", strconv.Quote(message.Version))
	}
	return s.writeJSON(w, http.StatusOK, view)
}

// findMessage returns the message in the path if the caller may see it. To a token with only
// the scope send, the messages of others are unknown.
func (s *Server) findMessage(r *http.Request) (posthaste.MessageInfo, error) {
	id, err := pathMessageID(r)
	if err != nil {
		return posthaste.MessageInfo{}, err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	message, err := s.engine.Message(ctx, id)
	if token := exchangeOf(r).caller; token != nil && !token.Allows(ScopeRead) {
		if posthaste.CodeOf(err) == posthaste.CodeNotFound || err == nil && !sentBy(token, message) {
			err = &posthaste.Error{
				Code: posthaste.CodeNotFound, Field: "id", Message: fmt.Sprintf("message %s is unknown, or was not sent with this token", id),
				Hint: "a token with the scope read shows the messages of others",
			}
		}
	}
	if err != nil {
		return posthaste.MessageInfo{}, err
	}
	return message, allowQueue(exchangeOf(r).caller, message.Queue)
}

// addReplays adds when and by whom a message that was dead was replayed. Only the records of
// actions have it, so that lists leave it out.
func (s *Server) addReplays(ctx context.Context, m *wire.Message) error {
	if !slices.ContainsFunc(m.Subscriptions, wire.MessageState.WasReplayed) {
		return nil
	}
	actions, err := s.engine.Actions(ctx, posthaste.ActionFilter{MessageID: m.ID, Limit: maxListed})
	if err != nil {
		return err
	}
	for i := range m.Subscriptions {
		state := &m.Subscriptions[i]
		if !state.WasReplayed() {
			continue
		}
		// The newest replay that may be this subscription's.
		for _, action := range actions {
			if action.Action == "replay" && concerns(action, state.Subscription) {
				state.ReplayedAt, state.ReplayedBy = action.At, action.By
				break
			}
		}
	}
	return nil
}

// concerns reports whether an action is about a subscription. Stores record the number 0 for
// the default subscription, and may record other numbers, which fit any other one.
func concerns(action posthaste.Action, subscription string) bool {
	var details struct {
		Subscription any `json:"subscription"`
	}
	_ = json.Unmarshal(action.Details, &details) // without details it is about all
	switch is := details.Subscription.(type) {
	case string:
		return is == subscription
	case float64:
		return (is == 0) == (subscription == posthaste.DefaultSubscription)
	}
	return true
}

// listMessages lists messages, of the queue in the path if there is one.
func (s *Server) listMessages(w http.ResponseWriter, r *http.Request) error {
	known := []string{"queue", "reference", "key", "kind", "term", "state", "created_from", "limit", "cursor"}
	queue := r.PathValue("queue")
	if queue != "" {
		known = known[1:]
	}
	q := readQuery(r, known...)
	filter := posthaste.MessageFilter{
		Queue: cmp.Or(queue, q.text("queue")), Reference: q.text("reference"), Key: q.text("key"), Kind: q.text("kind"), Term: q.text("term"),
		CreatedFrom: q.time("created_from"), Before: idCursorOf(q, wire.ListMessages), Limit: q.int("limit", defaultListed, 1, maxListed),
	}
	states := statesOfQuery(q, "state")
	if q.err != nil {
		return q.err
	}
	if err := allowContent(r, "term", filter.Term); err != nil {
		return err
	}
	page, err := s.messagesIn(r, filter, states)
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, newListed(wire.ListMessages, page.Items, idPosition(page.Next), func(m posthaste.MessageInfo) wire.Message {
		view := wire.NewMessage(m, false)
		if !seesPayload(r, m) {
			view.HidePayload()
		}
		return view
	}))
}

// statesOfQuery returns the states of a parameter with a comma between them; [""] for any.
func statesOfQuery(q *query, name string) []posthaste.State {
	text := q.text(name)
	if text == "" {
		return []posthaste.State{""}
	}
	var states []posthaste.State
	for part := range strings.SplitSeq(text, ",") {
		state := posthaste.State(part)
		switch {
		case !slices.Contains(posthaste.States(), state):
			q.fail(name, "must be one or more of "+words(posthaste.States())+" with commas between them, got "+strconv.Quote(text))
		case !slices.Contains(states, state):
			states = append(states, state)
		}
	}
	return states
}

func (s *Server) cancelMessage(w http.ResponseWriter, r *http.Request) error {
	return s.withdraw(w, r, posthaste.Withdrawal.Cancelled, s.engine.Cancel)
}

func (s *Server) rescheduleMessage(w http.ResponseWriter, r *http.Request) error {
	o, err := readObject(w, r)
	if err != nil {
		return err
	}
	if o.Has("send_at") == o.Has("delay") {
		o.Fail("send_at", `or delay is required, and not both, for example {"send_at": "2030-01-31T12:00:00Z"} or {"delay": "1h"}`)
	}
	at, delay := o.Time("send_at"), o.Duration("delay")
	if err := o.Finish(); err != nil {
		return err
	}
	if at.IsZero() {
		at = time.Now().Add(delay)
	}
	return s.withdraw(w, r, posthaste.Withdrawal.Accepted, func(ctx context.Context, id posthaste.MessageID) ([]posthaste.Withdrawal, error) {
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
	if err := s.keepSender(ctx, id, &update); err != nil {
		return err
	}
	done, err := s.engine.UpdateMessage(ctx, id, update)
	if err != nil {
		return err
	}
	if done.Version != "" {
		w.Header().Set("ETag", strconv.Quote(done.Version))
	}
	updated := wire.Updated{ID: done.ID, Version: done.Version}
	if done.ID != id {
		updated.ReplayOf = id
	}
	return s.writeJSON(w, http.StatusOK, updated)
}

// keepSender keeps the header posthaste-sender of a message that gets other headers.
func (s *Server) keepSender(ctx context.Context, id posthaste.MessageID, update *posthaste.MessageUpdate) error {
	if update.Headers == nil {
		return nil
	}
	was, err := s.engine.Message(ctx, id)
	if err != nil {
		return err
	}
	delete(update.Headers, posthaste.HeaderSender)
	if sender, ok := was.Headers[posthaste.HeaderSender]; ok {
		update.Headers[posthaste.HeaderSender] = sender
	}
	return nil
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
		var not []posthaste.Withdrawal
		for _, each := range all {
			not = append(not, posthaste.Withdrawal{Subscription: each.Subscription, State: each.State})
		}
		return notWaiting(id, not)
	}
	return s.writeJSON(w, http.StatusOK, wire.Ran{Subscriptions: wire.NewRunResults(all)})
}

// withdraw cancels or reschedules the message in the path and answers with its state in
// each subscription. If changed is true for none, the answer is 409.
func (s *Server) withdraw(w http.ResponseWriter, r *http.Request, changed func(posthaste.Withdrawal) bool, do func(context.Context, posthaste.MessageID) ([]posthaste.Withdrawal, error)) error {
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
	if !slices.ContainsFunc(all, changed) {
		return notWaiting(id, all)
	}
	return s.writeJSON(w, http.StatusOK, wire.Withdrawn{Subscriptions: wire.NewWithdrawals(all)})
}

// notWaiting is the error for a message that could be changed in no subscription.
func notWaiting(id posthaste.MessageID, all []posthaste.Withdrawal) error {
	return &httpError{withdrawals: wire.NewWithdrawals(all), err: wire.NotWaiting(id, all)}
}

func words[T ~string](all []T) string {
	texts := make([]string, len(all))
	for i, each := range all {
		texts[i] = string(each)
	}
	return strings.Join(texts, ", ")
}
