package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

// registry is the copy that this process has of the queues and subscriptions in Redis. It
// reads unknown ones when they are needed. Scripts reply "gone" to a caller whose copy is out
// of date.
type registry struct {
	client goredis.UniversalClient
	keys   keys
	kept   int // settled messages that a queue without retention keeps

	mu       sync.RWMutex
	byName   map[string]*queue
	byNo     map[int64]*queue  // with further subscriptions
	dropping map[string]string // queues that are being dropped, as Redis has them
}

func (r *registry) newQueue(name, value string) (*queue, error) {
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
		return nil, fmt.Errorf("read queue %s: %w", name, err)
	}
	q.value = value
	o := q.options
	q.messages, q.looks = q.number, looks(o.QueueOptions)
	q.keys = r.keys.queue(name, q.looks > 0)
	if o.Mode == posthaste.AtMostOnce {
		q.once = "1"
	}
	q.limits = limitsOf(o.Limits).packed()
	if len(o.PausedKinds) > 0 {
		q.paused = packed(setOf(o.PausedKinds))
	}
	q.rules = r.rulesOf(q)
	return q, nil
}

func (r *registry) rulesOf(q *queue) string {
	o, version := q.options, q.version
	if q.born != nil {
		version = q.born.version
	}
	return packed(rules{MaxAttempts: o.MaxAttempts, BackoffBase: o.BackoffBase.Microseconds(), BackoffMax: o.BackoffMax.Microseconds(),
		Keep: r.kept, Retention: o.Retention.Microseconds(), RetainPayload: o.RetainPayload, MaxAge: wholeMicros(o.MaxAge),
		Looks: q.looks > 0, Ordered: o.Ordered, StopOnDead: o.StopOnDead, Fair: o.Fair, Stopped: q.options.Stopped, Kinds: optionsOfKinds(o.QueueOptions), Paused: setOf(o.PausedKinds), Letter: q.letter, Revision: q.revision(), Version: version})
}

// read reads all queues and subscriptions from Redis.
func (r *registry) read(ctx context.Context) (map[string]*queue, error) {
	values, err := r.client.HGetAll(ctx, r.keys.queues()).Result()
	if err != nil {
		return nil, readError(err)
	}
	byName, byNo := map[string]*queue{}, map[int64]*queue{}
	dropping := map[string]string{}
	shared := map[string][]field{} // queues that may have further subscriptions
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
		q, err := r.newQueue(name, value)
		if err != nil {
			return nil, err
		}
		byName[name], byNo[q.number] = q, q
	}
	if len(shared) > 0 {
		if err := r.readSubscriptions(ctx, byName, shared); err != nil {
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
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, q := range byName {
		if was := r.byName[name]; q.unread != nil && was != nil && was.number == q.number && was.unread == nil {
			byName[name], byNo[q.number] = was, was // keep the previous copy
			for _, s := range was.subs {
				byNo[s.number] = s
			}
		}
	}
	r.byName, r.byNo, r.dropping = byName, byNo, dropping
	return maps.Clone(byName), nil // forget changes r.byName
}

// queue returns a queue, which it reads from Redis if it is unknown here.
func (r *registry) queue(ctx context.Context, name string) (*queue, error) {
	r.mu.RLock()
	q := r.byName[name]
	r.mu.RUnlock()
	if q == nil {
		if err := posthaste.CheckName("queue", name); err != nil {
			return nil, err
		}
		all, err := r.read(ctx)
		if err != nil {
			return nil, err
		}
		if q = all[name]; q == nil {
			return nil, noQueue(name)
		}
	}
	return q, nil
}

func noQueue(name string) error {
	return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue", Message: "queue " + quote.Name(name) + " does not exist", Hint: "create it first, or check its name"}
}

// ofIDs returns the queues of ids by number, nil for unknown ones. It reads Redis at most
// once. For an id of a subscription that could not be read it returns that error.
func (r *registry) ofIDs(ctx context.Context, ids []int64) (map[int64]*queue, error) {
	found, missing := map[int64]*queue{}, false
	r.mu.RLock()
	for _, id := range ids {
		q := r.byNo[number(id)]
		found[number(id)] = q
		missing = missing || q == nil && number(id) != 0
	}
	r.mu.RUnlock()
	if !missing {
		return found, nil
	}
	if _, err := r.read(ctx); err != nil {
		return nil, err
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	for n := range found {
		if found[n] = r.byNo[n]; found[n] != nil || n == 0 {
			continue
		}
		for _, q := range r.byName {
			if slices.Contains(q.unreadNos, strconv.FormatInt(n, 10)) {
				return nil, q.unread
			}
		}
	}
	return found, nil
}

// further makes a further subscription of q.
func (r *registry) further(q *queue, is subscriber) (*queue, error) {
	s := *q
	s.subscription, s.born, s.letter, s.enrolled, s.numberArg = is.Name, q, is.Letter, is.Enrolled, is.Number
	s.version, s.subs, s.leaving, s.first = "", nil, nil, ""
	var err error
	if s.number, err = strconv.ParseInt(is.Number, 10, 64); err == nil {
		err = json.Unmarshal([]byte(is.Options), &s.wanted)
	}
	if err != nil {
		return nil, fmt.Errorf("read subscription %s of queue %s: %w", is.Name, q.name, err)
	}
	s.keys = r.keys.subscription(q.name, is.Name, q.looks > 0)
	s.rules = r.rulesOf(&s)
	return &s, nil
}

// readSubscriptions reads the further subscriptions of queues.
func (r *registry) readSubscriptions(ctx context.Context, queues map[string]*queue, of map[string][]field) error {
	pipe := r.client.Pipeline()
	answers := map[*queue]*goredis.SliceCmd{}
	for name := range of {
		if q := queues[name]; q != nil {
			answers[q] = pipe.HMGet(ctx, r.keys.of(name, "meta"), "no", "readers", "subs", "first")
		}
	}
	if len(answers) == 0 {
		return nil
	}
	_, _ = pipe.Exec(ctx) // each reply has its own error
	for q, answer := range answers {
		is, err := answer.Result()
		if err != nil { // the other queues remain usable if one server of a cluster is unreachable
			lookAgain(r.client, err)
			q.unread = readError(err)
			for _, f := range of[q.name] {
				number, _, _ := f.parts()
				q.unreadNos = append(q.unreadNos, number)
			}
			continue
		}
		if len(is) != 4 || str(is[0]) != q.numberArg {
			continue
		}
		if str(is[2]) == "" {
			q.stray = of[q.name]
			continue
		}
		var all []subscriber
		if err := unpack(str(is[2]), &all); err != nil {
			return fmt.Errorf("read subscriptions of queue %s: %w", q.name, err)
		}
		q.version, q.first = str(is[1]), str(is[3])
		q.rules = r.rulesOf(q)
		for _, one := range all {
			s, err := r.further(q, one)
			if err != nil {
				return err
			}
			if one.Leaving {
				q.leaving = append(q.leaving, s)
			} else {
				q.subs = append(q.subs, s)
			}
		}
		for _, f := range of[q.name] {
			if number, _, _ := f.parts(); !slices.ContainsFunc(all, func(s subscriber) bool { return s.Number == number }) {
				q.stray = append(q.stray, f)
			}
		}
	}
	return nil
}

// find returns a subscription, which it reads from Redis if it is unknown here.
func (r *registry) find(ctx context.Context, ref posthaste.QueueRef) (*queue, error) {
	q, err := r.queue(ctx, ref.Queue)
	if err != nil {
		return nil, err
	}
	if s := q.named(ref.Subscription); s != nil {
		return s, nil
	}
	all, err := r.read(ctx)
	if err != nil {
		return nil, err
	}
	if q = all[ref.Queue]; q == nil {
		return r.queue(ctx, ref.Queue)
	}
	if s := q.named(ref.Subscription); s != nil {
		return s, nil
	}
	if q.unread != nil {
		return nil, q.unread
	}
	return nil, &posthaste.Error{Code: posthaste.CodeNotFound, Field: "subscription", Message: "queue " + quote.Name(ref.Queue) + " has no subscription " + quote.Name(ref.Subscription)}
}

// reachable reads all queues. If some cannot be read, it returns those that were known
// before, with the error.
func (r *registry) reachable(ctx context.Context) (map[string]*queue, error) {
	all, err := r.read(ctx)
	if err != nil {
		r.mu.RLock()
		defer r.mu.RUnlock()
		return maps.Clone(r.byName), err
	}
	for _, q := range all {
		err = errors.Join(err, q.unread)
	}
	return all, err
}

// numbered returns the known queue or subscription with a number, or nil.
func (r *registry) numbered(n int64) *queue {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.byNo[n]
}

// forget removes a queue that was dropped.
func (r *registry) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q := r.byName[name]; q != nil {
		delete(r.byName, name)
		delete(r.byNo, q.number)
		for _, s := range q.subs {
			delete(r.byNo, s.number)
		}
	}
}

// drops returns the queues whose drop has not ended, as Redis has them.
func (r *registry) drops() map[string]string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.dropping
}
