package nats

import "github.com/posthaste-mq/posthaste"

// Capabilities implements [posthaste.Observer].
func (e *Engine) Capabilities() posthaste.Capabilities {
	return posthaste.Capabilities{Subscriptions: true, Ordered: true, AtMostOnce: true, SendApart: true, Idempotency: true, Attempts: true, Withdrawal: true, Schedules: true, Tokens: true}
}
