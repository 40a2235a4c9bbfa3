package browsertest

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/catcher"
)

// words are what senders, handlers and operators of a shop write.
type words struct {
	kind, key, reference, term, header, payload, err, worker, actor, recipient, subject string
}

var plain = words{
	kind: "order.paid", key: "customer-4711", reference: "order-10042", term: "invoice-2026-114", header: "checkout",
	payload: `{"order": 10042, "total_cents": 9007199254740993, "customer": {"name": "Ada Lovelace", "email": "ada@example.com"}, "lines": [{"sku": "TEA-500", "count": 2}, {"sku": "CUP-1", "count": 1}]}`,
	err:     "dial tcp 10.0.0.7:5432: connection refused", worker: "shop-1/312", actor: "http:grace", recipient: "ada@example.com", subject: "Your order 10042",
}

// filled are messages of a shop after fill.
type filled struct{ done, dead, retrying, scheduled, ready, mail posthaste.MessageID }

// fill adds something to each page: messages in all states, a queue with keys and a subscription,
// a failed mail, schedules, workers, tokens and operators' actions.
func (s *shop) fill(w words) (f filled) {
	s.Helper()
	ctx := posthaste.WithActor(s.Context(), w.actor)
	s.must(s.engine.CreateQueue(ctx, "orders", posthaste.QueueOptions{Fair: true, MaxAttempts: 4, Owner: "checkout", Limits: posthaste.QueueLimits{KeyConcurrency: 2}}))
	s.must(s.engine.CreateQueue(ctx, "webhooks", posthaste.QueueOptions{}))
	s.must(s.engine.Subscribe(ctx, "orders", "audit", posthaste.SubscriptionOptions{Filter: posthaste.Filter{Kinds: []string{w.kind}}}))
	order := func(key string, delay time.Duration) posthaste.Message {
		return posthaste.Message{Queue: "orders", Kind: w.kind, Key: key, Reference: w.reference, Terms: []string{w.term}, Headers: map[string]string{"source": w.header},
			Payload: json.RawMessage(w.payload), Delay: delay}
	}
	ids := s.send(order(w.key, 0), order(w.key, 0), order("customer-1815", 0))
	f.done, f.dead, f.retrying = ids[0], ids[1], ids[2]
	s.settle("orders", map[posthaste.MessageID]posthaste.Settlement{
		f.done: {Outcome: posthaste.OutcomeDone, Receipt: []byte(`{"invoice": 5001}`)}, f.dead: {Outcome: posthaste.OutcomeDead, Error: w.err},
		f.retrying: {Outcome: posthaste.OutcomeRetried, Error: w.err, RetryAfter: time.Hour}})
	ids = s.send(order(w.key, time.Hour), order(strings.Repeat("W", posthaste.MaxWordBytes), 0))
	f.scheduled, f.ready = ids[0], ids[1]

	s.must(s.engine.Pause(ctx, posthaste.OfQueue("webhooks"), posthaste.PauseOptions{}))
	s.must(s.engine.Pause(ctx, posthaste.OfKey{Queue: "orders", Key: w.key}, posthaste.PauseOptions{}))
	for _, schedule := range []posthaste.Schedule{
		{Name: "nightly-report", Spec: "0 3 * * *", TimeZone: "Europe/Berlin", Message: posthaste.Message{Queue: "orders", Kind: w.kind, Key: w.key}},
		{Name: "cleanup", Spec: "every 90 seconds", Message: posthaste.Message{Queue: "webhooks"}}} {
		_, err := s.engine.PutSchedule(ctx, schedule)
		s.must(err)
	}
	s.must(s.engine.Pause(ctx, posthaste.OfSchedule("cleanup"), posthaste.PauseOptions{}))
	_, err := s.engine.Register(ctx, posthaste.WorkerInfo{Name: w.worker, Version: "2026.11.1", Lease: time.Hour})
	s.must(err)
	_, err = s.engine.CreateToken(ctx, posthaste.Token{Name: "grace", Scopes: []posthaste.Scope{posthaste.ScopeOperate, posthaste.ScopeReadPayload}, ExpiresIn: 90 * 24 * time.Hour})
	s.must(err)
	s.mails.Inject(catcher.Fault{Stage: catcher.StageRcpt, Recipient: w.recipient, Times: -1, Code: 550, Text: "5.1.1 " + w.err})
	f.mail = s.mail(w.recipient, w.subject, w.reference)
	s.comes(f.mail, posthaste.StateDead)
	return f
}

// settle receives the messages of a queue and settles them.
func (s *shop) settle(queue string, as map[posthaste.MessageID]posthaste.Settlement) {
	s.Helper()
	for left := len(as); left > 0; {
		got, err := s.engine.Receive(s.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: queue}, Max: left, Lease: time.Minute})
		s.must(err)
		var all []posthaste.Settlement
		for _, d := range got.Deliveries {
			settlement := as[d.MessageID]
			settlement.Delivery = d.ID
			all = append(all, settlement)
		}
		_, err = s.engine.Settle(s.Context(), all)
		s.must(err)
		left -= len(all)
	}
}
