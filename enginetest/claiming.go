package enginetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

func claimRepeated(s *suite) {
	s.create(posthaste.QueueOptions{})
	s.send(5)
	w := s.register(time.Minute)
	req := s.request(w, 3)
	first, err := s.engine.Claim(s.ctx, req)
	s.must(err)
	again, err := s.engine.Claim(s.ctx, req)
	s.must(err)
	if len(first.Deliveries) != 3 || fmt.Sprint(deliveryIDs(first.Deliveries)) != fmt.Sprint(deliveryIDs(again.Deliveries)) ||
		fmt.Sprint(payloads(first.Deliveries)) != fmt.Sprint(payloads(again.Deliveries)) {
		s.Errorf("the same number gave %v, then %v", deliveryIDs(first.Deliveries), deliveryIDs(again.Deliveries))
	}
	rest := s.claimed(w, 2)
	s.none(w)
	// A repeated claim also returns the due times.
	_, err = s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: 1, Delay: time.Millisecond})
	s.must(err)
	s.until("the delayed message is due", func() bool {
		req = s.request(w, 1)
		first, err = s.engine.Claim(s.ctx, req)
		s.must(err)
		return len(first.Deliveries) > 0
	})
	late, err := s.engine.Claim(s.ctx, req)
	s.must(err)
	if len(late.Deliveries) != 1 || first.Deliveries[0].DueAt.IsZero() || !late.Deliveries[0].DueAt.Equal(first.Deliveries[0].DueAt) {
		s.Errorf("the same number gave %+v, then %+v", first.Deliveries, late.Deliveries)
	}
	s.settle(done, slices.Concat(again.Deliveries, rest, late.Deliveries)...)
}

func deliveryIDs(deliveries []posthaste.RawDelivery) (ids []posthaste.DeliveryID) {
	for _, d := range deliveries {
		ids = append(ids, d.ID)
	}
	slices.Sort(ids)
	return ids
}

func unsettled(s *suite) {
	s.create(posthaste.QueueOptions{})
	s.send(6)
	w := s.register(time.Minute)
	first := s.claimed(w, 4)
	upTo := s.number
	later := s.claimed(w, 2)
	s.settle(done, first[1])
	want := deliveryIDs([]posthaste.RawDelivery{first[0], first[2], first[3]})
	ids, err := s.engine.Unsettled(s.ctx, w, upTo)
	s.must(err)
	if slices.Sort(ids); !slices.Equal(ids, want) {
		s.Errorf("unsettled up to the first claim: %v, want %v", ids, want)
	}
	ids, err = s.engine.Unsettled(s.ctx, w, s.number)
	s.must(err)
	if slices.Sort(ids); len(ids) != 5 || !slices.Contains(ids, later[1].ID) {
		s.Errorf("unsettled up to the second claim: %v", ids)
	}
	s.settle(released, slices.Concat(first[:1], first[2:], later)...)
	if ids, err = s.engine.Unsettled(s.ctx, w, s.number); err != nil || len(ids) != 0 {
		s.Errorf("unsettled at the end: %v, %v", ids, err)
	}
	s.claimed(w, 5)
}

func singleClaims(s *suite) {
	s.create(posthaste.QueueOptions{})
	s.send(3)
	req := s.request(s.register(time.Minute), 3)
	req.Single = true
	reply, err := s.engine.Claim(s.ctx, req)
	s.must(err)
	for _, d := range reply.Deliveries {
		s.settle(done, d)
		if s.trySettle(failed, d)[0].Settled {
			s.Error("a delivery was settled twice")
		}
	}
	if len(reply.Deliveries) != 3 {
		s.Errorf("%d deliveries, want 3", len(reply.Deliveries))
	}
}

func badClaims(s *suite) {
	s.create(posthaste.QueueOptions{})
	w := s.register(time.Minute)
	for _, limit := range []int{0, -1, posthaste.MaxPlaces + 1} {
		_, err := s.engine.Claim(s.ctx, s.request(w, limit))
		s.wantCode(fmt.Sprintf("claim of %d", limit), err, posthaste.CodeInvalid)
	}
	for _, limit := range []int{0, 1001} {
		_, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: s.ref(), Max: limit, Lease: time.Second})
		s.wantCode(fmt.Sprintf("receive of %d", limit), err, posthaste.CodeInvalid)
	}
	for _, lease := range []time.Duration{0, -time.Second, 12*time.Hour + time.Second} {
		_, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: s.ref(), Max: 1, Lease: lease})
		s.wantCode(fmt.Sprintf("receive with a lease of %s", lease), err, posthaste.CodeInvalid)
		_, err = s.engine.Extend(s.ctx, posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{4096}, Lease: lease})
		s.wantCode(fmt.Sprintf("extend to a lease of %s", lease), err, posthaste.CodeInvalid)
	}
	_, err := s.engine.Register(s.ctx, posthaste.WorkerInfo{Name: "x"})
	s.wantCode("a worker without a lease", err, posthaste.CodeInvalid)
}
