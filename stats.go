package posthaste

import (
	"context"
	"math/bits"
	"slices"
	"time"
)

const (
	// StatsInterval is the interval at which workers report their counts.
	StatsInterval = 15 * time.Second
	// SampleInterval is the interval at which upkeep takes samples of the queues.
	SampleInterval = time.Minute
	// ChartDetail is how long reports and samples are kept at least as they were taken.
	ChartDetail = 2 * time.Hour
	// ChartHours is how long their sums by hour are kept at least.
	ChartHours = 30 * 24 * time.Hour
	// MaxStatsKinds is the maximum number of kinds that one process counts by themselves, in all
	// its subscriptions together. Further kinds count as [OtherKinds].
	MaxStatsKinds = 200
	// OtherKinds stands for the kinds above MaxStatsKinds.
	OtherKinds = "(other kinds)"
	// MaxReportErrors is the maximum number of errors of one kind in a report, and in the sum of
	// an hour: the most frequent ones.
	MaxReportErrors = 5
)

// Charts returns statistics over time: the reports of workers ([Engine].Report), and the samples
// of queues that upkeep takes. They can be incomplete: after a crash or an error, a report can be
// missing. An engine without [Capabilities].Charts stores
// nothing, and returns nothing. Times are the store's.
//
// Reports and samples are kept as they were taken for [ChartDetail], and summed up by hours for
// [ChartHours]. A query whose Step is below an hour reads the details, and any other
// query the hours. Hours include the present one, and begin at full hours of UTC.
//
// Queries select by names; a name that does not exist selects nothing. They return figures of
// queues and subscriptions that exist now.
type Charts interface {
	// HandlerStats sums up reports: one result for each step, and each group of query.By in it.
	// They are ordered by time. There are none for steps without messages.
	HandlerStats(ctx context.Context, query StatsQuery) ([]HandlerStats, error)
	// Failures groups failed attempts by subscription, kind, version of the program and
	// fingerprint of the error, most frequent first.
	Failures(ctx context.Context, query FailureQuery) ([]Failure, error)
	// Samples returns samples of subscriptions, one for each step, ordered by time. There is
	// none for a step in which the subscription did not change. Upkeep ([UpkeepSpace]) takes a
	// sample when none was taken for [SampleInterval], and the first upkeep of a store at once.
	Samples(ctx context.Context, query SampleQuery) ([]Sample, error)
}

// HandlerStats are counts of handled messages.
type HandlerStats struct {
	// At is the begin of the step. A report leaves it empty.
	At time.Time
	// Queue and Subscription are empty if a query sums up without ByQueue, Kind without ByKind.
	// In a report an empty Subscription is [DefaultSubscription].
	Queue, Subscription, Kind string
	// Version and Worker are those of the process: set by the store, in a query with ByVersion or
	// ByWorker.
	Version, Worker string
	// Done, Retried and Failed count attempts that succeeded, that will be repeated, and that
	// were the last (a dead letter, or a failure in an at-most-once queue).
	Done, Retried, Failed int64
	// Wait is the time from when the message was due to the start of the handler, and Run the
	// duration of the handler. With clocks that differ between the store and the worker,
	// Wait is wrong by that difference.
	Wait, Run Histogram
	// Errors are the most frequent errors in a report, at most MaxReportErrors. Queries do not
	// set them (see Charts.Failures).
	Errors []ErrorCount
}

// ErrorCount counts errors of one fingerprint.
type ErrorCount struct {
	// Fingerprint is the error without the parts that differ between alike errors, such as
	// numbers, ids and quoted text.
	Fingerprint string
	// Error is the text of one of them, shortened, and Message the message it was of.
	Error   string
	Message MessageID
	Count   int64
}

// StatsBy selects how counts are grouped, besides steps.
type StatsBy uint8

// Properties by which counts can be grouped.
const (
	ByQueue StatsBy = 1 << iota // by queue and subscription
	ByKind
	ByVersion
	ByWorker
)

// statsNames are the names of the bits of StatsBy, in order.
var statsNames = [...]string{"queue", "kind", "version", "worker"}

// Names returns the names of the groupings, as all interfaces spell them.
func (b StatsBy) Names() []string {
	names := []string{}
	for i, name := range statsNames {
		if b&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// StatsByName is the inverse of [StatsBy.Names] for one name. known is false for any other text.
func StatsByName(name string) (by StatsBy, known bool) {
	if i := slices.Index(statsNames[:], name); i >= 0 {
		return 1 << i, true
	}
	return 0, false
}

// StatsQuery selects and groups counts of handled messages.
type StatsQuery struct {
	// Queue, Subscription and Kind select; empty selects all.
	Queue, Subscription, Kind string
	// From and To bound the time (default of To: now; of From: an hour before). From is rounded
	// down to a full step, and To excluded.
	From, To time.Time
	// Step is the length of a step, of whole minutes below an hour, or of whole hours. Steps
	// begin at multiples of it since 1970 in UTC. Zero means one step for the whole time, which
	// begins at From: it reads details if From is not longer ago than ChartDetail, and rounds
	// From down to a minute; otherwise hours.
	Step time.Duration
	By   StatsBy
}

// FailureQuery selects failed attempts.
type FailureQuery struct {
	Queue, Subscription, Kind string
	// From is the time from which on errors count (default: an hour ago). It is rounded down to
	// a full hour if it is longer ago than ChartDetail.
	From time.Time
	// Limit is the maximum number of results, at most 1,000; 0 means 100.
	Limit int
}

// Failure is a group of failed attempts.
type Failure struct {
	Queue, Subscription, Kind, Version string
	ErrorCount
	// First and Last are the times of the first report with the error that is kept, which may be
	// before FailureQuery.From, and of the last one.
	First, Last time.Time
}

// SampleQuery selects samples.
type SampleQuery struct {
	// Queues selects queues; none selects all.
	Queues []string
	// Total asks for the sum of the selected subscriptions. Its samples have only At, Sent,
	// Done, Retried, Lost and Expired.
	Total bool
	// From and To bound the time (default of To: now; of From: an hour before).
	From, To time.Time
	// Step is as in [StatsQuery], but zero means a minute.
	Step time.Duration
}

// Sample has the figures of a subscription for one step.
type Sample struct {
	// At is the begin of the step.
	At                  time.Time
	Queue, Subscription string
	// Sent, Done, Retried, Lost and Expired count messages of the step. With a filter, Sent may
	// include messages that it leaves out.
	Sent, Done, Retried, Lost, Expired int64
	// Depth, InFlight and Dead are as in [SubscriptionInfo], at the last sample of the step.
	Depth, InFlight, Dead int64
	// OldestAge is as in SubscriptionInfo, at the last sample of the step.
	OldestAge time.Duration
}

// HistogramBuckets is the number of buckets of a [Histogram].
const HistogramBuckets = 32

// Histogram counts durations in buckets, each twice as wide as the one before: bucket 0 has those
// below a millisecond, bucket i those from 2^(i-1) to 2^i ms, and the last one all above.
type Histogram [HistogramBuckets]int64

// Add counts a duration. A negative one counts as zero.
func (h *Histogram) Add(d time.Duration) { h[bucketOf(d)]++ }

func bucketOf(d time.Duration) int {
	return min(bits.Len64(uint64(max(d, 0)/time.Millisecond)), HistogramBuckets-1)
}

// Merge adds the counts of another histogram.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other {
		h[i] += n
	}
}

// Count returns the number of durations.
func (h *Histogram) Count() (n int64) {
	for _, of := range h {
		n += of
	}
	return n
}

// Counts returns the counts without the zeros at the end. It does not copy them.
func (h *Histogram) Counts() []int64 {
	n := len(h)
	for n > 0 && h[n-1] == 0 {
		n--
	}
	return h[:n]
}

// Quantile returns an estimate of the q-quantile (0 to 1), interpolated within its bucket, so that
// it can be wrong by a factor of two. Without any duration it returns 0, and for the last bucket
// its lower bound.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := q * float64(h.Count())
	if rank == 0 {
		rank = min(1, float64(h.Count()))
	}
	for i, n := range h {
		if float64(n) >= rank && n > 0 {
			low, high := bucketBounds(i)
			return low + time.Duration(rank/float64(n)*float64(high-low))
		}
		rank -= float64(n)
	}
	return 0
}

// bucketBounds returns the bounds of a bucket; those of the last are equal.
func bucketBounds(i int) (low, high time.Duration) {
	if i == 0 {
		return 0, time.Millisecond
	}
	low = time.Millisecond << (i - 1)
	if i == HistogramBuckets-1 {
		return low, low
	}
	return low, low << 1
}

// Check returns an error if the query is invalid. It is for engines.
func (q *StatsQuery) Check() error {
	if err := checkSpan(q.From, q.To, q.Step); err != nil {
		return err
	}
	if q.By > ByQueue|ByKind|ByVersion|ByWorker {
		return Invalidf("by", "by must be a combination of ByQueue, ByKind, ByVersion and ByWorker, got %d", q.By)
	}
	return nil
}

// Check returns an error if the query is invalid. It is for engines.
func (q *SampleQuery) Check() error { return checkSpan(q.From, q.To, q.Step) }

// Check returns an error if the query is invalid. It is for engines.
func (q *FailureQuery) Check() error {
	if q.Limit < 0 || q.Limit > 1000 {
		return Invalidf("limit", "limit must be 1 to 1000, got %d", q.Limit)
	}
	return nil
}

func checkSpan(from, to time.Time, step time.Duration) error {
	unit := time.Minute
	if step >= time.Hour {
		unit = time.Hour
	}
	if step < 0 || step%unit != 0 {
		return Invalidf("step", "step must be whole minutes below an hour, or whole hours, got %s", step)
	}
	if !from.IsZero() && !to.IsZero() && !from.Before(to) {
		return Invalidf("from", "from must be before to, got %s and %s", from.Format(time.RFC3339), to.Format(time.RFC3339))
	}
	return nil
}

// NoCharts is for engines without statistics, which embed it.
type NoCharts struct{}

// Report implements [Engine].
func (NoCharts) Report(context.Context, WorkerID, []HandlerStats) error { return nil }

// HandlerStats implements [Charts].
func (NoCharts) HandlerStats(context.Context, StatsQuery) ([]HandlerStats, error) { return nil, nil }

// Failures implements [Charts].
func (NoCharts) Failures(context.Context, FailureQuery) ([]Failure, error) { return nil, nil }

// Samples implements [Charts].
func (NoCharts) Samples(context.Context, SampleQuery) ([]Sample, error) { return nil, nil }
