package dashboard

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// span is a time that charts can show.
type span struct {
	Name, Title  string
	length, step time.Duration
	// age is how old the figures may be.
	age time.Duration
}

// spans are the times to choose from, the default first.
var spans = []span{
	{"1h", "Last hour", time.Hour, time.Minute, 10 * time.Second},
	{"24h", "Last 24 hours", 24 * time.Hour, time.Hour, time.Minute},
	{"30d", "Last 30 days", 30 * 24 * time.Hour, 6 * time.Hour, 5 * time.Minute},
}

// span returns the time that the viewer has chosen.
func (p *page) span() span {
	for _, s := range spans {
		if s.Name == p.text("range") {
			return s
		}
	}
	return spans[0]
}

// bounds returns the begin of the first step and the end of the last one. Of hours the present one
// counts, although it is not over.
func (s span) bounds(now time.Time) (from, to time.Time) {
	to = now.UTC().Truncate(s.step)
	if s.step >= time.Hour {
		to = to.Add(s.step) // the present hour is worth showing
	}
	return to.Add(-s.length), to
}

// figures caches what charts show, for all viewers.
type figures struct {
	engine  posthaste.Store
	timeout time.Duration
	now     func() time.Time

	mu   sync.Mutex
	kept map[string]*figure
}

func newFigures(engine posthaste.Store, timeout time.Duration) *figures {
	return &figures{engine: engine, timeout: timeout, now: time.Now, kept: map[string]*figure{}}
}

// figure is one answer of the store.
type figure struct {
	once  sync.Once
	until time.Time
	value any
	err   error
}

// maxFigures bounds the answers that are kept.
const maxFigures = 500

// figureOf returns what read returns, or an earlier answer for the same key that is not older than
// age. Viewers who ask at the same time share one call of read. It does not use the context of a
// viewer, because others wait for it, too.
func figureOf[T any](f *figures, key string, age time.Duration, read func(ctx context.Context, now time.Time) (T, error)) (T, error) {
	now := f.now()
	f.mu.Lock()
	kept := f.kept[key]
	if kept == nil || now.After(kept.until) {
		if len(f.kept) >= maxFigures {
			f.drop(now)
		}
		kept = &figure{until: now.Add(age)}
		f.kept[key] = kept
	}
	f.mu.Unlock()
	kept.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), f.timeout)
		defer cancel()
		kept.value, kept.err = read(ctx, now)
	})
	value, _ := kept.value.(T)
	if kept.err != nil {
		f.mu.Lock()
		if f.kept[key] == kept {
			delete(f.kept, key) // the next viewer tries again
		}
		f.mu.Unlock()
	}
	return value, kept.err
}

// drop removes the answers that are too old, and if there are none, all. The caller holds mu.
func (f *figures) drop(now time.Time) {
	for key, kept := range f.kept {
		if now.After(kept.until) {
			delete(f.kept, key)
		}
	}
	if len(f.kept) >= maxFigures {
		clear(f.kept)
	}
}

// rates are messages per second, one value for each step.
type rates struct{ sent, done, failed []float64 }

// ratesOf sums up samples of the steps between from and to. A queue with several
// subscriptions sends each message once, and so the highest count of its subscriptions counts.
func ratesOf(samples []posthaste.Sample, from, to, now time.Time, step time.Duration) rates {
	n := int(to.Sub(from) / step)
	r := rates{make([]float64, n), make([]float64, n), make([]float64, n)}
	for _, s := range samples {
		i := int(s.At.Sub(from) / step)
		if s.At.Before(from) || i >= n {
			continue
		}
		r.sent[i] = max(r.sent[i], float64(s.Sent))
		r.done[i] += float64(s.Done)
		r.failed[i] += float64(s.Retried + s.Lost)
	}
	for i := range n {
		seconds := min(step, now.Sub(from.Add(time.Duration(i)*step))).Seconds() // the last step may not be over
		seconds = max(seconds, 1)
		r.sent[i], r.done[i], r.failed[i] = r.sent[i]/seconds, r.done[i]/seconds, r.failed[i]/seconds
	}
	return r
}

// depthsOf returns the number of waiting messages at the end of each step. Before the first sample
// of a subscription it is unknown, and later it is that of the sample before.
func depthsOf(samples []posthaste.Sample, from, to time.Time, step time.Duration) []float64 {
	n := int(to.Sub(from) / step)
	bySubscription := map[string][]float64{}
	for _, s := range samples {
		i := int(s.At.Sub(from) / step)
		if s.At.Before(from) || i >= n {
			continue
		}
		of := bySubscription[s.Subscription]
		if of == nil {
			of = make([]float64, n)
			for j := range of {
				of[j] = math.NaN()
			}
			bySubscription[s.Subscription] = of
		}
		of[i] = float64(s.Depth)
	}
	sum := make([]float64, n)
	for i := range sum {
		sum[i] = math.NaN()
	}
	for _, of := range bySubscription {
		last := math.NaN()
		for i, v := range of {
			if !math.IsNaN(v) {
				last = v
			}
			switch {
			case math.IsNaN(last):
			case math.IsNaN(sum[i]):
				sum[i] = last
			default:
				sum[i] += last
			}
		}
	}
	return sum
}
