//go:build unix

package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/server"
	"github.com/posthaste-mq/posthaste/telemetry/tracing"
	"github.com/posthaste-mq/posthaste/worker"
)

// traces are the spans of one test.
type traces struct {
	*stage
	provider *sdk.TracerProvider
	spans    *tracetest.InMemoryExporter
	tracing  *tracing.Tracing
}

func newTraces(s *stage) *traces {
	spans := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	s.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	return &traces{s, provider, spans, tracing.New(provider)}
}

// work runs a worker that traces its messages.
func (tr *traces) work(register func(*worker.Worker)) {
	tr.Helper()
	w := worker.New(tr.open(), worker.Config{Tracing: tr.tracing, Logger: tr.log})
	register(w)
	tr.run(w)
}

// sender starts a span as a caller's program does.
func (tr *traces) sender() (context.Context, trace.Span) {
	return tr.provider.Tracer("test").Start(tr.ctx, "order placed")
}

// named returns the spans of one trace with a name, in the order of their starts.
func (tr *traces) named(of trace.TraceID, name string) (found []tracetest.SpanStub) {
	for _, span := range tr.spans.GetSpans() {
		if span.SpanContext.TraceID() == of && span.Name == name {
			found = append(found, span)
		}
	}
	slices.SortFunc(found, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	return found
}

func (tr *traces) only(of trace.TraceID, name string) tracetest.SpanStub {
	tr.Helper()
	found := tr.named(of, name)
	if len(found) != 1 {
		tr.Fatalf("%d spans %q in the trace, want 1: %v", len(found), name, tr.names(of))
	}
	return found[0]
}

func (tr *traces) names(of trace.TraceID) (names []string) {
	for _, span := range tr.spans.GetSpans() {
		if span.SpanContext.TraceID() == of {
			names = append(names, span.Name)
		}
	}
	return names
}

func (tr *traces) childOf(child tracetest.SpanStub, parent trace.SpanContext) {
	tr.Helper()
	if child.Parent.SpanID() != parent.SpanID() {
		tr.Errorf("span %q is a child of %s, and not of %s", child.Name, child.Parent.SpanID(), parent.SpanID())
	}
}

func says(span tracetest.SpanStub, key string) string {
	for _, a := range span.Attributes {
		if a.Key == attribute.Key(key) {
			return a.Value.String()
		}
	}
	return ""
}

// One trace leads from the sender's span through the queue to the handler's and to the
// settlement, with a transaction of the sender and with a client. A failed attempt and its
// retry are both in it.
func TestTR1_OneTraceInGo(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	tr := newTraces(s)
	s.failing()
	q := s.queue(impatient(3))
	tr.work(func(w *worker.Worker) {
		worker.HandleRaw(w, q, func(ctx context.Context, d posthaste.RawDelivery) error {
			_, span := tr.provider.Tracer("test").Start(ctx, "card charged")
			defer span.End()
			if d.Attempt == 1 {
				return errors.New("the bank is closed")
			}
			return nil
		})
	})
	byTx := func(ctx context.Context, m posthaste.Message) error {
		tx, err := s.conn().Begin(ctx)
		s.must(err)
		_, err = tr.tracing.Sender(postgres.In(tx)).Send(ctx, m)
		return errors.Join(err, tx.Commit(ctx))
	}
	byClient := func(ctx context.Context, m posthaste.Message) error {
		_, err := tr.tracing.Sender(s.client).Send(ctx, m)
		return err
	}
	ways := map[string]func(context.Context, posthaste.Message) error{"transaction": byTx, "client": byClient}
	if s.redis() {
		delete(ways, "transaction")
	}
	for name, send := range ways {
		ctx, begun := tr.sender()
		own := map[string]string{"lang": "en"}
		s.must(send(ctx, posthaste.Message{Queue: q, Payload: 1, Headers: own}))
		begun.End()
		id := begun.SpanContext().TraceID()
		s.until("the retry is settled", func() bool { return len(tr.named(id, "settle "+q)) == 2 })
		if len(own) != 1 {
			t.Errorf("%s: the sender's own headers were changed: %v", name, own)
		}
		sent := tr.only(id, "send "+q)
		tr.childOf(sent, begun.SpanContext())
		attempts, charges, settles := tr.named(id, "process "+q), tr.named(id, "card charged"), tr.named(id, "settle "+q)
		if len(attempts) != 2 || len(charges) != 2 {
			t.Fatalf("%s: the trace has %v", name, tr.names(id))
		}
		for i, outcome := range []string{"retried", "done"} {
			tr.childOf(attempts[i], sent.SpanContext)
			tr.childOf(charges[i], attempts[i].SpanContext)
			tr.childOf(settles[i], attempts[i].SpanContext)
			if says(attempts[i], "posthaste.attempt") != fmt.Sprint(i+1) || says(settles[i], "posthaste.outcome") != outcome {
				t.Errorf("%s: attempt %d says %v, its settle %v", name, i+1, attempts[i].Attributes, settles[i].Attributes)
			}
			if says(attempts[i], "messaging.message.id") == "" || says(attempts[i], "posthaste.delivery.id") == "" {
				t.Errorf("%s: attempt %d has no ids: %v", name, i+1, attempts[i].Attributes)
			}
		}
		if attempts[0].Status.Code != codes.Error || attempts[0].Status.Description != "the bank is closed" || attempts[1].Status.Code == codes.Error {
			t.Errorf("%s: the attempts ended as %v and %v", name, attempts[0].Status, attempts[1].Status)
		}
		if says(sent, "messaging.message.id") != says(attempts[0], "messaging.message.id") {
			t.Errorf("%s: sent and handled are not the same message", name)
		}
	}
}

// Messages of a lost worker are handled elsewhere in the same trace.
func TestTR1_OneTraceThroughARescue(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	tr := newTraces(s)
	q := s.queue(posthaste.QueueOptions{})
	ctx, begun := tr.sender()
	_, err := tr.tracing.Sender(s.client).Send(ctx, posthaste.Message{Queue: q, Payload: 1})
	s.must(err)
	begun.End()
	s.loseClaimed(q)
	tr.work(func(w *worker.Worker) { worker.HandleRaw(w, q, nothing) })
	id := begun.SpanContext().TraceID()
	s.until("it is settled elsewhere", func() bool { return len(tr.named(id, "settle "+q)) == 1 })
	again := tr.only(id, "process "+q)
	tr.childOf(again, tr.only(id, "send "+q).SpanContext)
	if says(again, "posthaste.attempt") != "2" {
		t.Errorf("the handler's span says %v", again.Attributes)
	}
}

// In a call with several messages, each is in its own sender's trace, and the call's span
// links to them all.
func TestTR1_BatchesKeepTheirTraces(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	tr := newTraces(s)
	s.failing()
	q := s.queue(impatient(1))
	var senders []trace.SpanContext
	for i := range 3 {
		ctx, begun := tr.sender()
		_, err := tr.tracing.Sender(s.client).Send(ctx, posthaste.Message{Queue: q, Payload: i})
		s.must(err)
		begun.End()
		senders = append(senders, begun.SpanContext())
	}
	var inside trace.SpanContext
	tr.work(func(w *worker.Worker) {
		worker.HandleBatch(w, q, func(ctx context.Context, batch []posthaste.Delivery[int]) []error {
			inside = trace.SpanContextFromContext(ctx)
			errs := make([]error, len(batch))
			errs[1] = errors.New("the second is bad")
			return errs
		}, worker.WithConcurrency(1))
	})
	var links []trace.SpanID
	for i, sender := range senders {
		id := sender.TraceID()
		s.until("each is settled", func() bool { return len(tr.named(id, "settle "+q)) == 1 })
		handled := tr.only(id, "process "+q)
		links = append(links, handled.SpanContext.SpanID())
		if bad := handled.Status.Code == codes.Error; bad != (i == 1) {
			t.Errorf("message %d ended as %v", i, handled.Status)
		}
	}
	call := tr.only(inside.TraceID(), "process "+q)
	var named []trace.SpanID
	for _, l := range call.Links {
		named = append(named, l.SpanContext.SpanID())
	}
	if !slices.Equal(named, links) || call.SpanContext.SpanID() != inside.SpanID() {
		t.Errorf("the call's span links to %v, want %v", named, links)
	}
}

// The same trace over HTTP: the sender's traceparent, the delivery's, and that of the settling
// request.
func TestTR1_OneTraceOverHTTP(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	tr := newTraces(s)
	q := s.queue(posthaste.QueueOptions{})
	traced := s.serve(s.engine, func(c *server.Config) { c.Tracing = tr.tracing })
	plain := s.serve(s.engine)
	parent := func(c trace.SpanContext) string { return fmt.Sprintf("00-%s-%s-01", c.TraceID(), c.SpanID()) }
	receive := func(api *api) (id, traceparent, state string) {
		t.Helper()
		var got []struct {
			ID      string            `json:"id"`
			Headers map[string]string `json:"headers"`
		}
		s.must(json.Unmarshal(api.want(200, "POST", "/v1/queues/"+q+"/receive", `{"wait":"20s"}`).entries(t), &got))
		if len(got) != 1 {
			t.Fatalf("received %d", len(got))
		}
		return got[0].ID, got[0].Headers["traceparent"], got[0].Headers["tracestate"]
	}
	_, begun := tr.sender()
	begun.End()
	id := begun.SpanContext().TraceID()
	for _, key := range []string{"", "once"} {
		headers := []string{"traceparent", parent(begun.SpanContext()), "tracestate", "shop=1"}
		if key != "" {
			headers = append(headers, "Idempotency-Key", key)
		}
		tr.spans.Reset()
		traced.want(201, "POST", "/v1/queues/"+q+"/messages", `{"payload": 1}`, headers...)
		sent := tr.only(id, "send "+q)
		tr.childOf(sent, begun.SpanContext())
		delivery, came, state := receive(traced)
		if came != parent(sent.SpanContext) || state != "shop=1" {
			t.Errorf("the delivery names %s (%s), want the span that sent it, %s", came, state, parent(sent.SpanContext))
		}
		// The receiver's own span, in whatever language.
		carried := trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: sent.SpanContext.SpanID(), Remote: true, TraceFlags: trace.FlagsSampled})
		_, handling := tr.provider.Tracer("test").Start(trace.ContextWithSpanContext(s.ctx, carried), "mail printed")
		traced.want(200, "POST", "/v1/deliveries/ack", `{"deliveries": [{"id": "`+delivery+`"}]}`, "traceparent", parent(handling.SpanContext()))
		handling.End()
		settle := tr.only(id, "settle")
		tr.childOf(settle, handling.SpanContext())
		if says(settle, "posthaste.outcome") != "done" || says(settle, "posthaste.delivery.id") != delivery {
			t.Errorf("the settle's span says %v", settle.Attributes)
		}
		traced.want(409, "POST", "/v1/deliveries/ack", `{"deliveries": [{"id": "`+delivery+`"}]}`, "traceparent", parent(handling.SpanContext()))
		if again := tr.named(id, "settle"); len(again) != 2 || again[1].Status.Code != codes.Error {
			t.Errorf("a settle that came too late shows as %v", again)
		}
	}
	// Without spans of its own, the server passes the context on. Invalid headers are dropped,
	// and the message's own headers take precedence.
	own := parent(begun.SpanContext())
	for _, c := range []struct{ body, header, want string }{
		{`{"payload": 1}`, own, own},
		{`{"payload": 1}`, "00-zz", ""},
		{`{"payload": 1, "headers": {"traceparent": "00-11111111111111111111111111111111-2222222222222222-01"}}`, own, "00-11111111111111111111111111111111-2222222222222222-01"},
	} {
		plain.want(201, "POST", "/v1/queues/"+q+"/messages", c.body, "traceparent", c.header)
		if delivery, came, _ := receive(plain); came != c.want {
			t.Errorf("%s with traceparent %s came with %q, want %q", c.body, c.header, came, c.want)
		} else {
			plain.want(200, "POST", "/v1/deliveries/ack", `{"deliveries": [{"id": "`+delivery+`"}]}`)
		}
	}
}
