//go:build unix

package postgres_test

import (
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// Maintain returns how many deliveries of a lost worker it rescued, once.
func TestMaintainCountsRescuedDeliveries(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{})
	a.send(make([]posthaste.Message, 3)...)
	for held := 0; held < 3; {
		held += len(a.claim(3 - held))
	}
	a.exec(`update posthaste.registrations set lease = '-1000 years' where id = $1`, int64(a.worker))
	rescued := 0
	for more := true; more; {
		reply, err := a.Maintain(a.ctx, posthaste.UpkeepSpace)
		a.check(err)
		rescued += reply.Rescued
		more = reply.More
	}
	if rescued != 3 {
		t.Errorf("rescued %d deliveries, want 3", rescued)
	}
}
