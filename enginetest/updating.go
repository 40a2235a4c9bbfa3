package enginetest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var updating = []test{
	{name: "JB6_EachOption", run: eachOption},
	{name: "JB6_FixedOptions", run: fixedOptions},
	{name: "JB6_UnderLoad", run: updatedUnderLoad, needs: features{Attempts: true}},
	{name: "JB6_Timeout", run: timeoutChanges},
	{name: "JB6_MaxAttempts", run: maxAttemptsChange},
	{name: "JB6_MaxPayload", run: maxPayloadChanges},
	{name: "JB6_MaxAge", run: maxAgeChanges},
	{name: "JB6_MaxAgeOfScheduled", run: maxAgeOfScheduled},
	{name: "JB6_MaxAgeOfKeys", run: maxAgeOfKeys, needs: features{Limits: true}},
	{name: "JB6_Retention", run: retentionChanges, needs: features{Search: true}},
	{name: "JB6_OnDead", run: onDeadChanges, needs: features{Ordered: true, StopOnDead: true}},
}

// updateQueue changes options of the suite's queue.
func updateQueue(s *suite, o posthaste.QueueOptions, reset ...string) {
	s.Helper()
	s.must(s.engine.UpdateQueue(posthaste.WithActor(s.ctx, "ada"), s.queue, posthaste.QueueUpdate{Options: o, Reset: reset}))
}

func optionsOf(s *suite) posthaste.QueueOptions {
	s.Helper()
	infos, err := s.engine.Queues(s.ctx, s.queue)
	s.must(err)
	return infos[0].Options
}

// others has another value of each option that can change, and options that this one needs.
var others = map[string]posthaste.QueueOptions{
	"max_attempts": {MaxAttempts: 7}, "backoff.base": {BackoffBase: 2 * time.Second}, "backoff.max": {BackoffMax: 2 * time.Hour},
	"timeout": {Timeout: 45 * time.Second}, "max_age": {MaxAge: time.Hour}, "max_payload": {MaxPayload: 2048}, "lanes": {Lanes: 4},
	"retention": {Retention: 48 * time.Hour}, "retain_payload": {Retention: 48 * time.Hour, RetainPayload: true},
	"on_dead": {StopOnDead: true}, "owner": {Owner: "shop"},
	"kinds":       {Kinds: map[string]posthaste.KindOptions{"sms": {MaxAttempts: 3, Timeout: time.Minute, Backoff: posthaste.Backoff{Base: time.Second, Max: time.Hour}}, "a:b c": {Timeout: time.Millisecond}}},
	"concurrency": {Limits: posthaste.QueueLimits{Concurrency: 8}}, "rate_limit": {Limits: posthaste.QueueLimits{RateLimit: posthaste.Rate{Limit: 70, Per: time.Minute, Burst: 9}}},
	"key_concurrency": {Limits: posthaste.QueueLimits{KeyConcurrency: 3}}, "key_rate_limit": {Limits: posthaste.QueueLimits{KeyRateLimit: posthaste.Rate{Limit: 5, Per: time.Second, Burst: 2}}},
}

// eachChangeable calls do for each option that can change and that the engine has, with a new queue
// that can have it.
func eachChangeable(s *suite, do func(option *posthaste.QueueOption, other posthaste.QueueOptions)) {
	s.Helper()
	can := s.engine.Capabilities()
	for _, option := range posthaste.QueueOptionTable() {
		if option.Fixed != "" {
			continue
		}
		o := posthaste.QueueOptions{}
		switch option.Name {
		case "on_dead":
			o.Ordered = true
		case "key_concurrency", "key_rate_limit":
			o.Fair = true
		}
		limit := o.Fair || option.Name == "concurrency" || option.Name == "rate_limit"
		if o.Ordered && !can.StopOnDead || limit && !can.Limits {
			continue
		}
		other, ok := others[option.Name]
		if !ok {
			s.Errorf("option %s can change and is not tested", option.Name)
			continue
		}
		s.queue = "suite-" + fmt.Sprint(len(option.Name)) + "-" + option.Name
		s.must(s.engine.CreateQueue(s.ctx, s.queue, o))
		do(&option, other)
	}
}

// eachOption: each option is set, is what the queue shows, and is reset; both are on record with
// old and new values, and what changes nothing is not.
func eachOption(s *suite) {
	eachChangeable(s, func(option *posthaste.QueueOption, other posthaste.QueueOptions) {
		before := optionsOf(s)
		updateQueue(s, other)
		updateQueue(s, other)
		is := optionsOf(s)
		if got, want := option.Text(is), option.Text(other); got != want {
			s.Errorf("%s is %s after it was set to %s", option.Name, got, want)
		}
		for _, rest := range posthaste.QueueOptionTable() {
			if rest.IsZero(other) && rest.Text(is) != rest.Text(before) {
				s.Errorf("with %s changed %s from %s to %s", option.Name, rest.Name, rest.Text(before), rest.Text(is))
			}
		}
		s.wantCode("creating it with the old "+option.Name, s.engine.CreateQueue(s.ctx, s.queue, posthaste.QueueOptions{}), "")
		if option.Name == "lanes" { // they cannot become fewer
			return
		}
		reset := []string{option.Name}
		if option.Name == "retain_payload" {
			reset = append(reset, "retention")
		}
		updateQueue(s, posthaste.QueueOptions{}, reset...)
		updateQueue(s, posthaste.QueueOptions{}, reset...)
		if now := optionsOf(s); !reflect.DeepEqual(now, before) {
			s.Errorf("after %s was reset the options are %+v, want %+v", option.Name, now, before)
		}
		actions, err := s.engine.Actions(s.ctx, posthaste.ActionFilter{Queue: s.queue})
		s.must(err)
		if len(actions) != 3 || actions[0].Action != "update" || actions[1].By != "ada" {
			s.Fatalf("the changes of %s are recorded as %+v", option.Name, actions)
		}
		var set, unset map[string]struct{ Old, New any }
		s.must(json.Unmarshal(actions[1].Details, &set))
		s.must(json.Unmarshal(actions[0].Details, &unset))
		if set[option.Name].New == nil || fmt.Sprint(set[option.Name].New) != fmt.Sprint(unset[option.Name].Old) || fmt.Sprint(set[option.Name].Old) != fmt.Sprint(unset[option.Name].New) {
			s.Errorf("the changes of %s are recorded as %s and %s", option.Name, actions[1].Details, actions[0].Details)
		}
	})
}

// fixedOptions: what determines where messages lie is refused, and nothing changes.
func fixedOptions(s *suite) {
	can := s.engine.Capabilities()
	s.must(s.engine.CreateQueue(s.ctx, s.queue, posthaste.QueueOptions{Lanes: 2}))
	before := optionsOf(s)
	for what, o := range map[string]posthaste.QueueOptions{"ordered": {Ordered: true}, "mode": {Mode: posthaste.AtMostOnce}, "fair": {Fair: true}, "lanes": {Lanes: 1},
		"key_concurrency": {Limits: posthaste.QueueLimits{KeyConcurrency: 1}}} {
		if what == "key_concurrency" && !can.Limits {
			continue
		}
		o.Timeout = time.Minute
		err := s.engine.UpdateQueue(s.ctx, s.queue, posthaste.QueueUpdate{Options: o})
		if posthaste.CodeOf(err) != posthaste.CodeUnsupported || fieldOf(err) != what {
			s.Errorf("changing %s: %v", what, err)
		}
	}
	s.wantCode("max_attempts out of bounds", s.engine.UpdateQueue(s.ctx, s.queue, posthaste.QueueUpdate{Options: posthaste.QueueOptions{MaxAttempts: 1001}}), posthaste.CodeInvalid)
	s.wantCode("retain_payload without retention", s.engine.UpdateQueue(s.ctx, s.queue, posthaste.QueueUpdate{Options: posthaste.QueueOptions{RetainPayload: true}}), posthaste.CodeInvalid)
	s.wantCode("an unknown option", s.engine.UpdateQueue(s.ctx, s.queue, posthaste.QueueUpdate{Reset: []string{"color"}}), posthaste.CodeInvalid)
	s.wantCode("a missing queue", s.engine.UpdateQueue(s.ctx, "nowhere", posthaste.QueueUpdate{Options: posthaste.QueueOptions{Timeout: time.Minute}}), posthaste.CodeNotFound)
	if now := optionsOf(s); !reflect.DeepEqual(now, before) {
		s.Errorf("refused updates changed %+v to %+v", before, now)
	}
}

// timeoutChanges: the next claim has the new timeout.
func timeoutChanges(s *suite) {
	s.create(quick())
	s.send(3)
	w := s.register(time.Minute)
	held := s.claimed(w, 1)
	updateQueue(s, posthaste.QueueOptions{Timeout: 77 * time.Second})
	if held[0].Timeout != 30*time.Second {
		s.Errorf("the running delivery has %s", held[0].Timeout)
	}
	if next := s.claimed(w, 1); next[0].Timeout != 77*time.Second {
		s.Errorf("the next delivery has %s", next[0].Timeout)
	}
	updateQueue(s, posthaste.QueueOptions{}, "timeout")
	if next := s.claimed(w, 1); next[0].Timeout != 30*time.Second {
		s.Errorf("after the reset the next delivery has %s", next[0].Timeout)
	}
}

// maxAttemptsChange: the number of attempts is that of the queue when an attempt ends.
func maxAttemptsChange(s *suite) {
	o := quick()
	o.MaxAttempts = 2
	s.create(o)
	ids := s.send(2)
	w := s.register(time.Minute)
	s.settle(failed, s.claimed(w, 2)...)
	updateQueue(s, posthaste.QueueOptions{MaxAttempts: 3})
	again := s.claimed(w, 2)
	for _, r := range s.settle(failed, again...) {
		if r.Outcome != posthaste.OutcomeRetried {
			s.Errorf("with a third attempt the second ends as %s", r.Outcome)
		}
	}
	again = s.claimed(w, 2)
	updateQueue(s, posthaste.QueueOptions{MaxAttempts: 4})
	updateQueue(s, posthaste.QueueOptions{MaxAttempts: 2})
	for _, r := range s.settle(failed, again...) {
		if r.Outcome != posthaste.OutcomeDead {
			s.Errorf("without further attempts the third ends as %s", r.Outcome)
		}
	}
	wantDeadLetters(s, 2)
	s.wantState(ids[0], posthaste.StateDead)
}

func maxPayloadChanges(s *suite) {
	s.create(posthaste.QueueOptions{MaxPayload: 10})
	long := posthaste.Message{Queue: s.queue, Payload: "more than ten bytes"}
	_, err := s.engine.Send(s.ctx, long)
	s.wantCode("over the limit", err, posthaste.CodeTooLarge)
	updateQueue(s, posthaste.QueueOptions{MaxPayload: 100})
	_, err = s.engine.Send(s.ctx, long)
	s.must(err)
	updateQueue(s, posthaste.QueueOptions{MaxPayload: 10})
	_, err = s.engine.Send(s.ctx, long)
	s.wantCode("over the lower limit", err, posthaste.CodeTooLarge)
	if got := s.claimed(s.register(time.Minute), 1); len(got[0].Payload) < 11 {
		s.Errorf("the accepted message comes as %q", got[0].Payload)
	}
}

// maxAgeChanges: the age that counts is that of the queue at the claim, for messages that wait
// already too.
func maxAgeChanges(s *suite) {
	o := quick()
	o.MaxAge = time.Hour
	s.create(o)
	w := s.register(time.Minute)
	ids := s.send(3)
	s.settle(failed, s.claimed(w, 1)...) // a retry
	s.age()
	updateQueue(s, posthaste.QueueOptions{MaxAge: maxAge})
	s.until("the retry is due, and expires with the others", func() bool {
		s.none(w)
		return !slices.ContainsFunc(ids, func(id posthaste.MessageID) bool { return s.state(id).State != posthaste.StateExpired })
	})
	s.wantExpired(ids...)
	ids = s.send(2)
	s.age()
	updateQueue(s, posthaste.QueueOptions{MaxAge: time.Hour})
	s.claimed(w, 1)
	updateQueue(s, posthaste.QueueOptions{MaxAge: maxAge})
	updateQueue(s, posthaste.QueueOptions{}, "max_age")
	s.settle(done, s.claimed(w, 1)...)
	s.wantState(ids[1], posthaste.StateDone)
}

// maxAgeOfScheduled: the age of scheduled messages counts from when they are due, also if they were
// sent, or tried, before the queue had a maximum age, or when it had another one.
func maxAgeOfScheduled(s *suite) {
	o := quick()
	o.BackoffBase, o.BackoffMax = 10*time.Millisecond, 10*time.Millisecond
	s.create(o)
	w := s.register(time.Minute)
	later := func() posthaste.MessageID { return s.sendLater("")[0] }
	s.until("a message that was scheduled before is handed out twice", func() bool {
		updateQueue(s, posthaste.QueueOptions{}, "max_age")
		id := later()
		updateQueue(s, posthaste.QueueOptions{MaxAge: maxAge})
		return comesTwice(s, w, id)
	})
	s.until("a message that was tried before is handed out again", func() bool {
		updateQueue(s, posthaste.QueueOptions{}, "max_age")
		id := later()
		first := s.claimed(w, 1)
		s.settle(failed, first...)
		updateQueue(s, posthaste.QueueOptions{MaxAge: maxAge})
		return comesAgain(s, w, id)
	})
	s.until("a message of a time with a shorter age is handed out", func() bool {
		updateQueue(s, posthaste.QueueOptions{MaxAge: time.Millisecond})
		id := later()
		updateQueue(s, posthaste.QueueOptions{MaxAge: time.Hour})
		s.age()
		return comesAgain(s, w, id)
	})
	updateQueue(s, posthaste.QueueOptions{MaxAge: time.Hour})
	id := later()
	updateQueue(s, posthaste.QueueOptions{MaxAge: time.Millisecond})
	s.until("a message of a time with a longer age expires", func() bool {
		if state := s.state(id).State; state == posthaste.StateExpired {
			return true
		}
		if got := s.claim(w, 1); len(got) > 0 { // right when it was due
			s.settle(done, got...)
			id = later()
		}
		return false
	})
}

// comesAgain claims until a message is handed out, for which it returns true, or has expired.
func comesAgain(s *suite, w posthaste.WorkerID, id posthaste.MessageID) (came bool) {
	s.until("it comes, or expires", func() bool {
		got := s.claim(w, 1)
		if came = len(got) > 0 && got[0].MessageID == id; len(got) > 0 {
			s.settle(done, got...)
		}
		return came || s.state(id).State == posthaste.StateExpired
	})
	return came
}

// comesTwice lets a message fail once and reports whether it comes again.
func comesTwice(s *suite, w posthaste.WorkerID, id posthaste.MessageID) (came bool) {
	s.until("it comes, or expires", func() bool {
		got := s.claim(w, 1)
		if came = len(got) > 0 && got[0].MessageID == id; came {
			s.settle(failed, got...)
		}
		return came || s.state(id).State == posthaste.StateExpired
	})
	return came && comesAgain(s, w, id)
}

// maxAgeOfKeys is maxAgeOfScheduled in a queue that looks at keys.
func maxAgeOfKeys(s *suite) {
	o := quick()
	o.Fair = true
	s.create(o)
	w := s.register(time.Minute)
	s.until("a message that was scheduled before is handed out twice", func() bool {
		updateQueue(s, posthaste.QueueOptions{}, "max_age")
		id := s.sendLater("a")[0]
		updateQueue(s, posthaste.QueueOptions{MaxAge: maxAge})
		return comesTwice(s, w, id)
	})
}

// retentionChanges: with each retention settled messages are found, and the next ones are settled
// and forgotten, in whatever form earlier ones are kept.
func retentionChanges(s *suite) {
	s.create(quick())
	w := s.register(time.Minute)
	for _, retention := range []time.Duration{0, time.Hour, 0, time.Millisecond, time.Hour, 0} {
		if retention == 0 {
			updateQueue(s, posthaste.QueueOptions{}, "retention")
		} else {
			updateQueue(s, posthaste.QueueOptions{Retention: retention})
		}
		ids := s.send(5)
		held := s.claimed(w, 5)
		s.settle(failed, held[0])
		s.settle(done, held[1:]...)
		s.settle(done, s.claimed(w, 1)...)
		_, err := s.engine.Maintain(s.ctx, posthaste.UpkeepSpace)
		s.must(err)
		if retention != time.Millisecond {
			for _, id := range ids {
				s.wantState(id, posthaste.StateDone)
			}
		}
	}
	infos, err := s.engine.Queues(s.ctx, s.queue)
	s.must(err)
	if got := infos[0].Subscriptions[0]; got.Depth != 0 && !s.engine.Capabilities().MaxLag {
		s.Errorf("%d are left", got.Depth)
	}
	s.none(w)
}

// onDeadChanges: a key that a dead letter has stopped stays so until the letter is decided, and
// later ones follow the new option.
func onDeadChanges(s *suite) {
	o := quick()
	o.Ordered, o.StopOnDead = true, true
	s.create(o)
	w := s.register(time.Minute)
	stopped := s.sendKeys("a", "a")
	s.settle(hopeless, s.claimed(w, 1)...)
	updateQueue(s, posthaste.QueueOptions{}, "on_dead")
	s.none(w)
	s.sendKeys("b", "b")
	s.settle(hopeless, s.claimed(w, 1)...)
	s.settle(done, s.claimed(w, 1)...)
	_, err := s.engine.Discard(s.ctx, posthaste.DeadLetterFilter{IDs: stopped[:1]})
	s.must(err)
	s.settle(done, s.claimed(w, 1)...)
	updateQueue(s, posthaste.QueueOptions{StopOnDead: true})
	s.sendKeys("b", "b")
	s.settle(hopeless, s.claimed(w, 1)...)
	s.none(w)
}
