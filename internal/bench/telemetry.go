package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/telemetry"
	"github.com/posthaste-mq/posthaste/telemetry/tracing"
)

// dropped is an exporter of traces that sends them nowhere.
type dropped struct{}

func (dropped) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (dropped) Shutdown(context.Context) error                             { return nil }

// seen is a queue whose traffic is followed in one way.
type seen struct {
	TelemetryVariant
	*traffic
	flow        cost // of all rounds
	flows, ones []lap
}

// lap is one stretch of a variant.
type lap struct{ perSecond, cpu float64 }

// telemetryCost is flow and single without telemetry, with metrics, and with
// metrics and traces, by turns in one run.
func telemetryCost(ctx context.Context, r *run) (err error) {
	url, err := r.server.database(ctx, "telemetry")
	if err != nil {
		return err
	}
	var all []*seen
	defer func() {
		for _, s := range all {
			err = errors.Join(err, s.stop())
		}
	}()
	r.begin()
	for i, name := range []string{"off", "metrics", "metrics, 1 % traced", "metrics, all traced"} {
		t, err := newTraffic(ctx, r, home{URL: url}, fmt.Sprint("seen-", i), posthaste.QueueOptions{})
		if err != nil {
			return err
		}
		s := &seen{TelemetryVariant: TelemetryVariant{Telemetry: name}, traffic: t, flow: cost{meter: r.server.meter}}
		all = append(all, s)
		if i > 0 {
			metrics := telemetry.NewPrometheus()
			if err := prometheus.NewRegistry().Register(metrics); err != nil {
				return err
			}
			t.telemetry = metrics
		}
		if share := []float64{0, 0, 0.01, 1}[i]; share > 0 {
			provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(dropped{}), sdktrace.WithSampler(sdktrace.TraceIDRatioBased(share)))
			defer func() { err = errors.Join(err, provider.Shutdown(context.WithoutCancel(ctx))) }()
			follows := tracing.New(provider)
			t.tracing, t.client = follows, follows.Sender(t.client)
		}
		if err := t.work(ctx); err != nil {
			return err
		}
		if err := r.warm(ctx, t); err != nil {
			return err
		}
	}
	complete := true
	const turns = 5
	slice := r.part((1 - float64(len(all))*warming) / float64(2*turns*len(all)))
	for turn := range turns {
		if turn > 0 && r.late() {
			break
		}
		for i := range all {
			s := all[(turn+i)%len(all)] // none is always first
			r.phase("flow, " + s.Telemetry)
			end := s.flow.span()
			own := cost{meter: r.server.meter}
			ownEnd := own.span()
			did, err := s.batches(ctx, slice, r.o.Batch, outstanding(r.o.Batch), true)
			ownEnd(did.messages)
			end(did.messages)
			if err != nil {
				return err
			}
			s.flows = append(s.flows, lap{rate(did.messages, did.whole), own.perMessage()})
			complete = complete && did.complete
			r.phase("single, " + s.Telemetry)
			own = cost{meter: r.server.meter}
			ownEnd = own.span()
			did, err = s.singles(ctx, slice)
			ownEnd(did.messages)
			if err != nil {
				return err
			}
			s.ones = append(s.ones, lap{rate(did.messages, did.sending), own.perMessage()})
			complete = complete && did.complete
		}
	}
	result := &TelemetryResult{}
	for _, s := range all {
		s.audit(r, complete)
		s.Flow, s.Single = against(s.flows, all[0].flows), against(s.ones, all[0].ones)
		result.Variants = append(result.Variants, s.TelemetryVariant)
	}
	metrics := all[1]
	res := r.result
	res.TelemetryResult, res.Batch, res.Senders = result, r.o.Batch, r.o.Senders
	res.PerSecond, res.Ratio = known(metrics.Flow.PerSecond), known(metrics.Flow.Ratio)
	res.Messages = metrics.flow.messages
	res.ServerCPU, res.ClientCPU = metrics.flow.serverPerMessage(), metrics.flow.clientPerMessage()
	return nil
}

// against compares rounds with those of the same turns without telemetry.
func against(rounds, off []lap) TelemetryCost {
	var c TelemetryCost
	column := func(f func(i int) float64) float64 {
		values := make([]float64, len(rounds))
		for i := range rounds {
			values[i] = f(i)
		}
		return *known(median(values))
	}
	c.PerSecond = column(func(i int) float64 { return rounds[i].perSecond })
	c.CPU = column(func(i int) float64 { return rounds[i].cpu })
	c.Ratio = column(func(i int) float64 { return rounds[i].perSecond / off[i].perSecond })
	if c.CPU > 0 {
		c.CPURatio = known(column(func(i int) float64 { return rounds[i].cpu / off[i].cpu }))
	}
	return c
}

// perMessage is the CPU of server and client together in microseconds; 0 where
// that is out of reach.
func (c *cost) perMessage() float64 {
	server, client := c.serverPerMessage(), c.clientPerMessage()
	if server == nil || client == nil {
		return 0
	}
	return *server + *client
}
