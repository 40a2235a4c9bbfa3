package server

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// emailInfo is an e-mail and its status. From, To, Cc, Bcc and Subject are absent in lists,
// and if the payload is not an e-mail.
type emailInfo struct {
	ID        posthaste.MessageID `json:"id"`
	Status    email.Status        `json:"status"`
	Reference string              `json:"reference,omitempty"`
	From      string              `json:"from,omitempty"`
	To        []string            `json:"to,omitempty"`
	Cc        []string            `json:"cc,omitempty"`
	Bcc       []string            `json:"bcc,omitempty"`
	Subject   string              `json:"subject,omitempty"`
	// Recipients are the addresses by which the e-mail can be found.
	Recipients []string  `json:"recipients,omitempty"`
	CreatedAt  time.Time `json:"created_at"`
	// DueAt is the earliest time of the next attempt; absent if it has passed.
	DueAt    time.Time           `json:"due_at,omitzero"`
	Attempts []posthaste.Attempt `json:"attempts"`
	// MessageID is the header Message-ID, which is known after the first attempt.
	MessageID string `json:"message_id,omitempty"`
	// Answers has the last reply of the mail server for each recipient.
	Answers map[string]email.Answer `json:"answers,omitempty"`
	// PayloadHidden reports that the caller may not see the addresses and the subject.
	PayloadHidden bool `json:"payload_hidden,omitempty"`
}

// hidePayload removes what the e-mail says, and to whom.
func (e *emailInfo) hidePayload() {
	e.From, e.To, e.Cc, e.Bcc, e.Subject, e.Recipients, e.Answers = "", nil, nil, nil, "", nil, nil
	e.Attempts, e.PayloadHidden = wire.WithoutReceipts(e.Attempts), true
}

func newEmailInfo(m posthaste.MessageInfo) emailInfo {
	shown := emailInfo{
		ID: m.ID, Reference: m.Reference, CreatedAt: m.CreatedAt, Recipients: m.Terms,
		Attempts: []posthaste.Attempt{},
	}
	if state, ok := defaultState(m); ok {
		shown.Status = email.StatusOf(state.State)
		shown.DueAt = state.DueAt
		if state.Attempts != nil {
			shown.Attempts = state.Attempts
		}
		if receipt := email.NewestReceipt(state.Attempts); receipt != nil {
			shown.Answers, shown.MessageID = receipt.Recipients, receipt.MessageID
		}
	}
	return shown
}

// defaultState is the state of the e-mail in the subscription that delivers it.
func defaultState(m posthaste.MessageInfo) (posthaste.MessageState, bool) {
	for _, state := range m.Subscriptions {
		if state.Subscription == posthaste.DefaultSubscription {
			return state, true
		}
	}
	return posthaste.MessageState{}, false
}

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
	shown := newEmailInfo(message)
	// A message sent by SQL may not be an e-mail. Its attempts have the error.
	if mail, err := email.Parse(message.Payload); err == nil {
		shown.From, shown.To, shown.Cc, shown.Bcc, shown.Subject = mail.From, mail.To, mail.Cc, mail.Bcc, mail.Subject
	}
	if !seesPayload(r, message) {
		shown.hidePayload()
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
		Queue: s.emails, Reference: q.text("reference"), Before: idCursorOf(q, "emails"), Limit: q.int("limit", defaultListed, 1, maxListed),
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
	return s.writeJSON(w, http.StatusOK, newListed("emails", page.Items, idPosition(page.Next), func(m posthaste.MessageInfo) emailInfo {
		view := newEmailInfo(m)
		if !seesPayload(r, m) {
			view.hidePayload()
		}
		return view
	}))
}

// messagesIn lists the messages in any of the states, newest first. One status of e-mails can
// be several states of messages.
func (s *Server) messagesIn(r *http.Request, filter posthaste.MessageFilter, states []posthaste.State) (page posthaste.Page[posthaste.MessageInfo], err error) {
	ctx, cancel := s.operation(r)
	defer cancel()
	var all []posthaste.MessageInfo
	var cutAt posthaste.MessageID
	for _, state := range states {
		filter.State = state
		messages, err := s.engine.Messages(ctx, filter)
		if err != nil {
			return page, err
		}
		all, cutAt = append(all, messages.Items...), max(cutAt, messages.Next)
	}
	// Messages before the highest end of a page are on the next page, for which all states
	// are searched.
	all = slices.DeleteFunc(all, func(m posthaste.MessageInfo) bool { return m.ID < cutAt })
	slices.SortStableFunc(all, func(a, b posthaste.MessageInfo) int { return cmp.Compare(b.ID, a.ID) })
	// A message that changed its state between the searches can appear twice.
	all = slices.CompactFunc(all, func(a, b posthaste.MessageInfo) bool { return a.ID == b.ID })
	all = all[:min(len(all), filter.Limit)]
	return posthaste.NewPage(all, filter.Limit, cutAt, func(m *posthaste.MessageInfo) posthaste.MessageID { return m.ID }), nil
}
