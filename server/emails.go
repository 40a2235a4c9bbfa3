package server

import (
	"net/http"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// sendEmail stores an e-mail as a message in the queue for e-mails.
func (s *Server) sendEmail(w http.ResponseWriter, r *http.Request) error {
	if err := allowQueue(exchangeOf(r).caller, s.emails); err != nil {
		return err
	}
	body, err := readJSON(w, r, false)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(r)
	if err != nil {
		return err
	}
	message, err := parseEmail(body, &key)
	if err != nil {
		return err
	}
	message.Queue = s.emails
	sent, err := s.send(w, r, key, body, message)
	if err != nil {
		return err
	}
	return s.writeCreated(w, "/v1/emails/"+sent[0].ID.String(), wire.NewSent(sent[0]))
}

// parseEmail reads an e-mail, and the idempotency key that it may carry instead of the header.
func parseEmail(body []byte, key *string) (posthaste.Message, error) {
	mail, err := email.Parse(body)
	if err != nil {
		return posthaste.Message{}, err
	}
	if mail.IdempotencyKey != "" {
		if *key != "" && *key != mail.IdempotencyKey {
			return posthaste.Message{}, posthaste.Invalidf("idempotency_key", "idempotency_key and the header Idempotency-Key differ; give only one of them")
		}
		// The key belongs to the request and is not stored with the e-mail.
		*key, mail.IdempotencyKey = mail.IdempotencyKey, ""
	}
	if err := mail.Validate(); err != nil {
		return posthaste.Message{}, err
	}
	return mail.Message()
}

func (s *Server) showEmail(w http.ResponseWriter, r *http.Request) error {
	message, err := s.findEmail(r)
	if err != nil {
		return err
	}
	shown := wire.NewEmail(message)
	// A message sent by SQL may not be an e-mail. Its attempts have the error.
	if mail, err := email.Parse(message.Payload); err == nil {
		shown.From, shown.To, shown.Cc, shown.Bcc, shown.Subject = mail.From, mail.To, mail.Cc, mail.Bcc, mail.Subject
	}
	if !seesPayload(r, message) {
		shown.HidePayload()
	}
	return s.writeJSON(w, http.StatusOK, shown)
}

// findEmail returns the e-mail in the path if the caller may see it.
func (s *Server) findEmail(r *http.Request) (posthaste.MessageInfo, error) {
	message, err := s.findMessage(r)
	if err == nil && message.Queue != s.emails {
		err = &posthaste.Error{Code: posthaste.CodeNotFound, Field: "id", Message: "message " + message.ID.String() + " is not an e-mail",
			Hint: r.Method + " /v1/messages/" + message.ID.String() + " is for messages"}
	}
	return message, err
}

// cancelEmail cancels an e-mail that was not handed to the mail server.
func (s *Server) cancelEmail(w http.ResponseWriter, r *http.Request) error {
	if _, err := s.findEmail(r); err != nil {
		return err
	}
	return s.cancelMessage(w, r)
}

func (s *Server) listEmails(w http.ResponseWriter, r *http.Request) error {
	q := readQuery(r, "reference", "recipient", "status", "limit", "cursor")
	filter := posthaste.MessageFilter{
		Queue: s.emails, Reference: q.text("reference"), Before: idCursorOf(q, wire.ListEmails), Limit: q.int("limit", defaultListed, 1, maxListed),
	}
	if recipient := q.text("recipient"); recipient != "" {
		if filter.Term = email.Term(recipient); filter.Term == "" {
			q.fail("recipient", "must be an e-mail address, got only spaces")
		}
	}
	states := []posthaste.State{""}
	if text := q.text("status"); text != "" {
		status, err := email.ParseStatus(text)
		if err != nil && q.err == nil {
			q.err = err
		}
		states = status.States()
	}
	if q.err != nil {
		return q.err
	}
	if err := allowContent(r, "recipient", filter.Term); err != nil {
		return err
	}
	page, err := s.messagesIn(r, filter, states)
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, newListed(wire.ListEmails, page.Items, idPosition(page.Next), func(m posthaste.MessageInfo) wire.Email {
		view := wire.NewEmail(m)
		if !seesPayload(r, m) {
			view.HidePayload()
		}
		return view
	}))
}

// messagesIn lists the messages in any of the states, newest first. One status of e-mails can
// be several states of messages.
func (s *Server) messagesIn(r *http.Request, filter posthaste.MessageFilter, states []posthaste.State) (posthaste.Page[posthaste.MessageInfo], error) {
	ctx, cancel := s.operation(r)
	defer cancel()
	return wire.MessagesIn(ctx, s.engine, filter, states)
}
