package nats

import (
	"reflect"
	"slices"

	"github.com/posthaste-mq/posthaste"
)

// checkOptions rejects options that the engine does not have.
func checkOptions(o *posthaste.QueueOptions) error {
	switch {
	case !reflect.ValueOf(o.Limits).IsZero():
		return unsupported("limits", "limits of queues are not supported")
	case o.Fair:
		return unsupported("fair", "fair queues are not supported")
	case o.StopOnDead:
		return unsupported("on_dead", "on_dead=stop is not supported")
	}
	return nil
}

// checkFor rejects what the queue or the engine cannot do.
func checkFor(q *queue, m *posthaste.Message) error {
	switch {
	case m.Unique != nil:
		return unsupported("unique", "unique keys are not supported (use a dedupe key)")
	case len(m.Terms) > 1000:
		return posthaste.Invalidf("terms", "there are over 1,000 terms")
	case !q.Options.Ordered:
		return nil
	case m.Key == "":
		return posthaste.Invalidf("key", "an ordered queue needs a key in each message, which determines its order")
	case m.Delay > 0:
		return posthaste.Invalidf("delay", "a message of an ordered queue cannot be delayed: all later ones of its key would wait for it")
	case !m.SendAt.IsZero():
		return posthaste.Invalidf("send_at", "a message of an ordered queue cannot be scheduled: all later ones of its key would wait for it")
	case m.Priority != 0:
		return posthaste.Invalidf("priority", "queues that are ordered or fair, or have limits for each key, have no priorities")
	}
	return nil
}

// checkFilter rejects what the engine has no index for.
func checkFilter(f *posthaste.MessageFilter) error {
	if f.State != "" && !slices.Contains(posthaste.States(), f.State) {
		return posthaste.Invalidf("state", "unknown state %s", quoted(string(f.State)))
	}
	for field, is := range map[string]string{"reference": f.Reference, "key": f.Key, "kind": f.Kind, "term": f.Term} {
		if is != "" {
			return unsupported(field, "finding messages by %s is not supported", field)
		}
	}
	return nil
}

// listLimit returns the limit of a listing, by default 100.
func listLimit(limit int, what string) (int, error) {
	if limit < 0 || limit > 1000 {
		return 0, posthaste.Invalidf("limit", "a call lists 1 to 1000 %s, not %d", what, limit)
	}
	if limit == 0 {
		limit = 100
	}
	return limit, nil
}
