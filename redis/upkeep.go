package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/posthaste-mq/posthaste"
)

// Maintain implements [posthaste.Engine].
func (e *Engine) Maintain(ctx context.Context, kinds posthaste.Upkeep) (reply posthaste.MaintainReply, err error) {
	for _, step := range []struct {
		kind posthaste.Upkeep
		do   func(context.Context, *posthaste.MaintainReply) error
	}{{posthaste.UpkeepRescue, e.rescueLost}, {posthaste.UpkeepTicks, e.tickDue}, {posthaste.UpkeepSpace, e.reclaim}} {
		if kinds&step.kind == 0 {
			continue
		}
		if err := step.do(ctx, &reply); err != nil {
			return reply, err
		}
	}
	return reply, nil
}

// reclaim rescues lost deliveries, forgets messages whose retention has ended, continues
// interrupted drops of queues and ends of subscriptions, takes samples for charts, and, of one
// subscription and its queue, chosen at random, repairs a part and forgets unique keys. Settling
// does the rest of the upkeep.
func (e *Engine) reclaim(ctx context.Context, reply *posthaste.MaintainReply) error {
	all, lost, back, err := e.rescue(ctx, "1")
	reply.Rescued, reply.More, reply.ClockSetBack = reply.Rescued+lost, lost > 0, back
	for _, q := range all {
		more, fault := e.leaveAll(ctx, q, leaveMost)
		if fault = errors.Join(fault, e.removeStrayEnrollments(ctx, q, strayFor)); fault != nil {
			err = errors.Join(err, fmt.Errorf("ending subscriptions of queue %s: %w", q.name, readError(fault)))
		}
		reply.More = reply.More || more
	}
	more, fault := e.expire(ctx, all)
	if queues := allOf(all); len(queues) > 0 {
		q := queues[rand.N(len(queues))]
		fault = errors.Join(fault, e.repair(ctx, q), ignore(e.forgetUnique(ctx, q.name), posthaste.CodeNotFound))
	}
	if fault = errors.Join(fault, e.sample(ctx, all), e.dropAll(ctx)); fault != nil {
		err = errors.Join(err, fault)
	}
	reply.More = reply.More || more
	return err
}

// expireMost bounds one script, like claimMost. Several queues of one script share it.
const expireMost = 1000

// expire forgets messages whose retention has ended, because settling does so only while a
// queue has something to settle. It returns whether there are more.
func (e *Engine) expire(ctx context.Context, all map[string]*queue) (more bool, err error) {
	var queues []*queue
	for _, q := range allOf(all) {
		if q.options.Retention > 0 || q.options.Revision > 0 { // it may have had a retention
			queues = append(queues, q)
		}
	}
	const part = expireMost / severalMost
	args := func(most int64) func(*queue) arguments {
		return func(q *queue) arguments {
			return arguments{{"number", q.numberArg}, {"rules", q.rules}, {"most", most}}
		}
	}
	replies, err := e.runEach(ctx, forgetScript, queues, args(part))
	for i, reply := range replies {
		if reply == "gone" { // perhaps its options were changed by a process that was killed
			err = errors.Join(err, e.remake(ctx, queues[i]))
		}
		if reply != int64(part) {
			continue
		}
		reply, fault := forgetScript.run(ctx, e.client, queues[i].keys, args(expireMost)(queues[i]))
		err = errors.Join(err, fault)
		more = more || reply == int64(expireMost)
	}
	return more, readError(err)
}

// repair checks and repairs a part of a subscription.
func (e *Engine) repair(ctx context.Context, q *queue) error {
	_, err := repairScript.run(ctx, e.client, q.keys, arguments{{"number", q.numberArg}, {"rules", q.rules}})
	return readError(err)
}
