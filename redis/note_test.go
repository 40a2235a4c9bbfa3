package redis

import (
	"fmt"
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// A note is recorded only while its delivery is held, and reaches the next attempt.
func TestJB5_NotesEndWithTheirDelivery(t *testing.T) {
	holds := func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		send(t, e, 1)
		w := register(t, e)
		d := claim(t, e, w, 1, 1)[0]
		note := func(value string) bool {
			results, err := e.Extend(t.Context(), posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{d.ID}, Notes: []posthaste.Note{{Checkpoint: []byte(value)}}})
			if err != nil {
				t.Fatal(err)
			}
			return results[0].Settled
		}
		if !note(`7`) {
			t.Fatal("the first note was refused")
		}
		if _, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: d.ID, Outcome: posthaste.OutcomeReleased}}); err != nil {
			t.Fatal(err)
		}
		if note(`8`) {
			return "a note was recorded after its delivery was released"
		}
		if at := string(claim(t, e, w, 2, 1)[0].LastCheckpoint()); at != `7` {
			return fmt.Sprintf("the next attempt got the checkpoint %q", at)
		}
		return ""
	}
	t.Run("fenced", func(t *testing.T) {
		rule(t, holds, patch{&noteScript, "open and call('HGET', RUN, one.d)", "open and (call('HGET', RUN, one.d) or '0:0/' .. one.d)"})
	})
	t.Run("carried", func(t *testing.T) {
		rule(t, holds, patch{&settleScript, "if outcome ~= 'released' or notes then", "if outcome ~= 'released' then"})
	})
}
