package worker

import (
	"maps"
	"slices"

	"github.com/posthaste-mq/posthaste"
)

// sinksOf returns the subscriptions that sinks read, with their destinations.
func sinksOf(routes []*route) (all []posthaste.WorkerSink) {
	for _, r := range routes {
		parts := []*route{r}
		if r.kinds != nil {
			parts = slices.Collect(maps.Values(r.kinds.byKind))
			if r.kinds.rest != nil {
				parts = append(parts, r.kinds.rest)
			}
		}
		for _, part := range parts {
			is := posthaste.WorkerSink{Queue: r.ref.Queue, Subscription: r.ref.Subscription, Destination: part.destination}
			if _, sink := part.many.(sinkCalls); sink && !slices.Contains(all, is) {
				all = append(all, is)
			}
		}
	}
	return all
}
