package redis

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

// A further subscription has keys of its own, named as those of its queue, and a number
// of its own as queues have, so that the ids of its deliveries tell it. Scripts of one
// subscription know no other. What they have in common are the contents, and whose
// those are (scripts/holders.lua). The queue's slot says which there are: send.lua
// refuses who does not know them all.

// maxSubscriptions is how many further subscriptions a queue can have: each has a letter.
const maxSubscriptions = 50

// subscriber is a further subscription as the queue's slot has it.
type subscriber struct {
	Name     string `codec:"n"`
	Number   string `codec:"i"`
	Letter   string `codec:"h"`
	Enrolled int64  `codec:"c"`
	Options  string `codec:"o"`
	Leaving  bool   `codec:"g"`
}

// further makes what there is to know of a further subscription of q.
func (e *Engine) further(q *queue, is subscriber) (*queue, error) {
	s := *q
	s.subscription, s.born, s.letter, s.enrolled, s.numberArg = is.Name, q, is.Letter, is.Enrolled, is.Number
	s.version, s.subs, s.leaving, s.first = "", nil, nil, ""
	var err error
	if s.number, err = strconv.ParseInt(is.Number, 10, 64); err == nil {
		err = json.Unmarshal([]byte(is.Options), &s.wanted)
	}
	if err != nil {
		return nil, fmt.Errorf("what Redis has of subscription %s of queue %s: %w", is.Name, q.name, err)
	}
	s.keys = e.keys.subscription(q.name, is.Name, q.looks > 0)
	s.rules = e.rulesOf(&s)
	return &s, nil
}

// field is a further subscription as the registry has it (enroll.lua).
type field struct{ name, is string }

// parts are its number and when it was enrolled.
func (f field) parts() (number, at string, ok bool) {
	all := strings.Fields(f.is)
	if len(all) != 3 {
		return "", "", false
	}
	return all[0], all[1], true
}

// readSubscriptions reads those of the queues that may have further ones.
func (e *Engine) readSubscriptions(ctx context.Context, queues map[string]*queue, of map[string][]field) error {
	pipe := e.client.Pipeline()
	answers := map[*queue]*goredis.SliceCmd{}
	for name := range of {
		if q := queues[name]; q != nil {
			answers[q] = pipe.HMGet(ctx, e.keys.of(name, "meta"), "no", "readers", "subs", "first")
		}
	}
	if len(answers) == 0 {
		return nil
	}
	_, _ = pipe.Exec(ctx) // each answer has its own error
	for q, answer := range answers {
		is, err := answer.Result()
		if err != nil { // one server of a cluster is away, and keeps nobody from the others' queues
			lookAgain(e.client, err)
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
			return fmt.Errorf("what Redis has of the subscriptions of queue %s: %w", q.name, err)
		}
		q.version, q.first = str(is[1]), str(is[3])
		q.rules = e.rulesOf(q)
		for _, one := range all {
			s, err := e.further(q, one)
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

// ref names the subscription.
func (q *queue) ref() posthaste.QueueRef {
	return posthaste.QueueRef{Queue: q.name, Subscription: q.subscription}
}

// mark is its letter in scripts/holders.lua.
func (q *queue) mark() string { return cmp.Or(q.letter, "@") }

// all are the subscriptions of the queue, in the order in which they were made.
func (q *queue) all() []*queue {
	if q.first != "" {
		return q.subs
	}
	return append([]*queue{q}, q.subs...)
}

// named is the subscription of that name, or nil.
func (q *queue) named(name string) *queue {
	if name == "" || name == posthaste.DefaultSubscription {
		if q.first != "" {
			return nil
		}
		return q
	}
	for _, s := range q.subs {
		if s.subscription == name {
			return s
		}
	}
	return nil
}

// letters are those of the further subscriptions.
func (q *queue) letters() (all string) {
	for _, s := range q.subs {
		all += s.letter
	}
	return all
}

// find finds a subscription, in Redis if it is not known.
func (e *Engine) find(ctx context.Context, ref posthaste.QueueRef) (*queue, error) {
	q, err := e.queue(ctx, ref.Queue)
	if err != nil {
		return nil, err
	}
	if s := q.named(ref.Subscription); s != nil {
		return s, nil
	}
	all, err := e.queues(ctx)
	if err != nil {
		return nil, err
	}
	if q = all[ref.Queue]; q == nil {
		return e.queue(ctx, ref.Queue)
	}
	if s := q.named(ref.Subscription); s != nil {
		return s, nil
	}
	if q.unread != nil {
		return nil, q.unread
	}
	return nil, &posthaste.Error{Code: posthaste.NotFound, Field: "subscription", Message: "queue " + quote.Name(ref.Queue) + " has no subscription " + quote.Name(ref.Subscription)}
}

// each runs a script for each subscription of a queue, the one that it is born with first,
// even if that has ended: it has nothing then. It hands the replies to then.
func (e *Engine) each(ctx context.Context, s script, name string, args func(*queue) []any, then func(*queue, any) error) error {
	reply, q, err := e.tryQueue(ctx, name, func(q *queue) (any, error) { return s.run(ctx, e.client, q.keys, args(q)...) })
	if err == nil {
		err = then(q, reply)
	}
	if err != nil {
		return err
	}
	for _, sub := range q.subs {
		reply, now, err := e.on(ctx, s, sub.ref(), args)
		if posthaste.CodeOf(err) == posthaste.NotFound {
			continue // it has ended meanwhile
		}
		if err == nil {
			err = then(now, reply)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// together runs a script once for all subscriptions of a queue, so that nothing comes
// between them.
func (e *Engine) together(ctx context.Context, s script, name string, args ...any) (any, *queue, error) {
	return e.tryQueue(ctx, name, func(q *queue) (any, error) {
		all := q.all()
		var names []string
		for _, one := range all {
			names = append(names, one.keys...)
		}
		return s.run(ctx, e.client, names, append([]any{all[0].numberArg, q.rules}, args...)...)
	})
}

// QueueSubscribe implements [posthaste.Subscriptions]. From the oldest means what some
// subscription still has to deliver, dead letters included, and, where the queue retains
// payloads, what it keeps. MaxLag is refused: there is no ring whose space could run short.
func (e *Engine) QueueSubscribe(ctx context.Context, by, name, subscription string, o posthaste.SubscriptionOptions) error {
	if err := posthaste.CheckName("subscription", subscription); err != nil {
		return err
	}
	if err := checkSubscription(&o); err != nil {
		return err
	}
	if _, err := e.queue(ctx, name); err != nil {
		return err
	}
	options, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if len(options) > 64<<10 {
		return posthaste.Invalidf("filter", "the filter is longer than 64 KiB")
	}
	conflict := &posthaste.Error{Code: posthaste.Conflict, Field: "subscription", Message: "queue " + quote.Name(name) + " has the subscription " + quote.Name(subscription) + " with other options",
		Hint: "unsubscribe first, or use another name"}
	if subscription == posthaste.DefaultSubscription {
		if _, err := e.find(ctx, posthaste.QueueRef{Queue: name}); posthaste.CodeOf(err) == posthaste.NotFound {
			return &posthaste.Error{Code: posthaste.Conflict, Field: "subscription", Message: "the subscription " + quote.Name(subscription) + " of queue " + quote.Name(name) + " has ended", Hint: "use another name"}
		} else if err != nil {
			return err
		}
		if o.From == posthaste.FromNow && !o.Scheduled && len(o.Filter.Kinds)+len(o.Filter.Headers) == 0 {
			return nil // it is there
		}
		return conflict
	}
	before := ""
	if o.From == posthaste.FromOldest || o.Scheduled {
		before = "1"
	}
	made, has, err := e.subscribe(ctx, name, subscription, string(options), before)
	if err != nil {
		return writeError(err)
	}
	if has != string(options) {
		return conflict
	}
	if made { // also should what follows be cut short, which whoever claims goes on with
		details, err := json.Marshal(detailsOf(subscription, o))
		if err != nil {
			return err
		}
		if err := e.record(ctx, record{By: by, Action: "subscribe", Queue: name, Details: details}); err != nil {
			return writeError(err)
		}
	}
	if before == "" {
		return nil
	}
	return e.fill(ctx, posthaste.QueueRef{Queue: name, Subscription: subscription})
}

// subscribe makes a subscription unless there is one of its name, and returns whether it
// did and the options of the one that there is.
func (e *Engine) subscribe(ctx context.Context, name, subscription, options, before string) (made bool, has string, err error) {
	of := enrolled(name, subscription)
	for range 5 {
		q, err := e.queue(ctx, name)
		if err != nil {
			return false, "", err
		}
		is, err := e.enroll(ctx, of)
		if err != nil {
			return false, "", err
		}
		number, at, ok := field{name: of, is: is}.parts()
		if !ok {
			return false, "", unexpected("what subscription "+of+" is", is)
		}
		reply, err := subscribeScript.run(ctx, e.client, e.keys.subscription(name, subscription, q.looks > 0),
			q.numberArg, subscription, number, at, options, before, maxSubscriptions)
		if err != nil {
			return false, "", err
		}
		switch reply {
		case "gone":
			err = e.remake(ctx, q)
			if err == nil {
				if _, err = e.queue(ctx, name); posthaste.CodeOf(err) == posthaste.NotFound {
					_ = e.strike(ctx, of, is)
				}
			}
		case "late":
			err = e.strike(ctx, of, is)
		case "leaving":
			var all map[string]*queue
			if all, err = e.queues(ctx); err == nil && all[name] != nil {
				_, err = e.leaveAll(ctx, all[name], math.MaxInt)
			}
		case "full":
			_ = e.strike(ctx, of, is)
			err = &posthaste.Error{Code: posthaste.TooLarge, Field: "subscription", Message: fmt.Sprintf("queue %s has %d further subscriptions, and no more are possible", name, maxSubscriptions), Hint: "end some"}
		default:
			all, fault := list("subscribe", reply, 2)
			if fault != nil {
				return false, "", fault
			}
			_, err = e.queues(ctx)
			return all[0] == "made", str(all[1]), err
		}
		if err != nil {
			return false, "", err
		}
	}
	return false, "", &posthaste.Error{Code: posthaste.Unavailable, Message: "queue " + quote.Name(name) + " is being changed by others", Hint: "try again"}
}

// enroll gives a subscription a number in the registry, unless it has one, and returns
// what is in its field.
func (e *Engine) enroll(ctx context.Context, field string) (string, error) {
	for range 3 {
		reply, err := enrollScript.run(ctx, e.client, []string{e.keys.queues()}, field, "{}", maxQueues)
		if err != nil {
			return "", err
		}
		switch reply {
		case "full":
			return "", &posthaste.Error{Code: posthaste.TooLarge, Field: "subscription", Message: fmt.Sprintf("there are %d queues and further subscriptions, and no more are possible", maxQueues), Hint: "drop some"}
		case "exists":
			is, err := e.client.HGet(ctx, e.keys.queues(), field).Result()
			if !errors.Is(err, goredis.Nil) {
				return is, err
			}
		default:
			return str(reply) + " {}", nil
		}
	}
	return "", &posthaste.Error{Code: posthaste.Unavailable, Message: "subscription " + quote.Name(field) + " is being made and ended by others", Hint: "try again"}
}

// fill gives a subscription what was sent before it was made, if it is to get that and
// has not got it yet. Should that end before it is done, whoever claims from it goes on.
func (e *Engine) fill(ctx context.Context, ref posthaste.QueueRef) error {
	// What a purge that was cut short put aside is not given to it. None begins while it is
	// filled (aside.lua).
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
			return fillScript.run(ctx, e.client, names, q.numberArg, q.rules, wanted, scheduled, letters)
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
