package nats

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
)

// A process settles and extends the deliveries that it holds. Other processes ask it to, by a subject with
// its number: the HTTP call that settles or extends a received delivery may reach another process than the
// one that received it.

func (e *Engine) processSubject(no int64) string {
	return e.prefix + ".held." + strconv.FormatInt(no, 10)
}

// forwardAnswer is the answer to a forwarded call.
type forwardAnswer struct {
	Results []posthaste.SettleResult `json:"results"`
	Error   *posthaste.Error         `json:"error,omitempty"`
}

// forwardedNote is a note as it is forwarded: without a checkpoint, that is left out.
type forwardedNote struct {
	Checkpoint   json.RawMessage `json:"checkpoint,omitempty"`
	Progress     *float64        `json:"progress,omitempty"`
	ProgressText string          `json:"progress_text,omitempty"`
	Log          string          `json:"log,omitempty"`
}

// forwardedExtend is a call of Extend as it is forwarded.
type forwardedExtend struct {
	Deliveries []posthaste.DeliveryID `json:"deliveries"`
	Lease      time.Duration          `json:"lease"`
	Notes      []forwardedNote        `json:"notes,omitempty"`
}

// forwardedPart returns the request for some of its deliveries.
func forwardedPart(r *posthaste.ExtendRequest, indexes []int) *forwardedExtend {
	f := &forwardedExtend{Lease: r.Lease}
	for _, at := range indexes {
		f.Deliveries = append(f.Deliveries, r.Deliveries[at])
		if r.Notes != nil {
			f.Notes = append(f.Notes, forwardedNote(r.Notes[at]))
		}
	}
	return f
}

func (f *forwardedExtend) request() (r posthaste.ExtendRequest) {
	r.Deliveries, r.Lease = f.Deliveries, f.Lease
	for _, n := range f.Notes {
		r.Notes = append(r.Notes, posthaste.Note(n))
	}
	return r
}

// listenForwarded settles and extends deliveries of this process for others.
func (e *Engine) listenForwarded() error {
	subject := e.processSubject(e.holding.processNumber())
	err := e.listenFor(subject, func(ctx context.Context, request []byte) ([]posthaste.SettleResult, error) {
		var all []posthaste.Settlement
		if err := json.Unmarshal(request, &all); err != nil {
			return nil, err
		}
		results := make([]posthaste.SettleResult, len(all))
		for i := range all {
			results[i].Delivery = all[i].Delivery
			if string(all[i].Receipt) == "null" { // no receipt, in JSON
				all[i].Receipt = nil
			}
		}
		return results, e.settleOwn(ctx, all, results)
	})
	if err != nil {
		return err
	}
	return e.listenFor(subject+extendSuffix, func(ctx context.Context, request []byte) ([]posthaste.SettleResult, error) {
		var f forwardedExtend
		if err := json.Unmarshal(request, &f); err != nil {
			return nil, err
		}
		results := make([]posthaste.SettleResult, len(f.Deliveries))
		for i := range results {
			results[i].Delivery = f.Deliveries[i]
		}
		return results, e.extendOwn(ctx, f.request(), results)
	})
}

// extendSuffix ends the subject to which calls of Extend are forwarded.
const extendSuffix = ".extend"

// listenFor answers the requests on a subject.
func (e *Engine) listenFor(subject string, do func(ctx context.Context, request []byte) ([]posthaste.SettleResult, error)) error {
	return e.subscribe(subject, func(m *natsgo.Msg) {
		e.runInBackground(func(ctx context.Context) {
			var reply forwardAnswer
			var err error
			if reply.Results, err = do(ctx, m.Data); err != nil && !errors.As(err, &reply.Error) {
				reply.Error = &posthaste.Error{Code: posthaste.CodeOutcomeUnknown, Message: err.Error()}
			}
			if body, err := json.Marshal(reply); err == nil {
				_ = m.Respond(body)
			}
		})
	})
}

// forward asks the process that holds deliveries to settle or extend them, and puts its answers into the
// results. If that process is gone, it does nothing.
func (e *Engine) forward(ctx context.Context, subject string, request any, indexes []int, results []posthaste.SettleResult) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	ctx, cancel := withSendTimeout(ctx)
	defer cancel()
	m, err := e.conn.RequestWithContext(ctx, subject, body)
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
	for i, at := range indexes {
		if i < len(reply.Results) {
			results[at] = reply.Results[i]
		}
	}
	return nil
}
