package redis

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// orders are the orders of priorities that do not begin with priority 0.
var orders = []string{"1023", "2013", "3012"}

// order returns the order of priorities for a claim: ascending, but one claim in eight begins
// with another priority than 0, so that none starves. The last digit says whether due or fresh
// messages get the larger half of an odd number.
func order() string {
	half := []string{"0", "1"}[rand.N(2)]
	if rand.N(8) == 0 {
		return orders[rand.N(3)] + half
	}
	return "0123" + half
}

// claiming returns the script that hands out messages of a queue.
func claiming(q *queue) script {
	if q.looks > 0 {
		return claimKeyedScript
	}
	return claimScript
}

// Claim implements [posthaste.Engine]. It hands out at most 1,000 messages.
func (e *Engine) Claim(ctx context.Context, req posthaste.ClaimRequest) (reply posthaste.ClaimReply, err error) {
	reply.NextDue = -1
	e.pacer.Served(req.QueueRef)
	if req.Max < 1 || req.Max > posthaste.MaxPlaces {
		return reply, posthaste.Invalidf("max", "max must be 1 to %d, got %d", posthaste.MaxPlaces, req.Max)
	}
	idle := ""
	if req.AllowAlone {
		idle = "1"
	}
	worker := strconv.FormatInt(int64(req.Worker), 10)
	kinds, known := e.leases.kindsOf(req.Worker, req.Normal())
	if !known { // another process registered it
		if _, err := e.stands(ctx, "look", req.Worker, ""); err != nil {
			return reply, err
		}
		kinds, _ = e.leases.kindsOf(req.Worker, req.Normal())
	}
	for {
		answer, q, err := e.try(ctx, req.QueueRef, func(q *queue) (any, error) {
			return claiming(q).run(ctx, e.client, q.keys, arguments{{"number", q.numberArg}, {"rules", q.rules}, {"most", min(req.Max, claimMost)}, {"priorities", order()},
				{"idle", idle}, {"worker", worker}, {"claim", req.Number}, {"lease", ""}, {"once", q.once}, {"kinds", kinds}})
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
		reply.Deliveries, reply.NextDue, reply.AloneWaiting = h.deliveries, h.nextDue, h.aloneWaiting
		reply.Limits, reply.AtLimit, reply.InOrder = h.limits, h.atLimit, q.options.Ordered
		return reply, err
	}
}

// Receive implements [posthaste.Engine].
func (e *Engine) Receive(ctx context.Context, req posthaste.ReceiveRequest) (reply posthaste.ReceiveReply, err error) {
	reply.NextDue = -1
	e.pacer.Served(req.QueueRef)
	if req.Max < 1 || req.Max > 1000 {
		return reply, posthaste.Invalidf("max", "max must be 1 to 1000, got %d", req.Max)
	}
	if err := checkLease(req.Lease); err != nil {
		return reply, err
	}
	// A queue may have receivers but no worker, so receivers rescue deliveries, too.
	if _, err := e.rescueQueue(ctx, req.QueueRef); err != nil {
		return reply, readError(err)
	}
	for {
		answer, q, err := e.try(ctx, req.QueueRef, func(q *queue) (any, error) {
			return claiming(q).run(ctx, e.client, q.keys, arguments{{"number", q.numberArg}, {"rules", q.rules}, {"most", req.Max}, {"priorities", order()},
				{"idle", "1"}, {"worker", ""}, {"claim", ""}, {"lease", max(1, req.Lease.Microseconds())}, {"once", q.once}, {"kinds", ""}})
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
	deliveries   []posthaste.RawDelivery
	nextDue      time.Duration
	aloneWaiting bool
	limits       bool
	atLimit      bool
}

// handed reads the reply of claim.lua.
func handed(answer any, q *queue, toWorker bool) (h handedOut, err error) {
	h.nextDue = -1
	all, err := list("claim", answer, 6)
	if err != nil {
		return h, err
	}
	h.aloneWaiting = str(all[0]) == "1"
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

// delivery makes a delivery of its part of a reply.
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
		CreatedAt: at(messageID >> numberBits), Timeout: cmp.Or(fromMicros(c.attempts.Timeout), q.options.Kinds[c.kind].Timeout, q.options.Timeout)}
	if due != "" {
		// fill.lua gives messages that are available the time of their id as due time.
		if n, err := strconv.ParseFloat(due, 64); err == nil && int64(n) != messageID>>numberBits {
			d.DueAt = at(int64(n))
		}
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

// Unsettled implements [posthaste.Engine].
func (e *Engine) Unsettled(ctx context.Context, worker posthaste.WorkerID, upTo int64) ([]posthaste.DeliveryID, error) {
	if _, err := e.stands(ctx, "look", worker, ""); err != nil {
		return nil, err
	}
	all, err := e.registry.reachable(ctx)
	var ids []posthaste.DeliveryID
	queues := allOf(all)
	replies, fault := e.runEach(ctx, unsettledScript, queues, func(*queue) arguments {
		return arguments{{"worker", worker.String()}, {"last", upTo}}
	})
	err = errors.Join(err, readError(fault)) // and returns those that were found
	for i := range replies {
		places, _ := replies[i].([]any) // or the worker never claimed from it
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
