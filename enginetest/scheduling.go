package enginetest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var scheduling = []test{
	{name: "Schedules", run: schedules, needs: features{Schedules: true}},
	{name: "ScheduleCron", run: scheduleCron, needs: features{Schedules: true}},
	{name: "ScheduleBadInput", run: scheduleBadInput, needs: features{Schedules: true}},
	{name: "Ticks", run: ticks, needs: features{Schedules: true}},
	{name: "ScheduleChangesAreSeen", run: scheduleChangesAreSeen, needs: features{Schedules: true}},
	{name: "R8_ScheduleIsRunNow", run: scheduleIsRunNow, needs: features{Schedules: true}},
}

// scheduleIsRunNow: running a schedule sends its message once, whether it is paused or not, and
// changes nothing that the schedule shows.
func scheduleIsRunNow(s *suite) {
	s.create(posthaste.QueueOptions{})
	put := s.every("every 2 hours")
	put.Name = s.queue + "-s"
	_, err := s.engine.PutSchedule(s.ctx, put)
	s.must(err)
	for _, paused := range []bool{false, true} {
		if paused {
			s.must(s.engine.Pause(s.ctx, posthaste.OfSchedule(put.Name), posthaste.PauseOptions{}))
		}
		before := fmt.Sprintf("%+v", s.scheduleOf(put.Name))
		id, err := s.engine.RunSchedule(s.ctx, put.Name)
		s.must(err)
		if after := fmt.Sprintf("%+v", s.scheduleOf(put.Name)); after != before {
			s.Errorf("before it ran %s, and after it %s", before, after)
		}
		got := s.receive(10, time.Minute)
		if len(got) != 1 {
			s.Fatalf("running it sent %d messages", len(got))
		}
		d := got[0]
		_, tick := d.Headers[posthaste.HeaderTick]
		if d.MessageID != id || d.Key != "k" || d.Kind != "kind" || d.Reference != "r" || d.Headers["h"] != "v" || d.Headers[posthaste.HeaderSchedule] != put.Name || tick {
			s.Errorf("it sent %+v, want message %s", d, id)
		}
	}
	_, err = s.engine.RunSchedule(s.ctx, "nowhere")
	s.wantCode("running no schedule", err, posthaste.CodeNotFound)
}

// scheduleChangesAreSeen: a declaration that is stored changes nothing, and one in which any field
// of a message is another one changes the schedule.
func scheduleChangesAreSeen(s *suite) {
	s.create(posthaste.QueueOptions{})
	s.must(s.engine.CreateQueue(s.ctx, s.queue+"-o", posthaste.QueueOptions{}))
	put := s.every("every 2 hours")
	put.Name = s.queue + "-s"
	put.Message.Payload = json.RawMessage(`{"a": [9007199254740992, 100, -0.5]}`)
	put.Message.MaxAttempts, put.Message.Timeout, put.Message.Backoff = 3, time.Minute, posthaste.Backoff{Base: time.Second, Max: time.Hour}
	_, err := s.engine.PutSchedule(s.ctx, put)
	s.must(err)
	others := posthaste.Message{Queue: s.queue + "-o", Payload: json.RawMessage(`{"a": [9007199254740993, 100, -0.5]}`), ContentType: "application/x+json", Key: "k2", Kind: "kind2",
		Headers: map[string]string{"h": "w"}, Reference: "r2", Terms: []string{"t", "u"}, Priority: 1, MaxAttempts: 4, Timeout: time.Hour, Backoff: posthaste.Backoff{Base: time.Minute, Max: time.Hour}}
	never := []string{"Codec", "Delay", "SendAt", "DedupeKey", "DedupeWindow", "Unique", "NoWake"} // in a schedule
	changes := func(declare posthaste.Schedule) string {
		s.Helper()
		d := posthaste.Declaration{Owner: s.queue, Schedules: []posthaste.Schedule{declare}}
		changes, err := d.Changes(s.ctx, s.engine, false)
		s.must(err)
		return fmt.Sprint(changes)
	}
	same := put
	same.Message.Payload = json.RawMessage(`{"a":[9007199254740992.0,1e2,-5e-1]}`)
	for _, declare := range []posthaste.Schedule{put, same} {
		if got := changes(declare); got != "[]" {
			s.Errorf("the stored schedule needs the changes %s", got)
		}
	}
	for i, field := range reflect.VisibleFields(reflect.TypeFor[posthaste.Message]()) {
		if slices.Contains(never, field.Name) {
			continue
		}
		declare, value := put, reflect.ValueOf(others).Field(i)
		if value.IsZero() {
			s.Fatalf("the test has no other %s", field.Name)
		}
		reflect.ValueOf(&declare.Message).Elem().Field(i).Set(value)
		got := strings.ReplaceAll(changes(declare), "_", "")
		begin := "[~ schedule " + strings.ReplaceAll(put.Name, "_", "") + ": " + strings.ToLower(field.Name) + ": "
		if !strings.HasPrefix(got, begin) || strings.Count(got, " → ") != 1 {
			s.Errorf("with another %s the changes are %s, want %s… → …]", field.Name, got, begin)
		}
	}
}

func (s *suite) scheduleOf(name string) posthaste.ScheduleInfo {
	s.Helper()
	infos, err := s.engine.Schedules(s.ctx, name)
	s.must(err)
	if len(infos) != 1 || infos[0].Name != name {
		s.Fatalf("schedule %q is reported as %+v", name, infos)
	}
	return infos[0]
}

func (s *suite) every(spec string) posthaste.Schedule {
	return posthaste.Schedule{Name: "s", Spec: spec, Message: posthaste.Message{Queue: s.queue, Payload: json.RawMessage(`{"a": 1}`), Key: "k", Kind: "kind",
		Headers: map[string]string{"h": "v"}, Reference: "r", Terms: []string{"t"}}}
}

// schedules are created, listed, changed, paused, resumed and deleted.
func schedules(s *suite) {
	s.create(posthaste.QueueOptions{})
	put := s.every("every 2 hours")
	put.CatchUp = posthaste.CatchUpEach
	next, err := s.engine.PutSchedule(s.ctx, put)
	s.must(err)
	s.wantSchedule(put, next)
	w := s.register(time.Minute)
	beat := func() time.Duration {
		reply, err := s.engine.Heartbeat(s.ctx, posthaste.Heartbeat{Worker: w, Queues: []posthaste.QueueRef{s.ref()}})
		s.must(err)
		return reply.TickIn
	}
	if in := beat(); in <= 0 || in > 2*time.Hour {
		s.Errorf("a heartbeat says that it ticks in %s", in)
	}
	reply, err := s.engine.Maintain(s.ctx, posthaste.UpkeepTicks)
	s.must(err)
	if reply.TicksSent+reply.TicksMissed != 0 || reply.TickIn <= 0 || reply.TickIn > 2*time.Hour {
		s.Errorf("before its time it was ticked: %+v", reply)
	}

	s.must(s.engine.Pause(s.ctx, posthaste.OfSchedule("s"), posthaste.PauseOptions{}))
	s.must(s.engine.Pause(s.ctx, posthaste.OfSchedule("s"), posthaste.PauseOptions{}))
	put.Message.Key = "other"
	again, err := s.engine.PutSchedule(s.ctx, put)
	s.must(err)
	if is := s.scheduleOf("s"); is.PausedAt.IsZero() || !is.NextAt.IsZero() || len(is.Upcoming) != 0 || is.Message.Key != "other" || !again.Equal(next) {
		s.Errorf("put again while paused it is reported as %+v", is)
	}
	if in := beat(); in != 0 {
		s.Errorf("paused, a heartbeat says that it ticks in %s", in)
	}
	s.must(s.engine.Resume(s.ctx, posthaste.OfSchedule("s")))
	if resumed := s.scheduleOf("s").NextAt; !resumed.Equal(next) {
		s.Errorf("resumed, its next tick is %s, want %s", resumed, next)
	}

	s.must(s.engine.DropSchedule(s.ctx, "s"))
	if infos, err := s.engine.Schedules(s.ctx); err != nil || len(infos) != 0 || beat() != 0 {
		s.Errorf("after the drop: %+v, %v", infos, err)
	}
	for what, err := range map[string]error{"drop": s.engine.DropSchedule(s.ctx, "s"), "pause": s.engine.Pause(s.ctx, posthaste.OfSchedule("s"), posthaste.PauseOptions{}), "resume": s.engine.Resume(s.ctx, posthaste.OfSchedule("s"))} {
		s.wantCode(what+" of a schedule that is not there", err, posthaste.CodeNotFound)
	}

	_, err = s.engine.PutSchedule(s.ctx, put)
	s.must(err)
	s.must(s.engine.DropQueue(s.ctx, s.queue, posthaste.DropOptions{}))
	if infos, err := s.engine.Schedules(s.ctx); err != nil || len(infos) != 0 {
		s.Errorf("after its queue was dropped: %+v, %v", infos, err)
	}
}

// wantSchedule checks how the schedule that was put is reported.
func (s *suite) wantSchedule(put posthaste.Schedule, next time.Time) {
	s.Helper()
	is := s.scheduleOf(put.Name)
	var payload struct{ A int }
	if err := json.Unmarshal(is.Message.Payload.(json.RawMessage), &payload); err != nil || payload.A != 1 {
		s.Errorf("its payload is %s", is.Message.Payload)
	}
	m := is.Message
	if m.Queue != s.queue || m.Key != "k" || m.Kind != "kind" || m.Headers["h"] != "v" || m.Reference != "r" || len(m.Terms) != 1 || m.Terms[0] != "t" ||
		is.Spec != put.Spec || is.TimeZone != "UTC" || is.CatchUp != posthaste.CatchUpEach || is.CreatedAt.IsZero() || !is.PausedAt.IsZero() {
		s.Errorf("it is reported as %+v", is)
	}
	if !is.NextAt.Equal(next) || len(is.Upcoming) != 5 || !is.Upcoming[0].Equal(next) || is.Upcoming[1].Sub(next) != 2*time.Hour {
		s.Errorf("next tick %s, told as %s and %s", next, is.NextAt, is.Upcoming)
	}
}

func scheduleCron(s *suite) {
	s.create(posthaste.QueueOptions{})
	put := s.every("30 2 * * mon-fri")
	put.TimeZone = "Europe/Berlin"
	next, err := s.engine.PutSchedule(s.ctx, put)
	s.must(err)
	zone, err := time.LoadLocation(put.TimeZone)
	s.must(err)
	is := s.scheduleOf("s")
	for _, t := range append(is.Upcoming, next) {
		// In the night of a time change at 02:00, which is a Sunday, the hour is different.
		if local := t.In(zone); local.Format("15:04:05") != "02:30:00" || local.Weekday() == time.Saturday || local.Weekday() == time.Sunday {
			s.Errorf("it ticks at %s", local)
		}
	}
	put.Spec = "0 0 31 feb *"
	_, err = s.engine.PutSchedule(s.ctx, put)
	s.wantCode("a line that never fires", err, posthaste.CodeInvalid)
	if s.scheduleOf("s").Spec != is.Spec {
		s.Error("a rejected schedule was stored")
	}
}

func scheduleBadInput(s *suite) {
	s.create(posthaste.QueueOptions{MaxPayload: 100})
	for what, c := range map[string]struct {
		change func(*posthaste.Schedule)
		code   posthaste.Code
	}{
		"no name":        {func(p *posthaste.Schedule) { p.Name = "" }, posthaste.CodeInvalid},
		"name":           {func(p *posthaste.Schedule) { p.Name = "No Good" }, posthaste.CodeInvalid},
		"interval zero":  {func(p *posthaste.Schedule) { p.Spec = "every 0 seconds" }, posthaste.CodeInvalid},
		"no interval":    {func(p *posthaste.Schedule) { p.Spec = "every now and then" }, posthaste.CodeInvalid},
		"zone":           {func(p *posthaste.Schedule) { p.TimeZone = "Europe/Nowhere" }, posthaste.CodeInvalid},
		"catch up":       {func(p *posthaste.Schedule) { p.CatchUp = "always" }, posthaste.CodeInvalid},
		"queue":          {func(p *posthaste.Schedule) { p.Message.Queue = "nowhere" }, posthaste.CodeNotFound},
		"delay":          {func(p *posthaste.Schedule) { p.Message.Delay = time.Second }, posthaste.CodeInvalid},
		"send at":        {func(p *posthaste.Schedule) { p.Message.SendAt = time.Now() }, posthaste.CodeInvalid},
		"no wake":        {func(p *posthaste.Schedule) { p.Message.NoWake = true }, posthaste.CodeInvalid},
		"dedupe key":     {func(p *posthaste.Schedule) { p.Message.DedupeKey = "d" }, posthaste.CodeInvalid},
		"bytes":          {func(p *posthaste.Schedule) { p.Message.Payload = []byte("x") }, posthaste.CodeInvalid},
		"broken payload": {func(p *posthaste.Schedule) { p.Message.Payload = json.RawMessage(`{`) }, posthaste.CodeInvalid},
		"large payload":  {func(p *posthaste.Schedule) { p.Message.Payload = fmt.Sprintf("%0200d", 1) }, posthaste.CodeTooLarge},
		"long key":       {func(p *posthaste.Schedule) { p.Message.Key = fmt.Sprintf("%0256d", 1) }, posthaste.CodeTooLarge},
		"tick's headers": {func(p *posthaste.Schedule) { p.Message.Headers = map[string]string{posthaste.HeaderTick: "x"} }, posthaste.CodeInvalid},
	} {
		put := s.every("every 1 hour")
		c.change(&put)
		_, err := s.engine.PutSchedule(s.ctx, put)
		s.wantCode(what, err, c.code)
	}
	if infos, err := s.engine.Schedules(s.ctx); err != nil || len(infos) != 0 {
		s.Errorf("a rejected schedule was stored: %+v, %v", infos, err)
	}
}

// ticks: if several processes tick at once, one of them sends the message of each tick.
func ticks(s *suite) {
	s.create(posthaste.QueueOptions{})
	put := s.every("every 1 second")
	put.CatchUp = posthaste.CatchUpEach
	first, err := s.engine.PutSchedule(s.ctx, put)
	s.must(err)
	w := s.register(time.Minute)
	got := map[string]int{}
	sent := 0
	s.until("some ticks are sent", func() bool {
		var wg sync.WaitGroup
		var replies [4]posthaste.MaintainReply
		var errs [4]error
		for i := range replies {
			wg.Go(func() { replies[i], errs[i] = s.engine.Maintain(s.ctx, posthaste.UpkeepTicks) })
		}
		wg.Wait()
		for i, r := range replies {
			s.must(errs[i])
			sent += r.TicksSent
			if r.TicksMissed != 0 {
				s.Fatalf("%d ticks were missed", r.TicksMissed)
			}
		}
		return sent >= 3
	})
	s.must(s.engine.Pause(s.ctx, posthaste.OfSchedule("s"), posthaste.PauseOptions{}))
	is := s.scheduleOf("s")
	for _, d := range s.claimed(w, sent) {
		got[d.Headers[posthaste.HeaderTick]]++
		if d.Headers[posthaste.HeaderSchedule] != "s" || d.Headers["h"] != "v" || d.Key != "k" || d.Kind != "kind" || d.Reference != "r" {
			s.Errorf("a tick's message is %+v", d)
		}
	}
	s.none(w)
	for i := range sent {
		if at := first.Add(time.Duration(i) * time.Second).Format(time.RFC3339); got[at] != 1 {
			s.Errorf("the tick at %s became %d messages: %v", at, got[at], got)
		}
	}
	if last := first.Add(time.Duration(sent-1) * time.Second); is.Sent != int64(sent) || is.Missed != 0 || !is.LastTick.Equal(last) || is.LastMessage == 0 || is.LastSentAt.Before(last) {
		s.Errorf("after %d ticks it is reported as %+v", sent, is)
	}
}
