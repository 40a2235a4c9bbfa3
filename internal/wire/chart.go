package wire

import (
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Stats are counts of handled messages of one step and group.
type Stats struct {
	At           time.Time `json:"at"`
	Queue        string    `json:"queue,omitempty"`
	Subscription string    `json:"subscription,omitempty"`
	Kind         string    `json:"kind,omitempty"`
	Version      string    `json:"version,omitempty"`
	Worker       string    `json:"worker,omitempty"`
	Done         int64     `json:"done"`
	Retried      int64     `json:"retried"`
	Failed       int64     `json:"failed"`
	Wait         Times     `json:"wait"`
	Run          Times     `json:"run"`
}

// Times are estimates of percentiles, and the counts that they are made of: bucket 0 counts
// durations below a millisecond, bucket i those from 2^(i-1) to 2^i ms. Buckets without counts at
// the end are left out.
type Times struct {
	P50     string  `json:"p50"`
	P95     string  `json:"p95"`
	P99     string  `json:"p99"`
	Buckets []int64 `json:"buckets"`
}

// NewStats converts counts of handled messages.
func NewStats(s posthaste.HandlerStats) Stats {
	return Stats{At: s.At, Queue: s.Queue, Subscription: s.Subscription, Kind: s.Kind, Version: s.Version, Worker: s.Worker,
		Done: s.Done, Retried: s.Retried, Failed: s.Failed, Wait: newTimes(&s.Wait), Run: newTimes(&s.Run)}
}

// Stored is the inverse of [NewStats].
func (s Stats) Stored() (posthaste.HandlerStats, error) {
	return posthaste.HandlerStats{At: s.At, Queue: s.Queue, Subscription: s.Subscription, Kind: s.Kind, Version: s.Version, Worker: s.Worker,
		Done: s.Done, Retried: s.Retried, Failed: s.Failed, Wait: s.Wait.histogram(), Run: s.Run.histogram()}, nil
}

func newTimes(h *posthaste.Histogram) Times {
	of := func(q float64) string { return h.Quantile(q).Round(time.Microsecond).String() }
	return Times{of(0.5), of(0.95), of(0.99), append([]int64{}, h.Counts()...)}
}

func (t Times) histogram() (h posthaste.Histogram) {
	copy(h[:], t.Buckets)
	return h
}

// Failure is a group of failed attempts.
type Failure struct {
	Queue        string              `json:"queue"`
	Subscription string              `json:"subscription"`
	Kind         string              `json:"kind,omitempty"`
	Version      string              `json:"version,omitempty"`
	Fingerprint  string              `json:"fingerprint"`
	Error        string              `json:"error"`
	Message      posthaste.MessageID `json:"message_id"`
	Count        int64               `json:"count"`
	First        time.Time           `json:"first_at"`
	Last         time.Time           `json:"last_at"`
}

// NewFailure converts a group of failed attempts.
func NewFailure(f posthaste.Failure) Failure {
	return Failure{f.Queue, f.Subscription, f.Kind, f.Version, f.Fingerprint, f.Error, f.Message, f.Count, f.First, f.Last}
}

// Stored is the inverse of [NewFailure].
func (f Failure) Stored() (posthaste.Failure, error) {
	return posthaste.Failure{Queue: f.Queue, Subscription: f.Subscription, Kind: f.Kind, Version: f.Version, First: f.First, Last: f.Last,
		ErrorCount: posthaste.ErrorCount{Fingerprint: f.Fingerprint, Error: f.Error, Message: f.Message, Count: f.Count}}, nil
}

// Sample has the figures of a subscription, or of several together, for one step.
type Sample struct {
	At           time.Time `json:"at"`
	Queue        string    `json:"queue,omitempty"`
	Subscription string    `json:"subscription,omitempty"`
	Sent         int64     `json:"sent"`
	Done         int64     `json:"done"`
	Retried      int64     `json:"retried"`
	Lost         int64     `json:"lost"`
	Expired      int64     `json:"expired"`
	// State is absent in sums of several subscriptions.
	*SampleState
}

// SampleState is the state of a subscription at a sample.
type SampleState struct {
	Depth     int64  `json:"depth"`
	InFlight  int64  `json:"in_flight"`
	Dead      int64  `json:"dead"`
	OldestAge string `json:"oldest_age"`
}

// NewSample converts a sample.
func NewSample(s posthaste.Sample) Sample {
	shown := Sample{At: s.At, Queue: s.Queue, Subscription: s.Subscription, Sent: s.Sent, Done: s.Done, Retried: s.Retried, Lost: s.Lost, Expired: s.Expired}
	if s.Subscription != "" {
		shown.SampleState = &SampleState{s.Depth, s.InFlight, s.Dead, s.OldestAge.Round(time.Millisecond).String()}
	}
	return shown
}

// Stored is the inverse of [NewSample].
func (s Sample) Stored() (posthaste.Sample, error) {
	stored := posthaste.Sample{At: s.At, Queue: s.Queue, Subscription: s.Subscription, Sent: s.Sent, Done: s.Done, Retried: s.Retried, Lost: s.Lost, Expired: s.Expired}
	if s.SampleState == nil {
		return stored, nil
	}
	var d durations
	stored.Depth, stored.InFlight, stored.Dead, stored.OldestAge = s.Depth, s.InFlight, s.Dead, d.read(s.OldestAge)
	return stored, d.err
}

// Charted is the answer of charts: all results, because their number is bounded by the steps.
type Charted[T any] struct {
	Data []T `json:"data"`
}
