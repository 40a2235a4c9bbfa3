package redis

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/faultproxy"
)

// disturbance is what happens to a process at one of its commands.
type disturbance string

const (
	notGiven disturbance = "the command is lost"
	noReply  disturbance = "its reply is lost"
	killed   disturbance = "the process is killed before its reply comes"
)

// fate is the life of one program, with the results to check. The program creates queues,
// sends, handles, operates and cleans up. It repeats a command that fails if the error allows
// this. After a kill it starts from the beginning, like a program that is restarted.
type fate struct {
	t     *testing.T
	url   string
	sound *Engine // undisturbed, to inspect the store and to finish the remaining work
	lives int
	// What the program was told:
	ids    map[string]posthaste.MessageID // sent, by kind
	unsure map[string]bool                // sent perhaps
	ended  map[string]bool                // by subscription and kind: must not come (again)
	// back are kinds that it began to take back, whose dedupe keys may be free again.
	back   map[string]bool
	broken string
}

func (f *fate) broke(format string, args ...any) {
	if f.broken == "" {
		f.broken = fmt.Sprintf(format, args...)
	}
}

// sent notes what a send answered, which may come again.
func (f *fate) sent(ids []posthaste.MessageID, messages []posthaste.Message) {
	for i, m := range messages {
		if before, again := f.ids[m.Kind]; again && before != ids[i] {
			if !f.back[m.Kind] {
				f.broke("%s was sent as %s and again as %s", m.Kind, before, ids[i])
			}
			delete(f.ended, "default "+m.Kind)
			delete(f.ended, "audit "+m.Kind)
		}
		f.ids[m.Kind] = ids[i]
	}
}

func of(d posthaste.RawDelivery) string { return d.Subscription + " " + d.Kind }

func (f *fate) came(deliveries []posthaste.RawDelivery) {
	for _, d := range deliveries {
		if f.ended[of(d)] {
			f.broke("%s came again", of(d))
		}
	}
}

// live is one life, until its end or until gone says so.
func (f *fate) live(url string, gone func() bool) {
	f.lives++
	ctx := f.t.Context()
	var e *Engine
	defer func() {
		if e != nil {
			e.Close()
		}
	}()
	messages := func(kinds ...string) (all []posthaste.Message) {
		for _, kind := range kinds {
			all = append(all, posthaste.Message{Queue: jobs, Kind: kind, Payload: kind, DedupeKey: kind, DedupeWindow: time.Hour})
		}
		return all
	}
	send := func(all []posthaste.Message) func() error {
		return func() error {
			ids, err := posthaste.IDs(e.Send(ctx, all...))
			if err == nil {
				f.sent(ids, all)
			}
			return err
		}
	}
	var w posthaste.WorkerID
	var number int64
	var held []posthaste.RawDelivery
	claim := func(subscription string, most int) func() error {
		return func() error {
			if held != nil {
				return nil
			}
			reply, err := e.Claim(ctx, posthaste.ClaimRequest{Worker: w, Number: number + 1, QueueRef: posthaste.QueueRef{Queue: jobs, Subscription: subscription}, Max: most, Idle: true})
			if err == nil {
				number++
				held = reply.Deliveries
				f.came(held)
			}
			return err
		}
	}
	settle := func(outcomes ...posthaste.Outcome) func() error {
		return func() error {
			var all []posthaste.Settlement
			for i, d := range held {
				all = append(all, posthaste.Settlement{Delivery: d.ID, Outcome: outcomes[i%len(outcomes)], Error: "x"})
			}
			_, err := e.Settle(ctx, all)
			if err == nil {
				for i, d := range held {
					f.ended[of(d)] = f.ended[of(d)] || outcomes[i%len(outcomes)] == posthaste.OutcomeDone
				}
				held = nil
			}
			return err
		}
	}
	drain := func(subscription string) func() error {
		return func() error {
			for {
				if err := claim(subscription, 10)(); err != nil {
					return err
				}
				if len(held) == 0 {
					held = nil
					return nil
				}
				if err := settle(posthaste.OutcomeDone)(); err != nil {
					return err
				}
			}
		}
	}
	steps := []func() error{
		func() (err error) {
			e, err = Open(ctx, url, WithPrefix(f.sound.keys.prefix))
			return err
		},
		func() error {
			return e.CreateQueue(ctx, jobs, posthaste.QueueOptions{MaxAttempts: 3, BackoffBase: time.Microsecond, BackoffMax: time.Microsecond, Retention: time.Hour})
		},
		func() error { return e.CreateQueue(ctx, "side", posthaste.QueueOptions{}) },
		func() error {
			return e.Subscribe(posthaste.WithActor(ctx, "ada"), jobs, "audit", posthaste.SubscriptionOptions{From: posthaste.FromOldest})
		},
		send(messages("a", "b", "c", "d", "e", "f")),
		func() error {
			all := messages("g", "h")
			for i := range all {
				all[i].DedupeKey, all[i].DedupeWindow = "", 0
			}
			ids, err := posthaste.IDs(e.SendOnce(ctx, posthaste.Idempotency{Key: "gh", Digest: []byte("gh"), Window: time.Hour}, all...))
			if err == nil {
				f.sent(ids, all)
			}
			return err
		},
		func() error {
			all := messages("due")
			all[0].Delay = time.Hour
			return send(all)()
		},
		func() error { // by itself it must not be sent again where that is unsure
			m := posthaste.Message{Queue: jobs, Kind: fmt.Sprint("plain", f.lives), Payload: 1}
			ids, err := posthaste.IDs(e.Send(ctx, m))
			if posthaste.CodeOf(err) == posthaste.CodeOutcomeUnknown {
				f.unsure[m.Kind] = true
				return nil
			}
			if err == nil {
				f.sent(ids, []posthaste.Message{m})
			}
			return err
		},
		func() (err error) {
			w, err = e.Register(ctx, posthaste.WorkerInfo{Name: "w", Lease: time.Hour})
			return err
		},
		claim("", 4),
		func() error {
			_, err := e.Heartbeat(ctx, posthaste.Heartbeat{Worker: w, Queues: []posthaste.QueueRef{{Queue: jobs}}})
			return err
		},
		settle(posthaste.OutcomeDone, posthaste.OutcomeRetried, posthaste.OutcomeDead, posthaste.OutcomeReleased),
		func() error {
			left, err := e.Unsettled(ctx, w, number)
			if err == nil && len(left) > 0 {
				f.broke("%d deliveries are told as unsettled that were settled", len(left))
			}
			return err
		},
		func() error {
			dead, err := e.DeadLetters(ctx, posthaste.DeadLetterFilter{Queue: jobs})
			for _, d := range dead.Items {
				if _, err := e.Replay(posthaste.WithActor(ctx, "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{d.ID}}); err != nil {
					return err
				}
			}
			return err
		},
		func() error {
			f.back["f"] = true
			were, err := e.Cancel(posthaste.WithActor(ctx, "ada"), f.ids["f"])
			for _, w := range were {
				if w.InTime {
					f.ended[w.Subscription+" f"] = true
				}
			}
			return err
		},
		func() error {
			_, err := e.Reschedule(posthaste.WithActor(ctx, "ada"), f.ids["due"], time.UnixMilli(1))
			return err
		},
		func() error { return e.Pause(posthaste.WithActor(ctx, "ada"), posthaste.OfQueue(jobs)) },
		func() error { return e.Resume(posthaste.WithActor(ctx, "ada"), posthaste.OfQueue(jobs)) },
		func() error {
			return e.UpdateQueue(posthaste.WithActor(ctx, "ada"), jobs, posthaste.QueueUpdate{Limits: &posthaste.QueueLimits{Concurrency: 100}})
		},
		func() error {
			reply, err := e.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 2, Lease: time.Hour})
			if held = reply.Deliveries; err == nil {
				f.came(held)
			}
			return err
		},
		func() error {
			if len(held) == 0 {
				return nil
			}
			return settle(posthaste.OutcomeDone)()
		},
		func() error { held = nil; return nil },
		drain(""),
		drain("audit"),
		send(messages("p", "q")),
		func() error {
			f.back["p"], f.back["q"] = true, true
			_, err := e.PurgeQueue(posthaste.WithActor(ctx, "ada"), jobs)
			if err == nil {
				for _, kind := range []string{"p", "q"} {
					f.ended["default "+kind], f.ended["audit "+kind] = true, true
				}
			}
			return err
		},
		func() error {
			for name := range f.ended { // another one of its name gets what the others still want
				if name[:5] == "audit" {
					delete(f.ended, name)
				}
			}
			return ignore(e.Unsubscribe(posthaste.WithActor(ctx, "ada"), jobs, "audit"), posthaste.CodeNotFound)
		},
		func() error { return e.Unregister(ctx, w) },
		func() error { return ignore(e.DropQueue(ctx, "side"), posthaste.CodeNotFound) },
	}
	for i, step := range steps {
		for tries := 0; ; tries++ {
			err := step()
			if gone() || f.broken != "" {
				return
			}
			if err == nil {
				break
			}
			if code := posthaste.CodeOf(err); code != posthaste.CodeUnavailable && code != posthaste.CodeOutcomeUnknown || tries > 5 {
				f.broke("step %d, try %d: %v", i, tries, err)
				return
			}
		}
	}
}

// lose ends all leases, as if their time was over.
func (f *fate) lose() {
	f.t.Helper()
	ctx := f.t.Context()
	all, err := f.sound.registry.read(ctx)
	if err != nil {
		f.t.Fatal(err)
	}
	names := []string{f.sound.keys.beats()}
	for _, q := range allOf(all) {
		names = append(names, f.sound.keys.own(q.name, q.subscription, "leases"), f.sound.keys.own(q.name, q.subscription, "timed"))
	}
	for _, name := range names {
		members, err := f.sound.client.ZRange(ctx, name, 0, -1).Result()
		for _, m := range members {
			if err == nil {
				err = f.sound.client.ZAdd(ctx, name, goredis.Z{Score: 1, Member: m}).Err()
			}
		}
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

// stuckRounds is how many rounds of upkeep and claims after dueAfter may hand out nothing
// before the remaining messages count as stuck. Retries are due long before dueAfter has
// passed.
const (
	stuckRounds = 50
	dueAfter    = 3 * time.Second
)

// judge finishes the remaining work, and reports broken promises.
func (f *fate) judge() {
	t, e := f.t, f.sound
	t.Helper()
	begun, stuck, forever := time.Now(), 0, false
	until(t, "all messages are handed out, or the rest is stuck", func() bool {
		f.lose() // deliveries that were received and never settled
		if _, err := e.Maintain(t.Context(), posthaste.UpkeepSpace); err != nil {
			t.Fatal(err)
		}
		infos, err := e.Queues(t.Context(), jobs)
		if err != nil || len(infos) != 1 {
			t.Fatalf("%d queues: %v", len(infos), err)
		}
		left := 0
		if time.Since(begun) > dueAfter {
			stuck++
		}
		for _, s := range infos[0].Subscriptions {
			ref := posthaste.QueueRef{Queue: jobs, Subscription: s.Name}
			for {
				reply, err := e.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: ref, Max: 100, Lease: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				if len(reply.Deliveries) == 0 {
					break
				}
				stuck = 0
				f.came(reply.Deliveries)
				for _, d := range reply.Deliveries {
					f.ended[of(d)] = true
				}
				done(t, e, reply.Deliveries...)
			}
			left += int(s.Depth + s.InFlight)
		}
		if left == 0 || f.broken != "" {
			return true
		}
		if forever = stuck > stuckRounds; forever {
			f.broke("%d are left for ever", left)
		}
		return forever
	})
	if forever {
		return
	}
	all, err := e.Messages(t.Context(), posthaste.MessageFilter{Queue: jobs, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for _, m := range all.Items {
		if f.back[m.Kind] && m.ID != f.ids[m.Kind] && m.Subscriptions[0].State == posthaste.StateCancelled {
			continue // another of its key was sent since
		}
		times[m.Kind]++
		if id, told := f.ids[m.Kind]; told && id != m.ID {
			f.broke("%s is there as %s, and its sender was told %s", m.Kind, m.ID, id)
		} else if !told && !f.unsure[m.Kind] && f.lives == 1 {
			f.broke("%s is there, and its sender was told that it is not", m.Kind)
		}
		if state := m.Subscriptions[0].State; state != posthaste.StateDone && state != posthaste.StateCancelled {
			f.broke("%s is %s in the end", m.Kind, state)
		}
	}
	for kind := range f.ids {
		if times[kind] != 1 {
			f.broke("%s is there %d times", kind, times[kind])
		}
	}
	for kind, n := range times {
		if n > 1 {
			f.broke("%s is there %d times", kind, n)
		}
	}
	for _, what := range []string{"run", "claim", "open", "claims", "timed", "due", "alone", "ready0", "stale", "dead", "holders"} {
		if n, err := e.client.Exists(t.Context(), e.keys.of(jobs, what)).Result(); err != nil || n > 0 {
			f.broke("key %s is left: %v", what, err)
		}
	}
}

// disturbed runs a life whose n-th command is disturbed. It returns whether the life had so
// many commands, and which promise was broken.
func disturbed(t *testing.T, url string, how disturbance, n int64) (was bool, broken string) {
	t.Helper()
	var given atomic.Int64
	proxy, err := faultproxy.New(url[len("redis://"):], func([]byte) bool { return given.Add(1) == n })
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	f := &fate{t: t, url: url, sound: open(t, url), ids: map[string]posthaste.MessageID{}, unsure: map[string]bool{}, ended: map[string]bool{}, back: map[string]bool{}}
	defer f.sound.Close()
	cut := proxy.CutAfter()
	if how == notGiven {
		cut = proxy.CutBefore()
	}
	happened := func() bool {
		select {
		case <-cut:
			return true
		default:
			return false
		}
	}
	f.live("redis://"+proxy.Address(), func() bool { return how == killed && happened() })
	was = happened()
	if how == killed && was && f.broken == "" {
		proxy.CutAll()
		f.lose()
		f.live(url, func() bool { return false })
	}
	if f.broken == "" {
		f.judge()
	}
	return was, f.broken
}

// RE1, RE7: at every command that a program gives to Redis, from the first to the last of
// its life, the command is lost, or its reply, or the program is killed and started again:
// nothing is lost, done twice or stranded.
func TestRE1_EveryCommandLost(t *testing.T) {
	t.Parallel()
	for _, how := range []disturbance{notGiven, noReply, killed} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			n := int64(1)
			for was := true; was; n++ {
				var broken string
				if was, broken = disturbed(t, server.URL(), how, n); broken != "" {
					t.Fatalf("at command %d: %s", n, broken)
				}
			}
			if n < 50 {
				t.Errorf("the life has only %d commands", n)
			}
			t.Logf("%d commands", n-2)
		})
	}
}

// Without each of its protections the same is found.
func TestRE1_EveryCommandIsProtected(t *testing.T) {
	for name, c := range map[string]struct {
		how     disturbance
		patches []patch
	}{
		"a claim is not repeated":   {noReply, []patch{{&claimScript, "if before then", "if false then"}}},
		"requests are not known":    {noReply, []patch{{&sendScript, "if request then call('SET'", "if false then call('SET'"}}},
		"dedupe keys are not known": {killed, []patch{{&sendScript, "local known = o.k and", "local known = false and"}}},
		"a claim is not recorded":   {killed, []patch{{&claimScript, "call('ZADD', CLAIMS, worker, tag)", ""}, {&repairScript, "if call('HGET', TALLY, 'fill')", "if true"}}},
	} {
		t.Run(name, func(t *testing.T) {
			breaks(t, func(t *testing.T, e *Engine) string {
				n := int64(1)
				for was := true; was; n++ {
					var broken string
					if was, broken = disturbed(t, server.URL(), c.how, n); broken != "" {
						t.Logf("at command %d: %s", n, broken)
						return broken
					}
				}
				return ""
			}, c.patches...)
		})
	}
}
