package redis

import (
	"context"
	"slices"

	"github.com/posthaste-mq/posthaste"
)

// fill gives a subscription the messages that were sent before it was made, if it gets them.
// If it is interrupted, the next claim continues it.
func (e *Engine) fill(ctx context.Context, ref posthaste.QueueRef) error {
	// First cancel messages that an interrupted purge moved aside, so that the subscription does
	// not get them. No purge begins while fill.lua runs (aside.lua).
	if _, err := e.cancelAside(ctx, ref.Queue); err != nil {
		return err
	}
	for {
		reply, _, err := e.try(ctx, ref, func(q *queue) (any, error) {
			if q.born == nil {
				return "", nil
			}
			names, letters := slices.Clone(q.keys), ""
			for _, other := range q.born.all() {
				if other.number != q.number {
					letters += other.mark()
					names = append(names, e.keys.own(q.name, other.subscription, "st"), e.keys.own(q.name, other.subscription, "due"))
				}
			}
			wanted, scheduled := "", ""
			if f := q.wanted.Filter; len(f.Kinds)+len(f.Headers) > 0 {
				wanted = packed(filter{Kinds: f.Kinds, Headers: f.Headers})
			}
			if q.wanted.Scheduled {
				scheduled = "1"
			}
			return fillScript.run(ctx, e.client, names, arguments{{"number", q.numberArg}, {"rules", q.rules}, {"filter", wanted}, {"scheduled", scheduled}, {"letters", letters}})
		})
		if err != nil {
			return writeError(err)
		}
		switch reply {
		case "":
			return nil
		case "more":
		default:
			return unexpected("fill", reply)
		}
	}
}

// cancelAside cancels the messages that a purge moved aside, and returns how many there were,
// by subscription.
func (e *Engine) cancelAside(ctx context.Context, name string) (map[string]int64, error) {
	cancelled := map[string]int64{}
	for more := true; more; {
		more = false
		err := e.each(ctx, purgeScript, name, func(q *queue) arguments {
			return arguments{{"number", q.numberArg}, {"rules", q.rules}, {"most", claimMost}}
		}, func(q *queue, reply any) error {
			all, err := list("purge", reply, 2)
			if err != nil {
				return err
			}
			n, _ := all[0].(int64)
			cancelled[q.subscription] += n
			more = more || all[1] == int64(1)
			return nil
		})
		if err != nil {
			return cancelled, writeError(err)
		}
	}
	return cancelled, nil
}
