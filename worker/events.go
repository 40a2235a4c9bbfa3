package worker

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/posthaste-mq/posthaste"
)

// EventFilter selects the events of [Worker.Events].
type EventFilter struct {
	// Kinds are the kinds of events. Empty means all.
	Kinds []posthaste.EventKind
	// Outcomes are the outcomes that are told of [posthaste.EventSettled]. Empty means all.
	Outcomes []posthaste.Outcome
	// Buffer is how many events wait for the reader; further ones are dropped. Default 1,000.
	Buffer int
}

// EventStream has the events of one worker, as [Config.Telemetry] gets them. Events of other
// processes are not among them.
type EventStream struct {
	filter  EventFilter
	dropped atomic.Int64

	mu     sync.Mutex // guards sending on a channel that is open
	events chan posthaste.Event
	closed bool
}

// Events returns a stream of the worker's events. The worker never waits for its reader: while
// the buffer is full, events are dropped and counted. Plain successes come in groups, one event
// with Count above 1 and without the ids of the messages; every other outcome has an event of its
// own. Any number of streams may be open. Call Events before [Worker.Run]; it panics afterwards.
func (w *Worker) Events(filter EventFilter) *EventStream {
	if w.running.Load() {
		panic("worker: Events must be called before Run")
	}
	s := &EventStream{filter: filter, events: make(chan posthaste.Event, max(1, cmp.Or(filter.Buffer, 1000)))}
	w.streams = append(w.streams, s)
	w.config.Telemetry = tee{w.config.Telemetry, s}
	return s
}

// C returns the channel of the events. It is closed when [Worker.Run] has returned, or by Close;
// events that wait in the buffer can still be read then.
func (s *EventStream) C() <-chan posthaste.Event { return s.events }

// Dropped returns how many events were dropped because the buffer was full.
func (s *EventStream) Dropped() int64 { return s.dropped.Load() }

// Close ends the stream. It may be called more than once.
func (s *EventStream) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.events)
	}
}

func (s *EventStream) add(e posthaste.Event) {
	if len(s.filter.Kinds) > 0 && !slices.Contains(s.filter.Kinds, e.Kind) ||
		e.Kind == posthaste.EventSettled && len(s.filter.Outcomes) > 0 && !slices.Contains(s.filter.Outcomes, e.Outcome) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	select {
	case s.events <- e:
	default:
		s.dropped.Add(1)
	}
}

// tee passes events on to a telemetry and a stream.
type tee struct {
	posthaste.Telemetry
	stream *EventStream
}

// Event implements [posthaste.Telemetry].
func (t tee) Event(ctx context.Context, e posthaste.Event) {
	t.Telemetry.Event(ctx, e)
	t.stream.add(e)
}

// endStreams closes the streams of events.
func (w *Worker) endStreams() {
	for _, s := range w.streams {
		s.Close()
	}
}
