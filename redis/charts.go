package redis

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/charts"
)

// Figures for charts are in hashes of one minute or hour each, which Redis removes by itself
// ([chartTTL]). A report is added to those of its minute and of its hour in one script, so that
// nothing is summed up later. The keys of a script must be known before its time is: the engine
// names those of the minute that it takes for the present one by the last replies, and the script
// answers with its time if it is another.

// chartTTL is how long the keys of a minute, and of an hour, are kept, with a margin.
func chartTTL(hours bool) time.Duration {
	if hours {
		return posthaste.ChartHours + 2*time.Hour
	}
	return posthaste.ChartDetail + 10*time.Minute
}

// charted estimates Redis's time for charts, and remembers the last samples of this process.
type charted struct {
	ahead   atomic.Int64 // µs by which Redis's clock was ahead of the process's
	sampled atomic.Int64 // the last minute in which this process asked for samples
}

func (c *charted) minute() int64 {
	return charts.Unit(time.Now().Add(fromMicros(c.ahead.Load())), false)
}

func (c *charted) learn(micros int64) { c.ahead.Store(time.Until(at(micros)).Microseconds()) }

// inMinute runs a script that knows whether the minute has ended, for each of queues. A reply
// "gone" counts as done: the queue was dropped or is changing. inMinute returns the last minute of
// which it named the keys.
func (e *Engine) inMinute(ctx context.Context, s script, queues []*queue, keys func(*queue, int64) []string, args func(*queue, arguments) arguments) (minute int64, err error) {
	for range 5 {
		minute = e.charted.minute()
		common := arguments{{"minute", minute}, {"detail", int64(chartTTL(false) / time.Second)}, {"hours", int64(chartTTL(true) / time.Second)}}
		replies, err := e.runEachWith(ctx, s, queues, func(q *queue) []string { return keys(q, minute) }, func(q *queue) arguments { return args(q, common) })
		if err != nil {
			return minute, err
		}
		var missed []*queue
		for i, reply := range replies {
			if now, ok := parseMicros(str(reply)); ok {
				e.charted.learn(now)
				missed = append(missed, queues[i])
			}
		}
		if queues = missed; len(queues) == 0 {
			return minute, nil
		}
	}
	return minute, &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "Redis's clock jumps, so figures for charts were not stored", Hint: "synchronize the clocks of its servers"}
}

// reported are counts of one subscription, kind, version and worker, as report.lua gets them.
type reported struct {
	Fields []string        `codec:"f"`
	Counts []int64         `codec:"c"`
	Group  string          `codec:"g,omitempty"`
	Errors []reportedError `codec:"e,omitempty"`
}

// reportedError is an error in a report, and with its times in Redis.
type reportedError struct {
	Fingerprint string `codec:"f"`
	Text        string `codec:"t"`
	Message     string `codec:"m"` // in digits, because scripts have no integers of 64 bits
	Count       int64  `codec:"n"`
	First       int64  `codec:"b,omitempty"`
	Last        int64  `codec:"l,omitempty"`
}

// Counts are stored as a list of pairs, in the order of their first numbers: an outcome, or a bucket
// of a histogram from waitFrom or runFrom on, and its count.
const (
	countDone = iota
	countRetried
	countFailed
	waitFrom
	runFrom = waitFrom + posthaste.HistogramBuckets
)

func countsOf(h *posthaste.HandlerStats) (all []int64) {
	add := func(what int, n int64) {
		if n > 0 {
			all = append(all, int64(what), n)
		}
	}
	add(countDone, h.Done)
	add(countRetried, h.Retried)
	add(countFailed, h.Failed)
	for i, n := range h.Wait {
		add(waitFrom+i, n)
	}
	for i, n := range h.Run {
		add(runFrom+i, n)
	}
	return all
}

// addCounts is the reverse of countsOf. It ignores unknown outcomes and buckets.
func addCounts(h *posthaste.HandlerStats, counts []int64) {
	for pair := range slices.Chunk(counts, 2) {
		switch what, n := pair[0], pair[len(pair)-1]; {
		case what == countDone:
			h.Done += n
		case what == countRetried:
			h.Retried += n
		case what == countFailed:
			h.Failed += n
		case what >= waitFrom && what < runFrom:
			h.Wait[what-waitFrom] += n
		case what >= runFrom && what < runFrom+posthaste.HistogramBuckets:
			h.Run[what-runFrom] += n
		}
	}
}

// Report implements [posthaste.Charts]. A minute, and an hour, of a queue has up to 1,000
// combinations of subscription, kind, version and worker. Further ones count without the worker,
// and from 2,000 on as [posthaste.OtherKinds] without the version, too. Of errors it has up to 100
// combinations of subscription, kind and version; further ones are left out.
func (e *Engine) Report(ctx context.Context, worker posthaste.WorkerID, stats []posthaste.HandlerStats) error {
	is, err := e.registration(ctx, worker)
	if err != nil {
		return err
	}
	byQueue := map[*queue][]reported{}
	for i := range stats {
		h := &stats[i]
		s, err := e.registry.find(ctx, posthaste.QueueRef{Queue: h.Queue, Subscription: h.Subscription})
		if posthaste.CodeOf(err) == posthaste.CodeNotFound {
			continue // it was dropped or has ended
		}
		if err != nil {
			return err
		}
		if counts := countsOf(h); len(counts) > 0 {
			q := s
			if s.born != nil {
				q = s.born
			}
			byQueue[q] = append(byQueue[q], reportedOf(s.subscription, h, &is, counts))
		}
	}
	var some []*queue
	n := 0
	for q, its := range byQueue {
		if n += len(its); n > reportMost && len(some) > 0 {
			err = errors.Join(err, e.reportOn(ctx, some, byQueue))
			some, n = nil, len(its)
		}
		some = append(some, q)
	}
	return errors.Join(err, e.reportOn(ctx, some, byQueue))
}

// reportMost bounds the entries of one script, during which Redis serves no other client: 100
// take some 3 ms.
const reportMost = 100

// reportOn reports about queues.
func (e *Engine) reportOn(ctx context.Context, queues []*queue, reports map[*queue][]reported) error {
	_, err := e.inMinute(ctx, reportScript, queues, func(q *queue, minute int64) []string {
		return []string{e.keys.of(q.name, "meta"), e.keys.chart(q.name, statsOfMinute, minute), e.keys.chart(q.name, statsOfHour, minute/60),
			e.keys.chart(q.name, errorsOfMinute, minute), e.keys.chart(q.name, errorsOfHour, minute/60)}
	}, func(q *queue, common arguments) arguments {
		return slices.Concat(arguments{{"number", q.numberArg}}, common, arguments{{"report", packed(reports[q])}})
	})
	return writeError(err)
}

// registration returns a worker's entry in the registry: as this process read it last, unless it
// knows nothing of the worker.
func (e *Engine) registration(ctx context.Context, worker posthaste.WorkerID) (is registered, err error) {
	if entry, _ := e.leases.of(worker); entry != "" {
		return is, unpack(entry, &is)
	}
	s, err := e.beatRegistry(ctx, "look", worker, "")
	return s.registered, err
}

func reportedOf(subscription string, h *posthaste.HandlerStats, is *registered, counts []int64) reported {
	r := reported{Counts: counts, Fields: []string{
		packed([]string{subscription, h.Kind, is.Version, is.Name}),
		packed([]string{subscription, h.Kind, is.Version, ""}),
		packed([]string{subscription, posthaste.OtherKinds, "", ""}),
	}}
	for _, of := range charts.MostFrequent(slices.Clone(h.Errors), func(c posthaste.ErrorCount) int64 { return c.Count }) {
		if of.Count > 0 {
			r.Group = packed([]string{subscription, h.Kind, is.Version})
			r.Errors = append(r.Errors, reportedError{Fingerprint: shortened(of.Fingerprint), Text: shortened(of.Error), Message: of.Message.String(), Count: of.Count})
		}
	}
	return r
}

// shortened returns the first 500 bytes of a text.
func shortened(text string) string {
	const most = 500
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "")
	}
	return text
}

// sample takes the samples of this minute, unless this process has asked for them.
func (e *Engine) sample(ctx context.Context, all map[string]*queue) error {
	if e.charted.sampled.Load() == e.charted.minute() {
		return nil
	}
	minute, err := e.inMinute(ctx, sampleScript, allOf(all), func(q *queue, minute int64) []string {
		return slices.Concat(q.keys, []string{e.keys.sampled(q.name), e.keys.chart(q.name, samplesOfMinute, minute), e.keys.chart(q.name, samplesOfHour, minute/60)})
	}, func(q *queue, common arguments) arguments {
		made := q.created
		if q.born != nil {
			made = q.enrolled
		}
		return slices.Concat(arguments{{"number", q.numberArg}, {"rules", q.rules}}, common, arguments{{"subscription", q.subscription}, {"made", made}})
	})
	if err == nil {
		e.charted.sampled.Store(minute)
	}
	return readError(err)
}

// eraseErrors erases the errors of messages of a queue.
func (e *Engine) eraseErrors(ctx context.Context, queue string, ids []posthaste.MessageID) error {
	now, err := e.client.Time(ctx).Result()
	if err != nil {
		return readError(err)
	}
	var args arguments
	for _, id := range ids {
		args = append(args, arg{is: id.String()})
	}
	_, err = eraseErrorsScript.run(ctx, e.client, e.unitKeys(queue, now, errorsOfMinute, errorsOfHour), args)
	return writeError(err)
}

// chartKeys returns the names of all keys for charts that a queue may have.
func (e *Engine) chartKeys(queue string, now time.Time) []string {
	names := []string{e.keys.sampled(queue)}
	for of, hours := range map[string]string{statsOfMinute: statsOfHour, errorsOfMinute: errorsOfHour, samplesOfMinute: samplesOfHour} {
		names = append(names, e.unitKeys(queue, now, of, hours)...)
	}
	return names
}

// unitKeys returns the names of the keys of all minutes and hours that a queue may have.
func (e *Engine) unitKeys(queue string, now time.Time, ofMinute, ofHour string) (names []string) {
	for _, hours := range []bool{false, true} {
		what := ofMinute
		if hours {
			what = ofHour
		}
		for unit := charts.Unit(now.Add(-chartTTL(hours)), hours) - 1; unit <= charts.Unit(now.Add(time.Minute), hours); unit++ {
			names = append(names, e.keys.chart(queue, what, unit))
		}
	}
	return names
}
