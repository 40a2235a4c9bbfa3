package wire

import (
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Problem is an RFC 9457 problem. Its type is the code as a URN, so it is stable.
type Problem struct {
	Type   string         `json:"type"`
	Title  string         `json:"title"`
	Status int            `json:"status"`
	Detail string         `json:"detail"`
	Code   posthaste.Code `json:"code"`
	// Field is the field, parameter or header at fault, if there is one.
	Field string `json:"field,omitempty"`
	Hint  string `json:"hint,omitempty"`
	// RequestID is also in the server's log.
	RequestID string `json:"request_id,omitempty"`
	// IDs are the ids that the problem is about.
	IDs []string `json:"ids,omitempty"`
	// Deliveries has the result of each delivery if some were settled and others were not.
	Deliveries []Settled `json:"deliveries,omitempty"`
	// Subscriptions has the state in each subscription of a message that could not be
	// cancelled, rescheduled or run.
	Subscriptions []Withdrawal `json:"subscriptions,omitempty"`
	// Faults lists the faults if there are several.
	Faults []Fault `json:"faults,omitempty"`
}

// Fault is one of several faults of a request.
type Fault struct {
	Field  string `json:"field,omitempty"`
	Detail string `json:"detail"`
}

// Settled is the result of one delivery.
type Settled struct {
	ID posthaste.DeliveryID `json:"id"`
	// Settled is false if the delivery no longer belonged to the caller.
	Settled bool `json:"settled"`
	// Cancelled is absent unless extending found that the message was cancelled meanwhile.
	Cancelled bool `json:"cancelled,omitempty"`
	// Outcome is the outcome of the delivery.
	Outcome posthaste.Outcome `json:"outcome,omitempty"`
	// DueAt is the earliest time of the next attempt.
	DueAt time.Time `json:"due_at,omitzero"`
	// Error is the store's error for this delivery.
	Error string `json:"error,omitempty"`
}

// NewSettled converts the results of deliveries.
func NewSettled(all []posthaste.SettleResult) []Settled {
	return each(all, func(r posthaste.SettleResult) Settled {
		shown := Settled{ID: r.Delivery, Settled: r.Settled, Cancelled: r.Cancelled, Outcome: r.Outcome, DueAt: r.DueAt}
		if r.Err != nil {
			shown.Error = r.Err.Error()
		}
		return shown
	})
}
