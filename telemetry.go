package posthaste

import (
	"context"
	"time"
)

// EventKind is the kind of an [Event].
type EventKind string

// The events that a runtime reports. Every outcome is one, and so is a possible duplicate.
const (
	EventClaimed   EventKind = "claimed"   // Count deliveries were handed to this process
	EventSettled   EventKind = "settled"   // one delivery ended with Outcome
	EventDuplicate EventKind = "duplicate" // a settlement failed: the message may have run twice
	EventRescued   EventKind = "rescued"   // Count deliveries of lost workers and expired leases are available again
	EventTicked    EventKind = "ticked"    // Count messages of schedules were sent, Missed ticks got none
	EventWoken     EventKind = "woken"     // the doorbell ended a sleep
	EventLost      EventKind = "lost"      // this worker was declared lost
	EventClock     EventKind = "clock"     // upkeep found that the store's clock was set back
	EventError     EventKind = "error"     // a background task failed and will be retried
	EventBatch     EventKind = "batch"     // a sink or batch handler was called with Count messages, and all of them are settled
	EventCounted   EventKind = "counted"   // Stats of one kind of messages since the last one, every StatsInterval
	EventTaken     EventKind = "taken"     // a source moved Count messages from a broker into Queue, of which Known were already there and Failed were rejected
)

// Event is an event in this process.
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
	// Known counts the messages of an EventTaken that the store already had, by their
	// dedupe keys. A message that another source has sent since this source's last send, or
	// before its first, counts as new.
	Known int
	// Broker is the address of the broker of an EventTaken.
	Broker string
	// Stats of an EventCounted are what the worker reports to the store for charts
	// (Engine.Report), and WaitSum and RunSum the sums of the durations in its
	// histograms. Receivers must not change Stats.
	Stats           *HandlerStats
	WaitSum, RunSum time.Duration
	// Task names the background task of an EventError.
	Task string
	Err  error
}

// Telemetry receives events. It is called for every message, so it must be fast, and it must
// be safe for concurrent use. Plain successes are reported in groups: EventSettled with
// Outcome Done and Count above 1.
type Telemetry interface {
	Event(ctx context.Context, e Event)
}

// NoTelemetry drops all events.
type NoTelemetry struct{}

// Event implements [Telemetry].
func (NoTelemetry) Event(context.Context, Event) {}
