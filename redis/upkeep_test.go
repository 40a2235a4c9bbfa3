package redis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// What a queue keeps is shown until its retention is over and goes by upkeep alone, where
// nothing is sent or settled any more.
func TestRetentionEndsWithoutTraffic(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{Retention: 300 * time.Millisecond, RetainPayload: true})
		w := register(t, e)
		ids := send(t, e, 60)
		if _, err := e.Cancel(posthaste.WithActor(t.Context(), "ada"), ids[0]); err != nil {
			t.Fatal(err)
		}
		got := claim(t, e, w, 1, 59)
		failed, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: got[0].ID, Outcome: posthaste.OutcomeDead, Error: "x"}})
		if err != nil || !failed[0].Settled {
			t.Fatalf("%+v: %v", failed, err)
		}
		if _, err := e.Discard(posthaste.WithActor(t.Context(), "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{got[0].MessageID}}); err != nil {
			t.Fatal(err)
		}
		if n := done(t, e, got[1:]...); n != 58 {
			t.Fatalf("%d were settled", n)
		}
		held := send(t, e, 1)[0]
		if m := claim(t, e, w, 2, 1); len(m) != 1 {
			t.Fatal("nothing was handed out")
		}
		var shown int
		var found posthaste.Page[posthaste.MessageInfo]
		if !tries(50, dueAfter, func() bool {
			shown = 0
			for _, id := range ids {
				_, err := e.Message(t.Context(), id)
				if err == nil {
					shown++
				} else if posthaste.CodeOf(err) != posthaste.CodeNotFound {
					t.Fatal(err)
				}
			}
			found, err = e.Messages(t.Context(), posthaste.MessageFilter{Queue: jobs, Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			return shown == 0 && len(found.Items) == 1 && found.Items[0].ID == held
		}) {
			return fmt.Sprintf("%d are shown, %d listed", shown, len(found.Items))
		}
		var reply posthaste.MaintainReply
		left := map[string]int64{}
		if !tries(stuckRounds, dueAfter, func() bool {
			reply, err = e.Maintain(t.Context(), posthaste.UpkeepSpace)
			if err != nil {
				t.Fatal(err)
			}
			for _, what := range []string{"msg", "st"} {
				if left[what], err = e.client.HLen(t.Context(), e.keys.of(jobs, what)).Result(); err != nil {
					t.Fatal(err)
				}
			}
			if left["past"], err = e.client.LLen(t.Context(), e.keys.of(jobs, "past")).Result(); err != nil {
				t.Fatal(err)
			}
			return left["msg"] == 1 && left["st"] == 0 && left["past"] == 0
		}) {
			return fmt.Sprintf("there are still %v (%+v)", left, reply)
		}
		if _, err := e.Message(t.Context(), held); err != nil {
			return fmt.Sprintf("a message that is handed out is not shown: %v", err)
		}
		return ""
	}, patch{&forgetScript, "return forget(0, tonumber(most))", "return 0"})
}

// The same is hidden by who tells it, whatever upkeep does.
func TestRetentionIsOverToTheMoment(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{Retention: 50 * time.Millisecond})
		w := register(t, e)
		ids, err := posthaste.IDs(e.Send(t.Context(), posthaste.Message{Queue: jobs, Reference: "r", Terms: []string{"ada"}}))
		if err != nil {
			t.Fatal(err)
		}
		done(t, e, claim(t, e, w, 1, 1)...)
		elapses(t, e, 60*time.Millisecond) // its time
		if _, err := e.Message(t.Context(), ids[0]); posthaste.CodeOf(err) != posthaste.CodeNotFound {
			return fmt.Sprintf("it is shown: %v", err)
		}
		for _, f := range []posthaste.MessageFilter{{Queue: jobs}, {Reference: "r"}, {Term: "ada"}} {
			if found, err := e.Messages(t.Context(), f); err != nil || len(found.Items) != 0 {
				return fmt.Sprintf("it is listed: %v, %v", found.Items, err)
			}
		}
		// It is there all the same, until upkeep, or who erases: nothing of a person stays
		// because it was hidden.
		if n, err := e.client.HLen(t.Context(), e.keys.of(jobs, "st")).Result(); err != nil || n != 1 {
			t.Fatalf("%d states are kept: %v", n, err)
		}
		if _, err := e.Erase(posthaste.WithActor(t.Context(), "ada"), "ada", 0); err != nil {
			t.Fatal(err)
		}
		for _, what := range []string{"st", "msg"} {
			if n, err := e.client.HLen(t.Context(), e.keys.of(jobs, what)).Result(); err != nil || n != 0 {
				return fmt.Sprintf("%d of %s are left: %v", n, what, err)
			}
		}
		return ""
	}, patch{&tellScript, "if st and over(st) then", "if false then"})
}

// A drop that was cut short is finished by upkeep, or when the queue is created again.
func TestDropsAreFinished(t *testing.T) {
	t.Parallel()
	for what, finish := range map[string]func(e *Engine) error{
		"by upkeep": func(e *Engine) error { _, err := e.Maintain(t.Context(), posthaste.UpkeepSpace); return err },
		"by creating it again": func(e *Engine) error {
			return e.CreateQueue(t.Context(), jobs, posthaste.QueueOptions{MaxAttempts: 7})
		},
	} {
		e := open(t, server.URL())
		create(t, e, posthaste.QueueOptions{})
		if err := e.Subscribe(posthaste.WithActor(t.Context(), "ada"), jobs, "other", posthaste.SubscriptionOptions{}); err != nil {
			t.Fatal(err)
		}
		send(t, e, 3)
		if _, err := dropScript.run(t.Context(), e.client, e.dropKeys(), arguments{{"name", jobs}, {"created", ""}}); err != nil { // and then it was killed
			t.Fatal(err)
		}
		if err := finish(e); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if what == "by upkeep" {
			fields, err := e.client.HGetAll(t.Context(), e.keys.queues()).Result()
			for name := range fields {
				if !strings.HasPrefix(name, "#") {
					t.Errorf("%s: %s is left in the registry", what, name)
				}
			}
			if n, fault := e.client.Exists(t.Context(), e.keys.queue(jobs, true)...).Result(); err != nil || fault != nil || n != 0 {
				t.Errorf("%s: %d keys are left: %v, %v", what, n, err, fault)
			}
			continue
		}
		infos, err := e.Queues(t.Context(), jobs)
		if err != nil || len(infos) != 1 || infos[0].Options.MaxAttempts != 7 || len(infos[0].Subscriptions) != 1 || infos[0].Subscriptions[0].Depth != 0 {
			t.Errorf("%s: %+v, %v", what, infos, err)
		}
	}
}

// One claim passes over some 1,000 messages that were taken back, and says that there is
// more to look at; none is lost by that.
func TestLongScriptsAreBounded(t *testing.T) {
	holds := func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		var gone []any
		for range 3 {
			for _, id := range send(t, e, 1000) {
				gone = append(gone, place(int64(id)))
			}
		}
		last := send(t, e, 1)[0]
		// As if each had been cancelled.
		if err := e.client.SAdd(t.Context(), e.keys.of(jobs, "stale"), gone...).Err(); err != nil {
			t.Fatal(err)
		}
		w := register(t, e)
		claims := 0
		for {
			claims++
			reply, err := e.Claim(t.Context(), posthaste.ClaimRequest{Worker: w, Number: int64(claims), QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 10})
			if err != nil {
				t.Fatal(err)
			}
			if len(reply.Deliveries) == 1 && reply.Deliveries[0].MessageID == last {
				break
			}
			if len(reply.Deliveries) > 0 || reply.NextDue != 0 {
				return fmt.Sprintf("claim %d: %d were handed out, and the next is due in %s", claims, len(reply.Deliveries), reply.NextDue)
			}
		}
		if claims < 3 || claims > 10 {
			return fmt.Sprintf("%d claims passed over 3,000", claims)
		}
		// What a worker held is lost bit by bit.
		send(t, e, 2000)
		for n := range 2 {
			if got := claim(t, e, w, int64(claims+1+n), 1000); len(got) != 1000 {
				t.Fatalf("%d were handed out", len(got))
			}
		}
		if err := e.Unregister(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		total, rounds := 0, 0
		until(t, "all are lost", func() bool {
			lost, err := e.Maintain(t.Context(), posthaste.UpkeepRescue)
			if err != nil {
				t.Fatal(err)
			}
			if lost.Rescued > 0 {
				rounds++
			}
			total += lost.Rescued
			return total >= 2001
		})
		if total != 2001 || rounds < 2001/rescueMost {
			return fmt.Sprintf("%d were lost in %d rounds", total, rounds)
		}
		if n, err := e.client.ZCard(t.Context(), e.keys.of(jobs, "claims")).Result(); err != nil || n != 0 {
			return fmt.Sprintf("%d claims are left: %v", n, err)
		}
		return ""
	}
	rule(t, holds, patch{&claimScript, "passing = passing - 1", ""})
	breaks(t, holds, patch{&rescueScript, "most = most - 1", ""})
}

// The file of each script documents its keys, arguments, results and cost.
func TestScriptsHaveHeaders(t *testing.T) {
	t.Parallel()
	files, err := scriptFiles.ReadDir("scripts")
	if err != nil {
		t.Fatal(err)
	}
	scripts := 0
	for _, f := range files {
		text := file(strings.TrimSuffix(f.Name(), ".lua"))
		if !strings.HasPrefix(text, "#!lua") { // it is included by others
			continue
		}
		scripts++
		var said []string
		for line := range strings.Lines(text) {
			if comment, ok := strings.CutPrefix(line, "-- "); ok {
				if word, _, ok := strings.Cut(comment, ": "); ok && !strings.Contains(word, " ") {
					said = append(said, word)
				}
			} else if !strings.HasPrefix(line, "#!") {
				break
			}
		}
		said = slices.DeleteFunc(said, func(word string) bool { return !slices.Contains([]string{"keys", "args", "returns", "cost"}, word) })
		if !slices.Equal(said, []string{"keys", "args", "returns", "cost"}) {
			t.Errorf("the header of %s has %v, want keys, args, returns and cost", f.Name(), said)
		}
	}
	if scripts < 30 {
		t.Errorf("%d scripts were found", scripts)
	}
}

// The cost of a claim and its settlement does not grow with the number of messages in flight.
func TestRE_CostInFlight(t *testing.T) {
	most := testrun.Size(20_000, 1_000_000)
	commands := func(inFlight int) int64 {
		e := open(t, start(t).URL())
		create(t, e, posthaste.QueueOptions{})
		w, number := register(t, e), int64(0)
		for held := 0; held < inFlight; held += 1000 {
			send(t, e, 1000)
			number++
			if got := claim(t, e, w, number, 1000); len(got) != 1000 {
				t.Fatalf("%d were handed out", len(got))
			}
		}
		send(t, e, 500)
		if err := e.client.ConfigResetStat(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			number++
			if n := done(t, e, claim(t, e, w, number, 10)...); n != 10 {
				t.Fatalf("%d were settled", n)
			}
		}
		return calledAll(t, e)
	}
	few, many := commands(1000), commands(most)
	t.Logf("50 claims of 10 and their settling: %d commands with 1,000 in flight, %d with %d", few, many, most)
	if many > few+few/20 {
		t.Error("it grows")
	}
}
