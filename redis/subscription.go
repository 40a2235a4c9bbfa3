package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

// maxSubscriptions is how many further subscriptions a queue can have: each has a letter.
const maxSubscriptions = 50

// Subscribe implements [posthaste.QueueAdmin]. From the oldest includes all messages
// that a subscription must still deliver, dead letters, and settled messages if the queue
// retains payloads. MaxLag is not supported: this engine has no ring that a slow subscription
// could fill.
func (e *Engine) Subscribe(ctx context.Context, name, subscription string, o posthaste.SubscriptionOptions) error {
	if err := posthaste.CheckName("subscription", subscription); err != nil {
		return err
	}
	if err := checkSubscription(&o); err != nil {
		return err
	}
	if _, err := e.registry.queue(ctx, name); err != nil {
		return err
	}
	options, err := json.Marshal(o)
	if err != nil {
		return err
	}
	if len(options) > 64<<10 {
		return posthaste.Invalidf("filter", "the filter is longer than 64 KiB")
	}
	conflict := &posthaste.Error{Code: posthaste.CodeConflict, Field: "subscription", Message: "subscription " + quote.Name(subscription) + " of queue " + quote.Name(name) + " exists with different options",
		Hint: "unsubscribe first, or use another name"}
	if subscription == posthaste.DefaultSubscription {
		if _, err := e.registry.find(ctx, posthaste.QueueRef{Queue: name}); posthaste.CodeOf(err) == posthaste.CodeNotFound {
			return &posthaste.Error{Code: posthaste.CodeConflict, Field: "subscription", Message: "the subscription " + quote.Name(subscription) + " of queue " + quote.Name(name) + " has ended", Hint: "use another name"}
		} else if err != nil {
			return err
		}
		if o.From == posthaste.FromNow && !o.Scheduled && len(o.Filter.Kinds)+len(o.Filter.Headers) == 0 {
			return nil // it exists
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
	if made { // also if fill is interrupted, which the next claim continues
		details, err := json.Marshal(o.Details(subscription))
		if err != nil {
			return err
		}
		if err := e.record(ctx, record{Action: "subscribe", Queue: name, Details: details}); err != nil {
			return writeError(err)
		}
	}
	if before == "" {
		return nil
	}
	return e.fill(ctx, posthaste.QueueRef{Queue: name, Subscription: subscription})
}

// subscribe makes a subscription unless one of its name exists. It returns whether it made
// one, and the options of the existing one.
func (e *Engine) subscribe(ctx context.Context, name, subscription, options, before string) (made bool, has string, err error) {
	of := enrolled(name, subscription)
	for range 5 {
		q, err := e.registry.queue(ctx, name)
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
		reply, err := subscribeScript.run(ctx, e.client, e.keys.subscription(name, subscription, q.looks > 0), arguments{{"queue", q.numberArg}, {"name", subscription}, {"number", number}, {"enrolled", at}, {"options", options}, {"older", before}, {"most", maxSubscriptions}})
		if err != nil {
			return false, "", err
		}
		switch reply {
		case "gone":
			err = e.remake(ctx, q)
			if err == nil {
				if _, err = e.registry.queue(ctx, name); posthaste.CodeOf(err) == posthaste.CodeNotFound {
					_ = e.removeEnrollment(ctx, of, is)
				}
			}
		case "late":
			err = e.removeEnrollment(ctx, of, is)
		case "leaving":
			var all map[string]*queue
			if all, err = e.registry.read(ctx); err == nil && all[name] != nil {
				_, err = e.leaveAll(ctx, all[name], math.MaxInt)
			}
		case "full":
			_ = e.removeEnrollment(ctx, of, is)
			err = &posthaste.Error{Code: posthaste.CodeTooLarge, Field: "subscription", Message: fmt.Sprintf("queue %s has %d further subscriptions, which is the maximum", name, maxSubscriptions), Hint: "unsubscribe one"}
		default:
			all, fault := list("subscribe", reply, 2)
			if fault != nil {
				return false, "", fault
			}
			_, err = e.registry.read(ctx)
			return all[0] == "made", str(all[1]), err
		}
		if err != nil {
			return false, "", err
		}
	}
	return false, "", &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "queue " + quote.Name(name) + " is being changed by other processes", Hint: "try again"}
}

// enroll adds a subscription to the registry, unless it is there, and returns its value.
func (e *Engine) enroll(ctx context.Context, field string) (string, error) {
	for range 3 {
		reply, err := enrollScript.run(ctx, e.client, []string{e.keys.queues()}, arguments{{"name", field}, {"options", "{}"}, {"most", maxQueues}})
		if err != nil {
			return "", err
		}
		switch reply {
		case "full":
			return "", &posthaste.Error{Code: posthaste.CodeTooLarge, Field: "subscription", Message: fmt.Sprintf("there are %d queues and subscriptions, which is the maximum", maxQueues), Hint: "drop one"}
		case "exists":
			is, err := e.client.HGet(ctx, e.keys.queues(), field).Result()
			if !errors.Is(err, goredis.Nil) {
				return is, err
			}
		default:
			return str(reply) + " {}", nil
		}
	}
	return "", &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "subscription " + quote.Name(field) + " is being made and ended by other processes", Hint: "try again"}
}
