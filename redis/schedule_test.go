package redis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/worker"
)

// put makes a schedule of the queue jobs, whose next tick lies back by ago.
func put(t *testing.T, e *Engine, name, spec string, catchUp posthaste.CatchUp, ago time.Duration) {
	t.Helper()
	_, err := e.PutSchedule(t.Context(), posthaste.Schedule{Name: name, Spec: spec, CatchUp: catchUp, Message: posthaste.Message{Queue: jobs, Payload: 1}})
	if err != nil {
		t.Fatal(err)
	}
	s, now := scheduledNow(t, e, name)
	late := *s
	late.Next = now.Truncate(time.Minute).Add(-ago)
	if said, err := e.setSchedule(t.Context(), s, &late, false); err != nil || said != "ok" {
		t.Fatal(said, err)
	}
}

func scheduledNow(t *testing.T, e *Engine, name string) (*scheduled, time.Time) {
	t.Helper()
	found, now, _, err := e.readSchedules(t.Context(), named(name))
	if err != nil || len(found) != 1 {
		t.Fatalf("%d schedules: %v", len(found), err)
	}
	return found[0], now
}

// sent is how many messages were sent to queues.
func sent(t *testing.T, e *Engine, queues ...string) (n int64) {
	t.Helper()
	infos, err := e.Queues(t.Context(), queues...)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range infos {
		n += i.Subscriptions[0].Sent
	}
	return n
}

func tick(t *testing.T, e *Engine) posthaste.MaintainReply {
	t.Helper()
	reply, err := e.Maintain(t.Context(), posthaste.UpkeepTicks)
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

const forget = "if all.e and call('HSET', KEYS[first + 1], all.e, all.j .. ' ' .. ids[#ids]) == 1 and"

// Of two processes that found the same tick due, one sends it.
func TestTickIsSentOnce(t *testing.T) {
	holds := func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		put(t, e, "s", "every 24 hours", "", time.Second)
		s, _ := scheduledNow(t, e, "s")
		q, err := e.registry.queue(t.Context(), jobs)
		if err != nil {
			t.Fatal(err)
		}
		last, err := e.lastTick(t.Context(), s, q.number)
		if err != nil {
			t.Fatal(err)
		}
		var errs [2]error
		for i := range errs {
			_, errs[i] = e.sendTicks(t.Context(), s, last, []time.Time{s.Next})
		}
		if n := sent(t, e, jobs); n != 1 || errs[0] != nil || !errors.Is(errs[1], errTicked) {
			return fmt.Sprintf("one tick became %d messages: %v", n, errs)
		}
		return ""
	}
	t.Run("checked", func(t *testing.T) {
		rule(t, holds, patch{&sendScript, "if all.e and (call('HGET', KEYS[first + 1], all.e) or '') ~= (all.b or '') then return 'ticked' end", ""})
	})
	t.Run("recorded", func(t *testing.T) { breaks(t, holds, patch{&sendScript, forget, "if false and"}) })
}

// A process that dies after it has sent a tick leaves to the others to move the schedule
// on, which send nothing.
func TestTickThatWasNotMovedOn(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		put(t, e, "s", "every 24 hours", "", time.Second)
		s, _ := scheduledNow(t, e, "s")
		ids, err := posthaste.IDs(e.sendTicks(t.Context(), s, lastTick{}, []time.Time{s.Next}))
		if err != nil {
			t.Fatal(err)
		}
		// A change by an operator in between is kept.
		if err := e.Pause(t.Context(), posthaste.OfSchedule("s"), posthaste.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		if n, missed, err := e.tick(t.Context(), s, s.Next.Add(time.Minute)); n != 1 || missed != 0 || err != nil {
			return fmt.Sprintf("%d were sent and %d missed: %v", n, missed, err)
		}
		is, _ := scheduledNow(t, e, "s")
		if n := sent(t, e, jobs); n != 1 || !is.paused() || is.Sent != 1 || is.LastMessage != ids[0] || !is.LastTick.Equal(s.Next) || !is.Next.After(s.Next) {
			return fmt.Sprintf("%d messages, then it is %+v", n, is)
		}
		return ""
	}, patch{&sendScript, forget, "if false and"})
}

// A tick that was sent before its sender died counts as sent, even if it is no longer the last
// tick that is due.
func TestTickThatWasSentIsNotMissed(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{})
	put(t, e, "s", "every 60 seconds", posthaste.CatchUpOnce, 10*time.Minute)
	s, _ := scheduledNow(t, e, "s")
	if _, err := e.sendTicks(t.Context(), s, lastTick{}, []time.Time{s.Next.Add(2 * time.Minute)}); err != nil {
		t.Fatal(err)
	}
	if n, missed, err := e.tick(t.Context(), s, s.Next.Add(5*time.Minute)); n != 2 || missed != 4 || err != nil {
		t.Errorf("%d of six were sent and %d missed: %v", n, missed, err)
	}
	if n := sent(t, e, jobs); n != 2 {
		t.Errorf("%d messages", n)
	}
}

// If a schedule is put to another queue while a worker sends its tick, that tick is not sent
// to the other queue, too.
func TestTickWhileItsQueueChanges(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		if err := e.CreateQueue(t.Context(), "other", posthaste.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
		put(t, e, "s", "every 24 hours", "", time.Second)
		slow, _ := scheduledNow(t, e, "s")
		_, err := e.PutSchedule(t.Context(), posthaste.Schedule{Name: "s", Spec: "every 24 hours", Message: posthaste.Message{Queue: "other", Payload: 1}})
		if err != nil {
			t.Fatal(err)
		}
		tick(t, e)
		if _, err := e.sendTicks(t.Context(), slow, lastTick{}, []time.Time{slow.Next}); err != nil && !errors.Is(err, errTicked) {
			t.Fatal(err)
		}
		if n := sent(t, e, jobs, "other"); n != 1 {
			return fmt.Sprintf("one tick became %d messages", n)
		}
		return ""
	}, patch{&scheduleScript, "then return 'due' end", "then call('PING') end"})
}

// A schedule ends with its queue. A worker that read the schedule before sends nothing to a
// later queue of that name, and putting the schedule fails while the queue is gone.
func TestScheduleEndsWithItsQueue(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		put(t, e, "s", "every 24 hours", "", time.Second)
		slow, now := scheduledNow(t, e, "s")
		other, err := New(t.Context(), e.client, WithPrefix(e.keys.prefix))
		if err != nil {
			t.Fatal(err)
		}
		if err := other.DropQueue(t.Context(), jobs, posthaste.DropOptions{}); err != nil {
			t.Fatal(err)
		}
		if all, err := e.Schedules(t.Context()); err != nil || len(all) != 0 {
			return fmt.Sprintf("%+v: %v", all, err)
		}
		_, err = e.PutSchedule(t.Context(), posthaste.Schedule{Name: "s", Spec: "every 24 hours", Message: posthaste.Message{Queue: jobs, Payload: 1}})
		if posthaste.CodeOf(err) != posthaste.CodeNotFound {
			return fmt.Sprintf("it was put to a queue that is not there: %v", err)
		}
		create(t, other, posthaste.QueueOptions{})
		if n, missed, err := e.tick(t.Context(), slow, now); n+missed != 0 || err != nil {
			return fmt.Sprintf("%d were sent and %d missed: %v", n, missed, err)
		}
		if n := sent(t, e, jobs); n != 0 {
			return fmt.Sprintf("the later queue got %d", n)
		}
		return ""
	}, patch{&dropScript, "if string.match(schedules[i + 1], '^%S+') == name then", "if false then"})
}

func TestMissedTicksAreCaughtUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		catchUp             posthaste.CatchUp
		sent, missed, calls int
	}{{posthaste.CatchUpEach, 251, 0, 3}, {posthaste.CatchUpOnce, 1, 250, 1}, {posthaste.CatchUpSkip, 1, 250, 1}} {
		t.Run(string(c.catchUp), func(t *testing.T) {
			t.Parallel()
			e := open(t, server.URL())
			create(t, e, posthaste.QueueOptions{})
			put(t, e, "s", "every 60 seconds", c.catchUp, 250*time.Minute)
			s, _ := scheduledNow(t, e, "s")
			now := s.Next.Add(250*time.Minute + time.Second)
			n, missed, calls := 0, 0, 0
			for ; !s.Next.After(now); calls++ {
				more, less, err := e.tick(t.Context(), s, now)
				if err != nil {
					t.Fatal(err)
				}
				n, missed = n+more, missed+less
				s, _ = scheduledNow(t, e, "s")
			}
			if n != c.sent || missed != c.missed || calls != c.calls || sent(t, e, jobs) != int64(c.sent) || s.Sent != int64(c.sent) || s.Missed != int64(c.missed) {
				t.Errorf("%d sent, %d missed in %d calls, want %+v; it is %+v", n, missed, calls, c, s)
			}
		})
	}
}

// What the queue would refuse by now is a tick missed, with the error kept.
func TestTickThatIsRefused(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{MaxPayload: 10})
	put(t, e, "s", "every 24 hours", "", time.Second)
	s, _ := scheduledNow(t, e, "s")
	long := *s
	long.Payload = []byte(`"longer than that"`)
	if said, err := e.setSchedule(t.Context(), s, &long, false); err != nil || said != "ok" {
		t.Fatal(said, err)
	}
	if reply := tick(t, e); reply.TicksSent != 0 || reply.TicksMissed != 1 || reply.TickIn <= 0 {
		t.Errorf("%+v", reply)
	}
	if s, _ = scheduledNow(t, e, "s"); !strings.Contains(s.Error, "max_payload") || s.Missed != 1 {
		t.Errorf("it is %+v", s)
	}
}

// Doctor reports schedules whose ticks are not sent, and schedules whose zone is unknown.
func TestDoctorLooksAtSchedules(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{})
	put(t, e, "late", "every 24 hours", "", 10*time.Minute)
	put(t, e, "lost", "every 24 hours", "", 0)
	put(t, e, "well", "every 24 hours", "", -time.Hour)
	s, _ := scheduledNow(t, e, "lost")
	lost := *s
	lost.Zone = "Europe/Nowhere"
	if said, err := e.setSchedule(t.Context(), s, &lost, false); err != nil || said != "ok" {
		t.Fatal(said, err)
	}
	findings, err := e.Doctor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, f := range findings {
		if f.Check == "schedules" {
			told = append(told, fmt.Sprint(f.Fault, f.Queue, f.Message))
		}
	}
	if len(told) != 2 || !strings.HasPrefix(told[0], `falsejobsschedule "late"`) || !strings.HasPrefix(told[1], `truejobsthis program does not know`) {
		t.Errorf("told: %q", told)
	}
	// It holds up no other schedule, and can be put again.
	if reply := tick(t, e); reply.TicksSent != 1 || reply.TickIn != 1 {
		t.Errorf("%+v", reply)
	}
	put(t, e, "lost", "every 24 hours", "", 0)
	if reply := tick(t, e); reply.TicksSent != 1 {
		t.Errorf("put again: %+v", reply)
	}
}

// What a queue has of schedules that were dropped is forgotten.
func TestDroppedSchedulesAreForgotten(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{})
	key, old := e.keys.ticked(jobs), map[string]any{}
	for i := range 1100 {
		old[fmt.Sprint(i)] = fmt.Sprint(micros(time.Now().Add(-25*time.Hour)), " 1")
	}
	if err := e.client.HSet(t.Context(), key, old).Err(); err != nil {
		t.Fatal(err)
	}
	put(t, e, "s", "every 24 hours", "", 0)
	tick(t, e)
	if n, err := e.client.HLen(t.Context(), key).Result(); err != nil || n != 1 {
		t.Errorf("%d are known: %v", n, err)
	}
}

// Every field of a message is kept or refused: none is accepted and left out.
func TestScheduleTakesOrRefusesEveryField(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{})
	values := map[reflect.Type]any{reflect.TypeFor[string](): "x", reflect.TypeFor[bool](): true, reflect.TypeFor[int](): 1,
		reflect.TypeFor[map[string]string](): map[string]string{"a": "b"}, reflect.TypeFor[[]string](): []string{"a"},
		reflect.TypeFor[time.Duration](): time.Minute, reflect.TypeFor[*posthaste.Unique](): &posthaste.Unique{}, reflect.TypeFor[time.Time](): time.Now(),
		reflect.TypeFor[posthaste.Backoff](): posthaste.Backoff{Base: time.Second, Max: time.Minute}}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[posthaste.Message]()) {
		if field.Name == "Queue" || field.Name == "Payload" || field.Name == "Codec" { // the last has a test of its own
			continue
		}
		value, ok := values[field.Type]
		if !ok {
			t.Errorf("field %s: no value of its type %s to try it with", field.Name, field.Type)
			continue
		}
		if field.Name == "ContentType" {
			value = "application/cloudevents+json"
		}
		s := posthaste.Schedule{Name: strings.ToLower(field.Name), Spec: "every 24 hours", Message: posthaste.Message{Queue: jobs, Payload: 1}}
		reflect.ValueOf(&s.Message).Elem().FieldByIndex(field.Index).Set(reflect.ValueOf(value))
		if _, err := e.PutSchedule(t.Context(), s); err != nil {
			if posthaste.CodeOf(err) != posthaste.CodeInvalid {
				t.Errorf("field %s: %v", field.Name, err)
			}
			continue
		}
		is, _ := scheduledNow(t, e, s.Name)
		if got := reflect.ValueOf(is.message()).FieldByIndex(field.Index).Interface(); !reflect.DeepEqual(got, value) {
			t.Errorf("field %s is kept as %v", field.Name, got)
		}
	}
}

// Processes that tick are killed in the middle of it: each tick is one message.
func TestEachTickIsOneMessageThroughKills(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{})
	if err := e.Pause(posthaste.WithActor(t.Context(), "ada"), posthaste.OfQueue(jobs), posthaste.PauseOptions{}); err != nil { // so that all are there in the end
		t.Fatal(err)
	}
	const schedules, behind, kills = 10, 5 * time.Minute, 3
	firsts := map[string]time.Time{}
	for i := range schedules {
		name := fmt.Sprint("s", i)
		put(t, e, name, "every 1 second", posthaste.CatchUpEach, behind)
		s, _ := scheduledNow(t, e, name)
		firsts[name] = s.Next
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for range kills {
		before := sent(t, e, jobs)
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), exe)
		cmd.Env = append(os.Environ(), doomed+"="+server.URL()+" "+e.keys.prefix)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		until(t, "it ticks", func() bool { return sent(t, e, jobs) > before })
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	until(t, "all is caught up", func() bool { return tick(t, e).TicksSent == 0 })
	expected, told := map[string]time.Time{}, int64(0)
	for name := range firsts {
		if err := e.Pause(t.Context(), posthaste.OfSchedule(name), posthaste.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		s, _ := scheduledNow(t, e, name)
		expected[name], told = s.LastTick, told+s.Sent
	}
	if err := e.Resume(posthaste.WithActor(t.Context(), "ada"), posthaste.OfQueue(jobs)); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	w, messages := register(t, e), int64(0)
	for number := int64(1); ; number++ {
		some := claim(t, e, w, number, 1000)
		if len(some) == 0 {
			break
		}
		for _, d := range some {
			got[d.Headers[posthaste.HeaderSchedule]+" "+d.Headers[posthaste.HeaderTick]]++
			messages++
		}
	}
	if messages != told || messages < int64(schedules*behind/time.Second) {
		t.Errorf("%d messages, the schedules count %d", messages, told)
	}
	for name, first := range firsts {
		for at := first; !at.After(expected[name]); at = at.Add(time.Second) {
			if n := got[name+" "+at.UTC().Format(time.RFC3339)]; n != 1 {
				t.Fatalf("the tick of %s at %s became %d messages", name, at, n)
			}
		}
	}
}

// A worker, of whatever queue, wakes for each tick: its message starts within a second.
// The first may be later, by the heartbeat that the worker hears of a new schedule with.
func TestTickStartsWithinASecond(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{})
	type start struct{ tick, at time.Time }
	starts := make(chan start, 1000)
	work(t, e, worker.Config{}, func(d posthaste.RawDelivery) error {
		tick, err := time.Parse(time.RFC3339, d.Headers[posthaste.HeaderTick])
		starts <- start{tick, time.Now()}
		return err
	})
	_, err := e.PutSchedule(t.Context(), posthaste.Schedule{Name: "s", Spec: "every 1 second", CatchUp: posthaste.CatchUpEach, Message: posthaste.Message{Queue: jobs, Payload: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for range 4 { // those of before the heartbeat
		<-starts
	}
	testrun.Timed(t, time.Second, func() string {
		begun := time.Now()
		for n := 0; n < 2; {
			s := <-starts
			if s.tick.Before(begun) {
				continue // it may be late because of a stall before this measurement
			}
			n++
			switch by := s.at.Sub(s.tick); {
			case by < 0:
				t.Errorf("a tick started %s before its time", -by)
			case by > time.Second:
				return fmt.Sprintf("a tick started %s after its time", by)
			}
		}
		return ""
	})
}

// What a queue has of its schedules' ticks goes with it.
func TestDroppedQueueLeavesNoTicks(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{})
	put(t, e, "s", "every 24 hours", "", 0)
	tick(t, e)
	there := func() int64 {
		n, err := e.client.Exists(t.Context(), e.keys.ticked(jobs), e.keys.schedules(), e.keys.ticks()).Result()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := there(); n != 3 {
		t.Errorf("%d of three keys are there", n)
	}
	if err := e.DropQueue(t.Context(), jobs, posthaste.DropOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := there(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}
