// Package tracing traces messages with OpenTelemetry: one span when a message is sent, one for
// each attempt to handle it, and one for each settlement, all in the sender's trace. The
// message headers traceparent and tracestate carry the trace context, so that senders and
// receivers in any language can take part.
package tracing

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/posthaste-mq/posthaste"
)

// Attribute names: those of OpenTelemetry's messaging conventions, where they exist.
const (
	keySystem       = attribute.Key("messaging.system")
	keyQueue        = attribute.Key("messaging.destination.name")
	keySubscription = attribute.Key("messaging.destination.subscription.name")
	keyOperation    = attribute.Key("messaging.operation.name")
	keyType         = attribute.Key("messaging.operation.type")
	keyMessage      = attribute.Key("messaging.message.id")
	keyCount        = attribute.Key("messaging.batch.message_count")
	keyDelivery     = attribute.Key("posthaste.delivery.id")
	keyAttempt      = attribute.Key("posthaste.attempt")
	keyOutcome      = attribute.Key("posthaste.outcome")
	keyTwice        = attribute.Key("posthaste.possible_duplicate")
)

// Options of spans, created once.
var (
	produces = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindProducer)}
	consumes = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer)}
	begins   = append(consumes[:1:1], trace.WithNewRoot())
	serves   = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
)

var system = keySystem.String("posthaste")

// Tracing makes spans. It is a [posthaste.Tracing], safe for concurrent use.
type Tracing struct {
	tracer     trace.Tracer
	propagator propagation.TraceContext
	last       atomic.Pointer[carried]
	missed     atomic.Uint32 // how often last was not useful
}

var _ posthaste.Tracing = (*Tracing)(nil)

// New returns a Tracing that sends its spans to provider; nil means the global one of package
// go.opentelemetry.io/otel. The caller shuts the provider down after workers and servers have
// stopped.
func New(provider trace.TracerProvider) *Tracing {
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return &Tracing{tracer: provider.Tracer("github.com/posthaste-mq/posthaste/telemetry/tracing")}
}

// Sends is implemented by clients, engines and transactions.
type Sends interface {
	Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.Sent, error)
}

// Sender sends messages and traces them.
type Sender struct {
	tracing *Tracing
	by      Sends
}

// Sender returns a sender that traces the messages it sends by s, which may be a
// [posthaste.Client], an engine, or postgres.In(tx). It needs no closing.
func (t *Tracing) Sender(s Sends) Sender { return Sender{t, s} }

// Send sends by the underlying sender.
func (s Sender) Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.Sent, error) {
	ctx, messages, ended := s.tracing.Sending(ctx, messages)
	sent, err := s.by.Send(ctx, messages...)
	ended(sent, err)
	return sent, err
}

// Sending implements [posthaste.Tracing]. It starts one span for all messages that continue
// the same trace. If that trace is not sampled, it starts none, and the messages name the span
// that would have been the parent.
func (t *Tracing) Sending(ctx context.Context, messages []posthaste.Message) (context.Context, []posthaste.Message, func([]posthaste.Sent, error)) {
	if len(messages) == 0 {
		return ctx, messages, func([]posthaste.Sent, error) {}
	}
	// Most calls continue only the trace of ctx.
	first := &sending{from: messages[0].Headers[posthaste.HeaderTraceParent]}
	var others map[string]*sending
	of := func(m *posthaste.Message) *sending {
		if from := m.Headers[posthaste.HeaderTraceParent]; from != first.from {
			return others[from]
		}
		return first
	}
	for i := range messages {
		m := &messages[i]
		g := of(m)
		if g == nil {
			g = &sending{from: m.Headers[posthaste.HeaderTraceParent]}
			if others == nil {
				others = map[string]*sending{}
			}
			others[g.from] = g
		}
		if g.count++; g.count == 1 {
			g.queue, g.first = m.Queue, i
		} else if g.queue != m.Queue {
			g.queue = ""
		}
	}
	inner := first.start(ctx, t, messages)
	for _, g := range others {
		g.start(ctx, t, messages)
	}
	if others == nil {
		ctx = inner
	}
	ended := func(sent []posthaste.Sent, err error) {
		first.end(sent, err)
		for _, g := range others {
			g.end(sent, err)
		}
	}
	if others == nil && first.parent == "" {
		return ctx, messages, ended
	}
	marked := slices.Clone(messages)
	for i := range marked {
		m := &marked[i]
		m.Headers = of(m).mark(m.Headers)
	}
	return ctx, marked, ended
}

// sending holds the messages of one call that continue the same trace.
type sending struct {
	from         string     // traceparent of the messages, "" if none
	span         trace.Span // nil if the trace is not sampled
	queue        string     // "" if the messages go to several queues
	first, count int
	// parent and state are the headers that name the span. If parent is empty, the messages
	// keep the headers that they have.
	parent, state string
	// bare is the headers map of messages that had no headers. They share it, because headers
	// are not changed during sending.
	bare map[string]string
}

// start starts the span, if there is to be one, and returns a context with the messages' trace.
func (s *sending) start(ctx context.Context, t *Tracing, messages []posthaste.Message) context.Context {
	if s.from != "" {
		headers := messages[s.first].Headers
		if sc := unsampled(headers); sc.IsValid() {
			return trace.ContextWithSpanContext(ctx, sc)
		}
		ctx = t.propagator.Extract(ctx, propagation.MapCarrier(headers))
	}
	if span := trace.SpanFromContext(ctx); span.SpanContext().IsValid() && !followed(span) {
		s.name(span.SpanContext())
		return ctx
	}
	name := "send"
	if s.queue != "" {
		name += " " + s.queue
	}
	ctx, s.span = t.tracer.Start(ctx, name, produces...)
	s.name(s.span.SpanContext())
	if !s.span.IsRecording() {
		return ctx
	}
	s.span.SetAttributes(system, keyOperation.String("send"), keyType.String("send"))
	if s.queue != "" {
		s.span.SetAttributes(keyQueue.String(s.queue))
	}
	if s.count > 1 {
		s.span.SetAttributes(keyCount.Int(s.count))
	}
	return ctx
}

// name sets the headers that name a span, if the span is valid.
func (s *sending) name(sc trace.SpanContext) {
	if sc.IsValid() {
		s.parent, s.state = parentOf(sc), sc.TraceState().String()
	}
}

func (s *sending) end(sent []posthaste.Sent, err error) {
	if s.span == nil {
		return
	}
	if s.count == 1 && s.first < len(sent) && s.span.IsRecording() {
		s.span.SetAttributes(keyMessage.String(sent[s.first].ID.String()))
	}
	failed(s.span, err)
	s.span.End()
}

// followed reports whether a span is recorded or sampled.
func followed(span trace.Span) bool { return span.IsRecording() || span.SpanContext().IsSampled() }

// mark returns headers that name the messages' span. If they would exceed the size limit, the
// message is sent without them, because losing it would be worse than losing its trace.
func (s *sending) mark(headers map[string]string) map[string]string {
	if s.parent == "" {
		return headers
	}
	if len(headers) == 0 && s.bare != nil {
		return s.bare
	}
	marked := make(map[string]string, len(headers)+2)
	maps.Copy(marked, headers)
	delete(marked, posthaste.HeaderTraceState)
	marked[posthaste.HeaderTraceParent] = s.parent
	if s.state != "" {
		marked[posthaste.HeaderTraceState] = s.state
	}
	if !fits(marked) {
		delete(marked, posthaste.HeaderTraceState)
		if !fits(marked) {
			return headers
		}
	}
	if len(headers) == 0 {
		s.bare = marked
	}
	return marked
}

func fits(headers map[string]string) bool {
	bytes := 0
	for name, value := range headers {
		bytes += len(name) + len(value)
	}
	return bytes <= posthaste.MaxHeaderBytes
}

// Handling implements [posthaste.Tracing]. It starts one span for each delivery, in the trace
// of its message. A call with several deliveries has its own span, which links to theirs. The
// sender decides about sampling: if a message's headers say that its trace is not sampled,
// there is no span, whatever the provider's sampler would do, and the context continues that
// trace. With several such deliveries it continues the trace of the first.
func (t *Tracing) Handling(ctx context.Context, deliveries []posthaste.RawDelivery) (context.Context, []posthaste.Trace) {
	if len(deliveries) == 1 {
		inner, one := t.handling(ctx, &deliveries[0], nil)
		if one == nil {
			return inner, nil
		}
		return inner, []posthaste.Trace{one}
	}
	var all []posthaste.Trace
	var links []trace.Link
	together, first := &call{}, ctx
	for i := range deliveries {
		d := &deliveries[i]
		if i > 0 && unsampled(d.Headers).IsValid() {
			continue
		}
		inner, one := t.handling(ctx, d, together)
		if i == 0 {
			first = inner
		}
		if one == nil {
			continue
		}
		if all == nil {
			all = make([]posthaste.Trace, len(deliveries))
		}
		all[i], links = one, append(links, trace.LinkFromContext(inner))
	}
	if all == nil {
		return first, nil
	}
	together.left.Store(int32(len(links)))
	queue := deliveries[0].Queue
	ctx, together.span = t.tracer.Start(ctx, "process "+queue, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(links...),
		trace.WithAttributes(system, keyOperation.String("process"), keyType.String("process"), keyCount.Int(len(deliveries)),
			keyQueue.String(queue), keySubscription.String(deliveries[0].Subscription)))
	return ctx, all
}

// call is a handler's call with several deliveries. It ends with the last of its traced
// deliveries.
type call struct {
	span trace.Span
	left atomic.Int32
}

// handling is one delivery while its handler runs.
type handling struct {
	tracing *Tracing
	ctx     context.Context
	span    trace.Span
	queue   string
	call    *call
}

// handling returns the context for a delivery. The handling is nil if its span is neither
// recorded nor sampled.
func (t *Tracing) handling(ctx context.Context, d *posthaste.RawDelivery, together *call) (context.Context, *handling) {
	if inner, is := t.carry(ctx, d.Headers); is {
		return inner, nil
	}
	options := consumes
	parent := ctx
	if d.Headers[posthaste.HeaderTraceParent] != "" {
		parent = t.propagator.Extract(ctx, propagation.MapCarrier(d.Headers))
	}
	// The span of the worker itself is not the sender's.
	if !trace.SpanContextFromContext(parent).IsRemote() {
		options = begins
	}
	inner, span := t.tracer.Start(parent, "process "+d.Queue, options...)
	if !followed(span) {
		return inner, nil
	}
	if span.IsRecording() {
		span.SetAttributes(system, keyOperation.String("process"), keyType.String("process"),
			keyQueue.String(d.Queue), keySubscription.String(d.Subscription), keyMessage.String(d.MessageID.String()),
			keyDelivery.String(d.ID.String()), keyAttempt.Int(d.Attempt))
	}
	return inner, &handling{tracing: t, ctx: inner, span: span, queue: d.Queue, call: together}
}

// Handled implements [posthaste.Trace].
func (h *handling) Handled(err error) {
	if _, snoozed := posthaste.SnoozeDelay(err); !snoozed || posthaste.IsPermanent(err) {
		failed(h.span, err)
	}
	h.span.End()
	if h.call != nil && h.call.left.Add(-1) == 0 {
		h.call.span.End()
	}
}

// Settled implements [posthaste.Trace].
func (h *handling) Settled(began time.Time, became posthaste.Outcome, err error) {
	if !h.span.SpanContext().IsSampled() {
		return // the settlement would not be recorded either
	}
	_, span := h.tracing.tracer.Start(h.ctx, "settle "+h.queue, trace.WithTimestamp(began), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(system, keyOperation.String("settle"), keyType.String("settle"), keyQueue.String(h.queue)))
	settled(span, became, err)
	span.End()
}

// settled records the outcome of a delivery.
func settled(span trace.Span, became posthaste.Outcome, err error) {
	switch {
	case err != nil:
		failed(span, err)
	case became == "":
		span.SetAttributes(keyTwice.Bool(true))
		span.SetStatus(codes.Error, "delivery no longer held: the message may have been handled twice")
	default:
		span.SetAttributes(keyOutcome.String(string(became)))
	}
}

// Settling implements [posthaste.Tracing]. It starts a span in the trace of the headers,
// unless they have none or one that is not sampled.
func (t *Tracing) Settling(ctx context.Context, headers map[string]string, settlements []posthaste.Settlement) func([]posthaste.SettleResult, error) {
	unseen := func([]posthaste.SettleResult, error) {}
	if headers[posthaste.HeaderTraceParent] == "" || unsampled(headers).IsValid() {
		return unseen
	}
	parent := t.propagator.Extract(ctx, propagation.MapCarrier(headers))
	if !trace.SpanContextFromContext(parent).IsRemote() {
		return unseen
	}
	_, span := t.tracer.Start(parent, "settle", serves...)
	if !span.IsRecording() {
		span.End()
		return unseen
	}
	span.SetAttributes(system, keyOperation.String("settle"), keyType.String("settle"), keyCount.Int(len(settlements)))
	if len(settlements) == 1 {
		span.SetAttributes(keyDelivery.String(settlements[0].Delivery.String()))
	}
	return func(results []posthaste.SettleResult, err error) {
		defer span.End()
		if err != nil || len(results) == 1 {
			var became posthaste.Outcome
			if err == nil {
				became, err = results[0].Outcome, results[0].Err
			}
			settled(span, became, err)
			return
		}
		for _, r := range results {
			if !r.Settled {
				settled(span, "", r.Err)
				return
			}
		}
	}
}

// failed records err with a text that is never empty.
func failed(span trace.Span, err error) {
	if err == nil || !span.IsRecording() {
		return
	}
	text := err.Error()
	if text == "" {
		text = "error without a text"
	}
	span.RecordError(err)
	span.SetStatus(codes.Error, text)
}
