package enginetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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
	{name: "JB6_OnDead", run: onDeadChanges, needs: features{Ordered: true}},
}

// update changes options of the suite's queue.
func (s *suite) update(o posthaste.QueueOptions, reset ...string) {
	s.Helper()
	s.must(s.engine.UpdateQueue(posthaste.WithActor(s.ctx, "ada"), s.queue, posthaste.QueueUpdate{Options: o, Reset: reset}))
}

func (s *suite) options() posthaste.QueueOptions {
	s.Helper()
	infos, err := s.engine.Queues(s.ctx, s.queue)
	s.must(err)
	return infos[0].Options
}

// others has another value of each option that can change, and what it needs.
var others = map[string]posthaste.QueueOptions{
	"max_attempts": {MaxAttempts: 7}, "backoff.base": {BackoffBase: 2 * time.Second}, "backoff.max": {BackoffMax: 2 * time.Hour},
	"timeout": {Timeout: 45 * time.Second}, "max_age": {MaxAge: time.Hour}, "max_payload": {MaxPayload: 2048}, "lanes": {Lanes: 4},
	"retention": {Retention: 48 * time.Hour}, "retain_payload": {Retention: 48 * time.Hour, RetainPayload: true},
	"on_dead": {StopOnDead: true}, "owner": {Owner: "shop"},
	"concurrency": {Limits: posthaste.QueueLimits{Concurrency: 8}}, "rate_limit": {Limits: posthaste.QueueLimits{RateLimit: posthaste.Rate{Limit: 70, Per: time.Minute, Burst: 9}}},
	"key_concurrency": {Limits: posthaste.QueueLimits{KeyConcurrency: 3}}, "key_rate_limit": {Limits: posthaste.QueueLimits{KeyRateLimit: posthaste.Rate{Limit: 5, Per: time.Second, Burst: 2}}},
}

// quickOthers are those of others that would hold up many messages.
var quickOthers = map[string]posthaste.QueueOptions{
	"max_attempts": {MaxAttempts: 900}, "backoff.base": {BackoffBase: 2 * time.Millisecond}, "backoff.max": {BackoffMax: 3 * time.Millisecond},
	"rate_limit":     {Limits: posthaste.QueueLimits{RateLimit: posthaste.Rate{Limit: 100_000}}},
	"key_rate_limit": {Limits: posthaste.QueueLimits{KeyRateLimit: posthaste.Rate{Limit: 100_000}}},
}

// changeable calls do for each option that can change and that the engine has, with a new queue
// that can have it.
func (s *suite) changeable(do func(option *posthaste.QueueOption, other posthaste.QueueOptions)) {
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
		if o.Ordered && !can.Ordered || limit && !can.Limits {
			continue
		}
		other, ok := others[option.Name]
		if !ok {
			s.Errorf("option %s can change and is not tested", option.Name)
			continue
		}
		s.queue = "suite-" + fmt.Sprint(len(option.Name)) + "-" + option.Name
		s.create(o)
		do(&option, other)
	}
}

// eachOption: each option is set, is what the queue shows, and is reset; both are on record with
// old and new values, and what changes nothing is not.
func eachOption(s *suite) {
	s.changeable(func(option *posthaste.QueueOption, other posthaste.QueueOptions) {
		before := s.options()
		s.update(other)
		s.update(other)
		is := s.options()
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
		s.update(posthaste.QueueOptions{}, reset...)
		s.update(posthaste.QueueOptions{}, reset...)
		if now := s.options(); now != before {
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
	s.create(posthaste.QueueOptions{Lanes: 2})
	before := s.options()
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
	s.wantCode("a queue that is none", s.engine.UpdateQueue(s.ctx, "nowhere", posthaste.QueueUpdate{Options: posthaste.QueueOptions{Timeout: time.Minute}}), posthaste.CodeNotFound)
	if now := s.options(); now != before {
		s.Errorf("refused updates changed %+v to %+v", before, now)
	}
}

// updatedUnderLoad: while messages are sent, handed out, fail and are tried again, each option
// changes to and fro. Each message is done once, and none is handed out before it is due.
func updatedUnderLoad(s *suite) {
	s.changeable(func(option *posthaste.QueueOption, other posthaste.QueueOptions) {
		o := quick()
		o.MaxAttempts = 1000
		s.update(o)
		if quick, ok := quickOthers[option.Name]; ok {
			other = quick
		}
		l := &load{suite: s, from: map[posthaste.MessageID]time.Time{}, done: map[posthaste.MessageID]int{}}
		var all sync.WaitGroup
		for range 2 {
			w := s.register(time.Minute)
			all.Go(func() { l.work(w) })
		}
		all.Go(func() {
			for n := range 60 {
				l.send(n)
			}
			l.sent.Store(true)
		})
		all.Go(func() {
			for n := 0; !l.sent.Load() || n%2 == 1; n++ {
				update := posthaste.QueueUpdate{Options: other}
				if n%2 == 1 && option.Name == "lanes" {
					return
				}
				if n%2 == 1 {
					update = posthaste.QueueUpdate{Reset: []string{option.Name}}
					if option.Name == "max_attempts" || option.Name == "backoff.base" || option.Name == "backoff.max" {
						update = posthaste.QueueUpdate{Options: o}
					}
				}
				if err := s.engine.UpdateQueue(s.ctx, s.queue, update); err != nil {
					s.Errorf("changing %s: %v", option.Name, err)
					return
				}
				l.pause()
			}
		})
		all.Wait()
		if s.Failed() {
			return
		}
		for id := range l.from {
			if n := l.done[id]; n != 1 {
				s.Errorf("while %s changed message %d was done %d times", option.Name, id, n)
			}
		}
		w := s.register(time.Minute)
		s.none(w)
		s.wantDead(0)
	})
}

func (s *suite) wantDead(n int) {
	s.Helper()
	dead, err := s.engine.DeadLetters(s.ctx, posthaste.DeadLetterFilter{Queue: s.queue})
	s.must(err)
	if len(dead.Items) != n {
		s.Errorf("%d dead letters, want %d", len(dead.Items), n)
	}
}

// load is the traffic of a queue whose options change.
type load struct {
	*suite
	sent atomic.Bool
	mu   sync.Mutex
	from map[posthaste.MessageID]time.Time // when it may be handed out
	done map[posthaste.MessageID]int
	left int
}

// send sends a few messages, one of which is due later if the queue allows that.
func (l *load) send(n int) {
	messages := make([]posthaste.Message, 4)
	for i := range messages {
		messages[i] = posthaste.Message{Queue: l.queue, Key: fmt.Sprint("k", i%2), Payload: n}
	}
	const later = 5 * time.Millisecond
	delayed := l.queue != "suite-7-on_dead" // ordered queues have no due times
	if delayed {
		messages[3].Delay = later
	}
	begun := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	ids, err := l.engine.Send(l.ctx, messages...)
	if err != nil {
		l.Errorf("sending: %v", err)
		return
	}
	for i, id := range ids {
		l.from[id] = begun
		if delayed && i == 3 {
			l.from[id] = begun.Add(later)
		}
	}
	l.left += len(ids)
}

// work handles messages until all are done. Each fails at its first attempt.
func (l *load) work(w posthaste.WorkerID) {
	for number := int64(1); ; number++ {
		reply, err := l.engine.Claim(l.ctx, posthaste.ClaimRequest{Worker: w, Number: number, QueueRef: l.ref(), Max: 7})
		if err != nil {
			l.Errorf("claiming: %v", err)
			return
		}
		now := time.Now()
		var settlements []posthaste.Settlement
		for _, d := range reply.Deliveries {
			one := done
			if d.Attempt == 1 {
				one = failed
			}
			one.Delivery = d.ID
			settlements = append(settlements, one)
		}
		results, err := l.engine.Settle(l.ctx, settlements)
		if err != nil {
			l.Errorf("settling: %v", err)
			return
		}
		l.mu.Lock()
		for i, r := range results {
			id := reply.Deliveries[i].MessageID
			if !r.Settled {
				l.Errorf("delivery %d of message %d was not settled", r.Delivery, id)
			}
			if early := l.from[id].Sub(now); early > 0 {
				l.Errorf("message %d came %s early", id, early)
			}
			if r.Outcome == posthaste.OutcomeDone {
				l.done[id]++
				l.left--
			}
		}
		over := l.sent.Load() && l.left == 0
		l.mu.Unlock()
		if over || l.ctx.Err() != nil {
			return
		}
		if len(reply.Deliveries) == 0 {
			l.pause()
		}
	}
}

func (l *load) pause() {
	select {
	case <-l.ctx.Done():
	case <-time.After(time.Millisecond):
	}
}

// timeoutChanges: the next claim has the new timeout.
func timeoutChanges(s *suite) {
	s.create(quick())
	s.send(3)
	w := s.register(time.Minute)
	held := s.claimed(w, 1)
	s.update(posthaste.QueueOptions{Timeout: 77 * time.Second})
	if held[0].Timeout != 30*time.Second {
		s.Errorf("what is handed out has %s", held[0].Timeout)
	}
	if next := s.claimed(w, 1); next[0].Timeout != 77*time.Second {
		s.Errorf("the next delivery has %s", next[0].Timeout)
	}
	s.update(posthaste.QueueOptions{}, "timeout")
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
	s.update(posthaste.QueueOptions{MaxAttempts: 3})
	again := s.claimed(w, 2)
	for _, r := range s.settle(failed, again...) {
		if r.Outcome != posthaste.OutcomeRetried {
			s.Errorf("with a third attempt the second ends as %s", r.Outcome)
		}
	}
	again = s.claimed(w, 2)
	s.update(posthaste.QueueOptions{MaxAttempts: 4})
	s.update(posthaste.QueueOptions{MaxAttempts: 2})
	for _, r := range s.settle(failed, again...) {
		if r.Outcome != posthaste.OutcomeDead {
			s.Errorf("without further attempts the third ends as %s", r.Outcome)
		}
	}
	s.wantDead(2)
	s.wantState(ids[0], posthaste.StateDead)
}

func maxPayloadChanges(s *suite) {
	s.create(posthaste.QueueOptions{MaxPayload: 10})
	long := posthaste.Message{Queue: s.queue, Payload: "more than ten bytes"}
	_, err := s.engine.Send(s.ctx, long)
	s.wantCode("over the limit", err, posthaste.CodeTooLarge)
	s.update(posthaste.QueueOptions{MaxPayload: 100})
	_, err = s.engine.Send(s.ctx, long)
	s.must(err)
	s.update(posthaste.QueueOptions{MaxPayload: 10})
	_, err = s.engine.Send(s.ctx, long)
	s.wantCode("over the lower limit", err, posthaste.CodeTooLarge)
	if got := s.claimed(s.register(time.Minute), 1); len(got[0].Payload) < 11 {
		s.Errorf("what was accepted comes as %q", got[0].Payload)
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
	s.update(posthaste.QueueOptions{MaxAge: maxAge})
	s.until("the retry is due, and expires with the others", func() bool {
		s.none(w)
		return !slices.ContainsFunc(ids, func(id posthaste.MessageID) bool { return s.state(id).State != posthaste.StateExpired })
	})
	s.wantExpired(ids...)
	ids = s.send(2)
	s.age()
	s.update(posthaste.QueueOptions{MaxAge: time.Hour})
	s.claimed(w, 1)
	s.update(posthaste.QueueOptions{MaxAge: maxAge})
	s.update(posthaste.QueueOptions{}, "max_age")
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
		s.update(posthaste.QueueOptions{}, "max_age")
		id := later()
		s.update(posthaste.QueueOptions{MaxAge: maxAge})
		return s.twice(w, id)
	})
	s.until("a message that was tried before is handed out again", func() bool {
		s.update(posthaste.QueueOptions{}, "max_age")
		id := later()
		first := s.claimed(w, 1)
		s.settle(failed, first...)
		s.update(posthaste.QueueOptions{MaxAge: maxAge})
		return s.comes(w, id)
	})
	s.until("a message of a time with a shorter age is handed out", func() bool {
		s.update(posthaste.QueueOptions{MaxAge: time.Millisecond})
		id := later()
		s.update(posthaste.QueueOptions{MaxAge: time.Hour})
		s.age()
		return s.comes(w, id)
	})
	s.update(posthaste.QueueOptions{MaxAge: time.Hour})
	id := later()
	s.update(posthaste.QueueOptions{MaxAge: time.Millisecond})
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

// comes claims until a message is handed out, for which it returns true, or has expired.
func (s *suite) comes(w posthaste.WorkerID, id posthaste.MessageID) (came bool) {
	s.until("it comes, or expires", func() bool {
		got := s.claim(w, 1)
		if came = len(got) > 0 && got[0].MessageID == id; len(got) > 0 {
			s.settle(done, got...)
		}
		return came || s.state(id).State == posthaste.StateExpired
	})
	return came
}

// twice lets a message fail once and reports whether it comes again.
func (s *suite) twice(w posthaste.WorkerID, id posthaste.MessageID) (came bool) {
	s.until("it comes, or expires", func() bool {
		got := s.claim(w, 1)
		if came = len(got) > 0 && got[0].MessageID == id; came {
			s.settle(failed, got...)
		}
		return came || s.state(id).State == posthaste.StateExpired
	})
	return came && s.comes(w, id)
}

// maxAgeOfKeys is maxAgeOfScheduled in a queue that looks at keys.
func maxAgeOfKeys(s *suite) {
	o := quick()
	o.Fair = true
	s.create(o)
	w := s.register(time.Minute)
	s.until("a message that was scheduled before is handed out twice", func() bool {
		s.update(posthaste.QueueOptions{}, "max_age")
		id := s.sendLater("a")[0]
		s.update(posthaste.QueueOptions{MaxAge: maxAge})
		return s.twice(w, id)
	})
}

// retentionChanges: with each retention settled messages are found, and the next ones are settled
// and forgotten, whatever was kept before.
func retentionChanges(s *suite) {
	s.create(quick())
	w := s.register(time.Minute)
	for _, retention := range []time.Duration{0, time.Hour, 0, time.Millisecond, time.Hour, 0} {
		if retention == 0 {
			s.update(posthaste.QueueOptions{}, "retention")
		} else {
			s.update(posthaste.QueueOptions{Retention: retention})
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
	if got := infos[0].Subscriptions[0]; got.Depth != 0 && s.engine.Capabilities().MaxLag == false {
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
	s.update(posthaste.QueueOptions{}, "on_dead")
	s.none(w)
	s.sendKeys("b", "b")
	s.settle(hopeless, s.claimed(w, 1)...)
	s.settle(done, s.claimed(w, 1)...)
	_, err := s.engine.Discard(s.ctx, posthaste.DeadLetterFilter{IDs: stopped[:1]})
	s.must(err)
	s.settle(done, s.claimed(w, 1)...)
	s.update(posthaste.QueueOptions{StopOnDead: true})
	s.sendKeys("b", "b")
	s.settle(hopeless, s.claimed(w, 1)...)
	s.none(w)
}
