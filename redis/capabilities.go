package redis

import "github.com/posthaste-mq/posthaste"

// Capabilities implements [posthaste.Observer].
func (e *Engine) Capabilities() posthaste.Capabilities {
	return posthaste.Capabilities{Subscriptions: true, Limits: true, Ordered: true, OrderedRuns: true, StopOnDead: true, PauseKinds: true, Exact: true, AtMostOnce: true, SendAcross: !e.cluster, Idempotency: true,
		Attempts: true, Search: true, Withdrawal: true, Updates: true, Unique: true, Schedules: true, Tokens: true, Totals: true, Charts: true}
}
