package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// subscribe adds a subscription. One that is there with the options asked for is
// left as it is; with others it is a conflict.
func (s *Server) subscribe(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(w, r, true)
	if err != nil {
		return err
	}
	options, err := wire.ParseSubscriptionOptions(body)
	if err != nil {
		return err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	if err := s.engine.QueueSubscribe(ctx, caller(r), r.PathValue("queue"), r.PathValue("subscription"), options); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) purgeQueue(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := s.operation(r)
	defer cancel()
	purged, err := s.engine.QueuePurge(ctx, caller(r), r.PathValue("queue"))
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, wire.NewPurged(purged))
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
		o.Fail("send_at", "is required: a time such as 2030-01-31T12:00:00Z")
	}
	at := o.Time("send_at")
	if err := o.Finish(); err != nil {
		return err
	}
	return s.withdraw(w, r, func(ctx context.Context, by string, id posthaste.MessageID) ([]posthaste.Withdrawal, error) {
		return s.engine.Reschedule(ctx, by, id, at.In(time.UTC))
	})
}

// withdraw tells of the message in the path what became of it.
func (s *Server) withdraw(w http.ResponseWriter, r *http.Request, do func(context.Context, string, posthaste.MessageID) ([]posthaste.Withdrawal, error)) error {
	id, err := pathMessageID(r)
	if err != nil {
		return err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	all, err := do(ctx, caller(r), id)
	if err != nil {
		return err
	}
	shown := wire.NewWithdrawals(all)
	if !slices.ContainsFunc(all, func(w posthaste.Withdrawal) bool { return w.InTime }) {
		return &httpError{withdrawals: shown, err: &posthaste.Error{
			Code: posthaste.Conflict, Field: "id", Message: fmt.Sprintf("message %s is left as it is, because it does not wait any more: it is %s", id, statesOf(all)),
			Hint: "GET /v1/messages/" + id.String() + " shows it",
		}}
	}
	return s.writeJSON(w, http.StatusOK, shown)
}

// statesOf names what a message is to each of its subscriptions.
func statesOf(all []posthaste.Withdrawal) string {
	var states []string
	for _, w := range all {
		states = append(states, string(w.State)+" in "+w.Subscription)
	}
	return strings.Join(states, ", ")
}

// doctor tells what is wrong or soon will be.
func (s *Server) doctor(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := s.operation(r)
	defer cancel()
	found, err := s.engine.Doctor(ctx)
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, wire.NewFindings(found))
}
