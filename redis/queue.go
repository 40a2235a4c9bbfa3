package redis

import (
	"cmp"
	"context"
	"encoding/json"
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

// queue is a subscription of a queue: the one that it is born with, which stands for the
// queue, or a further one. Its options never change.
type queue struct {
	name         string
	subscription string
	number       int64 // of its deliveries' ids
	messages     int64 // of its messages' ids: the number of the queue
	created      int64 // of the queue
	options      posthaste.QueueOptions
	keys         []string
	numberArg    string
	rules        string
	looks        int    // 1 if it looks at keys, 2 if it is ordered, 3 if it is fair
	once         string // "1" where handing out settles
	limits       string // those that it was made with, as scripts have them
	// Of the one that the queue is born with:
	version string   // of its subscriptions, "" if there are no further ones
	subs    []*queue // the further ones, as they were made
	leaving []*queue // those that have ended, and still let go of what they held
	first   string   // what became of itself: "", "leaving" or "ended"
	stray   []field  // further ones that are enrolled and not there
	unread  error    // why its further subscriptions are not known
	// unreadNos are their numbers then.
	unreadNos []string
	// Of a further one:
	born     *queue
	letter   string
	enrolled int64
	wanted   posthaste.SubscriptionOptions
}

// tally is the key of its counters.
func (q *queue) tally() string { return q.keys[slices.Index(ofQueue, "tally")] }

// of is what tells a queue from an earlier one of its name, as its schedules have it.
func (q *queue) of() string { return fmt.Sprint(q.messages, " ", q.created) }

// rules are the options that scripts need, as ended.lua names them.
type rules struct {
	MaxAttempts   int    `codec:"n"`
	BackoffBase   int64  `codec:"b"`
	BackoffMax    int64  `codec:"m"`
	Keep          int    `codec:"k"`
	Retention     int64  `codec:"r"`
	RetainPayload bool   `codec:"p"`
	Looks         bool   `codec:"y,omitempty"`
	Ordered       bool   `codec:"o,omitempty"`
	StopOnDead    bool   `codec:"x,omitempty"`
	Fair          bool   `codec:"f,omitempty"`
	Letter        string `codec:"h,omitempty"`
	Version       string `codec:"v,omitempty"`
}

// looks says whether and how a queue looks at keys.
func looks(o posthaste.QueueOptions) int {
	switch {
	case o.Ordered:
		return 2
	case o.Fair:
		return 3
	case o.Limits.KeyConcurrency > 0 || !o.Limits.KeyRateLimit.IsZero():
		return 1
	}
	return 0
}

func (e *Engine) newQueue(name, value string) (*queue, error) {
	fields := strings.SplitN(value, " ", 3)
	if len(fields) != 3 {
		return nil, unexpected("what queue "+quote.Name(name)+" is", value)
	}
	q := &queue{name: name, subscription: posthaste.DefaultSubscription, numberArg: fields[0]}
	var err error
	if q.number, err = strconv.ParseInt(fields[0], 10, 64); err != nil || q.number < 1 || q.number > maxQueues {
		return nil, unexpected("what queue "+quote.Name(name)+" is", value)
	}
	if q.created, err = strconv.ParseInt(fields[1], 10, 64); err == nil {
		err = json.Unmarshal([]byte(fields[2]), &q.options)
	}
	if err != nil {
		return nil, fmt.Errorf("what Redis has of queue %s: %w", name, err)
	}
	o := q.options
	q.messages, q.looks = q.number, looks(o)
	q.keys = e.keys.queue(name, q.looks > 0)
	if o.Mode == posthaste.AtMostOnce {
		q.once = "1"
	}
	made, err := limitsOf(o, o.Limits)
	if err != nil {
		return nil, fmt.Errorf("what Redis has of queue %s: %w", name, err)
	}
	q.limits = made.packed()
	q.rules = e.rulesOf(q)
	return q, nil
}

func (e *Engine) rulesOf(q *queue) string {
	o, version := q.options, q.version
	if q.born != nil {
		version = q.born.version
	}
	return packed(rules{MaxAttempts: o.MaxAttempts, BackoffBase: o.BackoffBase.Microseconds(), BackoffMax: o.BackoffMax.Microseconds(),
		Keep: e.keep, Retention: o.Retention.Microseconds(), RetainPayload: o.RetainPayload,
		Looks: q.looks > 0, Ordered: o.Ordered, StopOnDead: o.StopOnDead, Fair: o.Fair, Letter: q.letter, Version: version})
}

// queues reads the registry anew.
func (e *Engine) queues(ctx context.Context) (map[string]*queue, error) {
	values, err := e.client.HGetAll(ctx, e.keys.queues()).Result()
	if err != nil {
		return nil, readError(err)
	}
	byName, byNo := map[string]*queue{}, map[int64]*queue{}
	dropping := map[string]string{}
	shared := map[string][]field{} // those that may have further subscriptions
	for name, value := range values {
		if strings.HasPrefix(name, "#") {
			continue
		}
		if strings.HasPrefix(value, "-") {
			dropping[name] = value
			continue
		}
		if of, _, further := strings.Cut(name, ":"); further {
			shared[of] = append(shared[of], field{name, value})
			continue
		}
		q, err := e.newQueue(name, value)
		if err != nil {
			return nil, err
		}
		byName[name], byNo[q.number] = q, q
	}
	if len(shared) > 0 {
		if err := e.readSubscriptions(ctx, byName, shared); err != nil {
			return nil, err
		}
		for of := range shared {
			if q := byName[of]; q != nil {
				for _, s := range q.subs {
					byNo[s.number] = s
				}
			}
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for name, q := range byName {
		if was := e.byName[name]; q.unread != nil && was != nil && was.number == q.number && was.unread == nil {
			byName[name], byNo[q.number] = was, was // as it was known before
			for _, s := range was.subs {
				byNo[s.number] = s
			}
		}
	}
	e.byName, e.byNo, e.dropping = byName, byNo, dropping
	return maps.Clone(byName), nil // a drop takes its queue out of the other
}

// queue finds a queue, in the registry if it is not known.
func (e *Engine) queue(ctx context.Context, name string) (*queue, error) {
	e.mu.RLock()
	q := e.byName[name]
	e.mu.RUnlock()
	if q == nil {
		if err := posthaste.CheckName("queue", name); err != nil {
			return nil, err
		}
		all, err := e.queues(ctx)
		if err != nil {
			return nil, err
		}
		if q = all[name]; q == nil {
			return nil, &posthaste.Error{Code: posthaste.NotFound, Field: "queue", Message: "queue " + quote.Name(name) + " does not exist",
				Hint: "make it first, or check its name"}
		}
	}
	return q, nil
}

// numbered finds the queues of ids, nil for those of none. It reads the registry
// at most once. Where an id is of a subscription that could not be read, the error of that
// is returned.
func (e *Engine) numbered(ctx context.Context, ids []int64) (map[int64]*queue, error) {
	found, missing := map[int64]*queue{}, false
	e.mu.RLock()
	for _, id := range ids {
		q := e.byNo[number(id)]
		found[number(id)] = q
		missing = missing || q == nil && number(id) != 0
	}
	e.mu.RUnlock()
	if !missing {
		return found, nil
	}
	if _, err := e.queues(ctx); err != nil {
		return nil, err
	}
	e.mu.RLock()
	defer e.mu.RUnlock()
	for n := range found {
		if found[n] = e.byNo[n]; found[n] != nil || n == 0 {
			continue
		}
		for _, q := range e.byName {
			if slices.Contains(q.unreadNos, strconv.FormatInt(n, 10)) {
				return nil, q.unread
			}
		}
	}
	return found, nil
}

// on runs a script of one subscription.
func (e *Engine) on(ctx context.Context, s script, ref posthaste.QueueRef, args func(*queue) []any) (any, *queue, error) {
	return e.try(ctx, ref, func(q *queue) (any, error) { return s.run(ctx, e.client, q.keys, args(q)...) })
}

// try runs what do says, for one subscription.
func (e *Engine) try(ctx context.Context, ref posthaste.QueueRef, do func(*queue) (any, error)) (any, *queue, error) {
	return e.retry(ctx, func() (*queue, error) { return e.find(ctx, ref) }, do)
}

// tryQueue is try for a queue, also if the subscription that it was born with has ended.
func (e *Engine) tryQueue(ctx context.Context, name string, do func(*queue) (any, error)) (any, *queue, error) {
	return e.retry(ctx, func() (*queue, error) { return e.queue(ctx, name) }, do)
}

// retry runs what do says. Where that finds other keys than those of the queue that was
// meant, or other subscriptions, it looks whether that was dropped, is still to be made,
// or has got others.
func (e *Engine) retry(ctx context.Context, find func() (*queue, error), do func(*queue) (any, error)) (any, *queue, error) {
	for range 5 {
		q, err := find()
		if err != nil {
			return nil, nil, err
		}
		reply, err := do(q)
		if err != nil || reply != "gone" {
			return reply, q, err
		}
		if err := e.remake(ctx, q); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, &posthaste.Error{Code: posthaste.Unavailable, Message: "the queue is being changed by others", Hint: "try again"}
}

// remake makes a queue's keys if the registry says that there is such a queue:
// who made it may not have come so far.
func (e *Engine) remake(ctx context.Context, q *queue) error {
	all, err := e.queues(ctx)
	if err != nil {
		return err
	}
	if now := all[q.name]; now != nil && now.number == q.messages {
		err = e.make(ctx, now)
	}
	return readError(err)
}

// make makes a queue's keys. Where the queue was dropped meanwhile it removes them, or
// what is sent to it by those who know it still would be found by nobody.
func (e *Engine) make(ctx context.Context, q *queue) error {
	if _, err := makeScript.run(ctx, e.client, q.keys, q.numberArg, q.limits, q.created); err != nil {
		return err
	}
	is, err := e.client.HGet(ctx, e.keys.queues(), q.name).Result()
	if err != nil && !errors.Is(err, goredis.Nil) {
		return err
	}
	if strings.HasPrefix(is, fmt.Sprintf("%d %d ", q.number, q.created)) {
		return nil
	}
	_, err = e.clear(ctx, q.name, q.created)
	return err
}

func checkOptions(o *posthaste.QueueOptions) error {
	switch {
	case o.StopOnDead && !o.Ordered:
		return posthaste.Invalidf("on_dead", "a dead message can stop its key in ordered queues: in others no message waits for another")
	case o.Ordered && o.Fair:
		return posthaste.Invalidf("fair", "ordered and fair exclude each other: keys of an ordered queue take turns anyway")
	case o.Ordered && o.Mode == posthaste.AtMostOnce:
		return posthaste.Invalidf("mode", "a queue that hands out at most once cannot be ordered: it never learns when a message has ended, so it cannot start the next of its key then")
	case o.Mode == posthaste.AtMostOnce && (o.MaxAttempts != 0 || o.BackoffBase != 0 || o.BackoffMax != 0):
		return posthaste.Invalidf("max_attempts", "a queue that hands out at most once never tries again")
	}
	o.Mode = cmp.Or(o.Mode, posthaste.AtLeastOnce)
	o.MaxAttempts = cmp.Or(o.MaxAttempts, 20)
	o.BackoffBase = cmp.Or(o.BackoffBase, time.Second)
	o.BackoffMax = cmp.Or(o.BackoffMax, time.Hour)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.MaxPayload = cmp.Or(o.MaxPayload, 1<<20)
	o.Lanes = cmp.Or(o.Lanes, 1)
	for _, c := range []struct {
		field string
		ok    bool
		want  string
	}{
		{"max_attempts", o.MaxAttempts >= 1 && o.MaxAttempts <= 1000, "1 to 1,000"},
		{"backoff", o.BackoffBase > 0 && o.BackoffMax >= o.BackoffBase && o.BackoffMax <= 365*24*time.Hour, "above zero, its bound not below its base and at most 365 days"},
		{"timeout", o.Timeout > 0 && o.Timeout <= 365*24*time.Hour, "above zero and at most 365 days"},
		{"max_payload", o.MaxPayload > 0 && o.MaxPayload <= posthaste.MaxPayloadBytes, "1 byte to 32 MiB"},
		{"lanes", o.Lanes >= 1 && o.Lanes <= 64, "1 to 64"},
		{"mode", o.Mode == posthaste.AtLeastOnce || o.Mode == posthaste.AtMostOnce, "at_least_once or at_most_once"},
		{"retention", o.Retention >= 0 && o.Retention <= 36500*24*time.Hour, "0 to 36,500 days"},
		{"retain_payload", !o.RetainPayload || o.Retention > 0, "off unless retention is above zero"},
	} {
		if !c.ok {
			return posthaste.Invalidf(c.field, "%s must be %s", c.field, c.want)
		}
	}
	_, err := limitsOf(*o, o.Limits)
	return err
}

// QueueCreate implements [posthaste.Admin].
func (e *Engine) QueueCreate(ctx context.Context, name string, o posthaste.QueueOptions) error {
	if err := posthaste.CheckName("name", name); err != nil {
		return err
	}
	if err := checkOptions(&o); err != nil {
		return err
	}
	options, err := json.Marshal(o)
	if err != nil {
		return err
	}
	reply, err := enrollScript.run(ctx, e.client, []string{e.keys.queues()}, name, options, maxQueues)
	if err != nil {
		return writeError(err)
	}
	if reply == "exists" {
		have, err := e.client.HGet(ctx, e.keys.queues(), name).Result()
		switch {
		case errors.Is(err, goredis.Nil): // dropped meanwhile
		case err != nil:
			return readError(err)
		case strings.HasPrefix(have, "-"): // whoever dropped it may never come to the end of that
			if err := e.finishDrop(ctx, name, have); err != nil {
				return err
			}
		default:
			if q, err := e.newQueue(name, have); err == nil {
				// Limits may have been changed since; only those asked for must be so.
				if o.Limits = orLimits(o.Limits, q.options.Limits); q.options == o {
					return nil
				}
			}
			return &posthaste.Error{Code: posthaste.Conflict, Field: "name", Message: "queue " + quote.Name(name) + " exists with other options", Hint: "drop it first, or ask for the options that it has"}
		}
		if reply, err = enrollScript.run(ctx, e.client, []string{e.keys.queues()}, name, options, maxQueues); err != nil {
			return writeError(err)
		}
	}
	switch reply {
	case "exists":
		return &posthaste.Error{Code: posthaste.Unavailable, Field: "name", Message: "queue " + quote.Name(name) + " is being dropped and made by others", Hint: "try again"}
	case "full":
		return &posthaste.Error{Code: posthaste.TooLarge, Field: "name", Message: fmt.Sprintf("there are %d queues, and no more are possible", maxQueues), Hint: "drop some"}
	}
	q, err := e.newQueue(name, fmt.Sprintf("%v %s", reply, options))
	if err == nil {
		err = e.make(ctx, q)
	}
	return readError(err) // whoever uses it first makes up for what was not done
}

// QueuePause implements [posthaste.Admin].
func (e *Engine) QueuePause(ctx context.Context, by, name string) error {
	return e.pause(ctx, by, name, "pause", "1")
}

// QueueResume implements [posthaste.Admin].
func (e *Engine) QueueResume(ctx context.Context, by, name string) error {
	return e.pause(ctx, by, name, "resume", "")
}

func (e *Engine) pause(ctx context.Context, by, name, action, paused string) error {
	reply, _, err := e.tryQueue(ctx, name, func(q *queue) (any, error) {
		return pauseScript.run(ctx, e.client, q.keys, q.numberArg, paused)
	})
	if err == nil && reply == int64(1) {
		err = e.record(ctx, record{By: by, Action: action, Queue: name})
	}
	return readError(err)
}

// Queues implements [posthaste.Admin]. Its counts are as of now; per second nothing
// is counted.
func (e *Engine) Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error) {
	all, err := e.queues(ctx)
	if err != nil {
		return nil, err
	}
	var infos []posthaste.QueueInfo
	for name := range all {
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		info, err := e.count(ctx, name)
		if posthaste.CodeOf(err) == posthaste.NotFound {
			continue // dropped meanwhile
		}
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b posthaste.QueueInfo) int { return cmp.Compare(a.Name, b.Name) })
	return infos, nil
}

func (e *Engine) count(ctx context.Context, name string) (info posthaste.QueueInfo, err error) {
	err = e.each(ctx, countScript, name, func(q *queue) []any { return []any{q.numberArg, q.rules} }, func(q *queue, reply any) error {
		all, err := list("count", reply, 13)
		if err != nil {
			return err
		}
		n := make([]int64, len(all))
		for i := range all {
			n[i], _ = parseMicros(str(all[i]))
		}
		if q.born == nil {
			info = posthaste.QueueInfo{Name: name, Options: q.options, CreatedAt: at(q.created)}
			var now limits
			if l := str(all[11]); l != "" {
				if err := unpack(l, &now); err != nil {
					return err
				}
			}
			info.Options.Limits = now.public()
			paused, _ := all[12].([]any)
			for _, key := range paused {
				info.PausedKeys = append(info.PausedKeys, str(key))
			}
			if str(all[3]) != "" {
				info.PausedAt = at(n[3])
			}
		}
		if q.first != "" {
			return nil
		}
		info.Subscriptions = append(info.Subscriptions, posthaste.SubscriptionInfo{Name: q.subscription, Filter: q.wanted.Filter,
			Depth: n[0], InFlight: n[1], Dead: n[2], Sent: n[4], Done: n[5], Retried: n[6], Lost: n[7], Withdrawn: n[8],
			OldestAge: fromMicros(max(n[9], 0)), CountedAt: at(n[10])})
		return nil
	})
	return info, readError(err)
}

// orLimits are the limits asked for, and where none is asked for those that there are.
func orLimits(asked, have posthaste.QueueLimits) posthaste.QueueLimits {
	return posthaste.QueueLimits{
		Concurrency: cmp.Or(asked.Concurrency, have.Concurrency), RateLimit: cmp.Or(asked.RateLimit, have.RateLimit),
		KeyConcurrency: cmp.Or(asked.KeyConcurrency, have.KeyConcurrency), KeyRateLimit: cmp.Or(asked.KeyRateLimit, have.KeyRateLimit),
	}
}
