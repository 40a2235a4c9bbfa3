package enginetest

import (
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// each passes every message to one of the takers, and returns how often each message came.
func (s *suite) each(n, takers int, take func(taker int) []posthaste.RawDelivery) {
	s.Helper()
	var mu sync.Mutex
	seen := map[posthaste.MessageID]int{}
	total := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(seen)
	}
	var all sync.WaitGroup
	for taker := range takers {
		all.Go(func() {
			for total() < n && s.ctx.Err() == nil && !s.Failed() {
				got := take(taker)
				for _, d := range got {
					mu.Lock()
					seen[d.MessageID]++
					mu.Unlock()
				}
				if len(got) == 0 {
					time.Sleep(time.Millisecond) // senders are still at work
				}
			}
		})
	}
	all.Wait()
	for id, times := range seen {
		if times != 1 {
			s.Errorf("message %d came %d times", id, times)
		}
	}
	if len(seen) != n {
		s.Errorf("%d of %d messages came", len(seen), n)
	}
}

// sendBeside sends n messages from several goroutines while other goroutines receive them.
func (s *suite) sendBeside(n, senders int) (wait func()) {
	var all sync.WaitGroup
	for range senders {
		all.Go(func() {
			for range n / senders {
				if _, err := s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: 1}); err != nil {
					s.Error(err)
				}
			}
		})
	}
	return all.Wait
}

func concurrentClaimers(s *suite) {
	s.create(posthaste.QueueOptions{})
	const n, claimers = 400, 4
	defer s.sendBeside(n, 4)()
	workers := make([]posthaste.WorkerID, claimers)
	for i := range workers {
		workers[i] = s.register(time.Minute)
	}
	numbers := make([]int64, claimers)
	s.each(n, claimers, func(i int) []posthaste.RawDelivery {
		numbers[i]++
		reply, err := s.engine.Claim(s.ctx, posthaste.ClaimRequest{Worker: workers[i], Number: numbers[i], QueueRef: s.ref(), Max: 7})
		if err != nil {
			s.Error(err)
			return nil
		}
		if len(reply.Deliveries) > 0 {
			s.settleQuietly(reply.Deliveries)
		}
		return reply.Deliveries
	})
}

func concurrentReceivers(s *suite) {
	s.create(posthaste.QueueOptions{})
	const n = 300
	defer s.sendBeside(n, 3)()
	s.each(n, 8, func(int) []posthaste.RawDelivery {
		reply, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: s.ref(), Max: 3, Lease: time.Minute})
		got := reply.Deliveries
		switch {
		case posthaste.CodeOf(err) == posthaste.CodeUnavailable: // on a busy machine others hold the queue for seconds
		case err != nil:
			s.Error(err)
		case len(got) > 0:
			s.settleQuietly(got)
		}
		return got
	})
}

// settleQuietly acknowledges from a goroutine that must not call Fatal.
func (s *suite) settleQuietly(deliveries []posthaste.RawDelivery) {
	var all []posthaste.Settlement
	for _, d := range deliveries {
		all = append(all, posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeDone})
	}
	results, err := s.engine.Settle(s.ctx, all)
	if err != nil {
		s.Error(err)
	}
	for _, r := range results {
		if !r.Settled {
			s.Errorf("delivery %d was not the claimer's: %+v", r.Delivery, r)
		}
	}
}

func settlesThatRace(s *suite) {
	s.create(posthaste.QueueOptions{})
	const n, racers = 60, 4
	s.send(n)
	d := s.claimed(s.register(time.Minute), n)
	var mu sync.Mutex
	won := map[posthaste.DeliveryID]int{}
	var all sync.WaitGroup
	for racer := range racers {
		all.Go(func() {
			for i := range n / 10 {
				var batch []posthaste.Settlement
				for j := range 10 {
					batch = append(batch, posthaste.Settlement{Delivery: d[(i*10+j+racer*3)%n].ID, Outcome: posthaste.OutcomeDone})
				}
				results, err := s.engine.Settle(s.ctx, batch)
				if err != nil {
					s.Error(err)
				}
				mu.Lock()
				for _, r := range results {
					if r.Settled {
						won[r.Delivery]++
					}
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for _, d := range d {
		if won[d.ID] != 1 {
			s.Errorf("delivery %d was settled %d times", d.ID, won[d.ID])
		}
	}
}
