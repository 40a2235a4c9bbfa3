package source

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// capacity computes how many messages may be sent to a queue until MaxWaiting messages wait
// in it. The store updates its counters at intervals; capacity adds the messages that were
// sent since. It is for one goroutine.
type capacity struct {
	ledger Ledger
	queue  string
	limit  int64 // maximum number of waiting messages; negative: no limit
	resume int64 // free capacity at which reading resumes after a pause
	// returned says that messages were returned to the broker. Then the store is
	// checked before the next read even without a limit, because brokers count how
	// often a message is returned.
	returned bool
	sent     int64 // by this source, in total

	lookedAt time.Time // time of the last look; zero: never
	depth    int64     // waiting messages, as counted
	total    int64     // messages that any sender sent to the queue, as counted
	// others is how many of total other senders sent. It is too low if they have sent
	// more since the last count; then our messages are taken for counted too early.
	others int64
	// countedAt is when the store counted. The messages that we had sent before the count
	// before the last one was seen are counted, because the last count began later.
	countedAt  time.Time
	sentBefore [3]int64 // values of sent when the latest counts were first seen, newest first
}

// fresh is how long the result of a look is used.
const fresh = 5 * time.Second

// free returns how many more messages may be sent.
func (c *capacity) free() int64 { return c.limit - c.depth - c.uncounted() }

// uncounted returns how many of our messages are not in the counts.
func (c *capacity) uncounted() int64 { return max(0, c.sent-(c.total-c.others)) }

// wait waits for free capacity, for at most patience, and returns it; 0 means none. It
// reports to tell whether the store could be asked.
func (c *capacity) wait(ctx context.Context, patience time.Duration, report func(error)) (int, error) {
	if c.limit < 0 && !c.returned {
		return math.MaxInt, ctx.Err()
	}
	resume := int64(1)
	for begun, pause := time.Now(), 20*time.Millisecond; ; pause = min(2*pause, time.Second) {
		if c.limit < 0 {
			err := c.look(ctx)
			if ctx.Err() != nil {
				return 0, ctx.Err()
			}
			if err == nil || posthaste.CodeOf(err) == posthaste.CodeDenied { // the role may only send
				c.returned = false
				return math.MaxInt, nil
			}
			if report(err); time.Since(begun) > patience {
				return 0, err
			}
			wait(ctx, pause)
			continue
		}
		if time.Since(c.lookedAt) < fresh && c.free() >= resume {
			return int(c.free()), ctx.Err()
		}
		err := c.look(ctx)
		if err == nil && c.free() < resume {
			// Counting is part of maintenance, which workers run about once a
			// second. A role that may not run it waits for them.
			if _, err = c.ledger.Maintain(ctx, posthaste.UpkeepSpace); err == nil || posthaste.CodeOf(err) == posthaste.CodeDenied {
				err = c.look(ctx)
			}
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		report(err)
		if err == nil && c.free() >= resume {
			return int(c.free()), nil
		}
		if time.Since(begun) > patience {
			return 0, err
		}
		resume = c.resume
		wait(ctx, pause)
	}
}

// reached reports whether the store answers, even if the queue does not exist or may not be
// read.
func (c *capacity) reached(ctx context.Context) bool {
	_, err := c.ledger.Queues(ctx, c.queue)
	return ctx.Err() == nil && (err == nil || posthaste.CodeOf(err) == posthaste.CodeDenied)
}

// look reads the counts.
func (c *capacity) look(ctx context.Context) error {
	found, err := c.ledger.Queues(ctx, c.queue)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue", Message: fmt.Sprintf("queue %q not found", c.queue),
			Hint: "create it again, or stop the source"}
	}
	first := c.lookedAt.IsZero()
	c.depth, c.total = 0, 0
	var countedAt time.Time
	for _, s := range found[0].Subscriptions {
		c.depth, c.total = max(c.depth, s.Depth), max(c.total, s.Sent)
		countedAt = s.CountedAt
	}
	if c.lookedAt = time.Now(); first {
		c.others = c.total
	}
	if !countedAt.Equal(c.countedAt) {
		c.countedAt = countedAt
		copy(c.sentBefore[1:], c.sentBefore[:])
		c.sentBefore[0] = c.sent
	}
	// At most sent of our messages are counted, and at least before[2].
	c.others = max(c.others, c.total-c.sent)
	c.others = min(c.others, c.total-c.sentBefore[2])
	return nil
}
