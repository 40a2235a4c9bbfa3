package nats

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// several are engines of one store, as those of several processes, with a queue.
func several(t *testing.T, n int, o posthaste.QueueOptions) []*Engine {
	t.Helper()
	return severalAt(t, startServer(t), n, o)
}

func severalAt(t *testing.T, url string, n int, o posthaste.QueueOptions) []*Engine {
	t.Helper()
	all := make([]*Engine, n)
	for i := range all {
		all[i] = openEngine(t, url)
	}
	if err := all[0].CreateQueue(t.Context(), "jobs", o); err != nil {
		t.Fatal(err)
	}
	return all
}

func sendJobs(t *testing.T, e *Engine, messages ...posthaste.Message) []posthaste.MessageID {
	t.Helper()
	for i := range messages {
		messages[i].Queue = "jobs"
	}
	ids, err := posthaste.IDs(e.Send(t.Context(), messages...))
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func receiveJobs(t *testing.T, e *Engine, n int) []posthaste.RawDelivery {
	t.Helper()
	got, err := e.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "jobs"}, Max: n, Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return got.Deliveries
}

func wantJob(t *testing.T, e *Engine, id posthaste.MessageID, want posthaste.State) posthaste.MessageState {
	t.Helper()
	info, err := e.Message(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	s := info.Subscriptions[0]
	if s.State != want {
		t.Errorf("message %d is %s, want %s", id, s.State, want)
	}
	return s
}

func cancelJob(t *testing.T, e *Engine, id posthaste.MessageID) posthaste.Withdrawal {
	t.Helper()
	got, err := e.Cancel(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 {
		t.Fatalf("cancelling answered %+v", got)
	}
	return got[0]
}

// The holder may be another process than the one that cancels.
func TestCancelOfAnotherProcess(t *testing.T) {
	t.Parallel()
	all := several(t, 3, posthaste.QueueOptions{BackoffBase: time.Millisecond, BackoffMax: time.Millisecond})
	a, b := all[0], all[1]
	id := sendJobs(t, a, posthaste.Message{Payload: 1})[0]
	d := receiveJobs(t, a, 1)[0]
	wantJob(t, a, id, posthaste.StateRunning)
	wantJob(t, b, id, posthaste.StateReady) // as docs/production/nats-engine.md says
	for range 2 {
		if got := cancelJob(t, b, id); !got.Requested || got.State != posthaste.StateRunning {
			t.Errorf("it answered %+v", got)
		}
	}
	told, err := a.Extend(t.Context(), posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{d.ID}, Lease: time.Minute})
	if err != nil || !told[0].Settled || !told[0].Cancelled {
		t.Errorf("its holder is told %+v, %v", told, err)
	}
	settled, err := a.Settle(t.Context(), []posthaste.Settlement{{Delivery: d.ID, Outcome: posthaste.OutcomeRetried, Error: "no"}})
	if err != nil || settled[0].Outcome != posthaste.OutcomeCancelled {
		t.Errorf("it became %+v, %v", settled, err)
	}
	for _, e := range all {
		wantJob(t, e, id, posthaste.StateCancelled)
		if got := receiveJobs(t, e, 1); len(got) > 0 {
			t.Errorf("it came again: %+v", got)
		}
	}
	actions, err := b.Actions(t.Context(), posthaste.ActionFilter{MessageID: id})
	if err != nil || len(actions) != 1 || actions[0].Action != "cancel" {
		t.Errorf("on record is %+v, %v", actions, err)
	}
}

// A message that was cancelled while it ran does not come again if its holder is killed.
func TestCancelThenHolderIsKilled(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]posthaste.QueueOptions{"plain": {}, "ordered": {Ordered: true, Lanes: 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := startServer(t)
			a, b := openEngine(t, url, WithAckWait(leastAckWait)), openEngine(t, url)
			if err := a.CreateQueue(t.Context(), "jobs", o); err != nil {
				t.Fatal(err)
			}
			ids := sendJobs(t, a, posthaste.Message{Payload: 1, Key: "k"}, posthaste.Message{Payload: 2, Key: "k"})
			until(t, t.Context(), "the first comes", func() bool { return len(receiveJobs(t, a, 1)) == 1 })
			if got := cancelJob(t, b, ids[0]); !got.Requested {
				t.Errorf("it answered %+v", got)
			}
			a.Close()
			until(t, t.Context(), "it is cancelled", func() bool {
				for _, d := range receiveJobs(t, b, 1) {
					if d.MessageID == ids[0] {
						t.Fatal("it came again")
					}
				}
				info, err := b.Message(t.Context(), ids[0])
				return err == nil && info.Subscriptions[0].State == posthaste.StateCancelled
			})
		})
	}
}

// A message that was cancelled in time is handed out by no process, while others claim and messages
// become due.
func TestCancelRacesWithClaims(t *testing.T) {
	t.Parallel()
	t.Run("one server", func(t *testing.T) { t.Parallel(); cancelRacesWithClaims(t, startServer(t)) })
	t.Run("three servers", func(t *testing.T) {
		t.Parallel()
		testrun.Nightly(t, "a busy machine delays three servers by seconds, and one server runs on each change")
		cancelRacesWithClaims(t, startCluster(t))
	})
}

func cancelRacesWithClaims(t *testing.T, url string) {
	all := severalAt(t, url, 3, posthaste.QueueOptions{})
	// On a busy machine all may be claimed first, or none.
	for range 10 {
		if cancelRace(t, all) || t.Failed() {
			return
		}
	}
	t.Error("in no round some messages were cancelled in time, and some not")
}

// cancelRace sends messages, cancels all of them while two processes claim, and reports whether both won
// some.
func cancelRace(t *testing.T, all []*Engine) bool {
	var sent []posthaste.MessageID
	for i := range 60 {
		m := posthaste.Message{Payload: i}
		if i%2 == 0 {
			m.Delay = time.Duration(i) * 20 * time.Millisecond
		}
		sent = append(sent, sendJobs(t, all[0], m)...)
	}
	var mu sync.Mutex
	came, cancelled := map[posthaste.MessageID]int{}, map[posthaste.MessageID]posthaste.Withdrawal{}
	ctx, stop := context.WithCancel(t.Context())
	var claims, cancels sync.WaitGroup
	for _, e := range all[1:] {
		claims.Go(func() {
			for ctx.Err() == nil {
				got, err := e.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "jobs"}, Max: 1, Lease: time.Minute})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				mu.Lock()
				for _, d := range got.Deliveries {
					came[d.MessageID]++
				}
				mu.Unlock()
				sleepFor(ctx, 30*time.Millisecond)
			}
		})
	}
	for i := range 6 {
		cancels.Go(func() {
			for at := len(sent) - 1 - i; at >= 0; at -= 6 {
				got, err := all[i%3].Cancel(ctx, sent[at])
				if err != nil {
					t.Errorf("message %d: %v", sent[at], err)
					continue
				}
				mu.Lock()
				cancelled[sent[at]] = got[0]
				mu.Unlock()
			}
		})
	}
	cancels.Wait()
	testrun.Happens(time.Minute, func() bool { // those that were not cancelled come
		mu.Lock()
		defer mu.Unlock()
		return !slices.ContainsFunc(sent, func(id posthaste.MessageID) bool { return !cancelled[id].InTime && came[id] == 0 })
	})
	stop()
	claims.Wait()
	return raced(t, sent, came, cancelled)
}

// raced checks how often messages came, some of which were cancelled in time, and reports whether
// some were and some not.
func raced(t *testing.T, sent []posthaste.MessageID, came map[posthaste.MessageID]int, cancelled map[posthaste.MessageID]posthaste.Withdrawal) bool {
	t.Helper()
	inTime := 0
	for _, id := range sent {
		w := cancelled[id]
		if w.InTime {
			inTime++
		}
		if w.InTime && came[id] > 0 || !w.InTime && came[id] != 1 || came[id] > 1 {
			t.Errorf("message %d came %d times, and cancelling it answered %+v", id, came[id], w)
		}
	}
	return inTime > 0 && inTime < len(sent)
}

func TestMoveScheduled(t *testing.T) {
	t.Parallel()
	e := several(t, 1, posthaste.QueueOptions{})[0]
	ids := sendJobs(t, e, posthaste.Message{Payload: 1, Delay: time.Hour}, posthaste.Message{Payload: 2, Delay: time.Hour}, posthaste.Message{Payload: 3})
	d := receiveJobs(t, e, 1)[0]
	if _, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: d.ID, Outcome: posthaste.OutcomeRetried, Error: "no", RetryAfter: time.Hour}}); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(2 * time.Hour).Round(time.Microsecond)
	for _, id := range []posthaste.MessageID{ids[0], ids[2]} {
		got, err := e.Reschedule(t.Context(), id, at)
		if err != nil || !got[0].InTime {
			t.Errorf("moving message %d: %+v, %v", id, got, err)
		}
	}
	for i, state := range []posthaste.State{posthaste.StateScheduled, posthaste.StateScheduled, posthaste.StateRetrying} {
		if s := wantJob(t, e, ids[i], state); s.DueAt.Equal(at) != (i != 1) {
			t.Errorf("message %d is due at %s", i, s.DueAt)
		}
	}
	for _, id := range ids {
		if got, err := e.RunMessage(t.Context(), id); err != nil || !got[0].Due {
			t.Errorf("running message %d: %+v, %v", id, got, err)
		}
	}
	var came []string
	until(t, t.Context(), "all come", func() bool {
		for _, d := range receiveJobs(t, e, 10) {
			came = append(came, fmt.Sprint(string(d.Payload), " ", d.Attempt))
		}
		return len(came) >= 3
	})
	if slices.Sort(came); !slices.Equal(came, []string{"1 1", "2 1", "3 2"}) {
		t.Errorf("they came as %v", came)
	}
	left, err := e.subjectsUnder(t.Context(), e.queues.known("jobs").stream, e.subjectsOf("jobs").under("s.>"))
	if err != nil || len(left) > 0 {
		t.Errorf("schedules that are left: %v, %v", left, err)
	}
}

// A message that waits is found among the newest and the oldest.
func TestFindAmongMany(t *testing.T) {
	t.Parallel()
	e := several(t, 1, posthaste.QueueOptions{})[0]
	var ids []posthaste.MessageID
	for range 21 {
		part := make([]posthaste.Message, 1000)
		for i := range part {
			part[i].Payload = i
		}
		ids = append(ids, sendJobs(t, e, part...)...)
	}
	for _, at := range []int{0, 9_999, 11_000, 20_999} {
		wantJob(t, e, ids[at], posthaste.StateReady)
	}
	if _, err := e.Message(t.Context(), ids[10_500]); posthaste.CodeOf(err) != posthaste.CodeNotFound {
		t.Errorf("between: %v", err)
	}
	page, err := e.Messages(t.Context(), posthaste.MessageFilter{Queue: "jobs", State: posthaste.StateReady, Before: ids[20_999], Limit: 3})
	if err != nil || len(page.Items) != 3 || page.Items[0].ID != ids[20_998] || page.Next != ids[20_996] {
		t.Errorf("a page is %+v, %v", page, err)
	}
	_, err = e.Messages(t.Context(), posthaste.MessageFilter{Key: "k"})
	if posthaste.CodeOf(err) != posthaste.CodeUnsupported {
		t.Errorf("by a key: %v", err)
	}
}

// Of messages that are too large to be read together, the newest are found and listed.
func TestFindAmongLarge(t *testing.T) {
	t.Parallel()
	e := several(t, 1, posthaste.QueueOptions{})[0]
	const n = 100
	var ids []posthaste.MessageID
	for range n {
		ids = append(ids, sendJobs(t, e, posthaste.Message{Payload: make([]byte, 900<<10)})...)
	}
	for _, at := range []int{0, n - 20, n - 1} {
		wantJob(t, e, ids[at], posthaste.StateReady)
	}
	page, err := e.Messages(t.Context(), posthaste.MessageFilter{Queue: "jobs", State: posthaste.StateReady, Limit: 10})
	if err != nil || len(page.Items) != 10 || page.Items[0].ID != ids[n-1] || page.Items[9].ID != ids[n-10] {
		t.Errorf("a page has %d messages, %v", len(page.Items), err)
	}
}
