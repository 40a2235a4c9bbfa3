package redis

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// crowd does at random what can be done to a queue with several subscriptions, and knows
// what each of them may get.
type crowd struct {
	t       *testing.T
	e       *Engine   // that of the step
	engines []*Engine // of several processes, which learn of subscriptions when they have to
	rand    *rand.Rand
	options posthaste.QueueOptions
	workers []posthaste.WorkerID
	number  int64
	sent    []posthaste.MessageID
	// By subscription, what its messages are: "" (waits), "held", "dead", "cancelled", "stopped" (cancelled while it ran) or "ended".
	state map[string]map[posthaste.MessageID]string
	holds map[posthaste.DeliveryID]holding
	// apart has those that were set aside. The first worker handles only the kind x.
	apart map[holding]bool
	// asked has those that were cancelled while they were held.
	asked map[holding]bool
}

type holding struct {
	subscription string
	message      posthaste.MessageID
	by           posthaste.WorkerID // 0: a receiver
}

// broke ends a walk that cannot go on.
type broke string

func (c *crowd) must(err error) {
	if err != nil {
		panic(broke(err.Error()))
	}
}

func (c *crowd) subscriptions() []string { return slices.Sorted(maps.Keys(c.state)) }

func (c *crowd) any() string {
	all := c.subscriptions()
	return all[c.rand.IntN(len(all))]
}

func (c *crowd) send() {
	messages := make([]posthaste.Message, 1+c.rand.IntN(5))
	for i := range messages {
		m := posthaste.Message{Queue: jobs, Payload: "payload", Key: string(rune('a' + c.rand.IntN(5))), Kind: "y"}
		if c.rand.IntN(2) == 0 {
			m.Kind = "x"
		}
		if c.rand.IntN(4) == 0 && !c.options.Ordered {
			m.Delay = time.Duration(c.rand.IntN(500)) * time.Microsecond
		}
		messages[i] = m
	}
	ids, err := posthaste.IDs(c.e.Send(c.t.Context(), messages...))
	c.must(err)
	c.sent = append(c.sent, ids...)
	for name, states := range c.state {
		for i, id := range ids {
			if name != "x" || messages[i].Kind == "x" {
				states[id] = ""
			}
		}
	}
}

// take checks deliveries as they are handed out. It returns the violation, or "".
func (c *crowd) take(subscription string, by posthaste.WorkerID, got []posthaste.RawDelivery) string {
	for _, d := range got {
		switch is, wanted := c.state[subscription][d.MessageID]; {
		case !wanted || is != "":
			return fmt.Sprintf("%s got message %d, which is %q (wanted: %v)", subscription, d.MessageID, is, wanted)
		case d.Subscription != subscription || string(d.Payload) != `"payload"`:
			return fmt.Sprintf("%s got message %d as %+v", subscription, d.MessageID, d)
		case c.holds[d.ID] != holding{}:
			return fmt.Sprintf("delivery %d is of two", d.ID)
		case by == c.workers[0] && c.apart[holding{subscription: subscription, message: d.MessageID}] && d.Kind != "x":
			return fmt.Sprintf("%s got message %d of kind %s, which was set aside", subscription, d.MessageID, d.Kind)
		}
		delete(c.apart, holding{subscription: subscription, message: d.MessageID})
		c.state[subscription][d.MessageID] = "held"
		c.holds[d.ID] = holding{subscription, d.MessageID, by}
	}
	return ""
}

func (c *crowd) claim(subscription string, idle bool) (posthaste.ClaimReply, string) {
	w := c.workers[c.rand.IntN(len(c.workers))]
	c.number++
	reply, err := c.e.Claim(c.t.Context(), posthaste.ClaimRequest{Worker: w, Number: c.number, QueueRef: posthaste.QueueRef{Queue: jobs, Subscription: subscription}, Max: 1 + c.rand.IntN(12), AllowAlone: idle})
	c.must(err)
	return reply, c.take(subscription, w, reply.Deliveries)
}

// settle settles some deliveries, or all of them as done.
func (c *crowd) settle(finish bool) string {
	var all []posthaste.Settlement
	var after []string
	for _, id := range slices.Sorted(maps.Keys(c.holds)) {
		if !finish && c.rand.IntN(3) > 0 {
			continue
		}
		one, is := posthaste.Settlement{Delivery: id, Outcome: posthaste.OutcomeDone}, "ended"
		if n := c.rand.IntN(8); !finish && n < 5 {
			one.Outcome = []posthaste.Outcome{posthaste.OutcomeDone, posthaste.OutcomeRetried, posthaste.OutcomeReleased, posthaste.OutcomeSetAside, posthaste.OutcomeDead}[n]
			if one.Outcome == posthaste.OutcomeSetAside && looks(c.options) > 0 {
				one.Outcome = posthaste.OutcomeReleased // setting aside takes a second there
			}
			one.Duration = time.Microsecond
			if one.Outcome == posthaste.OutcomeRetried || one.Outcome == posthaste.OutcomeDead {
				one.Error = "at random"
			}
			is = []string{"ended", "", "", "", "dead"}[n]
		}
		all, after = append(all, one), append(after, is)
	}
	results, err := c.e.Settle(c.t.Context(), all)
	c.must(err)
	for i, r := range results {
		h := c.holds[r.Delivery]
		if !r.Settled {
			return fmt.Sprintf("delivery %d of message %d for %s was not settled", r.Delivery, h.message, h.subscription)
		}
		if is := c.ended(h, after[i]); (is == "stopped") != (r.Outcome == posthaste.OutcomeCancelled) {
			return fmt.Sprintf("message %d for %s is %q, and its delivery became %s", h.message, h.subscription, is, r.Outcome)
		} else if all[i].Outcome == posthaste.OutcomeSetAside && is == "" {
			c.apart[holding{subscription: h.subscription, message: h.message}] = true
		}
		delete(c.holds, r.Delivery)
	}
	return ""
}

// ended notes the end of a delivery, and returns the state of its message: one that was cancelled
// while it was held does not come again.
func (c *crowd) ended(h holding, is string) string {
	h.by = 0
	if c.asked[h] && is != "ended" {
		is = "stopped"
	}
	delete(c.asked, h)
	c.state[h.subscription][h.message] = is
	return is
}

func (c *crowd) lose() {
	i := c.rand.IntN(len(c.workers))
	c.must(c.e.Unregister(c.t.Context(), c.workers[i]))
	for lost := 1; lost > 0; {
		reply, err := c.e.Maintain(c.t.Context(), posthaste.UpkeepRescue)
		c.must(err)
		lost = reply.Rescued
	}
	for id, h := range c.holds {
		if h.by == c.workers[i] {
			c.ended(h, "")
			delete(c.holds, id)
		}
	}
	c.workers[i] = c.register(i)
}

// register registers a worker. The first one handles only one kind in two of the subscriptions.
func (c *crowd) register(i int) posthaste.WorkerID {
	info := posthaste.WorkerInfo{Name: "tester", Lease: 1 << 40}
	if i == 0 {
		info.Kinds = map[posthaste.QueueRef][]string{{Queue: jobs}: {"x"}, {Queue: jobs, Subscription: "late"}: {"w", "x"}}
	}
	w, err := c.e.Register(c.t.Context(), info)
	c.must(err)
	return w
}

// late makes the subscription that comes later, from the oldest, or ends it.
func (c *crowd) late() string {
	if c.state["late"] != nil {
		c.must(c.e.Unsubscribe(posthaste.WithActor(c.t.Context(), "ada"), jobs, "late", posthaste.DropOptions{}))
		delete(c.state, "late")
		for _, all := range []map[holding]bool{c.apart, c.asked} {
			maps.DeleteFunc(all, func(h holding, _ bool) bool { return h.subscription == "late" })
		}
		for id, h := range c.holds {
			if h.subscription != "late" {
				continue
			}
			results, err := c.e.Settle(c.t.Context(), []posthaste.Settlement{{Delivery: id, Outcome: posthaste.OutcomeDone}})
			c.must(err)
			if results[0].Settled {
				return "a delivery of a subscription that has ended was settled"
			}
			delete(c.holds, id)
		}
		return ""
	}
	states := map[posthaste.MessageID]string{}
	for _, id := range c.sent {
		open, cancelled := c.options.RetainPayload, false
		for _, of := range c.state {
			is, wanted := of[id]
			open = open || wanted && is != "ended" && is != "cancelled" && is != "stopped"
			cancelled = cancelled || is == "cancelled" || is == "stopped"
		}
		if open && !cancelled {
			states[id] = ""
		}
	}
	c.must(c.e.Subscribe(posthaste.WithActor(c.t.Context(), "ada"), jobs, "late", posthaste.SubscriptionOptions{From: posthaste.FromOldest}))
	c.state["late"] = states
	return ""
}

// cancel takes back a message, which some have and others wait for.
func (c *crowd) cancel(id posthaste.MessageID) string {
	told, err := c.e.Cancel(posthaste.WithActor(c.t.Context(), "ada"), id)
	c.must(err)
	for _, w := range told {
		switch is := c.state[w.Subscription][id]; {
		case w.InTime != (is == "" || is == "cancelled"), w.Requested != (is == "held"):
			return fmt.Sprintf("message %d, which is %q for %s, is told as %+v", id, is, w.Subscription, w)
		case w.InTime:
			c.state[w.Subscription][id] = "cancelled"
		case w.Requested:
			c.asked[holding{subscription: w.Subscription, message: id}] = true
		}
	}
	return ""
}

// purge takes back all that waits.
func (c *crowd) purge() string {
	purged, err := c.e.PurgeQueue(posthaste.WithActor(c.t.Context(), "ada"), jobs)
	c.must(err)
	if len(purged) != len(c.state) {
		return fmt.Sprintf("purged are %+v", purged)
	}
	for _, p := range purged {
		n := int64(0)
		for id, is := range c.state[p.Subscription] {
			if is == "" {
				c.state[p.Subscription][id] = "cancelled"
				n++
			}
		}
		if n != p.Messages {
			return fmt.Sprintf("purged are %+v, and %d waited", p, n)
		}
	}
	return ""
}

// bury replays or discards a message, for each subscription that it is dead for.
func (c *crowd) bury(id posthaste.MessageID, discard bool) string {
	act, is := c.e.Replay, ""
	if discard {
		act, is = c.e.Discard, "ended"
	}
	dead := false
	for _, states := range c.state {
		if states[id] == "dead" {
			states[id], dead = is, true
		}
	}
	were, err := act(posthaste.WithActor(c.t.Context(), "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{id}})
	if posthaste.CodeOf(err) != posthaste.CodeNotFound {
		c.must(err)
	}
	if dead != (len(were.Items) == 1) {
		return fmt.Sprintf("message %d is dead (%v), and %d were found", id, dead, len(were.Items))
	}
	return ""
}

// told looks whether a message is told as it is.
func (c *crowd) told(id posthaste.MessageID) string {
	m, err := c.e.Message(c.t.Context(), id)
	wanted := 0
	for _, states := range c.state {
		if _, ok := states[id]; ok {
			wanted++
		}
	}
	if wanted == 0 && posthaste.CodeOf(err) == posthaste.CodeNotFound {
		return ""
	}
	c.must(err)
	for _, s := range m.Subscriptions {
		is, ok := c.state[s.Subscription][id]
		states := map[string][]posthaste.State{"": {posthaste.StateReady, posthaste.StateRetrying, posthaste.StateScheduled}, "held": {posthaste.StateRunning}, "dead": {posthaste.StateDead},
			"cancelled": {posthaste.StateCancelled}, "stopped": {posthaste.StateCancelled}, "ended": {posthaste.StateDone, posthaste.StateDiscarded}}[is]
		if !ok || !slices.Contains(states, s.State) {
			return fmt.Sprintf("message %d, which is %q for %s (%v), is told as %s", id, is, s.Subscription, ok, s.State)
		}
	}
	if len(m.Subscriptions) != wanted {
		return fmt.Sprintf("message %d is told for %d subscriptions, and %d want it", id, len(m.Subscriptions), wanted)
	}
	return ""
}

func (c *crowd) step() string {
	var id posthaste.MessageID
	if len(c.sent) > 0 {
		id = c.sent[c.rand.IntN(len(c.sent))]
	}
	c.e = c.engines[c.rand.IntN(len(c.engines))]
	switch n := c.rand.IntN(100); {
	case n < 20 || id == 0:
		c.send()
	case n < 50:
		_, broken := c.claim(c.any(), c.rand.IntN(2) == 0)
		return broken
	case n < 57:
		of := c.any()
		reply, err := c.e.Receive(c.t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: jobs, Subscription: of}, Max: 1 + c.rand.IntN(12), Lease: time.Hour})
		c.must(err)
		return c.take(of, 0, reply.Deliveries)
	case n < 77:
		return c.settle(false)
	case n < 80:
		c.lose()
	case n < 83:
		return c.late()
	case n < 88:
		return c.cancel(id)
	case n < 89:
		return c.purge()
	case n < 94:
		return c.bury(id, c.rand.IntN(2) == 0)
	default:
		return c.told(id)
	}
	return ""
}

// left are the messages that a subscription has not ended.
func (c *crowd) left() (n int) {
	for _, states := range c.state {
		for _, is := range states {
			if is != "ended" && is != "cancelled" && is != "stopped" {
				n++
			}
		}
	}
	return n
}

// end lets everything come to its end, and checks that nothing is left.
func (c *crowd) end() string {
	for _, id := range c.sent {
		if broken := c.bury(id, true); broken != "" {
			return broken
		}
	}
	for began, vain := time.Now(), 0; c.left() > 0; vain++ {
		if broken := c.settle(true); broken != "" {
			return broken
		}
		if vain > 300 && time.Since(began) > 3*time.Second { // far above any backoff
			return fmt.Sprintf("%d messages are left and do not come", c.left())
		}
		for _, of := range c.subscriptions() {
			reply, broken := c.claim(of, true)
			if broken != "" {
				return broken
			}
			if len(reply.Deliveries) > 0 {
				began, vain = time.Now(), 0
			}
		}
	}
	for _, id := range c.sent {
		if broken := c.told(id); broken != "" {
			return broken
		}
	}
	infos, err := c.e.Queues(c.t.Context(), jobs)
	c.must(err)
	if len(infos[0].Subscriptions) != len(c.state) {
		return fmt.Sprintf("told are %+v", infos[0].Subscriptions)
	}
	for _, s := range infos[0].Subscriptions {
		if s.Depth != 0 || s.InFlight != 0 || s.Dead != 0 || int(s.Sent) < len(c.state[s.Name]) {
			return fmt.Sprintf("at the end are told %+v", s)
		}
		for _, what := range []string{"run", "due", "alone", "ready0", "wait", "held", "stopped", "claim", "open", "timed", "apart", "aside.apart"} {
			if n := c.e.client.Exists(c.t.Context(), c.e.keys.own(jobs, s.Name, what)).Val(); n != 0 {
				return fmt.Sprintf("at the end something of %s is left in %s", s.Name, what)
			}
		}
	}
	if c.options.Retention > 0 {
		return ""
	}
	for _, what := range []string{"msg", "holders"} {
		if n := c.e.client.HLen(c.t.Context(), c.e.keys.of(jobs, what)).Val(); n != 0 {
			return fmt.Sprintf("at the end %d are left in %s", n, what)
		}
	}
	return ""
}

var crowds = []posthaste.QueueOptions{{}, {Ordered: true}, {Fair: true}, {Retention: time.Hour}, {Retention: time.Hour, RetainPayload: true}, {MaxAge: time.Hour}}

// crowded walks through a queue with several subscriptions. It returns the first violation, or
// "".
func crowded(t *testing.T, e *Engine, seed uint64, steps int) (broken string) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			why, ok := r.(broke)
			if !ok {
				panic(r)
			}
			broken = string(why)
		}
	}()
	c := &crowd{t: t, e: e, rand: rand.New(rand.NewPCG(seed, 11)), options: crowds[seed%uint64(len(crowds))],
		state: map[string]map[posthaste.MessageID]string{posthaste.DefaultSubscription: {}, "x": {}}, holds: map[posthaste.DeliveryID]holding{}, apart: map[holding]bool{}, asked: map[holding]bool{}}
	c.options.MaxAttempts, c.options.BackoffBase, c.options.BackoffMax = 1000, time.Microsecond, 300*time.Microsecond
	create(t, e, c.options)
	c.must(e.Subscribe(posthaste.WithActor(t.Context(), "ada"), jobs, "x", posthaste.SubscriptionOptions{Filter: posthaste.Filter{Kinds: []string{"x"}}}))
	c.engines = []*Engine{e, another(t, e)}
	for i := range 3 {
		c.workers = append(c.workers, c.register(i))
	}
	for n := range steps {
		if broken := c.step(); broken != "" {
			return fmt.Sprintf("step %d: %s", n, broken)
		}
	}
	return c.end()
}

// Whatever happens, each message is settled once for each subscription that wants it, is
// told as it is, and is gone when the last of them is through. POSTHASTE_TEST_SECONDS says
// how long it walks, POSTHASTE_TEST_SEED from where.
func TestSubscriptionsThroughInterleaving(t *testing.T) {
	seconds, _ := strconv.Atoi(os.Getenv("POSTHASTE_TEST_SECONDS"))
	seed, err := strconv.ParseUint(os.Getenv("POSTHASTE_TEST_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64N(1e9)
	}
	began := time.Now()
	for n := uint64(0); n < 10 || time.Since(began) < time.Duration(seconds)*time.Second; n++ {
		if broken := crowded(t, open(t, server.URL()), seed+n, 200); broken != "" {
			t.Fatalf("POSTHASTE_TEST_SEED=%d: %s", seed+n, broken)
		}
	}
}

// Each protection of what subscriptions have in common is missed by the walk.
func TestSubscriptionsAreProtected(t *testing.T) {
	for name, p := range map[string]patch{
		"contents that others want": {&settleScript, "if call('EXISTS', HOLDERS) == 1 then", "if false then"},
		"the others' letters":       {&settleScript, ".. string.sub(held, at + 2) .. mark", ".. mark"},
		"contents are freed":        {&settleScript, "many('HDEL', MSG, gone)", ""},
		"payloads that others want": {&settleScript, "elseif not string.find(left, '+', 1, true) then", "else"},
		"who sends":                 {&sendScript, "(meta[4] or '') ~= (all.v and all.v[q] or '') or", ""},
		"filters":                   {&sendScript, "if not (o.x and string.find(o.x, r.letter, 1, true)) then", "if true then"},
		"whose it is":               {&tellScript, "content and markOf(call('HGET', HOLDERS, id), me)", "content"},
		"others' messages":          {&withdrawScript, "if not markOf(call('HGET', HOLDERS, id), me) then return 0 end", ""},
		"cancelled messages":        {&fillScript, "st.z == 'cancelled' or ", ""},
		"requests to cancel":        {&settleScript, "if notes and notes.q and outcome ~= 'done' then", "if false then"},
		"requests, of losses":       {&rescueScript, "if notes and notes.q and outcome ~= 'done' then", "if false then"},
		"released messages":         {&leaveScript, "passed(ids, false)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			breaks(t, func(t *testing.T, _ *Engine) string {
				for seed := range uint64(50) {
					if broken := crowded(t, open(t, server.URL()), seed, 300); broken != "" {
						return broken
					}
				}
				return ""
			}, p)
		})
	}
}
