package telemetry_test

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/telemetry"
)

// deaths is a custom hook that counts dead letters. Several goroutines call it while they
// settle messages, so it must be fast and safe for concurrent use.
type deaths struct{ n atomic.Int64 }

func (d *deaths) Event(_ context.Context, e posthaste.Event) {
	if e.Kind == posthaste.EventSettled && e.Outcome == posthaste.OutcomeDead {
		d.n.Add(1)
		fmt.Printf("message %s is dead after %d attempts: %v\n", e.Message, e.Attempt, e.Err)
	}
}

// Use metrics and a custom hook together: set worker.Config.Telemetry to the result of Multi.
func Example() {
	var dead deaths
	all := telemetry.Multi(telemetry.NewPrometheus(), &dead)

	// An event that a worker reports:
	all.Event(context.Background(), posthaste.Event{Kind: posthaste.EventSettled, Queue: "orders", Outcome: posthaste.OutcomeDone, Count: 7})
	all.Event(context.Background(), posthaste.Event{Kind: posthaste.EventSettled, Queue: "orders", Outcome: posthaste.OutcomeDead,
		Count: 1, Message: 42, Attempt: 3, Err: fmt.Errorf("no such card")})
	fmt.Println(dead.n.Load())
	// Output:
	// message 42 is dead after 3 attempts: no such card
	// 1
}
