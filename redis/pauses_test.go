package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// pausesHere are what can be paused on Redis, in two queues: one looks at keys.
func pausesHere(t *testing.T, e *Engine) []posthaste.Pausable {
	t.Helper()
	create(t, e, posthaste.QueueOptions{})
	if err := e.CreateQueue(t.Context(), "keyed", posthaste.QueueOptions{Ordered: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.PutSchedule(t.Context(), posthaste.Schedule{Name: "s", Spec: "every 1000 hours", Message: posthaste.Message{Queue: jobs}}); err != nil {
		t.Fatal(err)
	}
	return []posthaste.Pausable{posthaste.OfQueue(jobs), posthaste.OfKind{Queue: jobs, Kind: "sms"}, posthaste.OfKey{Queue: "keyed", Key: "a"}, posthaste.OfSchedule("s")}
}

// entries returns the entries of the list of pauses, and of those among the ticks.
func (e *Engine) entries(t *testing.T) (listed, ticks []string) {
	t.Helper()
	listed, err := e.client.ZRange(t.Context(), e.keys.pauseIndex(), 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	all, err := e.client.ZRange(t.Context(), e.keys.ticks(), 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, member := range all {
		if entry, ok := strings.CutPrefix(member, "#"); ok {
			ticks = append(ticks, entry)
		}
	}
	return listed, ticks
}

// The end of a pause ends only that pause, even if a process does so late, that read the entry before
// another pause replaced it.
func TestEndOfOldPauseOnRedis(t *testing.T) {
	holds := func(t *testing.T, e *Engine) string {
		for _, what := range pausesHere(t, e) {
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(e.Pause(t.Context(), what, posthaste.PauseOptions{Reason: "old", Until: time.Now().Add(time.Hour)}))
			listed, _ := e.entries(t)
			must(e.Resume(t.Context(), what))
			end := time.Now().Add(200 * time.Millisecond)
			must(e.Pause(t.Context(), what, posthaste.PauseOptions{Reason: "new", Until: end}))
			until(t, "the new one could end", func() bool { return time.Now().After(end) })
			old, err := readListed(listed[len(listed)-1])
			must(err)
			if _, err := e.endPause(t.Context(), old, time.Now()); err != nil {
				t.Fatal(err)
			}
			all, err := e.Pauses(t.Context(), posthaste.PauseFilter{})
			must(err)
			if len(all) != 1 || all[0].Reason != "new" {
				return fmt.Sprintf("the end of the old pause of %v left %+v", what, all)
			}
			must(e.Resume(t.Context(), what))
		}
		return ""
	}
	rule(t, holds, patch{&pauseScript, "if id ~= ended then", "if false then"})
}

// A process that is killed before it stored a pause leaves an entry, which is never listed and goes
// away. One that is killed after that leaves a pause that ends.
func TestPauseOfKilledProcess(t *testing.T) {
	e := open(t, server.URL())
	for i, what := range pausesHere(t, e) {
		member, err := e.pausableMember("pause", what)
		if err != nil {
			t.Fatal(err)
		}
		ends := fmt.Sprint(micros(time.Now().Add(200 * time.Millisecond)))
		add := func() int64 {
			reply, err := e.pauseIndex(t.Context(), "add", member, ends, pauseKept.Microseconds(), "")
			if err != nil {
				t.Fatal(err)
			}
			id, _ := parseMicros(str(reply.([]any)[0]))
			return id
		}
		add() // and killed
		id := add()
		is := &pauseNote{ID: id, Until: time.Now().Add(200 * time.Millisecond).UTC().Truncate(time.Microsecond), By: "ada"}
		if said, _, err := e.switchPause(t.Context(), what, switching{is: is, before: id + pauseWithin.Microseconds()}, posthaste.PauseOptions{}); err != nil || said != "changed" {
			t.Fatal(said, err)
		}
		// and killed
		all, err := e.Pauses(t.Context(), posthaste.PauseFilter{})
		if err != nil || len(all) != 1 || all[0].What != what {
			t.Fatalf("%v: the pauses are %+v, %v", what, all, err)
		}
		ended := 0
		until(t, "the pause ends", func() bool {
			reply, err := e.Maintain(t.Context(), posthaste.UpkeepTicks)
			if err != nil {
				t.Fatal(err)
			}
			ended += reply.PausesEnded
			return ended > 0
		})
		listed, ticks := e.entries(t)
		if len(listed) != i+1 || len(ticks) != i+1 {
			t.Fatalf("%v: left are %q and %q", what, listed, ticks)
		}
	}
	// Later they are found to be without pauses.
	listed, _ := e.entries(t)
	if n, err := e.endPauses(t.Context(), listed, time.Now().Add(2*pauseKept)); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if listed, ticks := e.entries(t); len(listed)+len(ticks) != 0 {
		t.Errorf("left are %q and %q", listed, ticks)
	}
	if all, err := e.Pauses(t.Context(), posthaste.PauseFilter{}); err != nil || len(all) != 0 {
		t.Errorf("the pauses are %+v, %v", all, err)
	}
}

// A process that stored its pause too late changes nothing, because its entry may be gone.
func TestLatePause(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		for _, what := range pausesHere(t, e) {
			is := &pauseNote{ID: 7, By: "ada"}
			if said, _, err := e.switchPause(t.Context(), what, switching{is: is, before: micros(time.Now().Add(-time.Second))}, posthaste.PauseOptions{}); err != nil || said != "late" {
				return fmt.Sprintf("a late pause of %v: %s, %v", what, said, err)
			}
		}
		return ""
	}, patch{&pauseScript, "if now > tonumber(before) then", "if false then"})
}

// Pauses that are resumed or dropped leave nothing.
func TestResumedPausesLeaveNothing(t *testing.T) {
	e := open(t, server.URL())
	things := pausesHere(t, e)
	for _, what := range things {
		for _, o := range []posthaste.PauseOptions{{}, {Reason: "x"}, {Reason: "x", Until: time.Now().Add(time.Hour)}, {Reason: "x", Until: time.Now().Add(2 * time.Hour)}} {
			for range 2 {
				if err := e.Pause(t.Context(), what, o); err != nil {
					t.Fatal(err)
				}
			}
			listed, ticks := e.entries(t)
			if len(listed) != 1 || len(ticks) > 1 || (len(ticks) == 1) != !o.Until.IsZero() {
				t.Fatalf("paused %v with %+v: %q, %q", what, o, listed, ticks)
			}
		}
		if err := e.Resume(t.Context(), what); err != nil {
			t.Fatal(err)
		}
		if listed, ticks := e.entries(t); len(listed)+len(ticks) != 0 {
			t.Fatalf("resumed %v: %q, %q", what, listed, ticks)
		}
	}
	for _, name := range []string{jobs, "keyed"} {
		if n, err := e.client.Exists(t.Context(), e.keys.pauses(name)).Result(); err != nil || n != 0 {
			t.Errorf("queue %s still has its pauses: %v", name, err)
		}
	}
	if err := e.Pause(t.Context(), posthaste.OfQueue(jobs), posthaste.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := e.DropQueue(t.Context(), jobs, posthaste.DropOptions{}); err != nil {
		t.Fatal(err)
	}
	if n, err := e.client.Exists(t.Context(), e.keys.pauses(jobs)).Result(); err != nil || n != 0 {
		t.Errorf("the dropped queue still has its pauses: %v", err)
	}
}

// Pauses of a queue that cannot be reached, as when one master of a cluster is lost, are tried once, so
// that neither the ends of other pauses nor schedules wait for all of them.
func TestEndsOfPausesOfAQueueThatFails(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	create(t, e, posthaste.QueueOptions{})
	must(e.CreateQueue(t.Context(), "lost", posthaste.QueueOptions{Ordered: true}))
	var end time.Time
	pause := func(what posthaste.Pausable) {
		end = time.Now().Add(2 * time.Second) // longer than a call takes beside other tests
		must(e.Pause(t.Context(), what, posthaste.PauseOptions{Until: end}))
	}
	for i := range 5 {
		pause(posthaste.OfKey{Queue: "lost", Key: fmt.Sprint(i)})
	}
	pause(posthaste.OfQueue(jobs))
	listed, _ := e.entries(t)
	cut := fail(e, &pauseKeyScript, "lost")
	cut.failing.Store(true)
	until(t, "the pauses could end", func() bool { return time.Now().After(end) })
	if n, err := e.endPauses(t.Context(), listed, time.Now()); n != 1 || err == nil {
		t.Errorf("%d pauses were ended, %v", n, err)
	}
	if n := cut.failed.Load(); n != 1 {
		t.Errorf("the queue that fails was tried %d times", n)
	}
	cut.failing.Store(false)
	if _, ticks := e.entries(t); len(ticks) != 5 {
		t.Errorf("to look at later are %q", ticks)
	}
	if n, err := e.endPauses(t.Context(), listed, time.Now()); n != 5 || err != nil {
		t.Errorf("afterwards %d pauses were ended, %v", n, err)
	}
}
