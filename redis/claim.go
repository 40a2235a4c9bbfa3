package redis

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// claimMost bounds one script: Redis serves nobody else meanwhile.
const claimMost = 1000

// orders are the orders of priorities that begin with another than the first.
var orders = []string{"1023", "2013", "3012"}

// order is the priorities as a claim takes them: ascending, and of eight claims
// one begins with another than the first, so that none is starved. Behind them is whether
// what is due or what is fresh gets the greater half of one.
func order() string {
	half := []string{"0", "1"}[rand.N(2)]
	if rand.N(8) == 0 {
		return orders[rand.N(3)] + half
	}
	return "0123" + half
}

// claiming is the script by which a queue's messages are handed out.
func claiming(q *queue) script {
	if q.looks > 0 {
		return claimKeyedScript
	}
	return claimScript
}

// Claim implements [posthaste.Claims]. It hands out at most 1,000.
func (e *Engine) Claim(ctx context.Context, req posthaste.ClaimRequest) (reply posthaste.ClaimReply, err error) {
	reply.NextDue = -1
	e.pacer.Served(req.QueueRef)
	if req.Max < 1 || req.Max > posthaste.MaxPlaces {
		return reply, posthaste.Invalidf("max", "max must be 1 to %d, got %d", posthaste.MaxPlaces, req.Max)
	}
	idle := ""
	if req.Idle {
		idle = "1"
	}
	worker := strconv.FormatInt(int64(req.Worker), 10)
	for {
		answer, q, err := e.try(ctx, req.QueueRef, func(q *queue) (any, error) {
			return claiming(q).run(ctx, e.client, q.keys, q.numberArg, q.rules, min(req.Max, claimMost), order(), idle, worker, req.Number, q.once)
		})
		if err != nil {
			return reply, writeError(err)
		}
		switch answer {
		case "join":
			if err := e.join(ctx, req.Worker, q.ref()); err != nil {
				return reply, err
			}
			continue
		case "fill":
			if err := e.fill(ctx, q.ref()); err != nil {
				return reply, err
			}
			continue
		case "number":
			return reply, posthaste.Invalidf("number", "claim %d of the worker comes after a later one", req.Number)
		}
		h, err := handed(answer, q, true)
		reply.Deliveries, reply.NextDue, reply.WantsIdle = h.deliveries, h.nextDue, h.wantsIdle
		reply.Limits, reply.AtLimit, reply.InOrder = h.limits, h.atLimit, q.options.Ordered
		return reply, err
	}
}

// Receive implements [posthaste.Claims].
func (e *Engine) Receive(ctx context.Context, req posthaste.ReceiveRequest) (reply posthaste.ReceiveReply, err error) {
	reply.NextDue = -1
	e.pacer.Served(req.QueueRef)
	if req.Max < 1 || req.Max > 1000 {
		return reply, posthaste.Invalidf("max", "max must be 1 to 1000, and is %d", req.Max)
	}
	if err := checkLease(req.Lease); err != nil {
		return reply, err
	}
	// Receivers alone are complete: they rescue what others let go.
	if _, err := e.rescueQueue(ctx, req.QueueRef); err != nil {
		return reply, readError(err)
	}
	for {
		answer, q, err := e.try(ctx, req.QueueRef, func(q *queue) (any, error) {
			return claiming(q).run(ctx, e.client, q.keys, q.numberArg, q.rules, req.Max, order(), "1", "", max(1, req.Lease.Microseconds()), q.once)
		})
		if err != nil {
			return reply, writeError(err)
		}
		if answer == "fill" {
			if err := e.fill(ctx, q.ref()); err != nil {
				return reply, err
			}
			continue
		}
		h, err := handed(answer, q, false)
		return posthaste.ReceiveReply{Deliveries: h.deliveries, NextDue: h.nextDue, AtLimit: h.atLimit}, err
	}
}

func checkLease(lease time.Duration) error {
	if lease <= 0 || lease > 12*time.Hour {
		return posthaste.Invalidf("lease", "lease must be above zero and at most 12h, got %s", lease)
	}
	return nil
}

type handedOut struct {
	deliveries []posthaste.RawDelivery
	nextDue    time.Duration
	wantsIdle  bool
	limits     bool
	atLimit    bool
}

// handed reads what claim.lua returns.
func handed(answer any, q *queue, toWorker bool) (h handedOut, err error) {
	h.nextDue = -1
	all, err := list("claim", answer, 6)
	if err != nil {
		return h, err
	}
	h.wantsIdle = str(all[0]) == "1"
	h.limits, h.atLimit = str(all[5]) != "", str(all[5]) == "reached"
	if n, ok := parseMicros(str(all[1])); ok && n >= 0 {
		h.nextDue = fromMicros(n)
	}
	firsts, _ := all[2].([]any)
	contents, _ := all[3].([]any)
	others, _ := all[4].([]any)
	if len(firsts) != len(contents) || len(others)%6 != 0 {
		return h, unexpected("claim", answer)
	}
	h.deliveries = make([]posthaste.RawDelivery, 0, len(firsts)+len(others)/6)
	for i := range firsts {
		d, err := q.delivery(str(firsts[i]), str(firsts[i]), str(contents[i]), "", "")
		if err != nil {
			return h, err
		}
		d.AtMostOnce = toWorker && q.once == "1"
		h.deliveries = append(h.deliveries, d)
	}
	for o := range slices.Chunk(others, 6) {
		d, err := q.delivery(str(o[0]), str(o[1]), str(o[2]), str(o[3]), str(o[4]))
		if err != nil {
			return h, err
		}
		d.Alone, d.AtMostOnce = toWorker && str(o[5]) == "1", toWorker && q.once == "1"
		h.deliveries = append(h.deliveries, d)
	}
	return h, nil
}

// delivery makes a delivery of what a script tells of it.
func (q *queue) delivery(delivery, message, text, packedState, due string) (d posthaste.RawDelivery, err error) {
	deliveryID, err := id(delivery, q.number)
	if err != nil {
		return d, err
	}
	messageID, err := id(message, q.messages)
	if err != nil {
		return d, err
	}
	c, err := decodeContent(text)
	if err != nil {
		return d, err
	}
	d = posthaste.RawDelivery{ID: posthaste.DeliveryID(deliveryID), MessageID: posthaste.MessageID(messageID), Queue: q.name, Subscription: q.subscription,
		Attempt: 1, Key: c.key, Kind: c.kind, Headers: c.headers, Reference: c.reference, ContentType: c.contentType, Payload: c.payload,
		CreatedAt: at(messageID >> numberBits), Timeout: q.options.Timeout}
	// What lies there by its id was sent before the subscription was made (fill.lua).
	if n, err := strconv.ParseFloat(due, 64); err == nil && int64(n) != messageID>>numberBits {
		d.DueAt = at(int64(n))
	}
	if packedState != "" {
		var s state
		if err := unpack(packedState, &s); err != nil {
			return d, err
		}
		d.Attempt, d.Story = s.Attempt, s.story()
	}
	return d, nil
}

// Unsettled implements [posthaste.Claims].
func (e *Engine) Unsettled(ctx context.Context, worker posthaste.WorkerID, upTo int64) ([]posthaste.DeliveryID, error) {
	if _, err := e.stands(ctx, "look", worker); err != nil {
		return nil, err
	}
	all, err := e.reachable(ctx)
	var ids []posthaste.DeliveryID
	queues := allOf(all)
	replies, fault := e.runEach(ctx, unsettledScript, queues, func(*queue) []any { return []any{worker.String(), upTo} })
	err = errors.Join(err, readError(fault)) // what is there is told with it
	for i := range replies {
		places, _ := replies[i].([]any) // or it never claimed from this one
		for _, p := range places {
			n, fault := id(str(p), queues[i].number)
			if fault != nil {
				return nil, fault
			}
			ids = append(ids, posthaste.DeliveryID(n))
		}
	}
	return ids, err
}
