package nats

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
)

// A process settles the deliveries that it holds. Other processes ask it to, by a subject with its
// number: the HTTP call that settles a received delivery may reach another process than the one that
// received it. Extend is not forwarded.

func (e *Engine) processSubject(no int64) string {
	return e.prefix + ".held." + strconv.FormatInt(no, 10)
}

// forwardAnswer is the answer to a forwarded call.
type forwardAnswer struct {
	Results []posthaste.SettleResult `json:"results"`
	Error   *posthaste.Error         `json:"error,omitempty"`
}

// listenSettlements settles deliveries of this process for others.
func (e *Engine) listenSettlements() error {
	return e.subscribe(e.processSubject(e.holding.processNumber()), func(m *natsgo.Msg) {
		e.runInBackground(func(ctx context.Context) {
			var all []posthaste.Settlement
			var reply forwardAnswer
			if err := json.Unmarshal(m.Data, &all); err != nil {
				return
			}
			reply.Results = make([]posthaste.SettleResult, len(all))
			for i := range all {
				reply.Results[i].Delivery = all[i].Delivery
			}
			if err := e.settleOwn(ctx, all, reply.Results); err != nil {
				if !errors.As(err, &reply.Error) {
					reply.Error = &posthaste.Error{Code: posthaste.CodeOutcomeUnknown, Message: err.Error()}
				}
			}
			if body, err := json.Marshal(reply); err == nil {
				_ = m.Respond(body)
			}
		})
	})
}

// forward asks the process that holds deliveries to settle them, and puts its answers into the results. If
// that process is gone, none is settled.
func (e *Engine) forward(ctx context.Context, no int64, places []int, settlements []posthaste.Settlement, results []posthaste.SettleResult) error {
	all := make([]posthaste.Settlement, len(places))
	for i, at := range places {
		all[i] = settlements[at]
	}
	body, err := json.Marshal(all)
	if err != nil {
		return err
	}
	ctx, cancel := withSendTimeout(ctx)
	defer cancel()
	m, err := e.conn.RequestWithContext(ctx, e.processSubject(no), body)
	if errors.Is(err, natsgo.ErrNoResponders) {
		return nil
	}
	if err != nil {
		return outcomeUnknown(err)
	}
	var reply forwardAnswer
	if err := json.Unmarshal(m.Data, &reply); err != nil {
		return outcomeUnknown(err)
	}
	if reply.Error != nil {
		return reply.Error
	}
	for i, at := range places {
		if i < len(reply.Results) {
			results[at] = reply.Results[i]
		}
	}
	return nil
}
