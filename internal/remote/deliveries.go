package remote

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// Receive implements [posthaste.Engine]. NextDue is not known.
func (s *Store) Receive(ctx context.Context, req posthaste.ReceiveRequest) (posthaste.ReceiveReply, error) {
	return s.receive(ctx, req, 0)
}

// maxLease is the longest lease.
const maxLease = 12 * time.Hour

// maxWait is the longest time that the server waits for messages.
const maxWait = 5 * time.Minute

// ReceiveWithin is Receive that waits for the first message: the server has the request until it
// has one.
func (s *Store) ReceiveWithin(ctx context.Context, req posthaste.ReceiveRequest, wait time.Duration) (posthaste.ReceiveReply, error) {
	for end := time.Now().Add(wait); ; {
		left := max(0, time.Until(end))
		reply, err := s.receive(ctx, req, min(left, maxWait))
		if err != nil || len(reply.Deliveries) > 0 || left <= maxWait {
			return reply, err
		}
	}
}

func (s *Store) receive(ctx context.Context, req posthaste.ReceiveRequest, wait time.Duration) (posthaste.ReceiveReply, error) {
	got := posthaste.ReceiveReply{NextDue: -1}
	ref := req.QueueRef.Normal()
	body, err := wire.Encode(struct {
		Subscription string `json:"subscription"`
		Max          int    `json:"max"`
		Lease        string `json:"lease"`
		Wait         string `json:"wait,omitempty"`
	}{ref.Subscription, req.Max, req.Lease.String(), durationText(wait)})
	if err != nil {
		return got, err
	}
	switch {
	case posthaste.CheckName("queue", ref.Queue) != nil:
		return got, missing("queue", ref.Queue)
	case req.Lease <= 0 || req.Lease > maxLease:
		return got, posthaste.Invalidf("lease", "lease must be above zero and at most 12h, got %s", req.Lease)
	}
	r, err := s.do(ctx, call{method: http.MethodPost, path: path("/v1/queues/{}/receive", ref.Queue), body: body, wait: wait})
	if e, ok := errors.AsType[*posthaste.Error](err); ok && e.Code == posthaste.CodeOutcomeUnknown {
		e.Hint = "messages that were handed out are redelivered after the lease"
	}
	var shown wire.Received
	if err := s.decode(r, err, &shown); err != nil {
		return got, err
	}
	got.Deliveries, err = convert(s, shown.Deliveries, wire.Delivery.Stored)
	return got, err
}

func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// settlement is a delivery of a request that settles or extends.
type settlement struct {
	ID           posthaste.DeliveryID `json:"id"`
	Error        string               `json:"error,omitempty"`
	Permanent    bool                 `json:"permanent,omitempty"`
	RetryAfter   string               `json:"retry_after,omitempty"`
	After        string               `json:"after,omitempty"`
	Receipt      any                  `json:"receipt,omitempty"`
	Terms        []string             `json:"terms,omitempty"`
	Lease        string               `json:"lease,omitempty"`
	Checkpoint   any                  `json:"checkpoint,omitempty"`
	Progress     *float64             `json:"progress,omitempty"`
	ProgressText string               `json:"progress_text,omitempty"`
	Log          string               `json:"log,omitempty"`
}

// Settle implements [posthaste.Engine] for the outcomes that a receiver can record: done, retried,
// dead and released.
func (s *Store) Settle(ctx context.Context, settlements []posthaste.Settlement) ([]posthaste.SettleResult, error) {
	const ack, fail, release = "/v1/deliveries/ack", "/v1/deliveries/fail", "/v1/deliveries/release"
	results := make([]posthaste.SettleResult, len(settlements))
	bodies, places := map[string][]settlement{}, map[string][]int{}
	for i, one := range settlements {
		body := settlement{ID: one.Delivery, Terms: one.Terms}
		if one.Receipt != nil {
			body.Receipt = one.Receipt
		}
		to := ""
		switch one.Outcome {
		case posthaste.OutcomeDone:
			to = ack
		case posthaste.OutcomeRetried, posthaste.OutcomeDead:
			to = fail
			body.Error, body.Permanent, body.RetryAfter = posthaste.ErrorText(one.Error), one.Outcome == posthaste.OutcomeDead, durationText(one.RetryAfter)
		case posthaste.OutcomeReleased:
			to = release
			body = settlement{ID: one.Delivery, After: durationText(one.RetryAfter)}
		default:
			return nil, unsupported("record the outcome " + string(one.Outcome))
		}
		bodies[to], places[to] = append(bodies[to], body), append(places[to], i)
	}
	for _, to := range []string{ack, fail, release} {
		some, err := s.settle(ctx, to, bodies[to])
		if err != nil {
			return nil, err
		}
		for i, result := range some {
			results[places[to][i]] = result
		}
	}
	return results, nil
}

// Extend implements [posthaste.Engine].
func (s *Store) Extend(ctx context.Context, req posthaste.ExtendRequest) ([]posthaste.SettleResult, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	bodies := make([]settlement, len(req.Deliveries))
	for i, id := range req.Deliveries {
		body := settlement{ID: id, Lease: durationText(req.Lease)}
		if req.Notes != nil {
			note := req.Notes[i]
			body.Progress, body.ProgressText, body.Log = note.Progress, note.ProgressText, note.Log
			if note.Checkpoint != nil {
				body.Checkpoint = note.Checkpoint
			}
		}
		bodies[i] = body
	}
	return s.settle(ctx, "/v1/deliveries/extend", bodies)
}

// settle settles or extends deliveries. A conflict has the result of each, as success does.
func (s *Store) settle(ctx context.Context, path string, bodies []settlement) (results []posthaste.SettleResult, err error) {
	for some := range slices.Chunk(bodies, wire.MaxBatch) {
		var shown wire.SettledAll
		var refusal *posthaste.Error
		err := s.send(ctx, http.MethodPost, path, map[string]any{"deliveries": some}, &shown)
		if p, ok := errors.AsType[*problem](err); ok && p.Deliveries != nil {
			shown.Deliveries, refusal, err = p.Deliveries, p.error, nil
		}
		if err == nil && len(shown.Deliveries) != len(some) {
			err = s.unreadable(errors.New("it has not one result for each delivery"))
		}
		if err != nil {
			return nil, err
		}
		for _, one := range shown.Deliveries {
			result := posthaste.SettleResult{Delivery: one.ID, Settled: one.Settled, Cancelled: one.Cancelled, Outcome: one.Outcome, DueAt: one.DueAt}
			if one.Error != "" {
				result.Err = &posthaste.Error{Code: refusal.Code, Field: refusal.Field, Message: printable(one.Error)}
			}
			results = append(results, result)
		}
	}
	return results, nil
}
