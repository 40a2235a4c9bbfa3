package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// drawnLimits returns a run whose queue has random options and limits.
func drawnLimits(seed uint64, workers int) *keyedRun {
	r := rand.New(rand.NewPCG(seed, uint64(workers)))
	x := &keyedRun{keys: 6, workers: workers, keyedFeatures: drawnKeyed(r)}
	options := []string{`"max_attempts": 1000`}
	kind := r.IntN(3)
	if x.moves = x.moves && kind > 0; kind != 1 {
		x.once = false
	}
	if x.once {
		options = []string{`"mode": "at_most_once"`}
		x.dying = false
	}
	switch kind {
	case 0:
		options = append(options, fmt.Sprintf(`"ordered": true, "lanes": %d`, 1+r.IntN(3)))
		x.ordered = true
		if x.stop {
			options = append(options, `"on_dead": "stop"`)
		}
	case 1:
		options = append(options, `"fair": true`)
	}
	x.stop = x.stop && x.ordered
	x.pauses = kind < 2
	if !x.once && r.IntN(2) == 0 {
		x.all = 2 + r.IntN(8)
		options = append(options, fmt.Sprintf(`"concurrency": %d`, x.all))
	}
	if x.all == 0 || r.IntN(2) == 0 {
		x.rate, x.burst = float64(500+r.IntN(1500)), float64(20+r.IntN(80))
		options = append(options, fmt.Sprintf(`"rate_limit": {"limit": %.0f, "burst": %.0f}`, x.rate, x.burst))
	}
	if !x.once && kind == 1 && r.IntN(2) == 0 {
		x.cap = 1 + r.IntN(2)
		options = append(options, fmt.Sprintf(`"key_concurrency": %d`, x.cap))
	}
	if kind < 2 && r.IntN(2) == 0 {
		x.perKey, x.spare = float64(200+r.IntN(400)), 30
		options = append(options, fmt.Sprintf(`"key_rate_limit": {"limit": %.0f, "burst": 30}`, x.perKey))
	}
	x.options = "{" + strings.Join(options, ", ") + "}"
	return x
}

// Random limits hold, and at the end no message waits forever.
func TestInterleavingLimits(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{0, 3} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			t.Parallel()
			if workers == 0 {
				testrun.Nightly(t, "three workers race on each change")
			}
			url := testpg.New(t)
			n := seed(t)
			x := drawnLimits(n, workers)
			x.t, x.url, x.seed = t, url, n
			t.Log(x.options)
			x.run(seconds(t, 2))
			for _, f := range x.faults {
				t.Error(f)
			}
			if len(x.messages) < enough {
				t.Errorf("only %d messages were sent", len(x.messages))
			}
		})
	}
}

// Messages of a key run one after the other, in the order in which they were sent, each done exactly
// once, however often it is retried, and nothing is left behind. At full size subscriptions come and
// go in each of the queues.
func TestInterleavingKeyed(t *testing.T) {
	t.Parallel()
	for i, x := range []*keyedRun{
		{options: `{"ordered": true, "lanes": 2, "max_attempts": 1000}`, ordered: true, cap: 1, keys: 6, keyedFeatures: keyedFeatures{dying: true, dedupe: true, guests: true}},
		{options: `{"ordered": true, "lanes": 3, "max_attempts": 1000, "on_dead": "stop"}`, ordered: true, workers: 3, keys: 6, keyedFeatures: keyedFeatures{dying: true, stop: true, guests: true}},
		{options: `{"ordered": true, "lanes": 1, "max_attempts": 1000, "on_dead": "stop"}`, ordered: true, cap: 1, keys: 6, keyedFeatures: keyedFeatures{dying: true, stop: true, purging: true, dedupe: true}},
		{options: `{"key_concurrency": 2, "max_attempts": 1000}`, cap: 2, keys: 6, keyedFeatures: keyedFeatures{dying: true, purging: true, moves: true}},
		{options: `{"key_rate_limit": {"limit": 40, "burst": 5}, "max_attempts": 1000}`, perKey: 40, spare: 5, keys: 6, keyedFeatures: keyedFeatures{dedupe: true, moves: true}},
		{options: `{"fair": true, "max_attempts": 1000}`, keys: 6, workers: 2, keyedFeatures: keyedFeatures{dying: true, purging: true, moves: true}},
		{options: `{"fair": true, "mode": "at_most_once"}`, keys: 6, workers: 2, keyedFeatures: keyedFeatures{purging: true, moves: true, once: true}},
	} {
		t.Run(x.options, func(t *testing.T) {
			t.Parallel()
			if i%3 != 0 {
				testrun.Nightly(t, "three of the seven queues run on each change, and TestInterleavingLimits draws others")
			}
			x.t, x.url, x.seed = t, testpg.New(t), seed(t)
			x.guests = x.guests || testrun.Full()
			x.run(seconds(t, 2))
			for _, f := range x.faults {
				t.Error(f)
			}
			if len(x.messages) < enough {
				t.Errorf("only %d messages were sent", len(x.messages))
			}
		})
	}
}

// The same holds when a fair queue's claims advance so little in the log that much of it is read
// ahead, in equally small steps.
func TestInterleavingFairAhead(t *testing.T) {
	t.Parallel()
	x := &keyedRun{options: `{"fair": true, "max_attempts": 1000}`, keys: 6, workers: 2}
	x.t, x.url, x.seed = t, testpg.New(t), seed(t)
	breakFunctions(t, x.url, []patch{
		{file: "claim_keyed.sql", old: "when q.fair and handed = p_max then 1024 when q.fair then 4096", new: "when q.fair then 3"},
		{file: "claim_keyed.sql", old: "then t + interval '50 milliseconds' else t end", new: "then t else t end"},
		{file: "read_ahead.sql", old: "a.last_xid, a.last_pos, 8192, l)", new: "a.last_xid, a.last_pos, 5, l)"},
		{file: "read_ahead.sql", old: "if n < 8192 then", new: "if n < 5 then"},
		{file: "read_ahead.sql", old: "case when a.parked < 8192 then 2048 when", new: "case when a.parked < 8192 then 3 when"},
	})
	x.run(seconds(t, 1))
	for _, f := range x.faults {
		t.Error(f)
	}
	if len(x.messages) < 20 {
		t.Errorf("only %d messages were sent", len(x.messages))
	}
}

// keyedTwins are the shipped functions with one condition broken. The random interleavings of keyed
// queues must find each, by a fault that contains one of found. Conditions whose patch a
// deterministic rule has are not repeated here, except for two that show that a wrong order and a
// loss are found.
var keyedTwins = []struct {
	name, file, old, new string
	keyedFeatures
	found []string
}{
	{"withdrawn messages are handed out", "pass_log.sql", "case when e.out is not null then e.out", "case when e.out = 'filtered' then e.out", keyedFeatures{}, []string{"cancelled or discarded"}},
	{"handed out once and not settled with that", "claim.sql", "p_max, p_worker, case when not at_most_once then p_number end, null,\n      p_single and not at_most_once, p_idle, p_due, at_most_once, v_order);", "p_max, p_worker, p_number, null, false, p_idle, p_due, false);", keyedFeatures{once: true}, []string{"twice:"}},
	{"a retry that waits", "let_go.sql", "exit when v_waits and q.ordered;", "exit when false;", keyedFeatures{}, []string{"order:"}},
	{"what a late transaction sent", "ordered_slice.sql", "e.due_at is null and e.ord <> e.xid", "e.due_at is null and e.ord <> e.xid and false", keyedFeatures{}, []string{"lost:"}},
}

func TestInterleavingKeyedFindsBrokenTwins(t *testing.T) {
	for _, twin := range keyedTwins {
		t.Run(strings.ReplaceAll(twin.name, " ", "_"), func(t *testing.T) {
			found := beginTwin(t, "interleave_keyed_twins_test.go", patch{file: twin.file})
			options := `{"ordered": true, "lanes": 1, "max_attempts": 1000}`
			if twin.stop {
				options = `{"ordered": true, "lanes": 1, "max_attempts": 1000, "on_dead": "stop"}`
			}
			if twin.once {
				options = `{"fair": true, "mode": "at_most_once"}`
			}
			findsBroken(t, twin.found, found, func(n int, left time.Duration) []string {
				x := &keyedRun{options: options, ordered: !twin.once, keys: 6, keyedFeatures: twin.keyedFeatures}
				if n%2 == 0 {
					x.workers = 3
				} else if !twin.once {
					x.cap = 1
				}
				x.t, x.url, x.seed = t, testpg.New(t), seed(t)
				breakFunction(t, x.url, twin.file, twin.old, twin.new)
				// Short at first: some faults are noticed only when all messages have ended.
				x.run(min(time.Duration(1+n)*time.Second/2, left))
				return x.faults
			})
		})
	}
}
