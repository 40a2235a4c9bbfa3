package enginetest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var pausing = []test{
	{name: "R1_PauseTellsReason", run: pauseTellsReason, needs: features{PauseKinds: true}},
	{name: "R1_PauseChanges", run: pauseChanges},
	{name: "R1_PauseOptionsChecked", run: pauseOptionsChecked},
	{name: "R1_PauseEnds", run: pauseEnds},
	{name: "R1_PauseEndsOfKey", run: pauseEndsOfKey, needs: features{Ordered: true, Limits: true}},
	{name: "R1_PauseEndsOfSchedule", run: pauseEndsOfSchedule, needs: features{Schedules: true}},
	{name: "R1_PauseEndWakes", run: pauseEndWakes},
	{name: "R1_EndOfOldPause", run: endOfOldPause, needs: features{PauseKinds: true}},
	{name: "R1_PauseResumedEarly", run: pauseResumedEarly, needs: features{PauseKinds: true}},
	{name: "R1_PausesOfDropped", run: pausesOfDropped, needs: features{PauseKinds: true}},
	{name: "R1_PausesPaged", run: pausesPaged, needs: features{PauseKinds: true}},
	{name: "R1_PauseEndsOnce", run: pauseEndsOnce},
}

// pauses returns the pauses of a queue, or all.
func (s *suite) pauses(queue string) []posthaste.Pause {
	s.Helper()
	all, err := s.engine.Pauses(s.ctx, posthaste.PauseFilter{Queue: queue, Limit: 1000})
	s.must(err)
	return all
}

func (s *suite) pause(what posthaste.Pausable, reason string, until time.Time) {
	s.Helper()
	s.must(s.engine.Pause(posthaste.WithActor(s.ctx, "ada"), what, posthaste.PauseOptions{Reason: reason, Until: until}))
}

// ended maintains the store until a pause is gone.
func (s *suite) ended(what posthaste.Pausable) {
	s.Helper()
	s.until("the pause ends", func() bool {
		_, err := s.engine.Maintain(s.ctx, posthaste.UpkeepTicks)
		s.must(err)
		return s.pauseOf(what) == nil
	})
}

// pauseOf returns the pause of something, or nil.
func (s *suite) pauseOf(what posthaste.Pausable) *posthaste.Pause {
	s.Helper()
	_, queue, _ := posthaste.PausableNames(what)
	for _, p := range s.pauses(queue) {
		if p.What == what {
			return &p
		}
	}
	return nil
}

// pausables are the things of the suite's queue that this store can pause: the queue and, if possible, a kind.
func (s *suite) pausables() []posthaste.Pausable {
	all := []posthaste.Pausable{posthaste.OfQueue(s.queue)}
	if s.engine.Capabilities().PauseKinds {
		all = append(all, posthaste.OfKind{Queue: s.queue, Kind: "sms"})
	}
	return all
}

// pauseTellsReason: a pause is listed with its reason, its actor and its end.
func pauseTellsReason(s *suite) {
	s.create(quick())
	until := time.Now().Add(time.Hour).Truncate(time.Microsecond).UTC()
	kind, queue := posthaste.OfKind{Queue: s.queue, Kind: "sms"}, posthaste.OfQueue(s.queue)
	before := time.Now().Add(-time.Minute)
	s.pause(queue, "", time.Time{})
	s.must(s.engine.Pause(posthaste.WithActor(s.ctx, "bob"), kind, posthaste.PauseOptions{Reason: "provider <down>: 'see' \"INC-7\" ü", Until: until.Add(100 * time.Nanosecond)}))
	all := s.pauses(s.queue)
	if len(all) != 2 || all[0].What != kind || all[0].By != "bob" || all[0].Reason != "provider <down>: 'see' \"INC-7\" ü" || !all[0].Until.Equal(until) || all[0].ID <= all[1].ID {
		s.Fatalf("the pauses are %+v", all)
	}
	if all[1].What != queue || all[1].By != "ada" || all[1].Reason != "" || !all[1].Until.IsZero() || all[1].Since.Before(before) || all[1].Since.After(time.Now().Add(time.Minute)) {
		s.Fatalf("the pause of the queue is %+v", all[1])
	}
	actions, err := s.engine.Actions(s.ctx, posthaste.ActionFilter{Queue: s.queue, Limit: 1})
	s.must(err)
	var details struct {
		Kind, Reason string
		Until        time.Time
	}
	s.must(json.Unmarshal(actions[0].Details, &details))
	if actions[0].Action != "pause_kind" || details.Kind != "sms" || details.Reason != all[0].Reason || !details.Until.Equal(until) {
		s.Errorf("the pause is recorded as %+v with %s", actions[0], actions[0].Details)
	}
	if _, err := s.engine.Pauses(s.ctx, posthaste.PauseFilter{Queue: "nowhere"}); posthaste.CodeOf(err) != posthaste.CodeNotFound {
		s.Errorf("pauses of no queue: %v", err)
	}
}

// pauseChanges: pausing again changes the reason and the end, and is recorded only if it does.
func pauseChanges(s *suite) {
	s.create(quick())
	until := time.Now().Add(time.Hour)
	for _, what := range s.pausables() {
		recorded := func() int {
			all, err := s.engine.Actions(s.ctx, posthaste.ActionFilter{Queue: s.queue})
			s.must(err)
			return len(all)
		}
		s.pause(what, "one", until)
		first, n := *s.pauseOf(what), recorded()
		s.pause(what, "one", until)
		if again := *s.pauseOf(what); again != first || recorded() != n {
			s.Errorf("pausing %v again as it is changed it to %+v, and recorded %d actions", what, again, recorded()-n)
		}
		s.must(s.engine.Pause(posthaste.WithActor(s.ctx, "bob"), what, posthaste.PauseOptions{Reason: "two"}))
		changed := *s.pauseOf(what)
		if changed.Reason != "two" || !changed.Until.IsZero() || changed.By != "bob" || !changed.Since.Equal(first.Since) || changed.ID <= first.ID || recorded() != n+1 {
			s.Errorf("the changed pause of %v is %+v, was %+v; %d actions more", what, changed, first, recorded()-n)
		}
		s.must(s.engine.Resume(s.ctx, what))
		if p := s.pauseOf(what); p != nil {
			s.Errorf("the resumed pause of %v is still listed: %+v", what, p)
		}
	}
}

func pauseOptionsChecked(s *suite) {
	s.create(quick())
	for _, what := range s.pausables() {
		for name, c := range map[string]struct {
			o    posthaste.PauseOptions
			code posthaste.Code
		}{
			"an end in the past": {posthaste.PauseOptions{Until: time.Now().Add(-time.Minute)}, posthaste.CodeInvalid},
			"an end too far":     {posthaste.PauseOptions{Until: time.Now().Add(posthaste.MaxPause + 24*time.Hour)}, posthaste.CodeInvalid},
			"two lines":          {posthaste.PauseOptions{Reason: "a\nb"}, posthaste.CodeInvalid},
			"a zero byte":        {posthaste.PauseOptions{Reason: "a\x00b"}, posthaste.CodeInvalid},
			"a line separator":   {posthaste.PauseOptions{Reason: "a\u2028b"}, posthaste.CodeInvalid},
			"no UTF-8":           {posthaste.PauseOptions{Reason: "a\xffb"}, posthaste.CodeInvalid},
			"too long":           {posthaste.PauseOptions{Reason: strings.Repeat("ü", 501)}, posthaste.CodeTooLarge},
		} {
			s.wantCode(name, s.engine.Pause(s.ctx, what, c.o), c.code)
		}
		if p := s.pauseOf(what); p != nil {
			s.Errorf("a refused pause is listed: %+v", p)
		}
		s.pause(what, strings.Repeat("ü", 500), time.Now().Add(posthaste.MaxPause-24*time.Hour))
		s.must(s.engine.Resume(s.ctx, what))
	}
	ids := s.send(1)
	s.wantFirst(s.claimed(s.register(time.Minute), 1), ids...)
}

// pauseEnds: at its end a pause is gone, as if it were resumed, and that is recorded.
func pauseEnds(s *suite) {
	s.create(quick())
	w := s.register(time.Minute)
	for i, what := range s.pausables() {
		s.pause(what, "short", time.Now().Add(time.Duration(300+i)*time.Millisecond))
		s.sendKinds("sms")
		s.ended(what)
		s.settle(done, s.claimed(w, 1)...)
		actions, err := s.engine.Actions(s.ctx, posthaste.ActionFilter{Queue: s.queue, Limit: 1})
		s.must(err)
		if want := posthaste.PauseAction(what, false, posthaste.PauseOptions{}).Action; actions[0].Action != want || actions[0].By != posthaste.EndOfPause {
			s.Errorf("the end is recorded as %+v, want %s by %s", actions[0], want, posthaste.EndOfPause)
		}

	}
}

func pauseEndsOfKey(s *suite) {
	o := quick()
	o.Ordered = true
	s.create(o)
	what := posthaste.OfKey{Queue: s.queue, Key: "a"}
	until := time.Now().Add(time.Hour).Truncate(time.Microsecond).UTC()
	s.pause(what, "long", until)
	if p := s.pauseOf(what); p == nil || p.Reason != "long" || !p.Until.Equal(until) {
		s.Fatalf("the pause of the key is %+v", p)
	}
	s.pause(what, "short", time.Now().Add(300*time.Millisecond))
	_, err := s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Key: "a", Payload: 1})
	s.must(err)
	w := s.register(time.Minute)
	s.none(w)
	s.ended(what)
	s.settle(done, s.claimed(w, 1)...)
	s.pause(what, "again", until)
	s.must(s.engine.Resume(s.ctx, what))
	if p := s.pauseOf(what); p != nil {
		s.Errorf("the resumed pause is %+v", p)
	}
}

func pauseEndsOfSchedule(s *suite) {
	s.create(quick())
	what := posthaste.OfSchedule("s")
	_, err := s.engine.PutSchedule(s.ctx, posthaste.Schedule{Name: "s", Spec: "every 1000 hours", Message: posthaste.Message{Queue: s.queue}})
	s.must(err)
	until := time.Now().Add(time.Hour).Truncate(time.Microsecond).UTC()
	s.pause(what, "long", until)
	if p := s.pauseOf(what); p == nil || p.By != "ada" || p.Reason != "long" || !p.Until.Equal(until) {
		s.Fatalf("the pause of the schedule is %+v", p)
	}
	s.pause(what, "short", time.Now().Add(300*time.Millisecond))
	s.ended(what)
	found, err := s.engine.Schedules(s.ctx, "s")
	s.must(err)
	if len(found) != 1 || !found[0].PausedAt.IsZero() || found[0].NextAt.IsZero() {
		s.Errorf("after the end the schedule is %+v", found)
	}
	s.pause(what, "", until)
	s.must(s.engine.DropSchedule(s.ctx, "s"))
	if p := s.pauseOf(what); p != nil {
		s.Errorf("the pause of the dropped schedule is %+v", p)
	}
}

// pauseEndWakes: a worker that sleeps is woken when a pause ends, and its heartbeats tell when.
func pauseEndWakes(s *suite) {
	s.create(quick())
	w, bell := s.register(time.Minute), s.doorbell()
	for _, what := range s.pausables() {
		s.pause(what, "", time.Now().Add(time.Second))
		s.sendKinds("sms")
		s.none(w) // sets a message of the kind aside
		beat, err := s.engine.Heartbeat(s.ctx, posthaste.Heartbeat{Worker: w})
		s.must(err)
		if beat.TickIn <= 0 || beat.TickIn > 2*time.Second {
			s.Errorf("a heartbeat tells that the pause of %v ends in %v", what, beat.TickIn)
		}
		var got []posthaste.RawDelivery
		slept := false
		s.until("the sleeper gets it", func() bool {
			s.must(bell.Sleep(s.ctx, s.queue, func(context.Context) (posthaste.LookReply, error) {
				reply, err := s.engine.Claim(s.ctx, s.request(w, 1))
				if got = reply.Deliveries; len(got) == 0 && err == nil && !slept {
					slept = true
					s.ended(what)
				}
				return posthaste.LookReply{Found: len(got) > 0, NextDue: -1}, err
			}))
			return len(got) > 0
		})
		s.settle(done, got...)
	}
}

// endOfOldPause: the end of a pause that was replaced ends no newer one.
func endOfOldPause(s *suite) {
	s.create(quick())
	for i, what := range s.pausables() {
		for _, again := range []bool{false, true} {
			s.pause(what, "old", time.Now().Add(300*time.Millisecond))
			if again {
				s.must(s.engine.Resume(s.ctx, what))
			}
			s.pause(what, "new", time.Now().Add(time.Hour))
			// A later pause that ends shows that the end of the old one has come.
			other := posthaste.OfKind{Queue: s.queue, Kind: fmt.Sprint("other", i, again)}
			s.pause(other, "", time.Now().Add(400*time.Millisecond))
			s.ended(other)
			if p := s.pauseOf(what); p == nil || p.Reason != "new" {
				s.Errorf("the end of the old pause of %v (resumed: %v) ended the new one: %+v", what, again, p)
			}
			s.must(s.engine.Resume(s.ctx, what))
		}
	}
}

// pauseResumedEarly: nothing more happens at the end of a pause that was resumed before.
func pauseResumedEarly(s *suite) {
	s.create(quick())
	what := posthaste.OfQueue(s.queue)
	s.pause(what, "", time.Now().Add(300*time.Millisecond))
	s.must(s.engine.Resume(s.ctx, what))
	other := posthaste.OfKind{Queue: s.queue, Kind: "other"}
	s.pause(other, "", time.Now().Add(400*time.Millisecond))
	s.ended(other)
	actions, err := s.engine.Actions(s.ctx, posthaste.ActionFilter{Queue: s.queue})
	s.must(err)
	for _, a := range actions {
		if a.Action == "resume" && a.By == posthaste.EndOfPause {
			s.Errorf("a pause that was resumed before its end was ended: %+v", a)
		}
	}
}

// pausesOfDropped: a queue that is dropped has no pauses any more, and its successor has none.
func pausesOfDropped(s *suite) {
	s.create(quick())
	for _, what := range s.pausables() {
		s.pause(what, "gone", time.Now().Add(300*time.Millisecond))
	}
	schedules := s.engine.Capabilities().Schedules
	if schedules {
		_, err := s.engine.PutSchedule(s.ctx, posthaste.Schedule{Name: "s", Spec: "every 1000 hours", Message: posthaste.Message{Queue: s.queue}})
		s.must(err)
		s.pause(posthaste.OfSchedule("s"), "gone", time.Now().Add(300*time.Millisecond))
	}
	s.must(s.engine.DropQueue(s.ctx, s.queue, posthaste.DropOptions{}))
	if schedules && s.pauseOf(posthaste.OfSchedule("s")) != nil {
		s.Error("the pause of a schedule of a dropped queue is still listed")
	}
	s.create(quick())
	if all := s.pauses(s.queue); len(all) > 0 {
		s.Errorf("the successor of a dropped queue has the pauses %+v", all)
	}
	new := posthaste.OfQueue(s.queue)
	s.pause(new, "new", time.Now().Add(time.Hour))
	other := posthaste.OfKind{Queue: s.queue, Kind: "other"}
	s.pause(other, "", time.Now().Add(400*time.Millisecond))
	s.ended(other)
	if s.pauseOf(new) == nil {
		s.Error("the end of a pause of a dropped queue ended a pause of its successor")
	}
}

func pausesPaged(s *suite) {
	s.create(quick())
	for i := range 7 {
		s.pause(posthaste.OfKind{Queue: s.queue, Kind: fmt.Sprint("k", i)}, "", time.Time{})
	}
	var got []string
	before := int64(0)
	for {
		page, err := s.engine.Pauses(s.ctx, posthaste.PauseFilter{Queue: s.queue, Before: before, Limit: 3})
		s.must(err)
		for _, p := range page {
			_, _, name := posthaste.PausableNames(p.What)
			got = append(got, name)
			before = p.ID
		}
		if len(page) < 3 {
			break
		}
	}
	if want := "k6 k5 k4 k3 k2 k1 k0"; strings.Join(got, " ") != want {
		s.Errorf("the pages list %q, want %q", got, want)
	}
	_, err := s.engine.Pauses(s.ctx, posthaste.PauseFilter{Limit: 1001})
	s.wantCode("listing too many", err, posthaste.CodeInvalid)
}

// pauseEndsOnce: of processes that maintain the store at once, one ends a pause and records it.
func pauseEndsOnce(s *suite) {
	s.create(quick())
	what := posthaste.OfQueue(s.queue)
	s.pause(what, "", time.Now().Add(300*time.Millisecond))
	errs := make(chan error, 8)
	for range cap(errs) {
		go func() {
			for {
				_, err := s.engine.Maintain(s.ctx, posthaste.UpkeepTicks)
				left, fault := s.engine.Pauses(s.ctx, posthaste.PauseFilter{Queue: s.queue})
				if err != nil || fault != nil || len(left) == 0 {
					errs <- err
					return
				}
			}
		}()
	}
	for range cap(errs) {
		s.must(<-errs)
	}
	s.until("the end is recorded once", func() bool {
		actions, err := s.engine.Actions(s.ctx, posthaste.ActionFilter{Queue: s.queue})
		s.must(err)
		n := 0
		for _, a := range actions {
			if a.By == posthaste.EndOfPause {
				n++
			}
		}
		if n > 1 {
			s.Fatalf("the end is recorded %d times", n)
		}
		return n == 1
	})
}
