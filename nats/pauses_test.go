package nats

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const jobs = posthaste.OfQueue("jobs")

func pausesOf(t *testing.T, ctx context.Context, e *Engine) []posthaste.Pause {
	t.Helper()
	all, err := e.Pauses(ctx, posthaste.PauseFilter{Queue: "jobs"})
	must(t, err)
	return all
}

// consumersPaused reports which consumers of the queue are paused.
func consumersPaused(t *testing.T, ctx context.Context, e *Engine) (all []bool) {
	t.Helper()
	q, err := e.freshQueue(ctx, "jobs")
	must(t, err)
	for _, name := range q.deliverers() {
		c, err := e.js.Consumer(ctx, q.stream, name)
		must(t, err)
		all = append(all, c.CachedInfo().Paused)
	}
	return all
}

func claimOne(t *testing.T, ctx context.Context, e *Engine, w posthaste.WorkerID) []posthaste.RawDelivery {
	t.Helper()
	reply, err := e.Claim(ctx, posthaste.ClaimRequest{Worker: w, Number: time.Now().UnixNano(), QueueRef: posthaste.QueueRef{Queue: "jobs"}, Max: 1})
	must(t, err)
	return reply.Deliveries
}

func registered(t *testing.T, ctx context.Context, e *Engine, lease time.Duration) posthaste.WorkerID {
	t.Helper()
	w, err := e.Register(ctx, posthaste.WorkerInfo{Name: "tester", Lease: lease})
	must(t, err)
	return w
}

// While a queue is paused, no process hands out its messages, and all do after it was resumed.
func TestPausedQueueHandsOutNothing(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	_, err := a.Send(ctx, posthaste.Message{Queue: "jobs", Payload: 1, Priority: 3}, posthaste.Message{Queue: "jobs", Payload: 2})
	must(t, err)
	w := registered(t, ctx, b, time.Minute)
	until(t, ctx, "the first is handed out", func() bool { return len(claimOne(t, ctx, b, w)) == 1 })
	must(t, a.Pause(ctx, jobs, posthaste.PauseOptions{Reason: "why"}))
	if got := claimOne(t, ctx, b, w); len(got) != 0 {
		t.Errorf("paused it hands out %+v", got)
	}
	if got := consumersPaused(t, ctx, b); !slices.Equal(got, []bool{true, true}) {
		t.Errorf("the consumers that are paused: %v", got)
	}
	must(t, b.Resume(ctx, jobs))
	if got := consumersPaused(t, ctx, a); !slices.Equal(got, []bool{false, false}) {
		t.Errorf("after the resume the consumers that are paused: %v", got)
	}
	until(t, ctx, "the second is handed out", func() bool { return len(claimOne(t, ctx, b, w)) == 1 })
}

// A worker of another process that sleeps is woken by a resume.
func TestResumeWakes(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	must(t, a.Pause(ctx, jobs, posthaste.PauseOptions{}))
	_, err := a.Send(ctx, posthaste.Message{Queue: "jobs", Payload: 1})
	must(t, err)
	w := registered(t, ctx, b, time.Minute)
	bell, err := b.Doorbell(ctx)
	must(t, err)
	defer bell.Close()
	until(t, ctx, "the pause is known", func() bool { return !b.queues.known("jobs").PausedAt.IsZero() })
	began, slept := time.Now(), make(chan bool, 1)
	resumed := make(chan error, 1)
	go func() {
		<-slept
		resumed <- a.Resume(ctx, jobs)
	}()
	var got []posthaste.RawDelivery
	until(t, ctx, "the sleeper gets it", func() bool {
		must(t, bell.Sleep(ctx, "jobs", func(ctx context.Context) (posthaste.LookReply, error) {
			got = claimOne(t, ctx, b, w)
			select {
			case slept <- true:
			default:
			}
			return posthaste.LookReply{Found: len(got) > 0, NextDue: -1}, nil
		}))
		return len(got) > 0
	})
	must(t, <-resumed)
	if took := time.Since(began); took > lookAgain/2 {
		t.Errorf("it was woken after %s", took)
	}
}

func TestPausesTellWhy(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	end := time.Now().Add(time.Hour).Truncate(time.Microsecond).UTC()
	for range 2 {
		must(t, a.Pause(ctx, jobs, posthaste.PauseOptions{Reason: "one", Until: end.Add(100 * time.Nanosecond)}))
	}
	first := pausesOf(t, ctx, b)
	if len(first) != 1 || first[0].What != jobs || first[0].By != "ada" || first[0].Reason != "one" || !first[0].Until.Equal(end) || time.Since(first[0].Since).Abs() > time.Minute {
		t.Fatalf("the pauses are %+v", first)
	}
	must(t, b.Pause(posthaste.WithActor(ctx, "bob"), jobs, posthaste.PauseOptions{Reason: "two"}))
	second := pausesOf(t, ctx, a)
	if len(second) != 1 || second[0].Reason != "two" || !second[0].Until.IsZero() || second[0].By != "bob" || !second[0].Since.Equal(first[0].Since) || second[0].ID <= first[0].ID {
		t.Errorf("the changed pause is %+v, was %+v", second, first)
	}
	_, err := a.PutSchedule(ctx, everyHour(""))
	must(t, err)
	must(t, a.Pause(ctx, posthaste.OfSchedule("every.hour"), posthaste.PauseOptions{}))
	for before, want := range map[int64]int{0: 2, second[0].ID + 1: 1, second[0].ID: 0} {
		if all, err := a.Pauses(ctx, posthaste.PauseFilter{Before: before}); err != nil || len(all) != want {
			t.Errorf("before %d there are %+v, %v", before, all, err)
		}
	}
	if all, err := a.Pauses(ctx, posthaste.PauseFilter{Limit: 1}); err != nil || len(all) != 1 || all[0].What != posthaste.OfSchedule("every.hour") {
		t.Errorf("the last one is %+v, %v", all, err)
	}
	for range 2 {
		must(t, b.Resume(ctx, jobs))
	}
	if got := pausesOf(t, ctx, a); len(got) != 0 {
		t.Errorf("resumed, the pauses are %+v", got)
	}
	got := slices.DeleteFunc(recordedBy(t, ctx, a, "ada"), func(s string) bool { return !strings.Contains(s, "jobs") || strings.HasPrefix(s, "create") })
	if want := []string{`pause jobs{"reason":"one","until":"` + end.Format(time.RFC3339Nano) + `"}`, "resume jobs"}; !slices.Equal(got, want) {
		t.Errorf("recorded are %q, want %q", got, want)
	}
}

func TestPausesAreChecked(t *testing.T) {
	t.Parallel()
	ctx, a, _ := two(t)
	for what, c := range map[string]struct {
		of   posthaste.Pausable
		o    posthaste.PauseOptions
		code posthaste.Code
	}{
		"no queue":    {posthaste.OfQueue("nowhere"), posthaste.PauseOptions{}, posthaste.CodeNotFound},
		"no schedule": {posthaste.OfSchedule("nowhere"), posthaste.PauseOptions{}, posthaste.CodeNotFound},
		"a key":       {posthaste.OfKey{Queue: "jobs", Key: "k"}, posthaste.PauseOptions{}, posthaste.CodeUnsupported},
		"a kind":      {posthaste.OfKind{Queue: "jobs", Kind: "k"}, posthaste.PauseOptions{}, posthaste.CodeUnsupported},
		"nothing":     {nil, posthaste.PauseOptions{}, posthaste.CodeInvalid},
		"the past":    {jobs, posthaste.PauseOptions{Until: time.Now().Add(-time.Minute)}, posthaste.CodeInvalid},
		"too far":     {jobs, posthaste.PauseOptions{Until: time.Now().Add(posthaste.MaxPause + 24*time.Hour)}, posthaste.CodeInvalid},
		"two lines":   {jobs, posthaste.PauseOptions{Reason: "a\nb"}, posthaste.CodeInvalid},
		"too long":    {jobs, posthaste.PauseOptions{Reason: strings.Repeat("a", 501)}, posthaste.CodeTooLarge},
	} {
		wantCode(t, what, a.Pause(ctx, c.of, c.o), c.code)
	}
	if got := pausesOf(t, ctx, a); len(got) != 0 {
		t.Errorf("a rejected pause is listed: %+v", got)
	}
	_, err := a.Pauses(ctx, posthaste.PauseFilter{Queue: "nowhere"})
	wantCode(t, "pauses of no queue", err, posthaste.CodeNotFound)
	_, err = a.Pauses(ctx, posthaste.PauseFilter{Limit: 1001})
	wantCode(t, "too many", err, posthaste.CodeInvalid)
}

// Of several processes one ends a pause and records it, and the end of an old pause ends no newer one.
func TestPauseEndsOnce(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	_, err := a.PutSchedule(ctx, everyHour(""))
	must(t, err)
	all := []posthaste.Pausable{jobs, posthaste.OfSchedule("every.hour")}
	for _, what := range all {
		must(t, a.Pause(ctx, what, posthaste.PauseOptions{Reason: "old", Until: time.Now().Add(20 * time.Minute)}))
		must(t, a.Pause(ctx, what, posthaste.PauseOptions{Reason: "new", Until: time.Now().Add(40 * time.Minute)}))
	}
	until(t, ctx, "the pauses are known", func() bool { in := b.tickIn(); return in > 30*time.Minute && in <= 40*time.Minute })
	ahead(30*time.Minute, a, b)
	if n := endBoth(t, ctx, a, b); n != 0 {
		t.Errorf("at the end of the old ones %d pauses ended", n)
	}
	ahead(15*time.Minute, a, b)
	n := 0
	until(t, ctx, "both end", func() bool { n += endBoth(t, ctx, a, b); return n >= 2 })
	if left, err := b.Pauses(ctx, posthaste.PauseFilter{}); err != nil || len(left) != 0 || n != 2 {
		t.Errorf("%d ended, and left are %+v, %v", n, left, err)
	}
	got := recordedBy(t, ctx, a, posthaste.EndOfPause)
	slices.Sort(got)
	if !slices.Equal(got, []string{"resume jobs", `schedule_resume {"schedule":"every.hour"}`}) {
		t.Errorf("recorded are %q", got)
	}
}

func endBoth(t *testing.T, ctx context.Context, engines ...*Engine) (ended int) {
	t.Helper()
	for _, reply := range tickAll(t, ctx, engines...) {
		ended += reply.PausesEnded
	}
	return ended
}

// The consumers of a queue that a process resumed, and which was killed then, are resumed by another.
func TestConsumersOfKilledResumeAreResumed(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	must(t, a.Pause(ctx, jobs, posthaste.PauseOptions{}))
	_, err := a.changeQueue(ctx, "jobs", func(q *queue) (bool, error) {
		q.Pause, q.PausedAt, q.Halted = nil, time.Time{}, a.clock.now()
		return true, nil
	})
	must(t, err)
	until(t, ctx, "the resume is known", func() bool { return b.queues.known("jobs").Pause == nil })
	endBoth(t, ctx, b)
	if got := consumersPaused(t, ctx, b); !slices.Equal(got, []bool{true}) {
		t.Errorf("they are resumed too early: %v", got)
	}
	halted := a.clock.now().Add(-haltedMost - time.Second)
	_, err = a.changeQueue(ctx, "jobs", func(q *queue) (bool, error) { q.Halted = halted; return true, nil })
	must(t, err)
	until(t, ctx, "that it was long ago is known", func() bool { return b.queues.known("jobs").Halted.Equal(halted) })
	endBoth(t, ctx, b)
	until(t, ctx, "they are resumed", func() bool { return slices.Equal(consumersPaused(t, ctx, b), []bool{false}) })
}

// A process that pauses the consumers late finds that another has resumed the queue meanwhile.
func TestLatePauseIsUndone(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	must(t, a.Pause(ctx, jobs, posthaste.PauseOptions{}))
	paused, err := a.freshQueue(ctx, "jobs")
	must(t, err)
	must(t, b.Resume(ctx, jobs))
	done, err := a.applyTo(ctx, paused)
	must(t, err)
	if got := consumersPaused(t, ctx, a); done || !slices.Equal(got, []bool{true}) {
		t.Errorf("done %v, and the consumers that are paused: %v", done, got)
	}
	must(t, a.applyPause(ctx, "jobs"))
	if got := consumersPaused(t, ctx, a); !slices.Equal(got, []bool{false}) {
		t.Errorf("in the end the consumers that are paused: %v", got)
	}
}

// However two processes pause and resume, in the end the consumers are as the last one said.
func TestPausesRace(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	pausesRace(t, ctx, a, b)
}

func pausesRace(t *testing.T, ctx context.Context, a, b *Engine) {
	for range 5 {
		var all sync.WaitGroup
		for i, e := range []*Engine{a, b, a, b} {
			all.Go(func() {
				change := func() error { return e.Pause(ctx, jobs, posthaste.PauseOptions{}) }
				if i%2 == 0 {
					change = func() error { return e.Resume(ctx, jobs) }
				}
				if err := change(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		q, err := a.freshQueue(ctx, "jobs")
		must(t, err)
		until(t, ctx, "the consumers follow", func() bool { return slices.Equal(consumersPaused(t, ctx, a), []bool{q.Pause != nil}) })
		if q.Pause == nil && !q.Halted.IsZero() {
			t.Errorf("the resume is not finished: %+v", q)
		}
	}
}
