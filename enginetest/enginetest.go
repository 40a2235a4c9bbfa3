// Package enginetest is the test suite that every implementation of [posthaste.Store] must
// pass. It uses only that interface.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// features is short for the type in the lists of tests.
type features = posthaste.Capabilities

// test is one test of the suite.
type test struct {
	name string
	run  func(s *suite)
	// needs are the features without which the test is skipped.
	needs features
}

// lacking returns the name of a feature that the test needs and a store does not have, or "".
func (c test) lacking(can posthaste.Capabilities) string {
	needs, has := reflect.ValueOf(c.needs), reflect.ValueOf(can)
	for i := range needs.NumField() {
		if needs.Field(i).Bool() && !has.Field(i).Bool() {
			return needs.Type().Field(i).Name
		}
	}
	return ""
}

// suite is one test's engine with the steps that the tests share.
type suite struct {
	*testing.T
	engine posthaste.Store
	ctx    context.Context
	queue  string
	number int64
}

// quick returns options with short retries.
func quick() posthaste.QueueOptions {
	return posthaste.QueueOptions{MaxAttempts: 3, BackoffBase: time.Millisecond, BackoffMax: 2 * time.Millisecond}
}

func (s *suite) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// create creates the queue of the test. A store that is not exact knows what became of a message
// only in queues with a retention.
func (s *suite) create(o posthaste.QueueOptions) {
	s.Helper()
	if o.Retention == 0 && !s.engine.Capabilities().Exact {
		o.Retention = time.Hour
	}
	s.must(s.engine.CreateQueue(s.ctx, s.queue, o))
}

// send sends n messages whose payloads are the numbers from 0.
func (s *suite) send(n int) []posthaste.MessageID {
	s.Helper()
	messages := make([]posthaste.Message, n)
	for i := range messages {
		messages[i] = posthaste.Message{Queue: s.queue, Payload: i}
	}
	ids, err := posthaste.IDs(s.engine.Send(s.ctx, messages...))
	s.must(err)
	if len(ids) != n {
		s.Fatalf("%d ids for %d messages", len(ids), n)
	}
	return ids
}

func (s *suite) register(lease time.Duration) posthaste.WorkerID {
	s.Helper()
	id, err := s.engine.Register(s.ctx, posthaste.WorkerInfo{Name: "tester", Lease: lease})
	s.must(err)
	return id
}

func (s *suite) ref() posthaste.QueueRef { return posthaste.QueueRef{Queue: s.queue} }

func (s *suite) request(w posthaste.WorkerID, limit int) posthaste.ClaimRequest {
	s.number++
	return posthaste.ClaimRequest{Worker: w, Number: s.number, QueueRef: s.ref(), Max: limit}
}

// claim claims once.
func (s *suite) claim(w posthaste.WorkerID, limit int) []posthaste.RawDelivery {
	s.Helper()
	reply, err := s.engine.Claim(s.ctx, s.request(w, limit))
	s.must(err)
	return reply.Deliveries
}

// claimed claims until it has n deliveries.
func (s *suite) claimed(w posthaste.WorkerID, n int) (all []posthaste.RawDelivery) {
	s.Helper()
	s.until(fmt.Sprintf("%d deliveries come", n), func() bool {
		if len(all) < n {
			all = append(all, s.claim(w, n-len(all))...)
		}
		return len(all) == n
	})
	return all
}

// claimOrAlone claims once. If the engine asks for it, it claims again as an idle worker. It
// checks that a message that must run alone is handed out alone.
func (s *suite) claimOrAlone(w posthaste.WorkerID, limit int) []posthaste.RawDelivery {
	s.Helper()
	for _, idle := range []bool{false, true} {
		req := s.request(w, limit)
		req.AllowAlone = idle
		reply, err := s.engine.Claim(s.ctx, req)
		s.must(err)
		for _, d := range reply.Deliveries {
			if d.Alone && (len(reply.Deliveries) != 1 || !idle) {
				s.Errorf("to run alone it was handed out with %d others, idle %v", len(reply.Deliveries)-1, idle)
			}
		}
		if len(reply.Deliveries) > 0 || !reply.AloneWaiting {
			return reply.Deliveries
		}
	}
	return nil
}

// none checks that a claim finds nothing.
func (s *suite) none(w posthaste.WorkerID) {
	s.Helper()
	if got := s.claim(w, 10); len(got) != 0 {
		s.Fatalf("%d deliveries, want none; the first is message %d, attempt %d", len(got), got[0].MessageID, got[0].Attempt)
	}
}

// receive receives messages with a lease.
func (s *suite) receive(limit int, lease time.Duration) []posthaste.RawDelivery {
	s.Helper()
	reply, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: s.ref(), Max: limit, Lease: lease})
	got := reply.Deliveries
	s.must(err)
	return got
}

// settle settles all deliveries with the same outcome and expects success.
func (s *suite) settle(with posthaste.Settlement, deliveries ...posthaste.RawDelivery) []posthaste.SettleResult {
	s.Helper()
	results := s.trySettle(with, deliveries...)
	for i, r := range results {
		if !r.Settled || r.Err != nil || r.Delivery != deliveries[i].ID {
			s.Fatalf("settling delivery %d as %s: %+v", deliveries[i].ID, with.Outcome, r)
		}
	}
	return results
}

func (s *suite) trySettle(with posthaste.Settlement, deliveries ...posthaste.RawDelivery) []posthaste.SettleResult {
	s.Helper()
	var all []posthaste.Settlement
	for _, d := range deliveries {
		with.Delivery = d.ID
		all = append(all, with)
	}
	results, err := s.engine.Settle(s.ctx, all)
	s.must(err)
	if len(results) != len(all) {
		s.Fatalf("%d answers for %d settlements", len(results), len(all))
	}
	return results
}

// until waits for a condition.
func (s *suite) until(what string, ok func() bool) {
	s.Helper()
	for !ok() {
		select {
		case <-s.ctx.Done():
			s.Fatalf("waited in vain until %s", what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// counted does upkeep and returns the counters of the subscription.
func (s *suite) counted() posthaste.SubscriptionInfo {
	s.Helper()
	_, err := s.engine.Maintain(s.ctx, posthaste.UpkeepSpace)
	s.must(err)
	infos, err := s.engine.Queues(s.ctx, s.queue)
	s.must(err)
	return infos[0].Subscriptions[0]
}

// rescue rescues until n deliveries were lost. Any caller may do the rescue, so only the sum
// counts.
func (s *suite) rescue(n int) {
	s.Helper()
	total := 0
	s.until(fmt.Sprintf("%d deliveries are rescued", n), func() bool {
		lost, err := s.engine.Maintain(s.ctx, posthaste.UpkeepRescue)
		s.must(err)
		total += lost.Rescued
		return total >= n
	})
	if total > n {
		s.Fatalf("%d deliveries were rescued, want %d", total, n)
	}
}

func (s *suite) state(id posthaste.MessageID) posthaste.MessageState {
	s.Helper()
	info, err := s.engine.Message(s.ctx, id)
	s.must(err)
	if info.ID != id || info.Queue != s.queue || len(info.Subscriptions) != 1 {
		s.Fatalf("message %d is reported as %+v", id, info)
	}
	return info.Subscriptions[0]
}

func (s *suite) wantState(id posthaste.MessageID, want posthaste.State) {
	s.Helper()
	if got := s.state(id).State; got != want {
		s.Errorf("message %d is %s, want %s", id, got, want)
	}
}

func (s *suite) wantCode(what string, err error, want posthaste.Code) {
	s.Helper()
	if got := posthaste.CodeOf(err); got != want {
		s.Errorf("%s: error %v with code %q, want %q", what, err, got, want)
	}
}

func payloads(deliveries []posthaste.RawDelivery) (all []string) {
	for _, d := range deliveries {
		all = append(all, string(d.Payload))
	}
	return all
}

func messageIDs(deliveries []posthaste.RawDelivery) (ids []posthaste.MessageID) {
	for _, d := range deliveries {
		ids = append(ids, d.MessageID)
	}
	slices.Sort(ids)
	return ids
}

var (
	done     = posthaste.Settlement{Outcome: posthaste.OutcomeDone}
	failed   = posthaste.Settlement{Outcome: posthaste.OutcomeRetried, Error: "it did not work"}
	hopeless = posthaste.Settlement{Outcome: posthaste.OutcomeDead, Error: "it never will"}
	released = posthaste.Settlement{Outcome: posthaste.OutcomeReleased}
	aside    = posthaste.Settlement{Outcome: posthaste.OutcomeSetAside}
)

func fieldOf(err error) string {
	var e *posthaste.Error
	if errors.As(err, &e) {
		return e.Field
	}
	return ""
}
