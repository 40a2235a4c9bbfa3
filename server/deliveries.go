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

type settledAll struct {
	Deliveries []settled `json:"deliveries"`
}

// ackFields, failFields and releaseFields read the fields of a delivery other than its id.
func ackFields(o *wire.Object, s *posthaste.Settlement) {
	s.Outcome = posthaste.OutcomeDone
	s.Receipt = receipt(o)
	s.Terms = o.Texts("terms")
}

func failFields(o *wire.Object, s *posthaste.Settlement) {
	s.Outcome = posthaste.OutcomeRetried
	s.Error = o.LooseText("error")
	if strings.TrimSpace(s.Error) == "" {
		o.Fail("error", "is required: the reason of the failure")
	}
	permanent := o.Bool("permanent", false)
	if permanent {
		s.Outcome = posthaste.OutcomeDead
	}
	if permanent && o.Has("retry_after") {
		o.Fail("retry_after", "cannot be combined with permanent")
	}
	given := o.Has("retry_after")
	if s.RetryAfter = o.Duration("retry_after"); given && s.RetryAfter == 0 {
		s.RetryAfter = time.Microsecond // immediately; zero would mean the backoff of the queue
	}
	s.Receipt = receipt(o)
	s.Terms = o.Texts("terms")
}

func releaseFields(o *wire.Object, s *posthaste.Settlement) {
	s.Outcome = posthaste.OutcomeReleased
	s.RetryAfter = o.Duration("after")
}

func receipt(o *wire.Object) []byte {
	if !o.Has("receipt") {
		o.Raw("receipt")
		return nil
	}
	return o.Raw("receipt")
}

// settleMany settles the deliveries in the body. The response is 409 if some no longer belong
// to the caller, or if the token is limited to some queues and the queue of a delivery is
// unknown. The others are settled in any case.
func (s *Server) settleMany(fields func(*wire.Object, *posthaste.Settlement)) answer {
	return func(w http.ResponseWriter, r *http.Request) error {
		body, err := readJSON(w, r, false)
		if err != nil {
			return err
		}
		settlements, err := parseSettlements(body, fields)
		if err != nil {
			return err
		}
		results, err := s.settle(r, settlements)
		if err != nil {
			return err
		}
		return s.writeSettled(w, results)
	}
}

// settleOne settles the delivery in the path. The body has the other fields, and may be absent.
func (s *Server) settleOne(fields func(*wire.Object, *posthaste.Settlement)) answer {
	return func(w http.ResponseWriter, r *http.Request) error {
		o, id, err := readDelivery(w, r)
		if err != nil {
			return err
		}
		settlement := posthaste.Settlement{Delivery: id}
		fields(o, &settlement)
		if err := o.Finish(); err != nil {
			return err
		}
		results, err := s.settle(r, []posthaste.Settlement{settlement})
		if err != nil {
			return err
		}
		return s.writeSettledOne(w, results)
	}
}

// readDelivery reads the body of a request on the delivery in the path. An absent body counts
// as {}.
func readDelivery(w http.ResponseWriter, r *http.Request) (*wire.Object, posthaste.DeliveryID, error) {
	body, err := readJSON(w, r, true)
	if err != nil {
		return nil, 0, err
	}
	if len(body) == 0 {
		body = []byte("{}")
	}
	id, err := pathMessageID(r)
	if err != nil {
		return nil, 0, err
	}
	o, err := wire.ParseObject("", body)
	return o, posthaste.DeliveryID(id), err
}

// settle settles those deliveries that the caller may settle, and reports the others as not
// settled.
func (s *Server) settle(r *http.Request, settlements []posthaste.Settlement) ([]posthaste.SettleResult, error) {
	ctx, cancel := s.operation(r)
	defer cancel()
	ids := make([]posthaste.DeliveryID, len(settlements))
	for i := range settlements {
		ids[i] = settlements[i].Delivery
	}
	unknown, err := s.allowDeliveries(ctx, exchangeOf(r).caller, ids)
	if err != nil {
		return nil, err
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
			return nil, err
		}
	}
	return withUnknown(ids, unknown, results), nil
}

// withUnknown merges the deliveries that were not passed to the engine, as not settled, with
// the results of the others, in the order of ids.
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

// parseDeliveries reads {"deliveries":[{"id": …}, …]} and calls take for each delivery.
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
		return posthaste.Invalidf("deliveries", "deliveries is required: an array of objects with id")
	}
	elements, err := wire.ParseArray("deliveries", raw)
	if err != nil {
		return err
	}
	if len(elements) == 0 || len(elements) > wire.MaxBatch {
		return posthaste.Invalidf("deliveries", "deliveries must have 1 to %d elements, got %d", wire.MaxBatch, len(elements))
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
			o.Fail("id", "is given twice")
		}
		seen[id] = true
		take(o, id)
		if err := o.Finish(); err != nil {
			return err
		}
	}
	return nil
}

// extendMany moves the ends of leases. Each delivery names its own lease. The response is 409
// in the same cases as in settleMany.
func (s *Server) extendMany(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(w, r, false)
	if err != nil {
		return err
	}
	var leases []leaseGroup
	err = parseDeliveries(body, func(o *wire.Object, id posthaste.DeliveryID) {
		leases = addToLease(leases, readLease(o), id)
	})
	if err != nil {
		return err
	}
	results, err := s.extend(r, leases)
	if err != nil {
		return err
	}
	return s.writeSettled(w, results)
}

// extendOne moves the end of the lease of the delivery in the path.
func (s *Server) extendOne(w http.ResponseWriter, r *http.Request) error {
	o, id, err := readDelivery(w, r)
	if err != nil {
		return err
	}
	lease := readLease(o)
	if err := o.Finish(); err != nil {
		return err
	}
	results, err := s.extend(r, addToLease(nil, lease, id))
	if err != nil {
		return err
	}
	return s.writeSettledOne(w, results)
}

// maxLease is the longest lease.
const maxLease = 12 * time.Hour

func readLease(o *wire.Object) time.Duration {
	given := o.Has("lease")
	lease := o.Duration("lease")
	switch {
	case !given:
		o.Fail("lease", "is required: the time from now, for example \"30s\"")
	case lease <= 0 || lease > maxLease:
		o.Fail("lease", "must be above zero and at most %s", maxLease)
	}
	return lease
}

func (s *Server) extend(r *http.Request, leases []leaseGroup) (results []posthaste.SettleResult, err error) {
	ctx, cancel := s.operation(r)
	defer cancel()
	var ids []posthaste.DeliveryID
	for _, group := range leases {
		ids = append(ids, group.ids...)
	}
	unknown, err := s.allowDeliveries(ctx, exchangeOf(r).caller, ids)
	if err != nil {
		return nil, err
	}
	for _, group := range leases {
		known := slices.DeleteFunc(slices.Clone(group.ids), func(id posthaste.DeliveryID) bool { return unknown[id] })
		var extended []posthaste.SettleResult
		if len(known) > 0 {
			if extended, err = s.engine.Extend(ctx, posthaste.ExtendRequest{Deliveries: known, Lease: group.lease}); err != nil {
				return nil, err
			}
		}
		results = append(results, withUnknown(group.ids, unknown, extended)...)
	}
	return results, nil
}

// leaseGroup is the deliveries with the same new lease.
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

// writeSettled answers 200 if all deliveries were settled, and otherwise with a problem that
// lists the others.
func (s *Server) writeSettled(w http.ResponseWriter, results []posthaste.SettleResult) error {
	shown, err := settledOf(results)
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, settledAll{shown})
}

// writeSettledOne is writeSettled for the delivery in the path.
func (s *Server) writeSettledOne(w http.ResponseWriter, results []posthaste.SettleResult) error {
	shown, err := settledOf(results)
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, shown[0])
}

// settledOf converts results, or returns the problem if some deliveries were not settled.
func settledOf(results []posthaste.SettleResult) ([]settled, error) {
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
		return nil, &httpError{ids: append(refused, gone...), deliveries: shown, err: refusal}
	case gone != nil:
		return nil, &httpError{ids: gone, deliveries: shown, err: &posthaste.Error{
			Code: posthaste.CodeConflict, Field: "deliveries",
			Message: fmt.Sprintf("%d of %d deliveries no longer belonged to the caller: %s", len(gone), len(results), some(gone)),
			Hint:    "they were settled before, or their lease ended and they were redelivered; the others are settled",
		}}
	}
	return shown, nil
}

// some lists the first 20 ids; the field ids has all of them.
func some(ids []string) string {
	if len(ids) > 20 {
		return strings.Join(ids[:20], ", ") + fmt.Sprintf(" and %d more", len(ids)-20)
	}
	return strings.Join(ids, ", ")
}
