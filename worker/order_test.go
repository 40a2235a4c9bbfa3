package worker

import (
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// A message failed, and a claim that was in flight when the store's answer came hands it out
// again. It is released. Until the store knows that, it takes the message to be running here
// and hands out the next one of the key, which must be released, too.
func TestKeyStaysClosedUntilWhatCameEarlyIsHandedBack(t *testing.T) {
	t.Parallel()
	r := &route{}
	h := newHoldings([]*route{r})
	h.register(1)
	claim := func(id posthaste.DeliveryID) (answer func() []outcome) {
		number := h.begin()
		return func() []outcome {
			t.Helper()
			kept, back := h.finishOrdered(number, r, 1, 1000, []posthaste.RawDelivery{{ID: id, Key: "k"}})
			if !kept {
				t.Fatal("the registration is lost")
			}
			return back
		}
	}
	if back := claim(1)(); len(back) > 0 {
		t.Fatal("the first is released")
	}
	first, _, _ := h.backlog(r).take(1)
	h.unfinished(first, "k")
	again := claim(2)     // the store knows of the failure
	h.restart(first, "k") // and this worker has its answer
	early := again()      // the failed one, too early
	next := claim(3)()    // the one after it
	if len(early) != 1 || len(next) != 1 {
		t.Fatalf("%d and %d were released, want both: the second would run before the first", len(early), len(next))
	}
	for _, o := range append(early, next...) {
		if o.Outcome != posthaste.OutcomeReleased || o.key != "k" || !o.closes {
			t.Errorf("released as %+v", o)
		}
		h.restart(o.seg, o.key) // the store knows
	}
	if back := claim(4)(); len(back) > 0 {
		t.Error("the key stays closed")
	}
}

// A message is dead, so that its key continues, and the store's answer to that comes before
// those that wait behind it are on record as released. A message that is claimed meanwhile
// comes after them and must not run before them.
func TestKeyStaysClosedUntilThoseBehindAreHandedBack(t *testing.T) {
	t.Parallel()
	r := &route{}
	h := newHoldings([]*route{r})
	h.register(1)
	claim := func(ids ...posthaste.DeliveryID) (back []outcome) {
		t.Helper()
		var items []posthaste.RawDelivery
		for _, id := range ids {
			items = append(items, posthaste.RawDelivery{ID: id, Key: "k"})
		}
		kept, back := h.finishOrdered(h.begin(), r, 1, 1000, items)
		if !kept {
			t.Fatal("the registration is lost")
		}
		return back
	}
	if back := claim(1, 2, 3); len(back) > 0 {
		t.Fatal("the first are released")
	}
	first, _, _ := h.backlog(r).take(1)
	behind := h.unfinished(first, "k")
	if len(behind) != 2 {
		t.Fatalf("%d are released, want the 2 behind it", len(behind))
	}
	h.restart(first, "k") // the store knows that it is dead
	early := claim(4)
	if len(early) != 1 {
		t.Fatal("a message that was sent after those that are released runs before them")
	}
	for _, o := range append(behind, early...) {
		if o.Outcome != posthaste.OutcomeReleased || o.key != "k" || !o.closes {
			t.Errorf("released as %+v", o)
		}
		h.restart(o.seg, o.key)
	}
	if back := claim(5); len(back) > 0 {
		t.Error("the key stays closed")
	}
}
