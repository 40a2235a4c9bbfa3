package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/telemetry"
	"github.com/posthaste-mq/posthaste/telemetry/tracing"
)

// dropped is an exporter that drops traces.
type dropped struct{}

func (dropped) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (dropped) Shutdown(context.Context) error                             { return nil }

// seen is a queue and the telemetry of its traffic.
type seen struct {
	TelemetryVariant
	*traffic
	shutdown    func(context.Context) error // of its traces; nil without
	flow        cost                        // of all rounds
	flows, ones []lap
}

// lap is one stretch of a variant.
type lap struct{ perSecond, cpu float64 }

// telemetryVariants are the variants in order. traced is the share of traced messages.
var telemetryVariants = []struct {
	name    string
	metrics bool
	traced  float64
}{{"off", false, 0}, {"metrics", true, 0}, {"metrics, 1 % traced", true, 0.01}, {"metrics, all traced", true, 1}}

// telemetryCost is flow and single without telemetry, with metrics, and with metrics and
// traces, by turns.
func telemetryCost(ctx context.Context, r *run) (err error) {
	url, err := r.server.database(ctx, "telemetry")
	if err != nil {
		return err
	}
	var all []*seen
	defer func() {
		for _, s := range all {
			err = errors.Join(err, s.end(ctx))
		}
	}()
	r.begin()
	for i := range telemetryVariants {
		t, err := newTraffic(ctx, r, home{URL: url}, fmt.Sprint("seen-", i), posthaste.QueueOptions{})
		if err != nil {
			return err
		}
		s := &seen{traffic: t, flow: cost{meter: r.server.meter}}
		all = append(all, s)
		if err := s.start(ctx, i); err != nil {
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
			s := all[(turn+i)%len(all)] // each is first at some time
			settled, err := s.measure(ctx, slice)
			if err != nil {
				return err
			}
			complete = complete && settled
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
	metrics.flow.into(res)
	return nil
}

// start sets the telemetry of a variant, and starts and warms up the worker.
func (s *seen) start(ctx context.Context, variant int) error {
	v := telemetryVariants[variant]
	s.Telemetry = v.name
	if v.metrics {
		metrics := telemetry.NewPrometheus()
		if err := prometheus.NewRegistry().Register(metrics); err != nil {
			return err
		}
		s.telemetry = metrics
	}
	if v.traced > 0 {
		provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(dropped{}), sdktrace.WithSampler(sdktrace.TraceIDRatioBased(v.traced)))
		s.shutdown = provider.Shutdown
		follows := tracing.New(provider)
		s.tracing, s.client = follows, follows.Sender(s.client)
	}
	if err := s.work(ctx); err != nil {
		return err
	}
	return s.warm(ctx)
}

// end stops the worker and the traces.
func (s *seen) end(ctx context.Context) error {
	err := s.stop()
	if s.shutdown != nil {
		err = errors.Join(err, s.shutdown(context.WithoutCancel(ctx)))
	}
	return err
}

// measure measures one lap of flow and one of single. It reports whether all messages were
// settled in time.
func (s *seen) measure(ctx context.Context, during time.Duration) (complete bool, err error) {
	r := s.run
	r.phase("flow, " + s.Telemetry)
	end := s.flow.span()
	own := cost{meter: r.server.meter}
	ownEnd := own.span()
	did, err := s.batches(ctx, during, r.o.Batch, outstanding(r.o.Batch), true)
	ownEnd(did.messages)
	end(did.messages)
	if err != nil {
		return false, err
	}
	s.flows = append(s.flows, lap{rate(did.messages, did.whole), own.perMessage()})
	complete = did.complete
	r.phase("single, " + s.Telemetry)
	own = cost{meter: r.server.meter}
	ownEnd = own.span()
	did, err = s.singles(ctx, during)
	ownEnd(did.messages)
	if err != nil {
		return false, err
	}
	s.ones = append(s.ones, lap{rate(did.messages, did.sending), own.perMessage()})
	return complete && did.complete, nil
}

// against compares laps with those of the same turns without telemetry.
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
