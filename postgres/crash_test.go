package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// Claims commit without waiting for the flush. The id of a claim that a crash of the database
// lost must not be issued again while its worker lives, or the worker would settle deliveries of
// another one.
func TestClaimIDsAreNotIssuedAgainAfterACrash(t *testing.T) {
	ctx := context.Background()
	server := testpg.Server(t)
	e := openAt(t, server.URL())
	if err := e.CreateQueue(ctx, "q", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	claim := func() posthaste.DeliveryID {
		t.Helper()
		var id posthaste.DeliveryID
		var err error
		if !testrun.Happens(time.Minute, func() bool {
			if _, err = e.Send(ctx, posthaste.Message{Queue: "q"}); err != nil {
				return false
			}
			var w posthaste.WorkerID
			if w, err = e.Register(ctx, posthaste.WorkerInfo{Name: "w", Lease: time.Minute}); err != nil {
				return false
			}
			var reply posthaste.ClaimReply
			if reply, err = e.Claim(ctx, posthaste.ClaimRequest{Worker: w, Number: 1, QueueRef: posthaste.QueueRef{Queue: "q"}, Max: 1}); err != nil || len(reply.Deliveries) == 0 {
				return false
			}
			id = reply.Deliveries[0].ID
			return true
		}) {
			t.Fatalf("nothing was handed out: %v", err)
		}
		return id
	}
	const revolution = 1 << 26
	before := claim()
	if again := claim(); again>>12-before>>12 > 1000 {
		t.Errorf("without a crash the ids went from claim %d to %d", before>>12, again>>12)
	}
	crash(t, server)
	if after := claim(); after>>12 < before>>12+revolution {
		t.Errorf("after a crash claim %d was issued; claim %d was the last before it", after>>12, before>>12)
	}
}
