package postgres

import (
	"context"

	"github.com/posthaste-mq/posthaste"
)

// Maintain implements [posthaste.Engine].
func (e *Engine) Maintain(ctx context.Context, kinds posthaste.Upkeep) (reply posthaste.MaintainReply, err error) {
	for _, step := range []struct {
		kind posthaste.Upkeep
		do   func(context.Context, *posthaste.MaintainReply) error
	}{{posthaste.UpkeepRescue, e.rescue}, {posthaste.UpkeepTicks, e.tick}, {posthaste.UpkeepSpace, e.reclaim}} {
		if kinds&step.kind == 0 {
			continue
		}
		if err := step.do(ctx, &reply); err != nil {
			return reply, err
		}
	}
	return reply, nil
}

// rescue rescues the deliveries of one lost worker, or of expired leases.
func (e *Engine) rescue(ctx context.Context, reply *posthaste.MaintainReply) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	return readError(e.pool.QueryRow(ctx, "select posthaste.rescue()").Scan(&reply.Rescued))
}

// reclaim runs posthaste.maintain, which reclaims space, counts, and rescues.
func (e *Engine) reclaim(ctx context.Context, reply *posthaste.MaintainReply) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	rows, err := e.pool.Query(ctx, "select task, coalesce(count, 0), coalesce(detail, '') from posthaste.maintain()")
	if err != nil {
		return readError(err)
	}
	defer rows.Close()
	for rows.Next() {
		var task, detail string
		var count int
		if err := rows.Scan(&task, &count, &detail); err != nil {
			return readError(err)
		}
		switch task {
		case "resumed", "ticked", "rescued", "marked", "copied", "cleared", "reclaimed":
			reply.More = true
		}
		switch task {
		case "counted":
			reply.Flowed = true
		case "rescued":
			reply.Rescued += count
		case "resumed":
			reply.PausesEnded += count
		case "clock":
			reply.ClockSetBack = true
			e.log.Warn(detail+": until it reaches that time again, delays that end before it count as over, and lost workers and expired leases are noticed late", "task", task)
		default:
			e.log.Debug("maintenance", "task", task, "detail", detail)
		}
	}
	return readError(rows.Err())
}
