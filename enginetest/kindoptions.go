package enginetest

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var kindOptions = []test{
	{name: "JB3_MaxAttemptsOfKind", run: maxAttemptsOfKind},
	{name: "JB3_MaxAttemptsOfKindInOrder", run: maxAttemptsOfKindInOrder, needs: features{Ordered: true}},
	{name: "JB3_BackoffOfKind", run: backoffOfKind},
	{name: "JB3_TimeoutOfKind", run: timeoutOfKind},
	{name: "JB3_TimeoutOfKindAtMostOnce", run: timeoutOfKindAtMostOnce, needs: features{AtMostOnce: true}},
	{name: "R2_KindsChange", run: kindsChange},
	{name: "R2_KindsWhileWaiting", run: kindsWhileWaiting},
	{name: "R2_KindsRefused", run: kindsRefused},
}

// ofKinds are quick options with some for kinds.
func ofKinds(kinds map[string]posthaste.KindOptions) posthaste.QueueOptions {
	o := quick() // 3 attempts
	o.Kinds = kinds
	return o
}

// maxAttemptsOfKind: a message's option wins over that of its kind, and this over the queue's.
func maxAttemptsOfKind(s *suite) {
	s.create(ofKinds(map[string]posthaste.KindOptions{"sms": {MaxAttempts: 2}, "fax": {Timeout: time.Minute}}))
	ids := s.sendMessages(posthaste.Message{Kind: "sms"}, posthaste.Message{Kind: "sms", MaxAttempts: 4}, posthaste.Message{Kind: "sms", Timeout: time.Hour},
		posthaste.Message{Kind: "fax"}, posthaste.Message{Kind: "mail"}, posthaste.Message{}, posthaste.Message{Kind: "mail", MaxAttempts: 1})
	s.wantRuns(s.failAll(s.register(time.Minute), len(ids)), ids, 2, 4, 2, 3, 3, 3, 1)
}

func maxAttemptsOfKindInOrder(s *suite) {
	o := ofKinds(map[string]posthaste.KindOptions{"sms": {MaxAttempts: 1}})
	o.Ordered = true
	s.create(o)
	ids := s.sendMessages(posthaste.Message{Key: "a", Kind: "sms"}, posthaste.Message{Key: "a"}, posthaste.Message{Key: "b", Kind: "sms", MaxAttempts: 2})
	s.wantRuns(s.failAll(s.register(time.Minute), len(ids)), ids, 1, 3, 2)
}

// backoffOfKind is as backoffOfMessage.
func backoffOfKind(s *suite) {
	long, short, jitter := 1000*time.Hour, 2*time.Millisecond, 50*time.Millisecond
	s.create(posthaste.QueueOptions{MaxAttempts: 9, BackoffBase: long, BackoffMax: long, Kinds: map[string]posthaste.KindOptions{
		"both": {Backoff: posthaste.Backoff{Base: short, Max: short}}, "base": {Backoff: posthaste.Backoff{Base: short}},
		"max": {Backoff: posthaste.Backoff{Max: short}}, "attempts": {MaxAttempts: 5}}})
	w := s.register(time.Minute)
	for kind, soon := range map[string]bool{"": false, "both": true, "base": true, "max": true, "attempts": false, "own": false} {
		m := posthaste.Message{Kind: kind}
		if kind == "own" {
			m = posthaste.Message{Kind: "both", Backoff: posthaste.Backoff{Base: long, Max: long}}
		}
		ids := s.sendMessages(m)
		d := s.claimed(w, 1)[0]
		began := time.Now()
		due := s.settle(failed, d)[0].DueAt
		if !soon {
			if due.Sub(began) < jitter {
				s.Errorf("kind %q: the retry is due in %s", kind, due.Sub(began))
			}
		} else if again := s.claimed(w, 1)[0]; again.MessageID != ids[0] || again.Attempt != 2 {
			s.Errorf("kind %q: message %d came, attempt %d, want %d", kind, again.MessageID, again.Attempt, ids[0])
		} else {
			s.settle(done, again)
		}
	}
}

// timeoutOfKind: also in claims so large that engines read their deliveries in another way.
func timeoutOfKind(s *suite) {
	s.create(posthaste.QueueOptions{Timeout: 7 * time.Second, Kinds: map[string]posthaste.KindOptions{"sms": {Timeout: 1500 * time.Millisecond}, "fax": {MaxAttempts: 2}}})
	want := map[string]time.Duration{"sms": 1500 * time.Millisecond, "fax": 7 * time.Second, "": 7 * time.Second}
	w := s.register(time.Minute)
	for _, n := range []int{1, 5, 200, 200} {
		var messages []posthaste.Message
		for i := range n {
			kind := []string{"sms", "fax", ""}[i%3]
			messages = append(messages, posthaste.Message{Kind: kind}, posthaste.Message{Kind: kind, Timeout: time.Hour})
		}
		s.sendMessages(messages...)
		for _, d := range s.claimed(w, 2*n) {
			if d.Timeout != want[d.Kind] && d.Timeout != time.Hour {
				s.Errorf("of %d messages one of kind %q has the timeout %s, want %s", n, d.Kind, d.Timeout, want[d.Kind])
			}
			s.settle(done, d)
		}
	}
}

func timeoutOfKindAtMostOnce(s *suite) {
	s.create(posthaste.QueueOptions{Mode: posthaste.AtMostOnce, Kinds: map[string]posthaste.KindOptions{"sms": {Timeout: 1500 * time.Millisecond}}})
	s.sendMessages(posthaste.Message{Kind: "sms"})
	if d := s.claimed(s.register(time.Minute), 1)[0]; d.Timeout != 1500*time.Millisecond {
		s.Errorf("the timeout is %s", d.Timeout)
	}
}

// kindsChange: an update replaces the options of the kinds that it names, and no others.
func kindsChange(s *suite) {
	sms, fax := posthaste.KindOptions{MaxAttempts: 3, Timeout: time.Minute}, posthaste.KindOptions{Backoff: posthaste.Backoff{Base: time.Second}}
	s.create(posthaste.QueueOptions{Kinds: map[string]posthaste.KindOptions{"sms": sms}})
	want := func(kinds map[string]posthaste.KindOptions) {
		s.Helper()
		if got := optionsOf(s).Kinds; !maps.Equal(got, kinds) {
			s.Errorf("the options of kinds are %v, want %v", got, kinds)
		}
	}
	type kinds = map[string]posthaste.KindOptions
	want(kinds{"sms": sms})
	updateQueue(s, posthaste.QueueOptions{Kinds: kinds{"fax": fax}})
	want(kinds{"sms": sms, "fax": fax})
	updateQueue(s, posthaste.QueueOptions{Kinds: kinds{"sms": {Timeout: time.Hour}}, MaxAttempts: 9})
	want(kinds{"sms": {Timeout: time.Hour}, "fax": fax})
	updateQueue(s, posthaste.QueueOptions{Kinds: kinds{"sms": {}, "never": {}}})
	want(kinds{"fax": fax})
	updateQueue(s, posthaste.QueueOptions{Kinds: kinds{}}) // names none
	s.must(s.engine.CreateQueue(s.ctx, s.queue, posthaste.QueueOptions{Kinds: kinds{"fax": fax, "never": {}}}))
	s.wantCode("creating it with other options of a kind", s.engine.CreateQueue(s.ctx, s.queue, posthaste.QueueOptions{Kinds: kinds{"fax": sms}}), posthaste.CodeConflict)
	s.wantCode("creating it with options of another kind", s.engine.CreateQueue(s.ctx, s.queue, posthaste.QueueOptions{Kinds: kinds{"mail": fax}}), posthaste.CodeConflict)
	updateQueue(s, posthaste.QueueOptions{}, "kinds")
	want(nil)
	actions, err := s.engine.Actions(s.ctx, posthaste.ActionFilter{Queue: s.queue})
	s.must(err)
	if len(actions) != 5 || actions[0].By != "ada" || !strings.Contains(string(actions[0].Details), `"fax"`) {
		s.Errorf("the changes are recorded as %+v", actions)
	}
}

// kindsWhileWaiting: attempts that end after a change follow it, whenever they began.
func kindsWhileWaiting(s *suite) {
	s.create(quick())
	w := s.register(time.Minute)
	s.sendMessages(posthaste.Message{Kind: "sms"}, posthaste.Message{Kind: "mail"})
	running := s.claimed(w, 2)
	updateQueue(s, posthaste.QueueOptions{Kinds: map[string]posthaste.KindOptions{"sms": {MaxAttempts: 1, Timeout: time.Hour}}})
	for _, d := range running {
		want := posthaste.OutcomeRetried
		if d.Kind == "sms" {
			want = posthaste.OutcomeDead
		}
		if r := s.settle(failed, d)[0]; r.Outcome != want {
			s.Errorf("the failed attempt of kind %s became %s, want %s", d.Kind, r.Outcome, want)
		}
	}
	s.sendMessages(posthaste.Message{Kind: "sms"})
	for _, d := range s.claimed(w, 2) {
		if (d.Timeout == time.Hour) != (d.Kind == "sms") {
			s.Errorf("the next attempt of kind %s has the timeout %s", d.Kind, d.Timeout)
		}
	}
}

func kindsRefused(s *suite) {
	s.create(posthaste.QueueOptions{})
	many := map[string]posthaste.KindOptions{}
	for i := range posthaste.MaxKinds + 1 {
		many[fmt.Sprint("kind ", i)] = posthaste.KindOptions{MaxAttempts: 1}
	}
	for what, kinds := range map[string]map[string]posthaste.KindOptions{
		"an empty kind": {"": {MaxAttempts: 1}}, "a long kind": {strings.Repeat("k", 256): {MaxAttempts: 1}}, "too many attempts": {"sms": {MaxAttempts: 1001}},
		"a long timeout": {"sms": {Timeout: 366 * 24 * time.Hour}}, "a backoff": {"sms": {Backoff: posthaste.Backoff{Base: time.Hour, Max: time.Minute}}}, "too many kinds": many,
		"a base above the maximum of the queue": {"sms": {Backoff: posthaste.Backoff{Base: 2 * time.Hour}}},
	} {
		o := posthaste.QueueOptions{Kinds: kinds}
		for _, err := range []error{s.engine.UpdateQueue(s.ctx, s.queue, posthaste.QueueUpdate{Options: o}), s.engine.CreateQueue(s.ctx, "another", o)} {
			if posthaste.CodeOf(err) != posthaste.CodeInvalid || fieldOf(err) != "kinds" {
				s.Errorf("%s: %v, want a fault of kinds", what, err)
			}
		}
	}
	s.must(s.engine.UpdateQueue(s.ctx, s.queue, posthaste.QueueUpdate{Options: posthaste.QueueOptions{Kinds: map[string]posthaste.KindOptions{"sms": {Backoff: posthaste.Backoff{Base: time.Hour}}, "fax": {Backoff: posthaste.Backoff{Base: 2 * time.Hour, Max: 2 * time.Hour}}}}}))
	err := s.engine.UpdateQueue(s.ctx, s.queue, posthaste.QueueUpdate{Options: posthaste.QueueOptions{BackoffMax: time.Minute}})
	if posthaste.CodeOf(err) != posthaste.CodeInvalid || fieldOf(err) != "kinds" {
		s.Errorf("a maximum of the queue below the base of a kind: %v", err)
	}
	if s.engine.Capabilities().AtMostOnce {
		err := s.engine.CreateQueue(s.ctx, "once", posthaste.QueueOptions{Mode: posthaste.AtMostOnce, Kinds: map[string]posthaste.KindOptions{"sms": {MaxAttempts: 2}}})
		if posthaste.CodeOf(err) != posthaste.CodeInvalid || fieldOf(err) != "kinds" {
			s.Errorf("attempts of a kind of an at-most-once queue: %v", err)
		}
	}
}
