package nats

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

func everyHour(catchUp posthaste.CatchUp) posthaste.Schedule {
	return posthaste.Schedule{Name: "every.hour", Spec: "every 1 hour", CatchUp: catchUp,
		Message: posthaste.Message{Queue: "jobs", Payload: json.RawMessage(`{"a": 1}`), Key: "k", Kind: "kind", Headers: map[string]string{"h": "v"}}}
}

// tickBoth ticks with both engines at once, and returns the sum.
func tickBoth(t *testing.T, ctx context.Context, engines ...*Engine) (sent, missed int) {
	t.Helper()
	for _, reply := range tickAll(t, ctx, engines...) {
		sent, missed = sent+reply.TicksSent, missed+reply.TicksMissed
	}
	return sent, missed
}

// tickAll ticks with all engines at once.
func tickAll(t *testing.T, ctx context.Context, engines ...*Engine) []posthaste.MaintainReply {
	t.Helper()
	replies := make([]posthaste.MaintainReply, len(engines))
	var all sync.WaitGroup
	for i, e := range engines {
		all.Go(func() {
			var err error
			if replies[i], err = e.Maintain(ctx, posthaste.UpkeepTicks); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	return replies
}

// scheduleOf returns the only schedule.
func scheduleOf(t *testing.T, ctx context.Context, e *Engine) posthaste.ScheduleInfo {
	t.Helper()
	all, err := e.Schedules(ctx)
	must(t, err)
	if len(all) != 1 {
		t.Fatalf("the schedules are %+v", all)
	}
	return all[0]
}

// wantTicks checks that there is one message for each tick, and that all are counted.
func wantTicks(t *testing.T, ctx context.Context, e *Engine, want ...time.Time) {
	t.Helper()
	var got, all []string
	for _, m := range entries(t, ctx, e) {
		got = append(got, m.Headers[posthaste.HeaderTick])
		if m.Headers[posthaste.HeaderSchedule] != "every.hour" || m.Headers["h"] != "v" || m.Key != "k" || m.Kind != "kind" || m.Due != 0 {
			t.Errorf("a tick sent %+v", m)
		}
	}
	for _, at := range want {
		all = append(all, at.Format(time.RFC3339))
	}
	slices.Sort(got)
	if !slices.Equal(got, all) {
		t.Errorf("there are messages for the ticks %q, want %q", got, all)
	}
	if s := scheduleOf(t, ctx, e); s.Sent != int64(len(want)) {
		t.Errorf("the schedule counts %d messages, want %d", s.Sent, len(want))
	}
}

// Twenty ticks by two engines that tick at the same time: each is sent and counted once.
func TestTicksAreSentOnce(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	ticksAreSentOnce(t, ctx, a, b)
}

func ticksAreSentOnce(t *testing.T, ctx context.Context, a, b *Engine) {
	next, err := a.PutSchedule(ctx, everyHour(""))
	must(t, err)
	until(t, ctx, "the other process knows it", func() bool { return b.tickIn() > 0 })
	var ticks []time.Time
	total := 0
	for range 20 {
		ahead(time.Hour, a, b)
		ticks = append(ticks, next)
		next = next.Add(time.Hour)
		until(t, ctx, "the tick is sent", func() bool {
			sent, missed := tickBoth(t, ctx, a, b)
			total += sent
			if missed != 0 {
				t.Fatalf("%d are missed", missed)
			}
			return sent > 0
		})
	}
	if total != 20 {
		t.Errorf("%d ticks are counted, want 20", total)
	}
	wantTicks(t, ctx, b, ticks...)
	if s := scheduleOf(t, ctx, a); !s.LastTick.Equal(ticks[19]) || s.LastMessage == 0 || !s.NextAt.Equal(next) || len(s.Upcoming) != 5 || s.Missed != 0 {
		t.Errorf("after them it is %+v", s)
	}
}

// Ticks that were missed are caught up as the schedule says.
func TestMissedTicksAreCaughtUp(t *testing.T) {
	t.Parallel()
	for catchUp, want := range map[posthaste.CatchUp]struct{ sent, missed int }{
		posthaste.CatchUpOnce: {1, 119}, posthaste.CatchUpEach: {120, 0}, posthaste.CatchUpSkip: {0, 120},
	} {
		t.Run(string(catchUp), func(t *testing.T) {
			t.Parallel()
			ctx, a, b := two(t)
			first, err := a.PutSchedule(ctx, everyHour(catchUp))
			must(t, err)
			until(t, ctx, "the other process knows it", func() bool { return b.tickIn() > 0 })
			ahead(120*time.Hour+30*time.Minute, a, b)
			sent, missed := 0, 0
			until(t, ctx, "all ticks are handled", func() bool {
				x, y := tickBoth(t, ctx, a, b)
				sent, missed = sent+x, missed+y
				return sent+missed >= 120
			})
			if sent != want.sent || missed != want.missed {
				t.Errorf("%d ticks are sent and %d missed, want %+v", sent, missed, want)
			}
			var ticks []time.Time
			for i := 120 - want.sent; i < 120; i++ {
				ticks = append(ticks, first.Add(time.Duration(i)*time.Hour))
			}
			wantTicks(t, ctx, b, ticks...)
		})
	}
}

// A process that was killed after it sent a tick, and before it moved the schedule on, has sent it:
// the next one counts it.
func TestTickOfKilledProcessCounts(t *testing.T) {
	t.Parallel()
	for _, later := range []time.Duration{0, 3 * time.Hour} {
		t.Run(later.String(), func(t *testing.T) {
			t.Parallel()
			ctx, a, b := two(t)
			first, err := a.PutSchedule(ctx, everyHour(""))
			must(t, err)
			ahead(time.Hour, a, b)
			s, _, err := a.schedules.read(ctx, "every=hour")
			must(t, err)
			q, err := a.queue(ctx, "jobs")
			must(t, err)
			id, err := a.sendTick(ctx, q, s, first, time.Hour)
			must(t, err)
			if again, err := b.sendTick(ctx, q, s, first, time.Hour); err != nil || again != id {
				t.Errorf("sending it again returns %s, %v; it is %s", again, err, id)
			}
			ahead(later, a, b)
			sent, missed, err := b.tick(ctx, "every=hour")
			if err != nil || sent != 1 || missed != 0 {
				t.Errorf("%d sent, %d missed, %v", sent, missed, err)
			}
			if info := scheduleOf(t, ctx, a); info.LastMessage != id || !info.LastTick.Equal(first) {
				t.Errorf("it is %+v", info)
			}
			wantTicks(t, ctx, a, first) // later ones wait until it is counted
			if later == 0 {
				return
			}
			until(t, ctx, "the later ticks are counted", func() bool {
				x, y := tickBoth(t, ctx, a, b)
				sent, missed = sent+x, missed+y
				return sent > 1
			})
			if missed != 2 {
				t.Errorf("%d are missed, want 2", missed)
			}
			wantTicks(t, ctx, a, first, first.Add(3*time.Hour))
		})
	}
}

func TestSchedulesChange(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	next, err := a.PutSchedule(ctx, everyHour(posthaste.CatchUpEach))
	must(t, err)
	again, err := b.PutSchedule(ctx, everyHour(posthaste.CatchUpEach))
	must(t, err)
	what := posthaste.OfSchedule("every.hour")
	for range 2 {
		must(t, a.Pause(ctx, what, posthaste.PauseOptions{Reason: "why"}))
	}
	ahead(10*time.Minute, a, b)
	put := everyHour("")
	put.Message.Key = "other"
	later, err := b.PutSchedule(ctx, put)
	must(t, err)
	if !again.Equal(next) || !later.Equal(next) {
		t.Errorf("its next tick is %s, then %s and %s", next, again, later)
	}
	if s := scheduleOf(t, ctx, a); s.PausedAt.IsZero() || !s.NextAt.IsZero() || len(s.Upcoming) != 0 || s.Message.Key != "other" {
		t.Errorf("put while it is paused it is %+v", s)
	}
	if in := b.tickIn(); in != 0 {
		t.Errorf("paused it ticks in %s", in)
	}
	ahead(140*time.Minute, a, b)
	if sent, missed := tickBoth(t, ctx, a, b); sent+missed != 0 {
		t.Errorf("paused it sent %d and missed %d", sent, missed)
	}
	must(t, b.Resume(ctx, what))
	must(t, b.Resume(ctx, what))
	if s := scheduleOf(t, ctx, a); !s.NextAt.Equal(next.Add(2*time.Hour)) || s.Missed != 0 {
		t.Errorf("resumed it is %+v", s)
	}
	id, err := b.RunSchedule(ctx, "every.hour")
	must(t, err)
	if got := entries(t, ctx, a); len(got) != 1 || got[0].ID != id || got[0].Headers[posthaste.HeaderTick] != "" || got[0].Headers[posthaste.HeaderSchedule] != "every.hour" {
		t.Errorf("running it sent %+v", got)
	}
	must(t, b.DropSchedule(ctx, "every.hour"))
	for verb, err := range map[string]error{"drop": a.DropSchedule(ctx, "every.hour"), "pause": a.Pause(ctx, what, posthaste.PauseOptions{}), "resume": a.Resume(ctx, what)} {
		wantCode(t, verb, err, posthaste.CodeNotFound)
	}
	_, err = a.RunSchedule(ctx, "every.hour")
	wantCode(t, "run", err, posthaste.CodeNotFound)
	const d = `{"schedule":"every.hour"}`
	want := []string{"schedule_put " + d, `schedule_pause {"reason":"why","schedule":"every.hour"}`, "schedule_put " + d, "schedule_resume " + d, "schedule_run jobs" + d, "schedule_drop " + d}
	got := slices.DeleteFunc(recordedBy(t, ctx, a, "ada"), func(s string) bool { return s == "create jobs" })
	if !slices.Equal(got, want) {
		t.Errorf("recorded are %q, want %q", got, want)
	}
}

// A schedule whose times were changed while a process sent its tick is not moved on by that process.
func TestTickMovesNoChangedSchedule(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	_, err := a.PutSchedule(ctx, everyHour(""))
	must(t, err)
	from, _, err := a.schedules.read(ctx, "every=hour")
	must(t, err)
	put := everyHour("")
	put.Spec = "every 3 hours"
	next, err := b.PutSchedule(ctx, put)
	must(t, err)
	moved := &moving{schedule: *from, counted: 1}
	moved.Next = from.Next.Add(time.Hour)
	sent, missed, err := a.moveOn(ctx, "every=hour", from, moved)
	if s := scheduleOf(t, ctx, b); err != nil || sent+missed != 0 || !s.NextAt.Equal(next) || s.Sent != 0 {
		t.Errorf("%d sent, %d missed, %v, and it is %+v", sent, missed, err, s)
	}
}

// A schedule ends with its queue, even if there is another one with its name.
func TestScheduleEndsWithItsQueue(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	_, err := a.PutSchedule(ctx, everyHour(""))
	must(t, err)
	must(t, a.Pause(ctx, posthaste.OfSchedule("every.hour"), posthaste.PauseOptions{}))
	_, err = a.changeQueue(ctx, "jobs", func(q *queue) (bool, error) { q.CreatedAt = q.CreatedAt.Add(time.Second); return true, nil })
	must(t, err)
	for i, e := range []*Engine{a, b} {
		until(t, ctx, "the queue is known", func() bool { _, err := e.freshQueue(ctx, "jobs"); return err == nil })
		all, err := e.Schedules(ctx)
		must(t, err)
		pauses, err := e.Pauses(ctx, posthaste.PauseFilter{})
		must(t, err)
		if len(all)+len(pauses) != 0 {
			t.Errorf("engine %d lists %+v and %+v", i, all, pauses)
		}
	}
	wantCode(t, "resuming it", b.Resume(ctx, posthaste.OfSchedule("every.hour")), posthaste.CodeNotFound)
	_, err = b.PutSchedule(ctx, everyHour(""))
	must(t, err)
	if s := scheduleOf(t, ctx, a); !s.PausedAt.IsZero() {
		t.Errorf("the new one is %+v", s)
	}
	_, err = a.changeQueue(ctx, "jobs", func(q *queue) (bool, error) { q.CreatedAt = q.CreatedAt.Add(time.Second); return true, nil })
	must(t, err)
	must(t, a.dropSchedulesOf(ctx, "jobs"))
	if all := b.schedules.knownAll(); len(all) != 0 {
		if all, err = b.schedules.freshAll(ctx); err != nil || len(all) != 0 {
			t.Errorf("it is still stored: %+v, %v", all, err)
		}
	}
}

func TestSchedulesAreChecked(t *testing.T) {
	t.Parallel()
	ctx, a, _ := two(t)
	must(t, a.CreateQueue(ctx, "small", posthaste.QueueOptions{MaxPayload: 100}))
	for what, c := range map[string]struct {
		change func(*posthaste.Schedule)
		code   posthaste.Code
	}{
		"interval zero":  {func(p *posthaste.Schedule) { p.Spec = "every 0 seconds" }, posthaste.CodeInvalid},
		"never":          {func(p *posthaste.Schedule) { p.Spec = "0 0 31 feb *" }, posthaste.CodeInvalid},
		"zone":           {func(p *posthaste.Schedule) { p.TimeZone = "Europe/Nowhere" }, posthaste.CodeInvalid},
		"catch up":       {func(p *posthaste.Schedule) { p.CatchUp = "always" }, posthaste.CodeInvalid},
		"queue":          {func(p *posthaste.Schedule) { p.Message.Queue = "nowhere" }, posthaste.CodeNotFound},
		"broken payload": {func(p *posthaste.Schedule) { p.Message.Payload = json.RawMessage(`{`) }, posthaste.CodeInvalid},
		"large payload":  {func(p *posthaste.Schedule) { p.Message.Queue, p.Message.Payload = "small", fmt.Sprintf("%0200d", 1) }, posthaste.CodeTooLarge},
		"tick's headers": {func(p *posthaste.Schedule) { p.Message.Headers = map[string]string{posthaste.HeaderTick: "x"} }, posthaste.CodeInvalid},
	} {
		put := everyHour("")
		c.change(&put)
		_, err := a.PutSchedule(ctx, put)
		wantCode(t, what, err, c.code)
	}
	if all, err := a.Schedules(ctx); err != nil || len(all) != 0 {
		t.Errorf("a rejected schedule was stored: %+v, %v", all, err)
	}
	put := everyHour("")
	put.Message.Priority = 3
	_, err := a.PutSchedule(ctx, put)
	must(t, err)
	if q, err := a.queue(ctx, "jobs"); err != nil || !slices.Equal(q.Priorities, []int{3}) {
		t.Errorf("the queue has no consumers for the priority: %+v, %v", q, err)
	}
}
