package redis

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// kindred is a queue in which messages of some kinds are set aside.
type kindred struct {
	t      *testing.T
	e      *Engine
	old    posthaste.WorkerID // handles none of the kinds
	number int64
}

func newKindred(t *testing.T, e *Engine, o posthaste.QueueOptions) *kindred {
	t.Helper()
	create(t, e, o)
	k := &kindred{t: t, e: e}
	k.old = k.handles("another kind")
	return k
}

func (k *kindred) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *kindred) handles(kinds ...string) posthaste.WorkerID {
	k.t.Helper()
	w, err := k.e.Register(k.t.Context(), posthaste.WorkerInfo{Name: "tester", Lease: time.Hour, Kinds: map[posthaste.QueueRef][]string{{Queue: jobs}: kinds}})
	k.must(err)
	return w
}

// send sends a message of each kind.
func (k *kindred) send(kinds ...string) (ids []posthaste.MessageID) {
	k.t.Helper()
	messages := make([]posthaste.Message, len(kinds))
	for i, kind := range kinds {
		messages[i] = posthaste.Message{Queue: jobs, Key: "k", Kind: kind, Payload: i}
	}
	ids, err := posthaste.IDs(k.e.Send(k.t.Context(), messages...))
	k.must(err)
	return ids
}

func (k *kindred) claim(w posthaste.WorkerID, most int) []posthaste.RawDelivery {
	k.t.Helper()
	k.number++
	return claim(k.t, k.e, w, k.number, most)
}

func (k *kindred) aside(deliveries ...posthaste.RawDelivery) {
	k.t.Helper()
	all := make([]posthaste.Settlement, len(deliveries))
	for i, d := range deliveries {
		all[i] = posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeSetAside}
	}
	results, err := k.e.Settle(k.t.Context(), all)
	k.must(err)
	for _, r := range results {
		if !r.Settled || r.Outcome != posthaste.OutcomeReleased {
			k.t.Fatalf("setting aside is answered %+v", r)
		}
	}
}

// sentAside sends a message of each kind, which the old worker sets aside.
func (k *kindred) sentAside(kinds ...string) []posthaste.MessageID {
	k.t.Helper()
	ids := k.send(kinds...)
	held := k.claim(k.old, len(kinds))
	if len(held) != len(kinds) {
		k.t.Fatalf("%d were handed out, want %d", len(held), len(kinds))
	}
	k.aside(held...)
	return ids
}

// lone sends a message that is lost twice, so that it must run alone.
func (k *kindred) lone() posthaste.MessageID {
	k.t.Helper()
	id := k.send("sms")[0]
	for range 2 {
		until(k.t, "it is handed out", func() bool {
			k.number++
			reply, err := k.e.Claim(k.t.Context(), posthaste.ClaimRequest{Worker: k.old, Number: k.number, QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 1})
			k.must(err)
			return len(reply.Deliveries) == 1
		})
		k.must(k.e.Unregister(k.t.Context(), k.old))
		until(k.t, "it is lost", func() bool {
			reply, err := k.e.Maintain(k.t.Context(), posthaste.UpkeepRescue)
			k.must(err)
			return reply.Rescued == 1
		})
		k.old = k.handles("another kind")
	}
	return id
}

// loneAside is lone with a message that is then set aside.
func (k *kindred) loneAside() posthaste.MessageID {
	k.t.Helper()
	id := k.lone()
	got := k.claimIdle(k.old)
	if len(got) != 1 {
		k.t.Fatalf("an idle worker got %d", len(got))
	}
	k.aside(got...)
	return id
}

// claimIdle is a claim of a worker that runs nothing else.
func (k *kindred) claimIdle(w posthaste.WorkerID) []posthaste.RawDelivery {
	k.t.Helper()
	k.number++
	reply, err := k.e.Claim(k.t.Context(), posthaste.ClaimRequest{Worker: w, Number: k.number, QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 1, AllowAlone: true})
	k.must(err)
	return reply.Deliveries
}

// age makes a message that has a state too old for every max_age.
func (k *kindred) age(id posthaste.MessageID) {
	k.t.Helper()
	k.must(k.e.client.Eval(k.t.Context(), "local st = cmsgpack.unpack(redis.call('HGET', KEYS[1], ARGV[1])) st.g = 1 return redis.call('HSET', KEYS[1], ARGV[1], cmsgpack.pack(st))",
		[]string{k.e.keys.of(jobs, "st")}, place(int64(id))).Err())
}

// came returns the kinds of deliveries, in order.
func came(deliveries []posthaste.RawDelivery) (kinds []string) {
	for _, d := range deliveries {
		kinds = append(kinds, d.Kind)
	}
	slices.Sort(kinds)
	return kinds
}

// asideRules are the rules of messages that were set aside.
var asideRules = map[string]struct {
	options posthaste.QueueOptions
	holds   func(k *kindred) string
	broken  patch
}{
	"one claim gets it": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.sentAside("sms", "sms")
		first, second := k.claim(k.handles("sms"), 1), k.claim(k.handles("sms"), 2)
		if len(first) != 1 || len(second) != 1 || first[0].MessageID == second[0].MessageID {
			return fmt.Sprintf("the first claim got %d, the second %d", len(first), len(second))
		}
		return ""
	}, patch{&claimScript, "      leftApart(members)\n", ""}},
	"a worker of the kind finds it": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.sentAside("sms")
		return unlessOne(k.claim(k.handles("sms"), 1))
	}, patch{&settleScript, "call('HSET', TALLY, 'apart', 1)", ""}},
	"only a worker of the kind": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.sentAside("sms")
		return unlessNone(k.claim(k.old, 1))
	}, patch{&claimScript, "local kinds = kinds ~= '' and unpacked(kinds) or nil", "local kinds"}},
	"no look tells others": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.sentAside("sms")
		beat, err := k.e.Heartbeat(k.t.Context(), posthaste.Heartbeat{Worker: k.old, Queues: []posthaste.QueueRef{{Queue: jobs}}})
		if k.must(err); beat.Looks[0].Found {
			return "a worker of other kinds is told that there is something"
		}
		return ""
	}, patch{&beatScript, "hasApart(kinds ~= '' and unpacked(kinds) or nil, paused ~= '' and unpacked(paused) or nil)", "hasApart()"}},
	"others come beside them": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.sentAside(slices.Repeat([]string{"sms"}, 30)...)
		k.send(slices.Repeat([]string{"mail"}, 30)...)
		return unlessBoth(k.claim(k.handles("mail", "sms"), 10), "mail", "sms")
	}, patch{&claimScript, "math.floor((most + string.sub(priorities, 5)) / 2)", "most"}},
	"they come beside others": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.sentAside(slices.Repeat([]string{"sms"}, 30)...)
		k.send(slices.Repeat([]string{"mail"}, 30)...)
		return unlessBoth(k.claim(k.handles("mail", "sms"), 10), "mail", "sms")
	}, patch{&claimScript, "math.floor((most + string.sub(priorities, 5)) / 2)", "0"}},
	"no kind starves": {posthaste.QueueOptions{}, func(k *kindred) string {
		return k.inTurn(k.handles("mail", "sms"))
	}, patch{&claimScript, "now % math.max(#kinds, 1)", "0"}},
	"no kind starves where all are handled": {posthaste.QueueOptions{}, func(k *kindred) string {
		return k.inTurn(register(k.t, k.e))
	}, patch{&claimScript, "call('ZRANDMEMBER', APART)", "nil"}},
	"it runs alone": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.loneAside()
		return unlessNone(k.claim(k.handles("sms"), 1))
	}, patch{&settleScript, "(st.l >= 2 and '1' or '0')", "'0'"}},
	"it runs alone after one that is too old": {posthaste.QueueOptions{MaxAge: time.Hour}, func(k *kindred) string {
		old := k.loneAside()
		k.loneAside()
		k.age(old)
		return unlessNone(k.claim(k.handles("sms"), 1))
	}, patch{&claimScript, "if idle == '1' then separate({b}, 1) else wants = '1' end", "separate({b}, 1)"}},
	"a cancelled message does not come": {posthaste.QueueOptions{Retention: time.Hour, RetainPayload: true}, func(k *kindred) string {
		_, err := k.e.Cancel(posthaste.WithActor(k.t.Context(), "ada"), k.sentAside("sms")[0])
		k.must(err)
		return unlessNone(k.claim(k.handles("sms"), 1))
	}, patch{&withdrawScript, "leftApart({apart}) + call('ZREM', ASIDE_APART, apart)", "1"}},
	"a purge takes them": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.sentAside("sms", "fax")
		k.send("mail")
		purged, err := k.e.PurgeQueue(posthaste.WithActor(k.t.Context(), "ada"), jobs)
		if k.must(err); purged[0].Messages != 3 {
			return fmt.Sprintf("purged are %+v", purged)
		}
		return unlessNone(k.claim(register(k.t, k.e), 3))
	}, patch{&asideScript, "call('RENAME', KEYS[at + AT_APART], KEYS[at + AT_ASIDE_APART])", ""}},
	"a message that was done late does not come": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.send("sms")
		knows := k.handles("sms")
		first := k.claim(knows, 1)
		k.must(k.e.Unregister(k.t.Context(), knows))
		lost, err := k.e.Maintain(k.t.Context(), posthaste.UpkeepRescue)
		if k.must(err); lost.Rescued != 1 {
			k.t.Fatalf("%d were lost", lost.Rescued)
		}
		k.aside(k.claim(k.old, 1)...)
		done(k.t, k.e, first...)
		return unlessNone(k.claim(k.handles("sms"), 1))
	}, patch{&settleScript, "(st.w and leftApart({st.w}) or 0)", "0"}},
	"tokens are given back": {posthaste.QueueOptions{Limits: posthaste.QueueLimits{RateLimit: posthaste.Rate{Limit: 1, Per: time.Hour, Burst: 1}}}, func(k *kindred) string {
		k.sentAside("sms")
		knows := k.handles("sms")
		if said := unlessOne(k.claim(knows, 1)); said != "" {
			return said
		}
		k.send("sms")
		return unlessNone(k.claim(knows, 1))
	}, patch{&settleScript, "if meta[1] and #aside > 0 then giveBack(unpacked(meta[1])) end", ""}},
	"they are not stranded": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.sentAside("sms")
		if n := repairAll(k.t, k.e); n > 0 {
			return fmt.Sprintf("%d were repaired", n)
		}
		return ""
	}, patch{&repairScript, "if st and st.w and call('ZSCORE', APART, st.w) then return true end", ""}},
	"upkeep makes them known": {posthaste.QueueOptions{}, func(k *kindred) string {
		k.sentAside("sms")
		k.must(k.e.client.HDel(k.t.Context(), k.e.keys.of(jobs, "meta"), "apart").Err()) // by hand
		repairAll(k.t, k.e)
		return unlessOne(k.claim(k.handles("sms"), 1))
	}, patch{&repairScript, "if call('EXISTS', APART) == 1 then call('HSET', TALLY, 'apart', 1) end", ""}},
}

func unlessOne(got []posthaste.RawDelivery) string {
	if len(got) != 1 {
		return fmt.Sprintf("%d were handed out, want one", len(got))
	}
	return ""
}

func unlessNone(got []posthaste.RawDelivery) string {
	if len(got) != 0 {
		return fmt.Sprintf("%v were handed out, want none", came(got))
	}
	return ""
}

func unlessBoth(got []posthaste.RawDelivery, kinds ...string) string {
	if all := came(got); len(all) != 10 || !slices.Equal(slices.Compact(all), kinds) {
		return fmt.Sprintf("%v were handed out, want some of each of %v", all, kinds)
	}
	return ""
}

// inTurn has two kinds set aside that keep coming, and lets a worker claim one at a time.
func (k *kindred) inTurn(w posthaste.WorkerID) string {
	k.sentAside("mail", "mail", "mail", "sms", "sms", "sms")
	var all []posthaste.RawDelivery
	for range 60 {
		got := k.claim(w, 1)
		all = append(all, got...)
		k.aside(got...)
	}
	if kinds := slices.Compact(came(all)); len(kinds) != 2 {
		return fmt.Sprintf("of both kinds came only %v", kinds)
	}
	return ""
}

func TestR1_SetAside(t *testing.T) {
	for name, r := range asideRules {
		t.Run(name, func(t *testing.T) {
			rule(t, func(t *testing.T, e *Engine) string { return r.holds(newKindred(t, e, r.options)) }, r.broken)
		})
	}
}

// A process that did not register a worker reads the kinds that it handles.
func TestR1_KindsOfAnotherProcess(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	k := newKindred(t, e, posthaste.QueueOptions{})
	k.sentAside("sms", "fax")
	knows := k.handles("fax")
	k.e = another(t, e)
	if said := unlessNone(k.claim(k.old, 2)); said != "" {
		t.Error(said)
	}
	if got := came(k.claim(knows, 2)); !slices.Equal(got, []string{"fax"}) {
		t.Errorf("%v were handed out", got)
	}
}

// While a process polls, its probes tell only of messages that one of its workers handles.
func TestR1_ProbesTellOwnKinds(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	k := newKindred(t, e, posthaste.QueueOptions{})
	k.sentAside("sms")
	found := func(e *Engine) bool {
		t.Helper()
		ready, err := e.probe(t.Context(), []posthaste.QueueRef{{Queue: jobs}})
		k.must(err)
		return ready[0]
	}
	if found(e) {
		t.Error("a process whose worker handles another kind is told")
	}
	if !found(another(t, e)) {
		t.Error("a process that only receives is not told")
	}
	knows := k.handles("fax", "sms")
	if !found(e) {
		t.Error("a process with a worker of the kind is not told")
	}
	k.must(e.Unregister(t.Context(), knows))
	k.handles()
	if found(e) {
		t.Error("a process whose worker of the kind has ended is told")
	}
	register(t, e)
	if !found(e) {
		t.Error("a process with a worker of all kinds is not told")
	}
}

// Setting aside leaves nothing behind, however a message ends.
func TestR1_NothingIsLeft(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	k := newKindred(t, e, posthaste.QueueOptions{})
	ids := k.sentAside("sms", "sms", "fax")
	_, err := e.Cancel(posthaste.WithActor(t.Context(), "ada"), ids[0])
	k.must(err)
	done(t, e, k.claim(k.handles("sms"), 1)...)
	_, err = e.PurgeQueue(posthaste.WithActor(t.Context(), "ada"), jobs)
	k.must(err)
	for _, what := range []string{"apart", "aside.apart", "due", "run", "msg"} {
		if n := e.client.Exists(t.Context(), e.keys.of(jobs, what)).Val(); n != 0 {
			t.Errorf("something is left in %s", what)
		}
	}
	if e.client.HExists(t.Context(), e.keys.of(jobs, "meta"), "apart").Val() {
		t.Error("claims are still told that messages are set aside")
	}
}

// A queue without options or pauses of kinds gives scripts none: with an empty set, claims would
// look up the kind of each message.
func TestRulesOmitKindsWithoutAny(t *testing.T) {
	t.Parallel()
	if got, want := packed(rules{Kinds: optionsOfKinds(posthaste.QueueOptions{}), Paused: setOf(nil)}), packed(rules{}); got != want {
		t.Errorf("the rules are %q, want %q", got, want)
	}
}
