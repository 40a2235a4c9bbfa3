package postgres_test

import (
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// The engine forgets a worker that unregisters, or that is declared lost and learns of it by a
// heartbeat or a claim. It keeps the state of other workers.
func TestEndedWorkersAreForgotten(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{})
	claim := func(worker posthaste.WorkerID, number int64) error {
		_, err := a.Claim(a.ctx, posthaste.ClaimRequest{Worker: worker, Number: number, QueueRef: posthaste.QueueRef{Queue: "q"}, Max: 10})
		return err
	}
	a.check(claim(a.worker, 1))
	for name, end := range map[string]func(posthaste.WorkerID) (posthaste.Code, error){
		"unregistered": func(w posthaste.WorkerID) (posthaste.Code, error) { return "", a.Unregister(a.ctx, w) },
		"a heartbeat of a lost one": func(w posthaste.WorkerID) (posthaste.Code, error) {
			a.exec(`update posthaste.registrations set lost_at = clock_timestamp() where id = $1`, int64(w))
			_, err := a.Heartbeat(a.ctx, posthaste.Heartbeat{Worker: w})
			return posthaste.CodeWorkerLost, err
		},
		"a claim of a lost one": func(w posthaste.WorkerID) (posthaste.Code, error) {
			a.exec(`update posthaste.registrations set lost_at = clock_timestamp() where id = $1`, int64(w))
			return posthaste.CodeWorkerLost, claim(w, 2)
		},
	} {
		worker, err := a.Register(a.ctx, posthaste.WorkerInfo{Name: "host/2", Lease: time.Hour})
		a.check(err)
		a.check(claim(worker, 1))
		if n := a.Remembers(worker); n != 2 {
			t.Fatalf("%s: %d things are remembered of a worker that has claimed, want its number and its pace", name, n)
		}
		if want, err := end(worker); posthaste.CodeOf(err) != want {
			t.Fatalf("%s: %v", name, err)
		}
		if n := a.Remembers(worker); n != 0 {
			t.Errorf("%s: %d things are still remembered", name, n)
		}
	}
	if n := a.Remembers(a.worker); n != 2 {
		t.Errorf("of another worker %d things are remembered, want 2", n)
	}
}
