package redis

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

// CreateQueue implements [posthaste.QueueAdmin].
func (e *Engine) CreateQueue(ctx context.Context, name string, o posthaste.QueueOptions) error {
	if err := posthaste.CheckName("name", name); err != nil {
		return err
	}
	wanted := o
	if err := o.Complete(); err != nil {
		return err
	}
	options, err := json.Marshal(o)
	if err != nil {
		return err
	}
	reply, err := enrollScript.run(ctx, e.client, []string{e.keys.queues()}, arguments{{"name", name}, {"options", options}, {"most", maxQueues}})
	if err != nil {
		return writeError(err)
	}
	if reply == "exists" {
		have, err := e.client.HGet(ctx, e.keys.queues(), name).Result()
		switch {
		case errors.Is(err, goredis.Nil): // dropped since
		case err != nil:
			return readError(err)
		case strings.HasPrefix(have, "-"): // the process that dropped it may have been killed
			if err := e.finishDrop(ctx, name, have); err != nil {
				return err
			}
		default:
			q, err := e.registry.newQueue(name, have)
			if err != nil {
				return err
			}
			if differences := q.options.Differences(wanted); len(differences) > 0 {
				return posthaste.ConflictError(name, differences)
			}
			return nil
		}
		if reply, err = enrollScript.run(ctx, e.client, []string{e.keys.queues()}, arguments{{"name", name}, {"options", options}, {"most", maxQueues}}); err != nil {
			return writeError(err)
		}
	}
	switch reply {
	case "exists":
		return &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "name", Message: "queue " + quote.Name(name) + " is being dropped and created by other processes", Hint: "try again"}
	case "full":
		return &posthaste.Error{Code: posthaste.CodeTooLarge, Field: "name", Message: fmt.Sprintf("there are %d queues and subscriptions, which is the maximum", maxQueues), Hint: "drop one"}
	}
	q, err := e.registry.newQueue(name, fmt.Sprintf("%v %s", reply, options))
	if err == nil {
		err = e.make(ctx, q)
	}
	// If this failed, the first use of the queue makes its keys.
	return readError(errors.Join(err, e.record(ctx, record{Action: "create", Queue: name})))
}

// Queues implements [posthaste.Engine]. The counts are current. It reports no rates.
func (e *Engine) Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error) {
	all, err := e.registry.read(ctx)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(all, func(name string, _ *queue) bool { return len(names) > 0 && !slices.Contains(names, name) })
	infos, failed, err := e.count(ctx, all)
	for _, one := range failed {
		if err == nil && posthaste.CodeOf(one) != posthaste.CodeNotFound { // else it was dropped since
			err = one
		}
	}
	if err != nil {
		return nil, err
	}
	return infos, nil
}

// count returns queues with their counters, in the order of their names, and errors of single queues.
func (e *Engine) count(ctx context.Context, queues map[string]*queue) (infos []posthaste.QueueInfo, failed map[string]error, err error) {
	if len(queues) == 0 {
		return nil, nil, nil
	}
	by := map[string]*posthaste.QueueInfo{}
	failed, err = e.askAll(ctx, countScript, slices.Collect(maps.Values(queues)), func(q *queue) arguments {
		return arguments{{"number", q.numberArg}, {"rules", q.rules}}
	}, func(q *queue, reply any) error {
		if q.born == nil {
			by[q.name] = &posthaste.QueueInfo{}
		}
		return q.counted(reply, by[q.name])
	}, func(name string) { delete(by, name) })
	if err != nil {
		return nil, nil, err
	}
	for name, info := range by {
		if failed[name] == nil {
			infos = append(infos, *info)
		}
	}
	slices.SortFunc(infos, func(a, b posthaste.QueueInfo) int { return cmp.Compare(a.Name, b.Name) })
	return infos, failed, e.tellKnown(ctx, infos)
}

// counted adds the reply of count.lua for a subscription to a queue. The default one comes first.
func (q *queue) counted(reply any, info *posthaste.QueueInfo) error {
	all, err := list("count", reply, 14)
	if err != nil {
		return err
	}
	n := make([]int64, len(all))
	for i := range all {
		n[i], _ = parseMicros(str(all[i]))
	}
	if q.born == nil {
		*info = posthaste.QueueInfo{Name: q.name, Options: q.options.QueueOptions, CreatedAt: at(q.created)}
		info.Options.Limits = limitsOf(q.options.Limits).public() // with the default bursts
		paused, _ := all[11].([]any)
		for _, key := range paused {
			info.PausedKeys = append(info.PausedKeys, str(key))
		}
		info.PausedKinds = q.options.PausedKinds
		if str(all[3]) != "" {
			info.PausedAt = at(n[3])
		}
	}
	if q.first != "" {
		return nil
	}
	info.Subscriptions = append(info.Subscriptions, posthaste.SubscriptionInfo{Name: q.subscription, Filter: q.wanted.Filter,
		Depth: n[0], InFlight: n[1], Dead: n[2], Sent: n[4], Done: n[5], Retried: n[6], Lost: n[7], Withdrawn: n[8], Expired: n[12],
		OldestAge: fromMicros(max(n[9], 0)), CountedAt: at(n[10]), SetAside: setAsideOf(all[13], q.options.PausedKinds)})
	return nil
}

// setAsideOf reads a part of the reply of count.lua.
func setAsideOf(reply any, paused []string) (all []posthaste.SetAside) {
	values, _ := reply.([]any)
	for s := range slices.Chunk(values, 3) {
		waiting, _ := parseMicros(str(s[1]))
		age, _ := parseMicros(str(s[2]))
		all = append(all, posthaste.SetAside{Kind: str(s[0]), Waiting: waiting, OldestAge: fromMicros(age), Paused: slices.Contains(paused, str(s[0]))})
	}
	slices.SortFunc(all, func(a, b posthaste.SetAside) int { return cmp.Compare(a.Kind, b.Kind) })
	return all
}

// tellKnown sets Known of the messages that were set aside.
func (e *Engine) tellKnown(ctx context.Context, infos []posthaste.QueueInfo) error {
	if !slices.ContainsFunc(infos, func(q posthaste.QueueInfo) bool {
		return slices.ContainsFunc(q.Subscriptions, func(s posthaste.SubscriptionInfo) bool { return len(s.SetAside) > 0 })
	}) {
		return nil
	}
	workers, err := e.registered(ctx)
	for _, info := range infos {
		for _, s := range info.Subscriptions {
			for i := range s.SetAside {
				s.SetAside[i].Known = slices.ContainsFunc(workers, func(w registeredWorker) bool {
					return w.LostAt.IsZero() && slices.Contains(w.kinds[enrolled(info.Name, s.Name)], s.SetAside[i].Kind)
				})
			}
		}
	}
	return err
}
