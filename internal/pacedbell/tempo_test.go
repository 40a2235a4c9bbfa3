package pacedbell

import (
	"testing"
	"time"
)

// awake lets messages end sleeps of that length, after looks of that duration, until the
// process polls. It returns the number of wake-ups and the time of the last one.
func (t *tempo) awake(now time.Time, slept, looking time.Duration) (wakes int, at time.Time) {
	for ; !t.polling && wakes < 100; wakes++ {
		now = now.Add(slept + looking)
		t.woke(now, slept, looking)
	}
	return wakes, now
}

// On a busy machine a look can take longer than the gap between two sends. All sends during
// the look ring, so few such looks must be enough to start polling.
func TestSlowLooksOfDenseTraffic(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		slept, looking time.Duration
		want           int
	}{
		{time.Millisecond, time.Millisecond, 4},
		{0, denseGap, 3}, // as fast as on an idle machine
		{0, 10 * time.Millisecond, 2},
		{0, 40 * time.Millisecond, 1},
		{20 * time.Millisecond, 40 * time.Millisecond, 100}, // calm traffic on a busy machine
	} {
		if got, _ := new(tempo).awake(time.Now(), c.slept, c.looking); got != c.want {
			t.Errorf("sleeps of %s after looks of %s: polls after %d, want %d", c.slept, c.looking, got, c.want)
		}
	}
}

// After rounds that took many messages the pause grows, whatever the streak, and shrinks again
// as soon as two rounds took few.
func TestPauseAfterManyMessages(t *testing.T) {
	t.Parallel()
	p := tempo{polling: true, stay: time.Second}
	now := time.Now()
	for i, c := range []struct {
		handed int
		want   time.Duration
	}{{1, time.Millisecond}, {crowd, crowdTimes * time.Millisecond}, {0, crowdTimes * time.Millisecond}, {1, time.Millisecond}} {
		p.round(now, time.Millisecond)
		p.found(c.handed)
		if p.lookTook(time.Millisecond); p.pause != c.want {
			t.Errorf("round %d took %d messages: pause %s, want %s", i+1, c.handed, p.pause, c.want)
		}
	}
	p.found(crowd)
	if p.lookTook(time.Second); p.pause != emptyPause {
		t.Errorf("after a slow look: pause %s, want %s", p.pause, emptyPause)
	}
}

// A process that falls asleep in dense traffic polls longer each time, because some senders
// ring each time.
func TestFalseCalm(t *testing.T) {
	t.Parallel()
	var p tempo
	now := time.Now()
	for i, want := range []time.Duration{firstStay, stayGrowth * firstStay, stayGrowth * stayGrowth * firstStay, longestStay, longestStay} {
		if _, now = p.awake(now, time.Millisecond, time.Millisecond); p.stay != want {
			t.Errorf("time %d: polls until gaps were too long by %s, want %s", i+1, p.stay, want)
		}
		began := now
		for p.polling { // finds nothing, because others take the messages
			now = now.Add(emptyPause)
			p.round(now, emptyPause)
		}
		if polled := now.Sub(began); polled < want || polled > want+emptyPause {
			t.Errorf("time %d: polled for %s, want %s", i+1, polled, want)
		}
	}
	if _, _ = p.awake(now.Add(falseCalm), time.Millisecond, time.Millisecond); p.stay != firstStay {
		t.Errorf("after a calm that lasted it polls until gaps were too long by %s", p.stay)
	}
}
