package nats

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
)

// buryJobs makes dead letters of n messages.
func buryJobs(t *testing.T, e *Engine, n int) (ids []posthaste.MessageID) {
	t.Helper()
	for len(ids) < n {
		part := make([]posthaste.Message, min(n-len(ids), 500))
		for i := range part {
			part[i].Payload = i
		}
		ids = append(ids, sendJobs(t, e, part...)...)
		var dead []posthaste.Settlement
		for len(dead) < len(part) {
			for _, d := range receiveJobs(t, e, len(part)) {
				dead = append(dead, posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeDead, Error: "no"})
			}
		}
		if _, err := e.Settle(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

// Of several replays of a dead letter one sends it again, and it can die and be replayed again.
func TestReplaysOnce(t *testing.T) {
	t.Parallel()
	all := several(t, 2, posthaste.QueueOptions{})
	id := buryJobs(t, all[0], 1)[0]
	chosen := posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{id}}
	for attempt := 2; attempt < 5; attempt++ {
		letters, _, err := all[0].chosenLetters(t.Context(), &chosen)
		if err != nil || len(letters) != 1 {
			t.Fatal(letters, err)
		}
		answers := make(chan bool, 4)
		for i := range cap(answers) {
			go func() {
				did, err := all[i%2].replayLetter(t.Context(), letters[0])
				if err != nil {
					t.Error(err)
				}
				answers <- did
			}()
		}
		did := 0
		for range cap(answers) {
			if <-answers {
				did++
			}
		}
		if did != 1 {
			t.Errorf("%d of %d calls replayed it", did, cap(answers))
		}
		if left, err := all[0].countFrom(t.Context(), all[0].queues.known("jobs").stream, letters[0].subject(), 1); err != nil || left != 0 {
			t.Errorf("%d entries are left of the dead letter, %v", left, err)
		}
		got := receiveJobs(t, all[0], 10)
		if len(got) != 1 || got[0].MessageID != id || got[0].Attempt != attempt {
			t.Fatalf("it came as %+v, want attempt %d", got, attempt)
		}
		if _, err := all[0].Settle(t.Context(), []posthaste.Settlement{{Delivery: got[0].ID, Outcome: posthaste.OutcomeDead, Error: "no"}}); err != nil {
			t.Fatal(err)
		}
	}
}

// Of replays and discards at the same time one takes each dead letter.
func TestReplayRacesWithDiscard(t *testing.T) {
	t.Parallel()
	all := several(t, 2, posthaste.QueueOptions{})
	const n = 150
	ids := buryJobs(t, all[0], n)
	var listed []posthaste.MessageID
	for f := (posthaste.DeadLetterFilter{Queue: "jobs", Limit: 60}); ; {
		page, err := all[0].DeadLetters(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range page.Items {
			listed = append(listed, d.ID)
		}
		if f.Before = page.Next; f.Before == 0 {
			break
		}
	}
	if len(listed) != n || listed[0] != ids[n-1] || listed[n-1] != ids[0] {
		t.Errorf("%d dead letters are listed, want %d", len(listed), n)
	}
	chosen := posthaste.DeadLetterFilter{IDs: ids[:80]}
	discarded := make(chan int, 1)
	go func() {
		page, err := all[1].Discard(t.Context(), chosen)
		if err != nil && posthaste.CodeOf(err) != posthaste.CodeNotFound {
			t.Error(err)
		}
		discarded <- len(page.Items)
	}()
	page, err := all[0].Replay(t.Context(), chosen)
	if err != nil && posthaste.CodeOf(err) != posthaste.CodeNotFound {
		t.Error(err)
	}
	if sum := len(page.Items) + <-discarded; sum != 80 {
		t.Errorf("%d were replayed or discarded, want 80", sum)
	}
	replayed := page.Items
	for _, d := range receiveJobs(t, all[1], 1000) {
		if !slices.Contains(replayed, d.MessageID) {
			t.Errorf("message %d came and was not replayed", d.MessageID)
		}
	}
	rest, err := all[0].DeadLetters(t.Context(), posthaste.DeadLetterFilter{IDs: ids[:80], Limit: 1000})
	if err != nil || len(rest.Items) > 0 {
		t.Errorf("%d are left, %v", len(rest.Items), err)
	}
}

// A message that dies after its subscription was removed is neither listed nor replayed.
func TestDeadAfterUnsubscribe(t *testing.T) {
	t.Parallel()
	e := several(t, 1, posthaste.QueueOptions{})[0]
	must(t, e.Subscribe(t.Context(), "jobs", "more", posthaste.SubscriptionOptions{}))
	sendJobs(t, e, posthaste.Message{Payload: 1}, posthaste.Message{Payload: 2})
	got, err := e.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "jobs", Subscription: "more"}, Max: 2, Lease: time.Minute})
	if err != nil || len(got.Deliveries) != 2 {
		t.Fatal(got, err)
	}
	old := e.queues.known("jobs")
	must(t, e.Unsubscribe(t.Context(), "jobs", "more", posthaste.DropOptions{}))
	for i, settled := range []bool{false, true} {
		if settled { // the process does not know it yet
			e.queues.mu.Lock()
			e.queues.all["jobs"] = old
			e.queues.mu.Unlock()
		}
		r, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: got.Deliveries[i].ID, Outcome: posthaste.OutcomeDead, Error: "no"}})
		if err != nil || r[0].Settled != settled {
			t.Errorf("it is settled as %+v, %v, want settled %v", r, err, settled)
		}
	}
	_, err = e.freshQueue(t.Context(), "jobs")
	must(t, err)
	listed, err := e.DeadLetters(t.Context(), posthaste.DeadLetterFilter{Queue: "jobs"})
	if err != nil || len(listed.Items) > 0 {
		t.Errorf("listed are %+v, %v", listed.Items, err)
	}
	replayed, err := e.Replay(t.Context(), posthaste.DeadLetterFilter{Queue: "jobs", Limit: 10})
	if err != nil || len(replayed.Items) > 0 {
		t.Errorf("replayed are %+v, %v", replayed.Items, err)
	}
}

// A message that Posthaste did not send becomes one dead letter, although its delivery is not acknowledged and
// it comes again.
func TestForeignMessageIsBuriedOnce(t *testing.T) {
	t.Parallel()
	e := several(t, 1, posthaste.QueueOptions{})[0]
	q := e.queues.known("jobs")
	for delivered := range 2 {
		a := &arrival{lease: uptime() + time.Second, Msg: &natsgo.Msg{Sub: &natsgo.Subscription{}, Data: []byte("?"), Reply: fmt.Sprintf("$JS.ACK.%s.gone.%d.7.1.0.0", q.stream, delivered+1)}}
		e.buryForeign(t.Context(), q, &q.Subscriptions[0], a, errors.New("it has no header"))
	}
	letters, err := e.DeadLetters(t.Context(), posthaste.DeadLetterFilter{Queue: "jobs"})
	if err != nil || len(letters.Items) != 1 {
		t.Errorf("the dead letters are %+v, %v, want one", letters.Items, err)
	}
}
