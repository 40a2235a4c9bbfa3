package redis

import (
	"context"
	"errors"

	"github.com/posthaste-mq/posthaste"
)

// rescueLost rescues the deliveries of lost workers and expired leases.
func (e *Engine) rescueLost(ctx context.Context, reply *posthaste.MaintainReply) error {
	_, lost, _, err := e.rescue(ctx, "")
	reply.Rescued += lost
	return err
}

// rescueMost bounds one script, like claimMost. A lost delivery costs more than others.
const rescueMost = 500

// rescue returns how many deliveries it rescued, the queues and, if look is "1", whether the clock of Redis
// was set back since the last check.
func (e *Engine) rescue(ctx context.Context, look string) (all map[string]*queue, lost int, back bool, err error) {
	reply, err := workerScript.run(ctx, e.client, e.workerKeys(), arguments{{"what", "expire"}, {"worker", ""}, {"lease", ""}, {"entry", ""}, {"clock", look}})
	if said, ok := reply.([]any); ok && len(said) > 1 {
		back = str(said[1]) == "1"
	}
	all, fault := e.registry.reachable(ctx)
	err = errors.Join(readError(err), fault)
	// One call checks many subscriptions, most of which have nothing to rescue. Those that it
	// cannot check are rescued one by one, if Redis answered at all.
	queues := allOf(all)
	looks, fault := e.runEach(ctx, beatScript, queues, func(q *queue) arguments { return looking(q, "") })
	if fault != nil && !answered(fault) {
		err = errors.Join(err, readError(fault))
	}
	for i, q := range queues {
		look, ok := looks[i].([]any)
		if ok && len(look) >= 3 && str(look[2]) == "" || looks[i] == nil && fault != nil && !answered(fault) {
			continue
		}
		n, fault := e.rescueQueue(ctx, q.ref())
		if fault != nil && posthaste.CodeOf(fault) != posthaste.CodeNotFound {
			err = errors.Join(err, readError(fault)) // the others are rescued nevertheless
		}
		lost += n
	}
	return all, lost, back, err
}

func (e *Engine) rescueQueue(ctx context.Context, ref posthaste.QueueRef) (lost int, err error) {
	reply, _, err := e.on(ctx, rescueScript, ref, func(q *queue) arguments {
		return arguments{{"number", q.numberArg}, {"rules", q.rules}, {"most", rescueMost}}
	})
	n, _ := reply.(int64)
	return int(n), err
}
