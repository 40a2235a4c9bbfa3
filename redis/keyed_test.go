package redis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// sendKeys sends one message for each key, in order.
func sendKeys(t *testing.T, e *Engine, keys ...string) (ids []posthaste.MessageID) {
	t.Helper()
	for some := range slices.Chunk(keys, 1000) {
		messages := make([]posthaste.Message, len(some))
		for i, key := range some {
			messages[i] = posthaste.Message{Queue: jobs, Key: key, Payload: key}
		}
		got, err := posthaste.IDs(e.Send(t.Context(), messages...))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, got...)
	}
	return ids
}

// With keys that wait much in front, a newcomer's messages come with the next claims.
func TestLI_NewcomersTakeTurns(t *testing.T) {
	newcomer := func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{Fair: true})
		var keys []string
		for i := range 20_000 {
			keys = append(keys, "large "+strconv.Itoa(i%200))
		}
		sendKeys(t, e, keys...)
		w := register(t, e)
		for number := range int64(20) { // so that none of them is new
			claim(t, e, w, number+1, 50)
		}
		sendKeys(t, e, slices.Repeat([]string{"small"}, 10)...)
		got := 0
		for number := int64(21); got < 10; number++ {
			if number > 23 {
				return fmt.Sprintf("after 3 claims of 50 %d of 10 messages were handed out", got)
			}
			for _, d := range claim(t, e, w, number, 50) {
				if d.Key == "small" {
					got++
				}
			}
		}
		return ""
	}
	t.Run("sent", func(t *testing.T) {
		rule(t, newcomer, patch{&sendScript, "r.looks == 3 and AT_FRESH or AT_TURN", "AT_TURN"})
	})
}

// Of many that have little, each gets all its messages before those that have much are
// through.
func TestLI_LittleDoesNotWaitForMuch(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{Fair: true})
		var keys []string
		for i := range 20_000 {
			keys = append(keys, "large "+strconv.Itoa(i%200))
		}
		for i := range 200 {
			keys = append(keys, "small "+strconv.Itoa(i%20))
		}
		sendKeys(t, e, keys...)
		w := register(t, e)
		small, claims := 0, int64(0)
		for small < 200 {
			claims++
			for _, d := range claim(t, e, w, claims, 50) {
				if strings.HasPrefix(d.Key, "small") {
					small++
				}
			}
		}
		if claims > 25 {
			return fmt.Sprintf("200 messages of 20 keys took %d claims of 50 beside 200 keys of 100", claims)
		}
		return ""
	}, patch{&claimKeyedScript, "< 16 + c then", "< 0 then"})
}

// Nothing of a paused key is handed out, neither a retry nor what must run alone.
func TestLI_PausedKeyGetsNothing(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{Fair: true, BackoffBase: time.Microsecond, BackoffMax: time.Microsecond})
		sendKeys(t, e, "a", "a", "b")
		w := register(t, e)
		held := claim(t, e, w, 1, 3)
		if err := e.Pause(posthaste.WithActor(t.Context(), "ada"), posthaste.OfKey{Queue: jobs, Key: "a"}, posthaste.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, d := range held {
			if _, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: d.ID, Outcome: posthaste.OutcomeRetried, Error: "x"}}); err != nil {
				t.Fatal(err)
			}
		}
		sendKeys(t, e, "a")
		elapses(t, e, time.Millisecond) // the retries are due
		if got := claim(t, e, w, 2, 10); len(got) != 1 || got[0].Key != "b" {
			return fmt.Sprintf("%d are handed out", len(got))
		}
		if err := e.Resume(posthaste.WithActor(t.Context(), "ada"), posthaste.OfKey{Queue: jobs, Key: "a"}); err != nil {
			t.Fatal(err)
		}
		if got := claim(t, e, w, 3, 10); len(got) != 3 {
			t.Errorf("after it was resumed %d are handed out, want 3", len(got))
		}
		return ""
	}, patch{&claimKeyedScript, "if paused[i] or stopped[i] then", "if false then"})
}

func TestLI_KeyLimitsHold(t *testing.T) {
	for name, c := range map[string]struct {
		limits   posthaste.QueueLimits
		old, new string
	}{
		"concurrency": {posthaste.QueueLimits{KeyConcurrency: 2}, "limits.k - n[i]", "limits.k"},
		"rate":        {posthaste.QueueLimits{KeyRateLimit: posthaste.Rate{Limit: 2, Per: time.Hour, Burst: 2}}, "full = taken(rate, full, c)", "full = now"},
	} {
		t.Run(name, func(t *testing.T) {
			rule(t, func(t *testing.T, e *Engine) string {
				create(t, e, posthaste.QueueOptions{Limits: c.limits})
				sendKeys(t, e, "a", "a", "a", "a", "b", "", "", "")
				w := register(t, e)
				count := map[string]int{}
				for number := int64(1); number <= 8; number++ {
					for _, d := range claim(t, e, w, number, 1) {
						count[d.Key]++
					}
					sendKeys(t, e, "a") // brings the key back, which is not to help it
				}
				if count["a"] != 2 || count["b"] != 1 || count[""] != 3 {
					return fmt.Sprintf("of the keys are handed out %v", count)
				}
				return ""
			}, patch{&claimKeyedScript, c.old, c.new})
		})
	}
}

// A key whose rate is so high that its tokens are lost in rounding is not forgotten.
func TestLI_RoundedRateGoesOn(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{Limits: posthaste.QueueLimits{KeyRateLimit: posthaste.Rate{Limit: 1e9, Burst: 3}}})
		sendKeys(t, e, "a", "a", "a", "a", "a")
		w := register(t, e)
		got := 0
		for number := int64(1); number <= 10; number++ {
			got += len(claim(t, e, w, number, 10))
		}
		if got != 5 {
			return fmt.Sprintf("%d of 5 are handed out", got)
		}
		return ""
	}, patch{&claimKeyedScript, "elseif rated[i] then", "elseif rate and tokens(rate, f) < 1 then"})
}

// A message whose content is lost takes up no place of its key.
func TestLI_LostContentTakesNoPlace(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{Limits: posthaste.QueueLimits{KeyConcurrency: 1}})
		ids := sendKeys(t, e, "a", "a")
		if n, err := e.client.HDel(t.Context(), e.keys.of(jobs, "msg"), place(int64(ids[0]))).Result(); err != nil || n != 1 {
			t.Fatalf("%d contents were removed: %v", n, err)
		}
		w := register(t, e)
		got := append(claim(t, e, w, 1, 10), claim(t, e, w, 2, 10)...)
		if len(got) != 1 || got[0].MessageID != ids[1] {
			return fmt.Sprintf("%d are handed out", len(got))
		}
		return ""
	}, patch{&claimKeyedScript, "freed[c[2]] = (freed[c[2]] or 0) + 1", ""})
}

// What keys have spent of a rate is not kept when the rate is taken away.
func TestLI_SpentIsForgottenWithItsRate(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{Limits: posthaste.QueueLimits{KeyRateLimit: posthaste.Rate{Limit: 1, Per: time.Hour}}})
		sendKeys(t, e, "a", "b", "c")
		done(t, e, claim(t, e, register(t, e), 1, 10)...)
		spent := func() int64 { return e.client.ZCard(t.Context(), e.keys.of(jobs, "spent")).Val() }
		if n := spent(); n != 3 {
			t.Fatalf("%d keys have spent", n)
		}
		update := posthaste.QueueUpdate{Options: posthaste.QueueOptions{Limits: posthaste.QueueLimits{KeyConcurrency: 5}}, Reset: []string{"key_rate_limit"}}
		if err := e.UpdateQueue(posthaste.WithActor(t.Context(), "ada"), jobs, update); err != nil {
			t.Fatal(err)
		}
		if n := spent(); n != 0 {
			return fmt.Sprintf("the spent tokens of %d keys are kept", n)
		}
		return ""
	}, patch{&renewScript, "call('UNLINK', KEYS[at + AT_SPENT])", ""})
}

// Keys that wait because of an old limit are checked again when the limit changes.
func TestLI_RaisedLimitLetsGo(t *testing.T) {
	for name, c := range map[string]struct {
		before   posthaste.QueueLimits
		old, new string
	}{
		"concurrency": {posthaste.QueueLimits{KeyConcurrency: 1}, "line(AGAIN, call('HKEYS', HELD))", ""},
		"rate":        {posthaste.QueueLimits{KeyRateLimit: posthaste.Rate{Limit: 1, Per: time.Hour}}, "call('RENAME', LATER, AGAIN)", "local _"},
	} {
		t.Run(name, func(t *testing.T) {
			rule(t, func(t *testing.T, e *Engine) string {
				create(t, e, posthaste.QueueOptions{Limits: c.before})
				sendKeys(t, e, "a", "a", "a")
				w := register(t, e)
				if got := claim(t, e, w, 1, 10); len(got) != 1 {
					t.Fatalf("%d are handed out by the old limit", len(got))
				}
				claim(t, e, w, 2, 10)
				if err := e.UpdateQueue(posthaste.WithActor(t.Context(), "ada"), jobs, posthaste.QueueUpdate{Options: posthaste.QueueOptions{Limits: posthaste.QueueLimits{KeyConcurrency: 5}}, Reset: []string{"key_rate_limit"}}); err != nil {
					t.Fatal(err)
				}
				if got := claim(t, e, w, 3, 10); len(got) != 2 {
					return fmt.Sprintf("%d are handed out by the new limit", len(got))
				}
				return ""
			}, patch{&renewScript, c.old, c.new})
		})
	}
}

// A dead message stops its key until it is discarded.
func TestOR_DeadStopsItsKey(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{Ordered: true, StopOnDead: true})
		ids := sendKeys(t, e, "a", "a", "b")
		w := register(t, e)
		for i, d := range claim(t, e, w, 1, 3) {
			with := posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeReleased}
			if i == 0 {
				with.Outcome, with.Error = posthaste.OutcomeDead, "x"
			}
			if _, err := e.Settle(t.Context(), []posthaste.Settlement{with}); err != nil {
				t.Fatal(err)
			}
		}
		sendKeys(t, e, "a")
		if got := claim(t, e, w, 2, 10); len(got) != 1 || got[0].Key != "b" {
			return fmt.Sprintf("%d are handed out", len(got))
		}
		if _, err := e.Discard(posthaste.WithActor(t.Context(), "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{ids[0]}}); err != nil {
			t.Fatal(err)
		}
		if got := claim(t, e, w, 3, 10); len(got) != 2 || got[0].MessageID != ids[1] {
			return fmt.Sprintf("%d are handed out after it was discarded", len(got))
		}
		return ""
	}, patch{&claimKeyedScript, "if paused[i] or stopped[i] then", "if paused[i] then"})
}

// A key whose first message waited for its retry, and was cancelled, goes on.
func TestOR_CancelledLetsItsKeyGo(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{Ordered: true})
		ids := sendKeys(t, e, "a")
		w := register(t, e)
		d := claim(t, e, w, 1, 1)[0]
		if _, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: d.ID, Outcome: posthaste.OutcomeRetried, Error: "x", RetryAfter: time.Hour}}); err != nil {
			t.Fatal(err)
		}
		next := sendKeys(t, e, "a")
		if got := claim(t, e, w, 2, 10); len(got) != 0 {
			t.Fatalf("%d were handed out behind a retry", len(got))
		}
		if told, err := e.Cancel(posthaste.WithActor(t.Context(), "ada"), ids[0]); err != nil || !told[0].InTime {
			t.Fatalf("cancelling it: %+v, %v", told, err)
		}
		if got := claim(t, e, w, 3, 10); len(got) != 1 || got[0].MessageID != next[0] {
			return fmt.Sprintf("%d are handed out after it was cancelled", len(got))
		}
		return ""
	}, patch{&withdrawScript, "if goOn(key) then wake", "if false then wake"})
}

// A purge of an ordered queue takes all that waits, also what waits for its retry.
func TestOR_Purge(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{Ordered: true})
	ids := sendKeys(t, e, "a", "a", "a", "b")
	w := register(t, e)
	held := claim(t, e, w, 1, 3) // two of a, one of b
	if len(held) != 3 || held[1].MessageID != ids[1] {
		t.Fatalf("handed out: %+v", held)
	}
	for _, with := range []posthaste.Settlement{
		{Delivery: held[0].ID, Outcome: posthaste.OutcomeRetried, Error: "x", RetryAfter: time.Hour}, {Delivery: held[1].ID, Outcome: posthaste.OutcomeReleased},
	} {
		if _, err := e.Settle(t.Context(), []posthaste.Settlement{with}); err != nil {
			t.Fatal(err)
		}
	}
	purged, err := e.PurgeQueue(posthaste.WithActor(t.Context(), "ada"), jobs)
	if err != nil || purged[0].Messages != 3 {
		t.Fatalf("purged: %+v, %v", purged, err)
	}
	later := sendKeys(t, e, "a")
	if got := claim(t, e, w, 2, 10); len(got) != 1 || got[0].MessageID != later[0] {
		t.Errorf("then came %+v", got)
	}
	infos, err := e.Queues(t.Context(), jobs)
	if s := infos[0].Subscriptions[0]; err != nil || s.Depth != 0 || s.InFlight != 2 || s.Withdrawn != 3 {
		t.Errorf("%+v: %v", s, err)
	}
}

// What a claim costs grows neither with the keys nor with what waits of one.
func TestRE_CostOfKeys(t *testing.T) {
	const claims = 50
	keysMost, longMost := testrun.Size(10_000, 100_000), testrun.Size(10_000, 1_000_000)
	commands := func(o posthaste.QueueOptions, n int, key func(int) string) int {
		e := open(t, server.URL())
		create(t, e, o)
		keys := make([]string, n)
		for i := range keys {
			keys[i] = key(i)
		}
		sendKeys(t, e, keys...)
		w := register(t, e)
		done(t, e, claim(t, e, w, 1, 1)...)
		if err := e.client.ConfigResetStat(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		for i := range int64(claims) {
			got := claim(t, e, w, i+2, 10)
			if len(got) != 10 {
				t.Fatalf("%d are handed out", len(got))
			}
			done(t, e, got...)
		}
		return int(calledAll(t, e))
	}
	long := func(int) string { return "one" }
	for name, o := range map[string]posthaste.QueueOptions{
		"ordered": {Ordered: true}, "fair": {Fair: true},
		"limits": {Limits: posthaste.QueueLimits{KeyConcurrency: 100, KeyRateLimit: posthaste.Rate{Limit: 1e6, Burst: 1e6}}},
	} {
		few := commands(o, 1000, func(i int) string { return strconv.Itoa(i) })
		many := commands(o, keysMost, strconv.Itoa)
		little, much := commands(o, 1000, long), commands(o, longMost, long)
		t.Logf("%s: commands of %d claims of 10 and their settling: %d with 1,000 keys, %d with %d; %d with 1,000 messages of one, %d with %d", name, claims, few, many, keysMost, little, much, longMost)
		if many > few+few/20 || much > little+little/20 {
			t.Errorf("%s: it grows", name)
		}
	}
}

// calledAll is how many commands were called, those of scripts included.
func calledAll(t *testing.T, e *Engine) (total int64) {
	t.Helper()
	stats, err := e.client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(stats) {
		if _, rest, ok := strings.Cut(line, ":calls="); ok {
			calls, _, _ := strings.Cut(rest, ",")
			n, _ := parseMicros(calls)
			total += n
		}
	}
	return total
}
