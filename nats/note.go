package nats

import (
	"context"
	"encoding/json"
	"slices"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
)

// Extend implements [posthaste.Engine]. A delivery of another process is extended by that process. Notes are
// stored on a subject of the message, where the process reads them that continues the message after a crash.
func (e *Engine) Extend(ctx context.Context, req posthaste.ExtendRequest) ([]posthaste.SettleResult, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	results := make([]posthaste.SettleResult, len(req.Deliveries))
	elsewhere := map[int64][]int{}
	for i, id := range req.Deliveries {
		results[i].Delivery = id
		if req.Notes != nil {
			results[i].Err = checkNote(&req.Notes[i])
		}
		if no := holderOf(id); results[i].Err == nil && no != e.holding.processNumber() {
			elsewhere[no] = append(elsewhere[no], i)
		}
	}
	if len(elsewhere) > 0 {
		if err := e.ready(ctx); err != nil {
			return results, err
		}
	}
	for no, indexes := range elsewhere {
		if err := e.forward(ctx, e.processSubject(no)+extendSuffix, forwardedPart(&req, indexes), indexes, results); err != nil {
			return results, err
		}
	}
	return results, e.extendOwn(ctx, req, results)
}

// extendOwn extends deliveries of this process.
func (e *Engine) extendOwn(ctx context.Context, req posthaste.ExtendRequest, results []posthaste.SettleResult) error {
	var noted []*held
	for i, id := range req.Deliveries {
		d := e.holding.get(id)
		if d == nil || results[i].Err != nil || !e.holding.extendAndNote(d, req, i) {
			continue
		}
		results[i].Settled, results[i].Cancelled = true, e.holding.isCancelled(d)
		if req.Notes != nil && !slices.Contains(noted, d) {
			noted = append(noted, d)
		}
	}
	for _, d := range noted {
		switch err := e.storeNote(ctx, d); {
		case wasReplaced(err): // it ended with its queue
			e.holding.remove(d)
			for i := range results {
				results[i].Settled = results[i].Settled && results[i].Delivery != d.id
			}
		case err != nil:
			return err
		}
	}
	return nil
}

func checkNote(n *posthaste.Note) error {
	if err := n.Check(); err != nil {
		return err
	}
	if n.Checkpoint != nil {
		return jsoncheck.Check("checkpoint", n.Checkpoint)
	}
	return nil
}

// extendAndNote sets a later lease and adds a note, and reports whether the delivery is still held.
func (h *holding) extendAndNote(d *held, req posthaste.ExtendRequest, i int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := uptime()
	if h.byID[d.id] != d || d.settling || now > d.lease || d.until != 0 && now > d.until {
		return false
	}
	if req.Lease > 0 && d.until != 0 {
		d.until = now + req.Lease
	}
	if req.Notes != nil {
		n := &req.Notes[i]
		if n.Checkpoint != nil {
			d.note.Checkpoint = slices.Clone(n.Checkpoint)
		}
		if n.Progress != nil {
			d.note.Progress, d.note.ProgressText = *n.Progress, n.ProgressText
		}
		d.note.Log = posthaste.LogTail(d.note.Log+n.Log, posthaste.MaxLogBytes)
		d.noted = true
	}
	return true
}

func (d *held) noteSubject() string {
	return d.q.subjects.under("n", subjectToken(d.sub.Name), d.meta.ID.String())
}

// storeNote stores the note of the attempt that runs, in place of the one before.
func (e *Engine) storeNote(ctx context.Context, d *held) error {
	body, err := json.Marshal(e.holding.attempt(d, ""))
	if err != nil {
		return err
	}
	m := &natsgo.Msg{Subject: d.noteSubject(), Header: natsgo.Header{"Nats-Rollup": {"sub"}}, Data: body}
	return e.store(ctx, d.q, []*natsgo.Msg{m})
}

// readNote returns the note of a lost delivery.
func (e *Engine) readNote(ctx context.Context, d *held) (a posthaste.Attempt) {
	m, err := e.lastOn(ctx, d.q.stream, d.noteSubject())
	if err != nil || m == nil || json.Unmarshal(m.Data, &a) != nil || a.Attempt != d.meta.attempt() {
		return posthaste.Attempt{}
	}
	d.noted = true
	return posthaste.Attempt{Checkpoint: a.Checkpoint, Progress: a.Progress, ProgressText: a.ProgressText, Log: a.Log}
}

// removeNotes removes the note of an attempt that has ended, because the next entry has it in its story. If
// that fails, the note does no harm: readNote compares the attempt.
func (e *Engine) removeNotes(ctx context.Context, d *held) {
	again := d.q.Options.Ordered && d.delivered > 1
	if again || e.holding.hasNote(d) {
		e.removeNote(ctx, d)
	}
	if again {
		_, _ = e.purge(ctx, d.q.stream, d.keptSubject())
	}
}

// removeNote removes the note of an attempt, but not that of the next attempt, which may run already.
func (e *Engine) removeNote(ctx context.Context, d *held) {
	var a posthaste.Attempt
	m, err := e.lastOn(ctx, d.q.stream, d.noteSubject())
	if err == nil && m != nil && (json.Unmarshal(m.Data, &a) != nil || a.Attempt <= d.meta.attempt()) {
		_, _ = e.deleteEntry(ctx, d.q.stream, m.Sequence)
	}
}

func (h *holding) hasNote(d *held) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return d.noted
}
