package redis

import (
	"context"
	"slices"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/charts"
)

// chartReads is how many hashes one round trip reads.
const chartReads = 500

// readCharts reads hashes of minutes or hours of queues, which exist now, and passes each field of
// a subscription that exists to then. subscriptionOf returns the subscription of a field.
func (e *Engine) readCharts(ctx context.Context, what string, names []string, span charts.Span, then func(queue, field string, at time.Time, value string) error) error {
	all, err := e.registry.read(ctx)
	if err != nil {
		return err
	}
	type place struct {
		queue string
		unit  int64
	}
	var places []place
	for name := range all {
		if len(names) == 0 || slices.Contains(names, name) {
			for unit := range span.Units() {
				places = append(places, place{name, unit})
			}
		}
	}
	for some := range slices.Chunk(places, chartReads) {
		pipe := e.client.Pipeline()
		replies := make([]*goredis.MapStringStringCmd, len(some))
		for i, p := range some {
			replies[i] = pipe.HGetAll(ctx, e.keys.chart(p.queue, what, p.unit))
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return readError(err)
		}
		for i, p := range some {
			for field, value := range replies[i].Val() {
				if err := then(p.queue, field, charts.Begin(p.unit, span.Hours), value); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// exists returns whether a subscription of a known queue exists.
func (r *registry) exists(name, subscription string) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	q := r.byName[name]
	return q != nil && q.named(subscription) != nil
}

func only(queue string) (names []string) {
	if queue != "" {
		names = []string{queue}
	}
	return names
}

func ofSpan(span charts.Span, minutes, hours string) string {
	if span.Hours {
		return hours
	}
	return minutes
}

// HandlerStats implements [posthaste.Charts].
func (e *Engine) HandlerStats(ctx context.Context, query posthaste.StatsQuery) ([]posthaste.HandlerStats, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	now, err := e.client.Time(ctx).Result()
	if err != nil {
		return nil, readError(err)
	}
	span := charts.StatsSpan(query, now)
	sums := charts.NewStats(query, span)
	err = e.readCharts(ctx, ofSpan(span, statsOfMinute, statsOfHour), only(query.Queue), span, func(queue, field string, at time.Time, value string) error {
		var is []string
		if err := unpack(field, &is); err != nil || len(is) != 4 {
			return unexpected("whose counts these are", field)
		}
		var counts []int64
		if err := unpack(value, &counts); err != nil {
			return err
		}
		h := posthaste.HandlerStats{At: at, Queue: queue, Subscription: is[0], Kind: is[1], Version: is[2], Worker: is[3]}
		if e.registry.exists(queue, is[0]) {
			addCounts(&h, counts)
			sums.Add(&h)
		}
		return nil
	})
	return sums.All(), err
}

// Failures implements [posthaste.Charts]. It reads all hours that are kept, to tell when an error
// came first.
func (e *Engine) Failures(ctx context.Context, query posthaste.FailureQuery) ([]posthaste.Failure, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	now, err := e.client.Time(ctx).Result()
	if err != nil {
		return nil, readError(err)
	}
	span, sums := charts.FailureSpan(query, now), charts.NewFailures(query)
	if !span.Hours {
		if err := e.readFailures(ctx, errorsOfMinute, query.Queue, span, sums, func(time.Time) bool { return true }); err != nil {
			return nil, err
		}
	}
	err = e.readFailures(ctx, errorsOfHour, query.Queue, charts.KeptHours(now), sums, func(at time.Time) bool { return span.Hours && !at.Before(span.From) })
	return sums.All(), err
}

// readFailures adds the errors of minutes or hours to sums. counts says whether those of the one
// that begins at a time count.
func (e *Engine) readFailures(ctx context.Context, what, queue string, span charts.Span, sums *charts.Failures, counts func(time.Time) bool) error {
	return e.readCharts(ctx, what, only(queue), span, func(queue, field string, begin time.Time, value string) error {
		var is []string
		if err := unpack(field, &is); err != nil || len(is) != 3 {
			return unexpected("whose errors these are", field)
		}
		var all []reportedError
		if err := unpack(value, &all); err != nil {
			return err
		}
		if !e.registry.exists(queue, is[0]) {
			return nil
		}
		if span.Hours { // while the hour lasts, further ones are kept, which may become frequent
			all = charts.MostFrequent(all, func(r reportedError) int64 { return r.Count })
		}
		for _, r := range all {
			message, err := strconv.ParseInt(r.Message, 10, 64)
			if err != nil {
				return unexpected("the message of an error", r.Message)
			}
			sums.Add(&posthaste.Failure{Queue: queue, Subscription: is[0], Kind: is[1], Version: is[2], First: at(r.First), Last: at(r.Last),
				ErrorCount: posthaste.ErrorCount{Fingerprint: r.Fingerprint, Error: r.Text, Message: posthaste.MessageID(message), Count: r.Count}}, counts(begin))
		}
		return nil
	})
}

// Samples implements [posthaste.Charts].
func (e *Engine) Samples(ctx context.Context, query posthaste.SampleQuery) ([]posthaste.Sample, error) {
	if err := query.Check(); err != nil {
		return nil, err
	}
	now, err := e.client.Time(ctx).Result()
	if err != nil {
		return nil, readError(err)
	}
	span := charts.SampleSpan(query, now)
	sums := charts.NewSamples(query, span)
	err = e.readCharts(ctx, ofSpan(span, samplesOfMinute, samplesOfHour), query.Queues, span, func(queue, subscription string, at time.Time, value string) error {
		var n []int64
		if err := unpack(value, &n); err != nil || len(n) != 9 {
			return unexpected("a sample", value)
		}
		if e.registry.exists(queue, subscription) {
			sums.Add(posthaste.Sample{At: at, Queue: queue, Subscription: subscription, Sent: n[0], Done: n[1], Retried: n[2], Lost: n[3], Expired: n[4],
				Depth: n[5], InFlight: n[6], Dead: n[7], OldestAge: fromMicros(n[8])})
		}
		return nil
	})
	return sums.All(), err
}
