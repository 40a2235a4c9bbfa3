package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/posthaste-mq/posthaste"
)

// Rescue implements [posthaste.Engine].
func (e *Engine) Rescue(ctx context.Context) (int, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var lost int
	err := e.pool.QueryRow(ctx, "select posthaste.rescue()").Scan(&lost)
	return lost, readError(err)
}

// Maintain implements [posthaste.Engine].
func (e *Engine) Maintain(ctx context.Context) (posthaste.MaintainReply, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var reply posthaste.MaintainReply
	rows, err := e.pool.Query(ctx, "select task, coalesce(detail, '') from posthaste.maintain()")
	if err != nil {
		return reply, readError(err)
	}
	defer rows.Close()
	for rows.Next() {
		var task, detail string
		if err := rows.Scan(&task, &detail); err != nil {
			return reply, readError(err)
		}
		switch task {
		case "ticked", "rescued", "marked", "copied", "cleared", "reclaimed":
			reply.More = true
		}
		switch task {
		case "counted":
			reply.Flowed = true
		case "rescued":
			count, _, _ := strings.Cut(detail, " ") // "2 deliveries"
			if reply.Rescued, err = strconv.Atoi(count); err != nil {
				return reply, fmt.Errorf("posthaste.maintain returned %q as the detail of a rescue: %w", detail, err)
			}
		case "clock":
			reply.ClockSetBack = true
			e.log.Warn(detail+": until it reaches that time again, delays that end before it count as over, and lost workers and expired leases are noticed late", "task", task)
		default:
			e.log.Debug("maintenance", "task", task, "detail", detail)
		}
	}
	return reply, readError(rows.Err())
}
