package cli

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/memory"
)

// JB2: a metric counts the messages of a kind that no running worker handles.
func TestJB2_MetricOfUnknownKinds(t *testing.T) {
	t.Parallel()
	engine, ctx := memory.Open(), t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(engine.CreateQueue(ctx, "q", posthaste.QueueOptions{}))
	_, err := engine.Send(ctx, posthaste.Message{Queue: "q", Kind: "sms", Payload: 1})
	must(err)
	ref := posthaste.QueueRef{Queue: "q", Subscription: posthaste.DefaultSubscription}
	register := func(kinds ...string) posthaste.WorkerID {
		w, err := engine.Register(ctx, posthaste.WorkerInfo{Name: "w", Lease: time.Minute, Kinds: map[posthaste.QueueRef][]string{ref: kinds}})
		must(err)
		return w
	}
	w := register("mail")
	reply, err := engine.Claim(ctx, posthaste.ClaimRequest{Worker: w, Number: 1, QueueRef: ref, Max: 1})
	must(err)
	_, err = engine.Settle(ctx, []posthaste.Settlement{{Delivery: reply.Deliveries[0].ID, Outcome: posthaste.OutcomeSetAside}})
	must(err)
	if got := asideMetrics(t, engine); got != "default kind=sms known=0 queue=q 1" {
		t.Errorf("the metric is %q", got)
	}
	register("sms")
	if got := asideMetrics(t, engine); got != "default kind=sms known=1 queue=q 1" {
		t.Errorf("with a worker for the kind the metric is %q", got)
	}
}

// asideMetrics returns the labels and values of the metric of messages that were set aside.
func asideMetrics(t *testing.T, engine posthaste.Store) (text string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(&storeMetrics{engine})
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		if family.GetName() != "posthaste_queue_set_aside" {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			text += fmt.Sprintf("%s kind=%s known=%s queue=%s %g", labels["subscription"], labels["kind"], labels["known"], labels["queue"], m.GetGauge().GetValue())
		}
	}
	return text
}
