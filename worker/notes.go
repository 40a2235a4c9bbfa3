package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const (
	// logDelay is how long log lines wait for others, so that a handler that logs much causes
	// few calls.
	logDelay = 250 * time.Millisecond
	// lastNotes bounds the wait for the log lines of a handler that has returned.
	lastNotes = 2 * time.Second
	// notesAtOnce and noteBytes bound one call.
	notesAtOnce = 256
	noteBytes   = 1 << 20
)

// noter records what the handlers of a route note: the notes of one route never wait for those of
// another, which a handler's open transaction or a lost master of a cluster may hold up. It calls the engine at once while no call is in flight,
// and otherwise gathers in one call what comes meanwhile.
type noter struct {
	engine posthaste.Engine
	report *reporter

	mu      sync.Mutex
	waiting []*entry
	calling bool
}

// entry is a note that waits to be recorded.
type entry struct {
	delivery posthaste.DeliveryID
	note     posthaste.Note
	done     chan struct{}
	result   posthaste.SettleResult
	err      error
}

// record records a note. If ctx ends first, the note may or may not be recorded.
func (n *noter) record(ctx context.Context, delivery posthaste.DeliveryID, note posthaste.Note) (posthaste.SettleResult, error) {
	if ctx.Err() != nil {
		return posthaste.SettleResult{}, context.Cause(ctx)
	}
	e := &entry{delivery: delivery, note: note, done: make(chan struct{})}
	n.mu.Lock()
	n.waiting = append(n.waiting, e)
	if !n.calling {
		n.calling = true
		go n.work(context.WithoutCancel(ctx)) // others may wait for it when this context ends
	}
	n.mu.Unlock()
	select {
	case <-e.done:
		return e.result, e.err
	case <-ctx.Done():
		return posthaste.SettleResult{}, context.Cause(ctx)
	}
}

// work records until nothing waits.
func (n *noter) work(ctx context.Context) {
	for {
		n.mu.Lock()
		some, bytes := 0, 0
		for some < len(n.waiting) && some < notesAtOnce && bytes < noteBytes {
			bytes += len(n.waiting[some].note.Checkpoint) + len(n.waiting[some].note.Log)
			some++
		}
		batch := n.waiting[:some:some]
		n.waiting = n.waiting[some:]
		n.calling = some > 0
		n.mu.Unlock()
		if some == 0 {
			return
		}
		n.call(ctx, batch)
	}
}

func (n *noter) call(ctx context.Context, batch []*entry) {
	var req posthaste.ExtendRequest
	for _, e := range batch {
		req.Deliveries, req.Notes = append(req.Deliveries, e.delivery), append(req.Notes, e.note)
	}
	var results []posthaste.SettleResult
	err := bounded(ctx, callTimeout, func(ctx context.Context) (err error) {
		results, err = n.engine.Extend(ctx, req)
		return err
	})
	if err == nil && len(results) != len(batch) {
		err = fmt.Errorf("the engine answered %d of %d notes", len(results), len(batch))
	}
	for i, e := range batch {
		if e.err = err; err == nil {
			e.result, e.err = results[i], results[i].Err
		}
		close(e.done)
	}
}

// desk has what the handlers of a run noted and is not recorded yet, and what became of the run
// meanwhile.
type desk struct {
	lines   map[posthaste.DeliveryID]string
	results map[posthaste.DeliveryID]json.RawMessage
	timer   *time.Timer // records lines; nil if none wait for it
	// recording has a token while lines are recorded. Lines that could not be recorded wait again
	// before it is taken out, so that closeDesk finds them.
	recording chan struct{}
	gone      deliverySet // deliveries whose messages were cancelled
	// refused has the values of a context that ended with the cause that refuse got.
	refused func(key any) any
}

// withDesk calls f with the run's desk, under its lock.
func (r *run) withDesk(f func(d *desk)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.desk.Load()
	if d == nil {
		d = &desk{lines: map[posthaste.DeliveryID]string{}, results: map[posthaste.DeliveryID]json.RawMessage{}, gone: deliverySet{}, recording: make(chan struct{}, 1)}
		r.desk.Store(d)
	}
	f(d)
}

// open returns an error if the delivery cannot be noted any more, or never could.
func (r *run) open(delivery posthaste.DeliveryID) error {
	switch {
	case r.seg.route.once.Load():
		return &posthaste.Error{Code: posthaste.CodeUnsupported, Message: "deliveries of an at-most-once queue are settled when they are handed out: they have no checkpoints, progress, results and logs"}
	case r.state.Load() != runActive:
		return &posthaste.Error{Code: posthaste.CodeConflict, Message: fmt.Sprintf("the handler of delivery %d has returned, or overran its timeout", delivery)}
	}
	return nil
}

// Note implements [posthaste.Notebook].
func (r *run) Note(ctx context.Context, delivery posthaste.DeliveryID, note posthaste.Note) error {
	if err := r.open(delivery); err != nil {
		return err
	}
	if err := note.Check(); err != nil {
		return err
	}
	note.Log = r.takeLines(delivery)
	return r.record(ctx, delivery, note)
}

// record records a note, or ends the handler's context.
func (r *run) record(ctx context.Context, delivery posthaste.DeliveryID, note posthaste.Note) error {
	result, err := r.seg.route.noter.record(ctx, delivery, note)
	switch {
	case err != nil:
		r.keepLines(delivery, note.Log, "")
	case result.Cancelled:
		r.markCancelled(deliverySet{delivery: {}})
	case !result.Settled && r.seg.route.single:
		err = &posthaste.Error{Code: posthaste.CodeConflict, Message: fmt.Sprintf("delivery %d was settled by the handler itself, or no longer belongs to this worker", delivery),
			Hint: "nothing can be noted after the handler's own transaction has settled it; if it has not, the delivery was declared lost and is handled elsewhere: stop working on it"}
		if note.Checkpoint != nil || note.Progress != nil {
			r.refuse(err)
		} // but a handler that only logs may work on after it has settled its delivery
	case !result.Settled:
		err = &posthaste.Error{Code: posthaste.CodeConflict, Message: fmt.Sprintf("delivery %d no longer belongs to this worker", delivery),
			Hint: "it was declared lost and is handled elsewhere; stop working on it"}
		r.refuse(err)
	}
	return err
}

// SetResult implements [posthaste.Notebook].
func (r *run) SetResult(delivery posthaste.DeliveryID, result json.RawMessage) error {
	err := r.open(delivery)
	if err == nil {
		r.withDesk(func(d *desk) { d.results[delivery] = result })
	}
	return err
}

// result returns the result of a delivery, or nil.
func (r *run) result(delivery posthaste.DeliveryID) json.RawMessage {
	d := r.desk.Load()
	if d == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return d.results[delivery]
}

// Log implements [posthaste.Notebook].
func (r *run) Log(delivery posthaste.DeliveryID, line []byte) {
	if r.open(delivery) == nil {
		r.keepLines(delivery, "", posthaste.LogText(string(line)))
	}
}

// keepLines keeps log lines, before and after those that are kept, and has them recorded soon.
func (r *run) keepLines(delivery posthaste.DeliveryID, before, after string) {
	if before == "" && after == "" {
		return
	}
	r.withDesk(func(d *desk) {
		if r.state.Load() != runActive {
			after = "" // closeDesk has taken the last ones, or is about to and finds those from before
		}
		d.lines[delivery] = posthaste.LogTail(before+d.lines[delivery]+after, posthaste.MaxLogBytes)
		if d.timer == nil && r.state.Load() == runActive {
			d.timer = time.AfterFunc(logDelay, r.recordLines)
		}
	})
}

func (r *run) takeLines(delivery posthaste.DeliveryID) (lines string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.desk.Load(); d != nil {
		lines = d.lines[delivery]
		delete(d.lines, delivery)
	}
	return lines
}

// recordLines records the log lines that wait.
func (r *run) recordLines() {
	d := r.desk.Load()
	d.recording <- struct{}{}
	defer func() { <-d.recording }()
	deliveries := r.waitingLines()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.parent), callTimeout)
	defer cancel()
	for _, id := range deliveries {
		r.noteLines(ctx, id, false)
	}
}

// waitingLines returns the deliveries whose log lines wait, and stops the timer that would record
// them.
func (r *run) waitingLines() (deliveries []posthaste.DeliveryID) {
	r.withDesk(func(d *desk) {
		if d.timer != nil {
			d.timer.Stop()
			d.timer = nil
		}
		deliveries = slices.Collect(maps.Keys(d.lines))
	})
	return deliveries
}

// noteLines records the log lines of a delivery, if there are any. After an error they wait again,
// unless the delivery has ended; last says that nothing tries again.
func (r *run) noteLines(ctx context.Context, delivery posthaste.DeliveryID, last bool) {
	lines := r.takeLines(delivery)
	if lines == "" {
		return
	}
	err := r.record(ctx, delivery, posthaste.Note{Log: lines})
	if err != nil && (last || posthaste.CodeOf(err) == posthaste.CodeConflict) {
		r.seg.route.noter.report.log.Warn("could not store log lines of a handler", slog.Any("delivery", delivery), slog.Any("error", err))
	}
}

// closeDesk records the last log lines of a run whose handler has returned. They must be on
// record before the delivery ends.
func (r *run) closeDesk() {
	d := r.desk.Load()
	if d == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.parent), lastNotes)
	defer cancel()
	select {
	case d.recording <- struct{}{}:
		defer func() { <-d.recording }()
	case <-ctx.Done(): // lines that are being recorded may be lost, as the others below
	}
	for _, id := range r.waitingLines() {
		r.noteLines(ctx, id, true)
	}
}

// refuse ends the handler's context, because the delivery belongs to another worker or its
// message was cancelled. Children that were made of the context before also end, but have no other
// cause than that.
func (r *run) refuse(err error) {
	over, cancel := context.WithCancelCause(r.parent)
	cancel(err)
	r.withDesk(func(d *desk) {
		if d.refused == nil {
			d.refused = over.Value
		}
		if r.inner == nil {
			r.inner = over
		} else if r.cancel != nil {
			r.cancel()
		}
	})
}
