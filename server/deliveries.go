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
func (s *Server) settleMany(fields func(*wire.Object, *posthaste.Settlement)) handler {
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
func (s *Server) settleOne(fields func(*wire.Object, *posthaste.Settlement)) handler {
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

// extendMany moves the ends of leases and records notes. Each delivery names its own lease and
// note. The response is 409 in the same cases as in settleMany.
func (s *Server) extendMany(w http.ResponseWriter, r *http.Request) error {
	body, err := readJSON(w, r, false)
	if err != nil {
		return err
	}
	var groups []posthaste.ExtendRequest
	err = parseDeliveries(body, func(o *wire.Object, id posthaste.DeliveryID) { groups = readExtension(o, groups, id) })
	if err != nil {
		return err
	}
	results, err := s.extend(r, groups)
	if err != nil {
		return err
	}
	return s.writeSettled(w, results)
}

// extendOne moves the end of the lease of the delivery in the path, and records its note.
func (s *Server) extendOne(w http.ResponseWriter, r *http.Request) error {
	o, id, err := readDelivery(w, r)
	if err != nil {
		return err
	}
	groups := readExtension(o, nil, id)
	if err := o.Finish(); err != nil {
		return err
	}
	results, err := s.extend(r, groups)
	if err != nil {
		return err
	}
	return s.writeSettledOne(w, results)
}

// maxLease is the longest lease.
const maxLease = 12 * time.Hour

// readExtension adds a delivery with its lease and note to groups.
func readExtension(o *wire.Object, groups []posthaste.ExtendRequest, id posthaste.DeliveryID) []posthaste.ExtendRequest {
	note, noted := noteFields(o)
	var lease time.Duration
	if o.Has("lease") {
		lease = readLease(o)
	} else if o.Raw("lease"); !noted {
		o.Fail("lease", "is required without checkpoint, progress and log: the time from now, for example \"30s\"")
	}
	return addToGroup(groups, id, lease, note, noted)
}

// readLease reads the field lease.
func readLease(o *wire.Object) time.Duration {
	lease := o.Duration("lease")
	if lease <= 0 || lease > maxLease {
		o.Fail("lease", "must be above zero and at most %s", maxLease)
	}
	return lease
}

func (s *Server) extend(r *http.Request, groups []posthaste.ExtendRequest) (results []posthaste.SettleResult, err error) {
	ctx, cancel := s.operation(r)
	defer cancel()
	var ids []posthaste.DeliveryID
	for _, group := range groups {
		ids = append(ids, group.Deliveries...)
	}
	unknown, err := s.allowDeliveries(ctx, exchangeOf(r).caller, ids)
	if err != nil {
		return nil, err
	}
	done, failed := false, error(nil)
	for _, group := range groups {
		known := posthaste.ExtendRequest{Lease: group.Lease}
		for i, id := range group.Deliveries {
			if unknown[id] {
				continue
			}
			if known.Deliveries = append(known.Deliveries, id); group.Notes != nil {
				known.Notes = append(known.Notes, group.Notes[i])
			}
		}
		var extended []posthaste.SettleResult
		if len(known.Deliveries) > 0 {
			// Tell the notes that are recorded for other groups, or the caller sends them again.
			if extended, err = s.engine.Extend(ctx, known); err != nil {
				extended = make([]posthaste.SettleResult, len(known.Deliveries))
				for i, id := range known.Deliveries {
					extended[i] = posthaste.SettleResult{Delivery: id, Err: err}
				}
				failed = err
			} else {
				done = true
			}
		}
		results = append(results, withUnknown(group.Deliveries, unknown, extended)...)
	}
	if !done {
		return results, failed
	}
	return results, nil
}

// noteFields reads the fields of a note. noted says that there are any.
func noteFields(o *wire.Object) (note posthaste.Note, noted bool) {
	given := o.Has("progress")
	progress := o.Number("progress")
	if given {
		note.Progress = &progress
	}
	note.Checkpoint, note.ProgressText, note.Log = o.Raw("checkpoint"), o.LooseText("progress_text"), o.LooseText("log")
	if note.Log != "" && !strings.HasSuffix(note.Log, "\n") {
		note.Log += "\n"
	}
	noted = note.Checkpoint != nil || given || note.ProgressText != "" || note.Log != ""
	if noted {
		if err := note.Check(); err != nil {
			o.Refuse(err)
		}
	}
	return note, noted
}

// addToGroup adds a delivery to those of the same lease that have notes too, or have none.
func addToGroup(groups []posthaste.ExtendRequest, id posthaste.DeliveryID, lease time.Duration, note posthaste.Note, noted bool) []posthaste.ExtendRequest {
	i := slices.IndexFunc(groups, func(g posthaste.ExtendRequest) bool { return g.Lease == lease && (g.Notes != nil) == noted })
	if i < 0 {
		i = len(groups)
		groups = append(groups, posthaste.ExtendRequest{Lease: lease})
	}
	g := &groups[i]
	if g.Deliveries = append(g.Deliveries, id); noted {
		g.Notes = append(g.Notes, note)
	}
	return groups
}

// writeSettled answers 200 if all deliveries were settled, and otherwise with a problem that
// lists the others.
func (s *Server) writeSettled(w http.ResponseWriter, results []posthaste.SettleResult) error {
	shown, err := settledOf(results)
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, wire.SettledAll{Deliveries: shown})
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
func settledOf(results []posthaste.SettleResult) ([]wire.Settled, error) {
	shown := wire.NewSettled(results)
	var gone, refused []string
	var refusal error
	for _, result := range results {
		switch {
		case result.Err != nil:
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
