package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// settled answers for one delivery.
type settled struct {
	ID posthaste.DeliveryID `json:"id"`
	// Settled is false when the delivery was no longer the caller's.
	Settled bool `json:"settled"`
	// Outcome is what the delivery became.
	Outcome posthaste.Outcome `json:"outcome,omitempty"`
	// DueAt is when the next attempt may start.
	DueAt time.Time `json:"due_at,omitzero"`
	// Error says why the store refused this one.
	Error string `json:"error,omitempty"`
}

type settledAll struct {
	Deliveries []settled `json:"deliveries"`
}

// ackFields, failFields and releaseFields read what a delivery may say beside
// its id.
func ackFields(o *wire.Object, s *posthaste.Settlement) {
	s.Outcome = posthaste.Done
	s.Receipt = receipt(o)
	s.Terms = o.Texts("terms")
}

func failFields(o *wire.Object, s *posthaste.Settlement) {
	s.Outcome = posthaste.Retried
	s.Error = o.LooseText("error")
	if strings.TrimSpace(s.Error) == "" {
		o.Fail("error", "is required: say why it failed")
	}
	permanent := o.Bool("permanent", false)
	if permanent {
		s.Outcome = posthaste.Dead
	}
	if permanent && o.Has("retry_after") {
		o.Fail("retry_after", "excludes permanent: what failed for good is not tried again")
	}
	given := o.Has("retry_after")
	if s.RetryAfter = o.Duration("retry_after"); given && s.RetryAfter == 0 {
		s.RetryAfter = time.Microsecond // at once; zero would mean the queue's backoff
	}
	s.Receipt = receipt(o)
	s.Terms = o.Texts("terms")
}

func releaseFields(o *wire.Object, s *posthaste.Settlement) {
	s.Outcome = posthaste.Released
	s.RetryAfter = o.Duration("after")
}

func receipt(o *wire.Object) []byte {
	if !o.Has("receipt") {
		o.Raw("receipt")
		return nil
	}
	return o.Raw("receipt")
}

// settle settles the deliveries of the body. Those that are no longer the
// caller's, or not known to be of a limited token's queues, are told by 409; the
// others are settled all the same.
func (s *Server) settle(fields func(*wire.Object, *posthaste.Settlement)) answer {
	return func(w http.ResponseWriter, r *http.Request) error {
		body, err := readJSON(w, r, false)
		if err != nil {
			return err
		}
		settlements, err := parseSettlements(body, fields)
		if err != nil {
			return err
		}
		ctx, cancel := s.operation(r)
		defer cancel()
		ids := make([]posthaste.DeliveryID, len(settlements))
		for i := range settlements {
			ids[i] = settlements[i].Delivery
		}
		unknown, err := s.allowDeliveries(ctx, callerOf(r), ids)
		if err != nil {
			return err
		}
		settlements = slices.DeleteFunc(settlements, func(one posthaste.Settlement) bool { return unknown[one.Delivery] })
		var results []posthaste.SettleResult
		if len(settlements) > 0 {
			ended := func([]posthaste.SettleResult, error) {}
			if s.tracing != nil {
				ended = s.tracing.Settling(ctx, traceOf(r), settlements)
			}
			results, err = s.engine.Settle(ctx, settlements)
			ended(results, err)
			if err != nil {
				return err
			}
		}
		return s.writeSettled(w, withUnknown(ids, unknown, results))
	}
}

// withUnknown puts the deliveries that were not passed on, which are not
// settled, among the results of the others, in the order of ids.
func withUnknown(ids []posthaste.DeliveryID, unknown map[posthaste.DeliveryID]bool, results []posthaste.SettleResult) []posthaste.SettleResult {
	if len(unknown) == 0 {
		return results
	}
	all := make([]posthaste.SettleResult, len(ids))
	for i, id := range ids {
		if unknown[id] {
			all[i].Delivery = id
			continue
		}
		all[i], results = results[0], results[1:]
	}
	return all
}

func parseSettlements(body []byte, fields func(*wire.Object, *posthaste.Settlement)) ([]posthaste.Settlement, error) {
	var settlements []posthaste.Settlement
	err := parseDeliveries(body, func(o *wire.Object, id posthaste.DeliveryID) {
		settlement := posthaste.Settlement{Delivery: id}
		fields(o, &settlement)
		settlements = append(settlements, settlement)
	})
	return settlements, err
}

// parseDeliveries reads {"deliveries":[{"id": …}, …]} and gives each to take.
func parseDeliveries(body []byte, take func(o *wire.Object, id posthaste.DeliveryID)) error {
	outer, err := wire.ParseObject("", body)
	if err != nil {
		return err
	}
	raw := outer.Raw("deliveries")
	if err := outer.Finish(); err != nil {
		return err
	}
	if raw == nil {
		return posthaste.Invalidf("deliveries", "deliveries is required: an array of objects with an id each")
	}
	elements, err := wire.ParseArray("deliveries", raw)
	if err != nil {
		return err
	}
	if len(elements) == 0 || len(elements) > wire.MaxBatch {
		return posthaste.Invalidf("deliveries", "deliveries must hold 1 to %d, and holds %d", wire.MaxBatch, len(elements))
	}
	seen := make(map[posthaste.DeliveryID]bool, len(elements))
	for i, element := range elements {
		o, err := wire.ParseObject(fmt.Sprintf("deliveries[%d]", i), element)
		if err != nil {
			return err
		}
		var id posthaste.DeliveryID
		if id.UnmarshalText([]byte(o.Text("id"))) != nil {
			o.Fail("id", "must be a delivery id, which is a positive decimal number in a string")
		}
		if seen[id] {
			o.Fail("id", "is there twice: a delivery ends only once")
		}
		seen[id] = true
		take(o, id)
		if err := o.Finish(); err != nil {
			return err
		}
	}
	return nil
}

// extend moves the ends of leases, which all deliveries of one request share
// or each has its own of. It tells by 409 of the same as settle.
func (s *Server) extend(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(w, r, false)
	if err != nil {
		return err
	}
	var leases []leaseGroup
	var ids []posthaste.DeliveryID
	err = parseDeliveries(body, func(o *wire.Object, id posthaste.DeliveryID) {
		given := o.Has("lease")
		lease := o.Duration("lease")
		switch {
		case !given:
			o.Fail("lease", "is required: how long it is held from now, such as \"30s\"")
		case lease <= 0 || lease > maxLease:
			o.Fail("lease", "must be above zero and at most %s", maxLease)
		}
		leases, ids = addToLease(leases, lease, id), append(ids, id)
	})
	if err != nil {
		return err
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	unknown, err := s.allowDeliveries(ctx, callerOf(r), ids)
	if err != nil {
		return err
	}
	var results []posthaste.SettleResult
	for _, group := range leases {
		known := slices.DeleteFunc(slices.Clone(group.ids), func(id posthaste.DeliveryID) bool { return unknown[id] })
		var extended []posthaste.SettleResult
		if len(known) > 0 {
			if extended, err = s.engine.Extend(ctx, known, group.lease); err != nil {
				return err
			}
		}
		results = append(results, withUnknown(group.ids, unknown, extended)...)
	}
	return s.writeSettled(w, results)
}

// leaseGroup is the deliveries that get the same lease.
type leaseGroup struct {
	lease time.Duration
	ids   []posthaste.DeliveryID
}

func addToLease(groups []leaseGroup, lease time.Duration, id posthaste.DeliveryID) []leaseGroup {
	for i := range groups {
		if groups[i].lease == lease {
			groups[i].ids = append(groups[i].ids, id)
			return groups
		}
	}
	return append(groups, leaseGroup{lease, []posthaste.DeliveryID{id}})
}

// writeSettled answers 200 if all were settled, and otherwise the problem
// that names the others.
func (s *Server) writeSettled(w http.ResponseWriter, results []posthaste.SettleResult) error {
	shown := make([]settled, len(results))
	var gone, refused []string
	var refusal error
	for i, result := range results {
		shown[i] = settled{ID: result.Delivery, Settled: result.Settled, Outcome: result.Outcome, DueAt: result.DueAt}
		switch {
		case result.Err != nil:
			shown[i].Error = result.Err.Error()
			refused, refusal = append(refused, result.Delivery.String()), result.Err
		case !result.Settled:
			gone = append(gone, result.Delivery.String())
		}
	}
	switch {
	case refusal != nil:
		return &httpError{ids: append(refused, gone...), deliveries: shown, err: refusal}
	case gone != nil:
		return &httpError{ids: gone, deliveries: shown, err: &posthaste.Error{
			Code: posthaste.Conflict, Field: "deliveries",
			Message: fmt.Sprintf("%d of %d deliveries were no longer the caller's: %s", len(gone), len(results), some(gone)),
			Hint:    "they were settled before, or their lease ended and they run elsewhere; the others are settled",
		}}
	}
	return s.writeJSON(w, http.StatusOK, settledAll{shown})
}

// some names the first few; all are in the list beside.
func some(ids []string) string {
	if len(ids) > 20 {
		return strings.Join(ids[:20], ", ") + fmt.Sprintf(" and %d more", len(ids)-20)
	}
	return strings.Join(ids, ", ")
}
