package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

const (
	// patience is how long a message may wait before Doctor reports it.
	patience = 5 * time.Minute
	// together is how long programs of several versions may run side by side.
	together = time.Hour
	// clockSkew is the tolerated difference between the clocks of this machine and of Redis.
	clockSkew = 2 * time.Second
)

// Doctor implements [posthaste.Observer].
func (e *Engine) Doctor(ctx context.Context) ([]posthaste.Finding, error) {
	var found []posthaste.Finding
	err := e.masters(ctx, e.client, func(ctx context.Context, c goredis.Cmdable) error {
		about, err := about(ctx, c)
		var some []posthaste.Finding
		switch {
		case err == nil:
			if some = examined(about); e.cluster {
				some = append(some, unguarded(about)...)
			}
		case e.cluster && posthaste.CodeOf(err) == posthaste.CodeUnavailable:
			some = []posthaste.Finding{{Check: "connection", Fault: true, Message: err.Error(), Hint: "start it; its queues stop until it is back or a replica has taken its place"}}
		default:
			return err
		}
		if m, ok := c.(*goredis.Client); ok && e.cluster {
			for i := range some {
				some[i].Message = "server " + m.Options().Addr + " of the cluster: " + some[i].Message
			}
		}
		found = append(found, some...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	theirs, err := e.client.Time(ctx).Result()
	if err != nil {
		return nil, readError(err)
	}
	found = append(found, doctorClock(begun, time.Now(), theirs)...)
	workers, err := e.registered(ctx)
	if err != nil {
		return nil, err
	}
	found = append(found, doctorWorkers(workers, theirs)...)
	all, err := e.registry.read(ctx)
	if err != nil {
		return nil, err
	}
	behind, err := e.doctorBehind(ctx, all)
	if err != nil {
		return nil, err
	}
	repaired, err := e.doctorRepaired(ctx, allOf(all))
	if err != nil {
		return nil, err
	}
	late, err := e.doctorSchedules(ctx)
	return slices.Concat(found, behind, repaired, late), err
}

// examined checks the INFO of a server.
func examined(about map[string]string) (found []posthaste.Finding) {
	if about["aof_enabled"] == "0" {
		found = append(found, posthaste.Finding{Check: "persistence", Message: "Redis has no append-only file: messages sent since its last snapshot are lost when it stops",
			Hint: "set appendonly yes; with appendfsync always nothing is lost, with everysec at most about two seconds"})
	}
	if about["aof_last_write_status"] == "err" {
		found = append(found, posthaste.Finding{Check: "persistence", Fault: true, Message: "Redis cannot write its append-only file", Hint: "look at its log and its disk"})
	}
	if policy := about["maxmemory_policy"]; policy != "noeviction" {
		found = append(found, posthaste.Finding{Check: "memory", Fault: strings.HasPrefix(policy, "allkeys-") && about["maxmemory"] != "0",
			Message: "maxmemory-policy is " + policy + ": with a maxmemory Redis would remove keys when its memory is full",
			Hint:    "set maxmemory-policy noeviction"})
	}
	limit, _ := strconv.ParseFloat(about["maxmemory"], 64)
	used, _ := strconv.ParseFloat(about["used_memory"], 64)
	if limit > 0 && used > 0.9*limit {
		found = append(found, posthaste.Finding{Check: "memory", Message: fmt.Sprintf("Redis uses %.0f %% of its maxmemory: when it is full, sending is refused", 100*used/limit),
			Hint: "raise maxmemory, or let workers catch up"})
	}
	return found
}

// unguarded reports a master that accepts writes while none of its replicas receives them.
// After it was partitioned or stopped, such a master acknowledges writes that are lost once it
// learns of its successor. INFO counts good replicas only if min-replicas-to-write is set.
func unguarded(about map[string]string) []posthaste.Finding {
	if _, asks := about["min_slaves_good_slaves"]; asks || about["role"] != "master" || about["connected_slaves"] == "0" {
		return nil
	}
	return []posthaste.Finding{{Check: "replicas", Message: "it accepts writes while no replica receives them: after a network partition or a stop it acknowledges writes that are lost once another server has taken its place",
		Hint: "set min-replicas-to-write 1, and min-replicas-max-lag to less than cluster-node-timeout"}}
}

// doctorClock compares the clocks of this machine, before and after the call, and of Redis.
func doctorClock(before, after, theirs time.Time) []posthaste.Finding {
	off := max(theirs.Sub(after), before.Sub(theirs))
	if off <= clockSkew {
		return nil
	}
	return []posthaste.Finding{{Check: "clock", Message: fmt.Sprintf("the clocks of Redis and of this machine differ by %s", off.Round(100*time.Millisecond)),
		Hint: "synchronize them; the clock of Redis decides when messages are due"}}
}

// doctorWorkers reports workers whose heartbeats are late or that are lost and not rescued,
// and workers of several versions.
func doctorWorkers(workers []registeredWorker, now time.Time) (found []posthaste.Finding) {
	versions, first := map[string]int{}, map[string]time.Time{}
	for _, w := range workers {
		silent := now.Sub(w.HeartbeatAt).Round(time.Millisecond)
		switch {
		case !w.LostAt.IsZero():
			found = append(found, posthaste.Finding{Check: "workers", Message: fmt.Sprintf("the last heartbeat of worker %s (%s) was %s ago, and its messages have not been rescued yet", w.ID, w.Name, silent),
				Hint: "run a worker to redeliver them"})
			continue
		case silent > w.lease*7/10:
			found = append(found, posthaste.Finding{Check: "heartbeats", Message: fmt.Sprintf("the last heartbeat of worker %s (%s) was %s ago, and it is declared lost after %s", w.ID, w.Name, silent, w.lease),
				Hint: "its machine may be overloaded or its network slow; a longer lease tolerates more"})
		}
		if w.Version != "" {
			versions[w.Version]++
			if first[w.Version].IsZero() || w.StartedAt.Before(first[w.Version]) {
				first[w.Version] = w.StartedAt
			}
		}
	}
	since := time.Time{}
	var told []string
	for _, v := range slices.Sorted(maps.Keys(versions)) {
		told = append(told, fmt.Sprintf("%s (%d)", v, versions[v]))
		if first[v].After(since) {
			since = first[v]
		}
	}
	if len(told) > 1 && now.Sub(since) > together {
		found = append(found, posthaste.Finding{Check: "workers", Message: fmt.Sprintf("workers of %d versions have run at the same time for more than an hour: %s", len(told), strings.Join(told, ", ")),
			Hint: "if they are the same program, an upgrade was not finished: replace the older ones"})
	}
	return found
}

// doctorBehind reports subscriptions that fall behind, and messages of unknown kinds.
func (e *Engine) doctorBehind(ctx context.Context, all map[string]*queue) (found []posthaste.Finding, err error) {
	queues, failed, err := e.count(ctx, all)
	for _, one := range failed {
		code := posthaste.CodeOf(one)
		if err == nil && code != posthaste.CodeNotFound && !(e.cluster && code == posthaste.CodeUnavailable) {
			err = one // else it was dropped since; or its server is unreachable, which is a finding of its own
		}
	}
	if err != nil {
		return nil, err
	}
	for _, q := range queues {
		for _, s := range q.Subscriptions {
			unhandled := doctorKinds(q.Name, s)
			found = append(found, unhandled...)
			if s.OldestAge <= patience {
				continue
			}
			f := posthaste.Finding{Check: "behind", Queue: q.Name, Subscription: s.Name, Hint: "run a worker for it, or more of them; check whether its handlers fail or take long",
				Message: fmt.Sprintf("the oldest message that is ready for subscription %q of queue %q has waited for %s", s.Name, q.Name, s.OldestAge.Round(time.Second))}
			if len(unhandled) > 0 {
				f.Hint = "messages of kinds that no running worker handles wait there: see the finding kinds"
			}
			if !q.PausedAt.IsZero() {
				f.Message, f.Hint = f.Message+": the queue is paused"+e.pauseNote(ctx, q.Name), "posthaste queue resume "+q.Name
			}
			found = append(found, f)
		}
	}
	return found, nil
}

// doctorKinds reports messages that were set aside and that no running worker handles.
func doctorKinds(queue string, s posthaste.SubscriptionInfo) (found []posthaste.Finding) {
	for _, a := range s.SetAside {
		if a.Known || a.Paused || a.OldestAge <= patience {
			continue
		}
		of, them := fmt.Sprintf("of kind %q", a.Kind), "this kind"
		if a.Kind == "" {
			of, them = "without a kind", "these"
		}
		found = append(found, posthaste.Finding{Check: "kinds", Queue: queue, Subscription: s.Name,
			Message: fmt.Sprintf("messages %s in subscription %q of queue %q wait for a worker that handles %s (%d of them, the oldest for %s), and no running worker does",
				of, s.Name, queue, them, a.Waiting, a.OldestAge.Round(time.Second)),
			Hint: "start the version of your program that has a handler for it, or a handler for all kinds; or cancel these messages"})
	}
	return found
}

// repairedFor is how long Doctor reports messages that upkeep repaired.
const repairedFor = 24 * time.Hour

// doctorRepaired reports messages that upkeep repaired in the last day.
func (e *Engine) doctorRepaired(ctx context.Context, queues []*queue) (found []posthaste.Finding, err error) {
	slices.SortFunc(queues, func(a, b *queue) int {
		return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.subscription, b.subscription))
	})
	pipe := e.client.Pipeline()
	answers := make([]*goredis.StringCmd, len(queues))
	for i, q := range queues {
		answers[i] = pipe.HGet(ctx, q.tally(), "repairs")
	}
	_, _ = pipe.Exec(ctx) // each answer has its own error
	for i, q := range queues {
		said, err := answers[i].Result()
		if err != nil {
			if e.cluster || errors.Is(err, goredis.Nil) { // an unreachable server is a finding of its own
				continue
			}
			return nil, readError(err)
		}
		n, at, _ := strings.Cut(said, " ")
		last, ok := parseMicros(at)
		if !ok {
			return nil, unexpected("the repairs of queue "+quote.Name(q.name), said)
		}
		if when := time.UnixMicro(last + epoch*1e6); time.Since(when) < repairedFor {
			found = append(found, posthaste.Finding{Check: "stranded", Queue: q.name, Subscription: q.subscription,
				Message: fmt.Sprintf("%s messages of subscription %q of queue %q had no holder and were in no list, and were made available again; the last ones at %s", n, q.subscription, q.name, when.UTC().Format(time.RFC3339)),
				Hint:    "check whether keys of this Redis were changed by hand or restored in part; if not, please report a bug"})
		}
	}
	return found, nil
}

// doctorSchedules reports schedules whose ticks are late or whose zones are unknown.
func (e *Engine) doctorSchedules(ctx context.Context) (found []posthaste.Finding, err error) {
	due, now, _, err := e.readSchedules(ctx, dueUpTo(ticksMost))
	for _, s := range due {
		if s.fault != nil {
			found = append(found, posthaste.Finding{Check: "schedules", Fault: true, Queue: s.queue,
				Message: fmt.Sprintf("this program does not know the time zone %q of schedule %q", s.Zone, s.name),
				Hint:    "put the schedule again with a known time zone, or fix the time zone data of this machine"})
		}
		if late := now.Sub(s.Next); late > tickPatience {
			found = append(found, posthaste.Finding{Check: "schedules", Queue: s.queue,
				Message: fmt.Sprintf("schedule %q should have ticked %s ago", s.name, late.Round(time.Second)), Hint: "start a worker of any queue"})
		}
	}
	return found, err
}
