package source

import (
	"context"
	"fmt"
	"math"
	"time"

	posthaste "github.com/posthaste-mq/posthaste"
)

// room says how many messages may be sent to a queue until as many wait in it as
// may. The store counts now and then; what was sent since is added. It is for one
// goroutine.
type room struct {
	ledger Ledger
	queue  string
	most   int64 // that may wait; negative: however many
	least  int64 // of room, before it goes on after a pause
	// doubted says that what was read was given back: then the store is looked at
	// however many may wait, for brokers count how often a message is given back.
	doubted bool
	sent    int64 // by us, in all

	looked time.Time // zero: never
	depth  int64     // that wait, as counted
	total  int64     // that were sent to the queue by whomever, as counted
	// others is how many of total are not ours. Others may have sent more since it
	// was known: then it is too low, and what we sent passes for counted too early.
	others int64
	// at is when the store counted. What we had sent when we saw the count before
	// the last but one is counted: for the last one began when that was over.
	at     time.Time
	before [3]int64 // what we had sent when the latest counts were first seen, newest first
}

// A look at the queue serves for so long.
const fresh = 5 * time.Second

// free is how many more may be sent.
func (r *room) free() int64 { return r.most - r.depth - r.uncounted() }

// uncounted is how many of those that we sent are not in the counts.
func (r *room) uncounted() int64 { return max(0, r.sent-(r.total-r.others)) }

// wait waits for room, at most for patience: 0 says that there is none. tell is told
// whether the queue could be looked at.
func (r *room) wait(ctx context.Context, patience time.Duration, tell func(error)) (int, error) {
	if r.most < 0 && !r.doubted {
		return math.MaxInt, ctx.Err()
	}
	least := int64(1)
	for begun, pause := time.Now(), 20*time.Millisecond; ; pause = min(2*pause, time.Second) {
		if r.most < 0 {
			err := r.look(ctx)
			if ctx.Err() != nil {
				return 0, ctx.Err()
			}
			if err == nil || posthaste.CodeOf(err) == posthaste.CodeDenied { // who may only send
				r.doubted = false
				return math.MaxInt, nil
			}
			if tell(err); time.Since(begun) > patience {
				return 0, err
			}
			wait(ctx, pause)
			continue
		}
		if time.Since(r.looked) < fresh && r.free() >= least {
			return int(r.free()), ctx.Err()
		}
		err := r.look(ctx)
		if err == nil && r.free() < least {
			// Counting is part of upkeep, which workers do about once a second. Who may
			// not ask for it waits for them.
			if _, err = r.ledger.Maintain(ctx, posthaste.UpkeepSpace); err == nil || posthaste.CodeOf(err) == posthaste.CodeDenied {
				err = r.look(ctx)
			}
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		tell(err)
		if err == nil && r.free() >= least {
			return int(r.free()), nil
		}
		if time.Since(begun) > patience {
			return 0, err
		}
		least = r.least
		wait(ctx, pause)
	}
}

// reached says whether the store answers, also that the queue is not there or may not be
// looked at.
func (r *room) reached(ctx context.Context) bool {
	_, err := r.ledger.Queues(ctx, r.queue)
	return ctx.Err() == nil && (err == nil || posthaste.CodeOf(err) == posthaste.CodeDenied)
}

// look reads the counts.
func (r *room) look(ctx context.Context) error {
	found, err := r.ledger.Queues(ctx, r.queue)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue", Message: fmt.Sprintf("there is no queue %q any more", r.queue),
			Hint: "create it again, or stop the source"}
	}
	first := r.looked.IsZero()
	r.depth, r.total = 0, 0
	var at time.Time
	for _, s := range found[0].Subscriptions {
		r.depth, r.total = max(r.depth, s.Depth), max(r.total, s.Sent)
		at = s.CountedAt
	}
	if r.looked = time.Now(); first {
		r.others = r.total
	}
	if !at.Equal(r.at) {
		r.at = at
		copy(r.before[1:], r.before[:])
		r.before[0] = r.sent
	}
	// No more of ours are counted than we sent, and no fewer than are for sure.
	r.others = max(r.others, r.total-r.sent)
	r.others = min(r.others, r.total-r.before[2])
	return nil
}
