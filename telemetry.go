package posthaste

import (
	"context"
	"time"
)

// EventKind says what an [Event] tells.
type EventKind string

// The events a runtime tells. Every outcome is one, also a possible duplicate.
const (
	EventClaimed   EventKind = "claimed"   // Count deliveries were handed to this process
	EventSettled   EventKind = "settled"   // one delivery ended with Outcome
	EventDuplicate EventKind = "duplicate" // a settlement was refused: it may have run twice
	EventRescued   EventKind = "rescued"   // Count deliveries of lost holders were handed out anew
	EventTicked    EventKind = "ticked"    // Count messages of schedules were sent, Missed ticks got none
	EventWoken     EventKind = "woken"     // the doorbell ended a sleep
	EventLost      EventKind = "lost"      // this worker was declared lost
	EventClock     EventKind = "clock"     // upkeep found the store's clock set back
	EventError     EventKind = "error"     // a background task failed and will be tried again
	EventBatch     EventKind = "batch"     // a sink or batch handler was called with Count messages, and all of them are settled
	EventTaken     EventKind = "taken"     // a source took Count messages from a broker into Queue, but for Known that were there already and Failed that were refused and put aside
)

// Event is one thing that happened in this process.
type Event struct {
	Kind         EventKind
	Queue        string
	Subscription string
	Message      MessageID
	Delivery     DeliveryID
	Attempt      int
	Outcome      Outcome
	Count        int
	Missed       int
	// Duration is how long the handler ran; of a group, the mean.
	Duration time.Duration
	// Claim, Settle and Total are of an EventBatch: how long its subscription's
	// latest claim took, how long it took from the handler's return until the last
	// of its messages was settled, and both with Duration between them. Failed
	// counts its messages that did not end as done. Of an EventTaken they are how
	// long it waited for the broker, how long it took to send the messages
	// (Duration), to acknowledge them, and all of that.
	Claim, Settle, Total time.Duration
	Failed               int
	// Known counts the messages of an EventTaken that were not stored, for the store
	// had them already, by their dedupe keys. One that another source has sent since
	// this one's last send, or before its first, passes for new.
	Known int
	// Broker is the address of the broker that an EventTaken tells of.
	Broker string
	// Task names the background task of an EventError.
	Task string
	Err  error
}

// Telemetry receives events. It must be fast and safe for concurrent use; it
// is called on the way of every message. A plain success that has nothing to
// tell is reported in groups: EventSettled with Outcome Done and Count above 1.
type Telemetry interface {
	Event(ctx context.Context, e Event)
}

// NoTelemetry drops all events.
type NoTelemetry struct{}

// Event implements [Telemetry].
func (NoTelemetry) Event(context.Context, Event) {}
