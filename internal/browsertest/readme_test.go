package browsertest

import (
	"bytes"
	"context"
	"image/png"
	"math"
	"os"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/memory"
)

// pictures are the screenshots that the README shows, and pictureSize is their largest size.
var pictures = map[scheme]string{light: "docs/images/dashboard.png", dark: "docs/images/dashboard-dark.png"}

const pictureSize = 200_000

// showcase is a store with the figures of a busy shop on one evening.
type showcase struct{ posthaste.Store }

func (showcase) Queues(context.Context, ...string) ([]posthaste.QueueInfo, error) {
	queue := func(name string, s posthaste.SubscriptionInfo) posthaste.QueueInfo {
		s.Name = "default"
		return posthaste.QueueInfo{Name: name, Subscriptions: []posthaste.SubscriptionInfo{s}}
	}
	all := []posthaste.QueueInfo{
		queue("emails", posthaste.SubscriptionInfo{Depth: 14, OldestAge: 300 * time.Millisecond, InFlight: 8, Dead: 3, SentPerSecond: 42.3, DonePerSecond: 42.1}),
		queue("invoices", posthaste.SubscriptionInfo{Depth: 0, InFlight: 1, SentPerSecond: 3.2, DonePerSecond: 3.2}),
		queue("orders", posthaste.SubscriptionInfo{Depth: 27, OldestAge: 120 * time.Millisecond, InFlight: 19, SentPerSecond: 318.4, DonePerSecond: 317.9}),
		queue("search-index", posthaste.SubscriptionInfo{Depth: 12_840, OldestAge: 4*time.Minute + 12*time.Second, InFlight: 64, SentPerSecond: 96.5, DonePerSecond: 148.2}),
		queue("thumbnails", posthaste.SubscriptionInfo{Depth: 212, OldestAge: 9 * time.Second, InFlight: 32, SentPerSecond: 21.7, DonePerSecond: 22.4}),
		queue("webhooks", posthaste.SubscriptionInfo{Depth: 1_391, OldestAge: 18*time.Minute + 40*time.Second, InFlight: 0, Dead: 57, SentPerSecond: 1.2}),
	}
	all[2].PausedKeys = []string{"customer-1815"}
	all[5].PausedAt = time.Date(2026, 11, 26, 20, 12, 0, 0, time.UTC)
	return all, nil
}

func (showcase) Doctor(context.Context) ([]posthaste.Finding, error) {
	return []posthaste.Finding{
		{Check: "behind", Queue: "search-index", Subscription: "default", Message: `the oldest message that is ready for subscription "default" of queue "search-index" has waited for 4m12s`,
			Hint: "run a worker for it, or more of them; check whether its handlers fail or take long"},
		{Check: "behind", Queue: "webhooks", Subscription: "default", Message: `the oldest message that is ready for subscription "default" of queue "webhooks" has waited for 18m40s: the queue is paused`,
			Hint: "posthaste queue resume webhooks"},
	}, nil
}

func (showcase) Vitals(context.Context) (posthaste.Vitals, error) {
	return posthaste.Vitals{Workers: 6}, nil
}

// Samples are those of an hour with a peak, during which a third of the search index failed.
func (showcase) Samples(_ context.Context, q posthaste.SampleQuery) (all []posthaste.Sample, _ error) {
	for i, at := 0, q.From; at.Before(q.To); i, at = i+1, at.Add(q.Step) {
		sent := 430 + 130*math.Sin(float64(i)/9) + 25*math.Sin(float64(i)*1.7)
		failed := 2.0
		if i > 38 {
			failed = 9 * float64(i-38)
		}
		per := q.Step.Seconds()
		all = append(all, posthaste.Sample{At: at, Sent: int64(sent * per), Done: int64((sent - failed/3) * per), Retried: int64(failed * per)})
	}
	return all, nil
}

func (showcase) Failures(context.Context, posthaste.FailureQuery) ([]posthaste.Failure, error) {
	at := time.Now().Add(-21 * time.Minute)
	return []posthaste.Failure{{Queue: "search-index", Subscription: "default", Kind: "product", Version: "2026.48.1", First: at, Last: time.Now(),
		ErrorCount: posthaste.ErrorCount{Fingerprint: "HTTP … from the index: field … is not mapped", Message: 1, Count: 4_218}}}, nil
}

func (showcase) Workers(context.Context) ([]posthaste.WorkerStatus, error) {
	return []posthaste.WorkerStatus{{ID: 1, Name: "host", Version: "2026.48.1", StartedAt: time.Now().Add(-22 * time.Minute), HeartbeatAt: time.Now()}}, nil
}

// The screenshots in the README, one in dark mode, are of the dashboard, and small. `make
// screenshots` writes them.
func TestScreenshotOfTheReadme(t *testing.T) {
	t.Parallel()
	s := &shop{T: t, url: serve(t, showcase{memory.Open()})}
	readme, err := os.ReadFile("../../README.md")
	s.must(err)
	b := newTab(t)
	s.enter(b)
	for scheme, name := range pictures {
		b.look(screen{1280, 830}, scheme)
		b.leaves(func() { b.do(chromedp.Reload()) })
		b.sees("search-index", "12,840", "6")
		b.fits(wide, "the overview")
		picture := "../../" + name
		if *update {
			shot, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
			s.must(err)
			s.must(os.WriteFile(picture, shot, 0o600))
		}
		content, err := os.ReadFile(picture)
		s.must(err)
		size, err := png.DecodeConfig(bytes.NewReader(content))
		if err != nil || size.Width != 1280 || len(content) > pictureSize {
			t.Errorf("%s has %d bytes and is %d pixels wide (%v); write it with: make screenshots", picture, len(content), size.Width, err)
		}
		if !bytes.Contains(readme, []byte(`"`+name+`"`)) {
			t.Errorf("the README does not show %s", name)
		}
	}
}
