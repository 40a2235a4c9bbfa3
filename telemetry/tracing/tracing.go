// Package tracing follows messages with OpenTelemetry: a span when a message is
// sent, one for each attempt to handle it, and one for each settling, all in
// the sender's trace. The trace context travels in the message's headers
// traceparent and tracestate, so that senders and receivers in any language
// take part.
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

// The names of attributes: OpenTelemetry's for messaging, where it has one.
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

// Options of spans, made once.
var (
	produces = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindProducer)}
	consumes = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer)}
	begins   = append(consumes[:1:1], trace.WithNewRoot())
)

var system = keySystem.String("posthaste")

// Tracing makes spans. It is a [posthaste.Tracing], safe for concurrent use.
type Tracing struct {
	tracer     trace.Tracer
	propagator propagation.TraceContext
}

var _ posthaste.Tracing = (*Tracing)(nil)

// New returns a Tracing whose spans go to provider; nil means the global one of
// package go.opentelemetry.io/otel. The caller shuts the provider down, after
// workers and servers have ended.
func New(provider trace.TracerProvider) *Tracing {
	if provider == nil {
		provider = otel.GetTracerProvider()
	}
	return &Tracing{tracer: provider.Tracer("github.com/posthaste-mq/posthaste/telemetry/tracing")}
}

// Sends is what sends messages: a client, an engine, a transaction.
type Sends interface {
	Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.MessageID, error)
}

// Sender sends by another one and follows what it sends.
type Sender struct {
	tracing *Tracing
	by      Sends
}

// Sender makes a sender that follows what it sends by s, which may be a
// [posthaste.Client], an engine, or postgres.In(tx). It holds nothing.
func (t *Tracing) Sender(s Sends) Sender { return Sender{t, s} }

// Send sends as the sender beneath does.
func (s Sender) Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.MessageID, error) {
	ctx, messages, ended := s.tracing.Sending(ctx, messages)
	ids, err := s.by.Send(ctx, messages...)
	ended(ids, err)
	return ids, err
}

// Sending implements [posthaste.Tracing]: one span for all messages that
// continue the same trace.
func (t *Tracing) Sending(ctx context.Context, messages []posthaste.Message) (context.Context, []posthaste.Message, func([]posthaste.MessageID, error)) {
	if len(messages) == 0 {
		return ctx, messages, func([]posthaste.MessageID, error) {}
	}
	marked := slices.Clone(messages)
	// Most calls continue one trace alone: that of ctx.
	first := &sending{from: messages[0].Headers[posthaste.HeaderTraceParent]}
	var others map[string]*sending
	of := func(m *posthaste.Message) *sending {
		if from := m.Headers[posthaste.HeaderTraceParent]; from != first.from {
			return others[from]
		}
		return first
	}
	for i := range marked {
		m := &marked[i]
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
	first.start(ctx, t, messages)
	for _, g := range others {
		g.start(ctx, t, messages)
	}
	for i := range marked {
		m := &marked[i]
		if g := of(m); len(m.Headers) > 0 {
			m.Headers = t.mark(g.ctx, m.Headers)
		} else {
			m.Headers = g.bare(t)
		}
	}
	if others == nil {
		ctx = first.ctx
	}
	return ctx, marked, func(ids []posthaste.MessageID, err error) {
		first.end(ids, err)
		for _, g := range others {
			g.end(ids, err)
		}
	}
}

// sending is the messages of one call that continue the same trace.
type sending struct {
	from         string // the traceparent they came with, "" if none
	ctx          context.Context
	span         trace.Span
	queue        string // "" if they go to several
	first, count int
	only         map[string]string // see bare
}

// bare is what marks messages that have no headers of their own. They share it,
// for nobody changes the headers of what is being sent.
func (s *sending) bare(t *Tracing) map[string]string {
	if s.only == nil {
		s.only = t.mark(s.ctx, nil)
	}
	return s.only
}

func (s *sending) start(ctx context.Context, t *Tracing, messages []posthaste.Message) {
	if s.from != "" {
		ctx = t.propagator.Extract(ctx, propagation.MapCarrier(messages[s.first].Headers))
	}
	name := "send"
	if s.queue != "" {
		name += " " + s.queue
	}
	s.ctx, s.span = t.tracer.Start(ctx, name, produces...)
	if !s.span.IsRecording() {
		return
	}
	s.span.SetAttributes(system, keyOperation.String("send"), keyType.String("send"))
	if s.queue != "" {
		s.span.SetAttributes(keyQueue.String(s.queue))
	}
	if s.count > 1 {
		s.span.SetAttributes(keyCount.Int(s.count))
	}
}

func (s *sending) end(ids []posthaste.MessageID, err error) {
	if s.count == 1 && s.first < len(ids) && s.span.IsRecording() {
		s.span.SetAttributes(keyMessage.String(ids[s.first].String()))
	}
	failed(s.span, err)
	s.span.End()
}

// mark returns headers that name ctx's span. Where they would not fit, the
// message goes without: it matters more than its trace.
func (t *Tracing) mark(ctx context.Context, headers map[string]string) map[string]string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return headers
	}
	marked := make(map[string]string, len(headers)+1)
	maps.Copy(marked, headers)
	delete(marked, posthaste.HeaderTraceState)
	t.propagator.Inject(ctx, propagation.MapCarrier(marked))
	if !fits(marked) {
		delete(marked, posthaste.HeaderTraceState)
		if !fits(marked) {
			return headers
		}
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

// Handling implements [posthaste.Tracing]: one span for each delivery, in the
// trace of its message. For several deliveries the call is a span of its own,
// which links to theirs.
func (t *Tracing) Handling(ctx context.Context, deliveries []posthaste.RawDelivery) (context.Context, []posthaste.Trace) {
	all := make([]posthaste.Trace, len(deliveries))
	if len(deliveries) == 1 {
		one, inner := t.handling(ctx, &deliveries[0], nil)
		all[0] = one
		return inner, all
	}
	links := make([]trace.Link, len(deliveries))
	together := &call{}
	together.left.Store(int32(len(deliveries)))
	for i := range deliveries {
		h, inner := t.handling(ctx, &deliveries[i], together)
		all[i], links[i] = h, trace.LinkFromContext(inner)
	}
	name := "process"
	attributes := []attribute.KeyValue{system, keyOperation.String("process"), keyType.String("process"), keyCount.Int(len(deliveries))}
	if len(deliveries) > 0 {
		name += " " + deliveries[0].Queue
		attributes = append(attributes, keyQueue.String(deliveries[0].Queue), keySubscription.String(deliveries[0].Subscription))
	}
	ctx, together.span = t.tracer.Start(ctx, name, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithLinks(links...), trace.WithAttributes(attributes...))
	return ctx, all
}

// call is a handler's call with several deliveries. It ends with the last.
type call struct {
	span trace.Span
	left atomic.Int32
}

// handling is one delivery on its way through a handler.
type handling struct {
	tracing *Tracing
	ctx     context.Context
	span    trace.Span
	queue   string
	call    *call
}

func (t *Tracing) handling(ctx context.Context, d *posthaste.RawDelivery, together *call) (*handling, context.Context) {
	options := consumes
	parent := ctx
	if d.Headers[posthaste.HeaderTraceParent] != "" {
		parent = t.propagator.Extract(ctx, propagation.MapCarrier(d.Headers))
	}
	// What the worker itself runs under is no sender of messages.
	if !trace.SpanContextFromContext(parent).IsRemote() {
		options = begins
	}
	inner, span := t.tracer.Start(parent, "process "+d.Queue, options...)
	if span.IsRecording() { // most are not, as a rule
		span.SetAttributes(system, keyOperation.String("process"), keyType.String("process"),
			keyQueue.String(d.Queue), keySubscription.String(d.Subscription), keyMessage.String(d.MessageID.String()),
			keyDelivery.String(d.ID.String()), keyAttempt.Int(d.Attempt))
	}
	return &handling{tracing: t, ctx: inner, span: span, queue: d.Queue, call: together}, inner
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
		return // its settling would not be either
	}
	_, span := h.tracing.tracer.Start(h.ctx, "settle "+h.queue, trace.WithTimestamp(began), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(system, keyOperation.String("settle"), keyType.String("settle"), keyQueue.String(h.queue)))
	settled(span, became, err)
	span.End()
}

// settled notes what a delivery became.
func settled(span trace.Span, became posthaste.Outcome, err error) {
	switch {
	case err != nil:
		failed(span, err)
	case became == "":
		span.SetAttributes(keyTwice.Bool(true))
		span.SetStatus(codes.Error, "no longer ours: the message may have been handled twice")
	default:
		span.SetAttributes(keyOutcome.String(string(became)))
	}
}

// Settling implements [posthaste.Tracing]: a span in the trace that headers
// name, none where they name none.
func (t *Tracing) Settling(ctx context.Context, headers map[string]string, settlements []posthaste.Settlement) func([]posthaste.SettleResult, error) {
	parent := t.propagator.Extract(ctx, propagation.MapCarrier(headers))
	if !trace.SpanContextFromContext(parent).IsRemote() {
		return func([]posthaste.SettleResult, error) {}
	}
	_, span := t.tracer.Start(parent, "settle", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(system, keyOperation.String("settle"), keyType.String("settle"), keyCount.Int(len(settlements))))
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

// failed notes err, whose text is never empty.
func failed(span trace.Span, err error) {
	if err == nil {
		return
	}
	text := err.Error()
	if text == "" {
		text = "an error without a text"
	}
	span.RecordError(err)
	span.SetStatus(codes.Error, text)
}
