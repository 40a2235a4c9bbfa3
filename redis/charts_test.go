package redis

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

// charting reports about, and samples, a queue.
type charting struct {
	t *testing.T
	e *Engine
	w posthaste.WorkerID
	// began is the hour in which the test began.
	began int64
}

func newCharting(t *testing.T, e *Engine) *charting {
	t.Helper()
	create(t, e, posthaste.QueueOptions{})
	c := &charting{t: t, e: e, w: register(t, e)}
	c.began = c.minute() / 60
	return c
}

func (c *charting) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *charting) report(stats ...posthaste.HandlerStats) {
	c.t.Helper()
	for i := range stats {
		stats[i].Queue = jobs
	}
	c.must(c.e.Report(c.t.Context(), c.w, stats))
}

func (c *charting) upkeep(e *Engine) {
	c.t.Helper()
	_, err := e.Maintain(c.t.Context(), posthaste.UpkeepSpace)
	c.must(err)
}

// minute returns the present minute of Redis.
func (c *charting) minute() int64 {
	c.t.Helper()
	now, err := c.e.client.Time(c.t.Context()).Result()
	c.must(err)
	return now.Unix() / 60
}

// nextMinute makes upkeep take samples again, as if a minute had passed.
func (c *charting) nextMinute() {
	c.t.Helper()
	c.e.charted.sampled.Store(0)
	const ago = `for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
		local is = cmsgpack.unpack(redis.call('HGET', KEYS[1], name))
		is.m = '0'
		redis.call('HSET', KEYS[1], name, cmsgpack.pack(is))
	end`
	c.must(c.e.client.Eval(c.t.Context(), "#!lua\n"+ago+" return 1", []string{c.e.keys.sampled(jobs)}).Err())
}

// samples returns the sum of a subscription's samples by hours, with the last depths.
func (c *charting) samples(subscription string) (sum posthaste.Sample) {
	c.t.Helper()
	all, err := c.e.Samples(c.t.Context(), posthaste.SampleQuery{Queues: []string{jobs}, Step: time.Hour})
	c.must(err)
	for _, x := range all {
		if x.Subscription == subscription {
			sent, done := sum.Sent+x.Sent, sum.Done+x.Done
			sum = x
			sum.Sent, sum.Done = sent, done
		}
	}
	return sum
}

// hours returns the counts by hours, grouped by all.
func (c *charting) hours() []posthaste.HandlerStats {
	c.t.Helper()
	all, err := c.e.HandlerStats(c.t.Context(), posthaste.StatsQuery{Queue: jobs, Step: time.Hour, By: posthaste.ByQueue | posthaste.ByKind | posthaste.ByVersion | posthaste.ByWorker})
	c.must(err)
	return all
}

func failed(fingerprint string, n int64) []posthaste.ErrorCount {
	return []posthaste.ErrorCount{{Fingerprint: fingerprint, Error: fingerprint, Count: n}}
}

// chartRules are the rules of figures about the past.
var chartRules = map[string]struct {
	holds  func(c *charting) string
	broken []patch
}{
	"all keys end": {(*charting).keysEnd, []patch{{&reportScript, "call('EXPIRE', key, after)", ""}}},
	"samples end":  {(*charting).keysEnd, []patch{{&sampleScript, "call('EXPIRE', SAMPLES_HOUR, hours)", ""}}},
	"one sample a minute": {func(c *charting) string {
		other := another(c.t, c.e)
		for {
			minute := c.minute()
			send(c.t, c.e, 1)
			c.upkeep(c.e)
			before := c.samples(posthaste.DefaultSubscription)
			send(c.t, c.e, 1)
			c.upkeep(other)
			if after := c.samples(posthaste.DefaultSubscription); c.minute() == minute && after != before {
				return fmt.Sprintf("a second process changed %+v to %+v", before, after)
			} else if c.minute() == minute {
				return ""
			}
			c.nextMinute()
			other.charted.sampled.Store(0)
		}
	}, []patch{{&sampleScript, "if was and was.m == minute then return '' end", ""}}},
	"hours sum up": {func(c *charting) string {
		for n := range 3 {
			c.report(posthaste.HandlerStats{Kind: "k", Done: 2})
			done(c.t, c.e, claim(c.t, c.e, c.w, int64(n+1), len(send(c.t, c.e, 2)))...)
			c.upkeep(c.e)
			c.nextMinute()
		}
		var reported int64
		for _, h := range c.hours() {
			reported += h.Done
		}
		if sum := c.samples(posthaste.DefaultSubscription); sum.Sent != 6 || sum.Done != 6 || sum.Depth != 0 || reported != 6 {
			return fmt.Sprintf("of six messages are sampled %+v and reported %d", sum, reported)
		}
		return ""
	}, []patch{{&sampleScript, "sample[i] + sum[i]", "sample[i]"}}},
	"earlier counts have no time": {func(c *charting) string {
		send(c.t, c.e, 5)
		names := []string{c.e.keys.queues()}
		c.must(c.e.client.Eval(c.t.Context(), `#!lua
			local is = redis.call('HGET', KEYS[1], ARGV[1])
			local number, made, options = string.match(is, '^(%d+) (%d+) (.*)$')
			return redis.call('HSET', KEYS[1], ARGV[1], number .. ' ' .. string.format('%.0f', made - 7200000000) .. ' ' .. options)`, names, jobs).Err())
		c.upkeep(c.e)
		if sum := c.samples(posthaste.DefaultSubscription); sum.Sent != 0 || sum.Depth != 5 {
			return fmt.Sprintf("the first sample of an old queue is %+v", sum)
		}
		return ""
	}, []patch{{&sampleScript, "now - made < 3600000000", "true"}}},
	"a new subscription of an old name starts at zero": {func(c *charting) string {
		for n := range 2 {
			subscribe(c.t, c.e, second, posthaste.SubscriptionOptions{})
			send(c.t, c.e, 3-2*n)
			c.upkeep(c.e)
			c.nextMinute()
			c.must(c.e.Unsubscribe(posthaste.WithActor(c.t.Context(), "ada"), jobs, second, posthaste.DropOptions{}))
		}
		subscribe(c.t, c.e, second, posthaste.SubscriptionOptions{})
		if sum := c.samples(second); sum.Sent != 4 {
			return fmt.Sprintf("of 3 and 1 messages are sampled %+v", sum)
		}
		return ""
	}, []patch{{&sampleScript, "was.n ~= number", "false"}}},
	"Redis's clock decides": {func(c *charting) string {
		c.e.charted.ahead.Store(-time.Hour.Microseconds())
		send(c.t, c.e, 1)
		before := c.minute()
		c.report(posthaste.HandlerStats{Done: 1})
		c.upkeep(c.e)
		sum, err := c.e.HandlerStats(c.t.Context(), posthaste.StatsQuery{Queue: jobs, From: time.Unix(before*60, 0)})
		c.must(err)
		if s := c.samples(posthaste.DefaultSubscription); len(sum) != 1 || s.Sent != 1 || c.e.charted.minute() < before {
			return fmt.Sprintf("a process with another clock stored %+v and %+v", sum, s)
		}
		return ""
	}, []patch{{&reportScript, "if math.floor(clock[1] / 60) ~= tonumber(minute) then", "if false then"}}},
	"counts have bounds": {func(c *charting) string {
		var all []posthaste.HandlerStats
		for i := range 2100 {
			all = append(all, posthaste.HandlerStats{Kind: fmt.Sprint("kind ", i), Done: 1})
		}
		c.report(all...)
		return c.bounded(2100, 2001)
	}, []patch{{&reportScript, "{1000, 2000, 3000}", "{9000, 9000, 9000}"}}},
	"errors have bounds": {func(c *charting) string {
		for i := range 120 {
			c.report(posthaste.HandlerStats{Kind: fmt.Sprint("kind ", i), Failed: 1, Errors: failed("x", 1)})
		}
		if n := c.e.client.HLen(c.t.Context(), c.names("errors.hour")[0]).Val(); n > 100 {
			return fmt.Sprintf("errors of %d kinds are kept", n)
		}
		return ""
	}, []patch{{&reportScript, "GROUPS, ERRORS = {1000, 2000, 3000}, 100", "GROUPS, ERRORS = {1000, 2000, 3000}, 1000"}}},
	"errors of a kind have bounds": {(*charting).frequentErrors, []patch{{&reportScript, "if #all >= ERRORS then", "if false then"}}},
	"frequent errors stay":         {(*charting).frequentErrors, []patch{{&reportScript, "if a.n ~= b.n then return a.n > b.n end", ""}}},
	"errors are erased": {func(c *charting) string {
		_, err := c.e.Send(c.t.Context(), posthaste.Message{Queue: jobs, Terms: []string{"ada"}}, posthaste.Message{Queue: jobs})
		c.must(err)
		all := claim(c.t, c.e, c.w, 1, 2)
		done(c.t, c.e, all...)
		of := func(text string, d int, n int64) posthaste.ErrorCount {
			return posthaste.ErrorCount{Fingerprint: text, Error: text, Message: all[d].MessageID, Count: n}
		}
		c.report(posthaste.HandlerStats{Failed: 6, Errors: []posthaste.ErrorCount{of("ada's", 0, 1), of("ada and others", 0, 3), of("another's", 1, 2)}})
		_, err = c.e.Erase(posthaste.WithActor(c.t.Context(), "ada"), "ada", 0)
		c.must(err)
		for _, from := range []time.Duration{time.Minute, 72 * time.Hour} {
			all, err := c.e.Failures(c.t.Context(), posthaste.FailureQuery{From: time.Now().Add(-from)})
			c.must(err)
			got := ""
			for _, f := range all {
				got += fmt.Sprintf("%s: %s %d\n", f.Fingerprint, f.Error, f.Count)
			}
			if want := "ada and others: erased 3\nanother's: another's 2\nerased: erased 1\n"; got != want {
				return "the failures are " + got
			}
		}
		return ""
	}, []patch{{&eraseErrorsScript, "if n > before then", "if false then"}}},
	"a queue of the same name has none": {func(c *charting) string {
		before := c.e.client.HGet(c.t.Context(), c.e.keys.of(jobs, "meta"), "no").Val()
		c.must(c.e.client.HSet(c.t.Context(), c.e.keys.of(jobs, "meta"), "no", "4000").Err())
		c.report(posthaste.HandlerStats{Done: 1})
		c.must(c.e.client.HSet(c.t.Context(), c.e.keys.of(jobs, "meta"), "no", before).Err())
		if all := c.hours(); len(all) != 0 {
			return fmt.Sprintf("a report about a dropped queue is in one of its name: %+v", all)
		}
		return ""
	}, []patch{{&reportScript, "if call('HGET', META, 'no') ~= number then return 'gone' end", ""}}},
	"a drop removes them": {func(c *charting) string {
		send(c.t, c.e, 1)
		c.report(posthaste.HandlerStats{Done: 1, Failed: 1, Errors: failed("x", 1)})
		c.upkeep(c.e)
		if all := c.names(""); len(all) < 7 {
			c.t.Fatalf("there are only %q", all)
		}
		c.must(c.e.DropQueue(posthaste.WithActor(c.t.Context(), "ada"), jobs, posthaste.DropOptions{}))
		if left := c.names(""); len(left) != 0 {
			return fmt.Sprintf("left are %q", left)
		}
		return ""
	}, []patch{{&clearScript, "for i = 1, #KEYS, 2000 do", "for i = 1, 1, 2000 do"}}},
}

// names returns the names of the queue's keys that begin with what.
func (c *charting) names(what string) []string {
	c.t.Helper()
	all, err := c.e.client.Keys(c.t.Context(), c.e.keys.of(jobs, what)+"*").Result()
	c.must(err)
	return all
}

func (c *charting) keysEnd() string {
	send(c.t, c.e, 1)
	c.report(posthaste.HandlerStats{Kind: "k", Done: 1, Failed: 1, Errors: failed("x", 1)})
	c.upkeep(c.e)
	found := map[string]bool{}
	for _, what := range []string{"stats.", "errors.", "samples.", "sampled"} {
		for _, name := range c.names(what) {
			kept, most := posthaste.ChartHours, chartTTL(true)
			if strings.Contains(name, ".minute:") {
				kept, most = posthaste.ChartDetail, chartTTL(false)
			}
			if left := c.e.client.PTTL(c.t.Context(), name).Val(); left < kept || left > most {
				return fmt.Sprintf("%s ends in %s, want %s to %s", name, left, kept, most)
			}
			_, short, _ := strings.Cut(name, "}:")
			short, _, _ = strings.Cut(short, ":")
			found[short] = true
		}
	}
	if len(found) != 7 {
		c.t.Fatalf("there are only keys of %v", found)
	}
	return ""
}

// bounded checks that all messages count, in at most so many fields.
func (c *charting) bounded(messages, fields int64) string {
	var n int64
	others := false
	for _, h := range c.hours() {
		n += h.Done
		others = others || h.Kind == posthaste.OtherKinds && h.Done == 100
	}
	if !others && c.minute()/60 == c.began {
		return "the last kinds do not count as others"
	}
	if n != messages {
		return fmt.Sprintf("of %d messages %d count", messages, n)
	}
	for _, name := range append(c.names("stats.minute"), c.names("stats.hour")...) {
		if n := c.e.client.HLen(c.t.Context(), name).Val(); n > fields {
			return fmt.Sprintf("%s has %d fields", name, n)
		}
	}
	return ""
}

// frequentErrors reports frequent errors among others that come once.
func (c *charting) frequentErrors() string {
	kind := func(fingerprint string, n int64) {
		c.report(posthaste.HandlerStats{Kind: "k", Failed: n, Errors: failed(fingerprint, n)})
	}
	kind("often", 50)
	for i := range 30 {
		kind(fmt.Sprint("once ", string(rune('a'+i))), 1)
	}
	for range 20 {
		kind("later", 1)
	}
	for _, name := range append(c.names("errors.minute"), c.names("errors.hour")...) {
		for _, value := range c.e.client.HVals(c.t.Context(), name).Val() {
			var all []reportedError
			if c.must(unpack(value, &all)); len(all) > 10 {
				return fmt.Sprintf("%s has %d errors of a kind", name, len(all))
			}
		}
	}
	all, err := c.e.Failures(c.t.Context(), posthaste.FailureQuery{Queue: jobs, From: time.Now().Add(-72 * time.Hour)})
	if c.must(err); len(all) < 2 || all[0].Fingerprint != "often" || all[0].Count < 50 || all[1].Fingerprint != "later" || all[1].Count < 20 {
		return fmt.Sprintf("the most frequent are %+v", all[:min(2, len(all))])
	}
	if len(all) > 2*posthaste.MaxReportErrors { // in two hours, if one has just ended
		return fmt.Sprintf("%d errors of a kind are told", len(all))
	}
	return ""
}

func TestCharts(t *testing.T) {
	for name, r := range chartRules {
		t.Run(name, func(t *testing.T) {
			rule(t, func(t *testing.T, e *Engine) string { return r.holds(newCharting(t, e)) }, r.broken...)
		})
	}
}

// Names and errors are any text.
func TestChartsOfAnyText(t *testing.T) {
	t.Parallel()
	c := newCharting(t, open(t, server.URL()))
	texts := []string{"", "|", ":", "a\x00b", "\"'\\", "é…", "k\xff\xfe", "{x}", "\r\n", strings.Repeat("z", 255)}
	want := map[string]int64{}
	for i, text := range texts {
		w, err := c.e.Register(t.Context(), posthaste.WorkerInfo{Name: "w" + text, Version: "v" + text, Lease: time.Hour})
		c.must(err)
		c.w, want[text] = w, int64(i+1)
		for range i + 1 {
			c.report(posthaste.HandlerStats{Kind: text, Done: 1, Errors: failed("f"+text, 1)})
		}
	}
	for _, h := range c.hours() {
		if h.Done != want[h.Kind] || h.Worker != "w"+h.Kind || h.Version != "v"+h.Kind || h.Queue != jobs || h.Subscription != posthaste.DefaultSubscription {
			t.Errorf("kind %q, of which %d are done, has %+v", h.Kind, want[h.Kind], h)
		}
		delete(want, h.Kind)
	}
	if len(want) != 0 {
		t.Errorf("there is nothing of %v", want)
	}
	all, err := c.e.Failures(t.Context(), posthaste.FailureQuery{})
	if c.must(err); len(all) != len(texts) {
		t.Errorf("%d failures, want %d", len(all), len(texts))
	}
	for _, f := range all {
		if text := texts[f.Count-1]; f.Kind != text || f.Version != "v"+text || f.Fingerprint != "f"+text || f.Error != "f"+text {
			t.Errorf("%q came as %+v", text, f)
		}
	}
}

// Ids have 64 bits, and counts and times more than 32.
func TestChartsOfLargeNumbers(t *testing.T) {
	t.Parallel()
	c := newCharting(t, open(t, server.URL()))
	const many, id = 3e12, posthaste.MessageID(1<<62 + 1)
	for range 2 {
		h := posthaste.HandlerStats{Kind: "k", Done: many, Failed: 1, Errors: []posthaste.ErrorCount{{Fingerprint: "x", Error: "x", Message: id, Count: many}}}
		h.Run[posthaste.HistogramBuckets-1], h.Wait[0] = many, many
		c.report(h)
	}
	var sum posthaste.HandlerStats
	for _, h := range c.hours() {
		sum.Done, sum.Run[31], sum.Wait[0] = sum.Done+h.Done, sum.Run[31]+h.Run[31], sum.Wait[0]+h.Wait[0]
	}
	if sum.Done != 2*many || sum.Run[31] != 2*many || sum.Wait[0] != 2*many {
		t.Errorf("the counts are %+v", sum)
	}
	all, err := c.e.Failures(t.Context(), posthaste.FailureQuery{})
	if c.must(err); len(all) != 1 || all[0].Count != 2*many || all[0].Message != id || time.Since(all[0].First).Abs() > time.Minute {
		t.Errorf("the failures are %+v", all)
	}
}

// commandsSeen is a hook that counts commands by their names, and scripts by their hashes.
type commandsSeen struct {
	plainHook
	times map[string]int
}

// ProcessHook implements [goredis.Hook].
func (c *commandsSeen) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		c.times[cmd.Name()]++
		if cmd.Name() == "evalsha" {
			c.times[cmd.Args()[1].(string)]++
		}
		return next(ctx, cmd)
	}
}

// A worker's report is one call for all its queues, and upkeep asks for samples once a minute, in
// one call for all queues.
func TestChartsCost(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	seen := &commandsSeen{times: map[string]int{}}
	e.client.AddHook(seen)
	c := newCharting(t, e)
	c.must(e.CreateQueue(t.Context(), "other", posthaste.QueueOptions{}))
	both := []posthaste.HandlerStats{{Queue: jobs, Done: 1}, {Queue: "other", Done: 1}}
	_, err := e.Heartbeat(t.Context(), posthaste.Heartbeat{Worker: c.w})
	c.must(err)
	c.must(e.Report(t.Context(), c.w, both)) // perhaps with the text of the script
	until(t, "a minute in which nothing else happens", func() bool {
		minute := c.minute()
		clear(seen.times)
		c.must(e.Report(t.Context(), c.w, both))
		reports := maps.Clone(seen.times)
		e.charted.sampled.Store(0)
		for range 3 {
			c.upkeep(e)
		}
		if c.minute() != minute {
			return false
		}
		if reports["evalsha"] != 1 || len(reports) != 2 {
			t.Errorf("a report takes %v", reports)
		}
		if n := seen.times[sampleScript.several().read().sha]; n != 1 {
			t.Errorf("upkeep asked for samples %d times", n)
		}
		return true
	})
}

// Without memory reports fail, and upkeep goes on.
func TestChartsOutOfMemory(t *testing.T) {
	t.Parallel()
	r := start(t)
	e := open(t, r.URL())
	c := newCharting(t, e)
	c.must(e.CreateQueue(t.Context(), "other", posthaste.QueueOptions{}))
	send(t, e, 1)
	c.must(e.client.ConfigSet(t.Context(), "maxmemory", "1").Err())
	err := e.Report(t.Context(), c.w, []posthaste.HandlerStats{{Queue: jobs, Done: 1}})
	if posthaste.CodeOf(err) != posthaste.CodeUnavailable {
		t.Errorf("a report without memory: %v", err)
	}
	for _, in := range []bool{false, true} { // one call for all queues, or one each
		e.cluster = in
		c.upkeep(e)
		e.charted.sampled.Store(0)
	}
}
