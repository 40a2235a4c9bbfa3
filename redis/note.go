package redis

import (
	"context"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
)

// noted is a note in the form of note.lua.
type noted struct {
	Delivery     string   `codec:"d"`
	Checkpoint   string   `codec:"k,omitempty"`
	Progress     *float64 `codec:"p,omitempty"`
	ProgressText string   `codec:"x,omitempty"`
	Log          string   `codec:"g,omitempty"`
}

// note records the notes of an ExtendRequest: those of one queue.
func (e *Engine) note(ctx context.Context, q *queue, req posthaste.ExtendRequest, results []posthaste.SettleResult, of []int) error {
	args := arguments{{"number", q.numberArg}, {"lease", req.Lease.Microseconds()}}
	sent := of[:0:0]
	for _, i := range of {
		n := &req.Notes[i]
		if results[i].Err = checkNote(n); results[i].Err == nil {
			sent = append(sent, i)
			args = append(args, arg{is: packed(noted{Delivery: place(int64(req.Deliveries[i])), Checkpoint: string(n.Checkpoint), Progress: n.Progress,
				ProgressText: n.ProgressText, Log: n.Log})})
		}
	}
	if len(sent) == 0 {
		return nil
	}
	reply, err := noteScript.run(ctx, e.client, q.keys, args)
	if err != nil {
		return writeError(err)
	}
	was, err := list("note", reply, len(sent))
	if err != nil {
		return err
	}
	for n, i := range sent {
		results[i].Settled, results[i].Cancelled = was[n] != int64(0), was[n] == int64(2)
	}
	return nil
}

func checkNote(n *posthaste.Note) error {
	if err := n.Check(); err != nil || n.Checkpoint == nil {
		return err
	}
	return jsoncheck.Check("checkpoint", n.Checkpoint)
}
