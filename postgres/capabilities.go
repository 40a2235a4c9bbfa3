package postgres

import "github.com/posthaste-mq/posthaste"

// Capabilities implements [posthaste.Observer].
func (e *Engine) Capabilities() posthaste.Capabilities {
	return posthaste.Capabilities{Subscriptions: true, MaxLag: true, Limits: true, Ordered: true, OrderedRuns: true, StopOnDead: true, PauseKinds: true, Exact: true, AtMostOnce: true, SendAcross: true, Idempotency: true,
		Attempts: true, Search: true, Withdrawal: true, Updates: true, Unique: true, Schedules: true, Tokens: true, SQL: true, Totals: true, Charts: true}
}
