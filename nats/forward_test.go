package nats

import (
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// A process extends deliveries of another one, with notes.
func TestExtendOfAnotherProcess(t *testing.T) {
	t.Parallel()
	all := several(t, 2, posthaste.QueueOptions{})
	sendJobs(t, all[0], posthaste.Message{Payload: 1}, posthaste.Message{Payload: 2})
	got := receiveJobs(t, all[0], 2)
	if len(got) != 2 {
		t.Fatalf("%d messages came", len(got))
	}
	ids := []posthaste.DeliveryID{got[0].ID, got[1].ID, got[1].ID + 1}
	half := 0.5
	r, err := all[1].Extend(t.Context(), posthaste.ExtendRequest{Deliveries: ids, Lease: time.Hour,
		Notes: []posthaste.Note{{Checkpoint: []byte(`{"at":1}`)}, {Progress: &half, ProgressText: "half"}, {Log: "line\n"}}})
	if err != nil || len(r) != 3 || !r[0].Settled || !r[1].Settled || r[2].Settled || r[2].Delivery != ids[2] {
		t.Fatalf("extended are %+v, %v", r, err)
	}
	for i, id := range ids[:2] {
		d := all[0].holding.get(id)
		all[0].holding.mu.Lock()
		if left := d.until - uptime(); left < 50*time.Minute {
			t.Errorf("the lease of delivery %d ends in %s", i, left)
		}
		if wanted := []string{`{"at":1}`, ""}[i]; string(d.note.Checkpoint) != wanted || d.note.Progress != []float64{0, half}[i] {
			t.Errorf("the note of delivery %d is %+v", i, d.note)
		}
		all[0].holding.mu.Unlock()
	}
	if _, err = all[1].Extend(t.Context(), posthaste.ExtendRequest{Deliveries: ids[:1], Lease: time.Minute}); err != nil {
		t.Fatal(err)
	}
	d := all[0].holding.get(ids[0])
	all[0].holding.mu.Lock()
	defer all[0].holding.mu.Unlock()
	if left := d.until - uptime(); left > time.Minute {
		t.Errorf("the shortened lease ends in %s", left)
	}
}

// A settlement that another process forwards has no receipt if the caller gave none.
func TestForwardedSettlementHasNoReceipt(t *testing.T) {
	t.Parallel()
	all := several(t, 2, posthaste.QueueOptions{Retention: time.Hour})
	id := sendJobs(t, all[0], posthaste.Message{Payload: 1})[0]
	d := receiveJobs(t, all[0], 1)[0]
	r, err := all[1].Settle(t.Context(), []posthaste.Settlement{{Delivery: d.ID, Outcome: posthaste.OutcomeDone}})
	if err != nil || !r[0].Settled {
		t.Fatal(r, err)
	}
	if s := wantJob(t, all[1], id, posthaste.StateDone); len(s.Attempts) != 1 || s.Attempts[0].Receipt != nil {
		t.Errorf("its attempts are %+v", s.Attempts)
	}
}
