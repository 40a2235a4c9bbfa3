package source

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Uncounted messages use up capacity, but not forever: not the messages that were in the
// queue before, and not those of other senders.
func TestRoomBetweenCounts(t *testing.T) {
	var info posthaste.QueueInfo
	r := capacity{queue: "q", limit: 100, ledger: counts{&info}}
	count := func(depth, total int64, again bool) {
		t.Helper()
		countedAt := r.countedAt
		if again {
			countedAt = countedAt.Add(time.Second)
		}
		info.Subscriptions = []posthaste.SubscriptionInfo{{Depth: depth, Sent: total, CountedAt: countedAt}}
		if err := r.look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	free := func(want int64) {
		t.Helper()
		if got := r.free(); got != want {
			t.Errorf("%d are free, want %d", got, want)
		}
	}
	count(10, 1000, true)
	free(90)
	r.sent += 50
	free(40)
	count(30, 1020, true) // includes 20 of ours
	free(40)
	count(40, 1050, true)
	free(60)
	count(45, 1060, true) // 10 by others
	free(55)
	r.sent += 20 // duplicates, which are never counted
	free(35)
	count(45, 1060, true)
	free(35)
	count(45, 1060, false)
	free(35)
	count(45, 1060, true)
	free(35)
	count(45, 1060, true)
	free(55)
}

// Without a limit the queue is not looked at, except after messages were returned: then
// nothing is read until the store and the queue are available.
func TestStoreIsAwaitedWhereAnyNumberMayWait(t *testing.T) {
	t.Parallel()
	for _, code := range []posthaste.Code{posthaste.CodeUnavailable, posthaste.CodeNotFound} {
		away := &awayFor{times: 3, code: code}
		r := capacity{queue: "q", limit: -1, ledger: away}
		reported := 0
		report := func(error) { reported++ }
		if n, err := r.wait(t.Context(), time.Minute, report); n != math.MaxInt || err != nil || away.asked != 0 {
			t.Errorf("%s, at first: %d, %v, asked %d times", code, n, err, away.asked)
		}
		r.returned = true
		for range 2 {
			if n, err := r.wait(t.Context(), time.Minute, report); n != math.MaxInt || err != nil || away.asked != 4 || reported != 3 {
				t.Errorf("%s, afterwards: %d, %v, asked %d times, reported %d times", code, n, err, away.asked, reported)
			}
		}
		away.times, r.returned = 1000, true
		if n, err := r.wait(t.Context(), time.Millisecond, report); n != 0 || posthaste.CodeOf(err) != code {
			t.Errorf("%s, out of patience: %d, %v", code, n, err)
		}
	}
	denied := &awayFor{times: 1000, code: posthaste.CodeDenied}
	r := capacity{queue: "q", limit: -1, ledger: denied, returned: true}
	if n, err := r.wait(t.Context(), time.Minute, func(error) {}); n != math.MaxInt || err != nil {
		t.Errorf("a role that may only send: %d, %v", n, err)
	}
}

// awayFor is a ledger that is unavailable, or has no queue, for a number of calls.
type awayFor struct {
	counts
	times, asked int
	code         posthaste.Code
}

func (a *awayFor) Queues(context.Context, ...string) ([]posthaste.QueueInfo, error) {
	switch a.asked++; {
	case a.asked > a.times:
		return []posthaste.QueueInfo{{}}, nil
	case a.code == posthaste.CodeNotFound:
		return nil, nil
	}
	return nil, &posthaste.Error{Code: a.code, Message: "away"}
}

// counts is a ledger with the given counts.
type counts struct{ info *posthaste.QueueInfo }

func (c counts) Send(context.Context, ...posthaste.Message) ([]posthaste.Sent, error) {
	return nil, nil
}
func (c counts) Queues(context.Context, ...string) ([]posthaste.QueueInfo, error) {
	return []posthaste.QueueInfo{*c.info}, nil
}
func (c counts) Maintain(context.Context, posthaste.Upkeep) (posthaste.MaintainReply, error) {
	return posthaste.MaintainReply{}, nil
}
