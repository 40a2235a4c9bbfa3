package testrun

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{TB: t}
		begun, asked := time.Now(), 0
		met := func() bool { asked++; return time.Since(begun) >= 10*time.Second }
		r.run(func() { Until(r, time.Minute, "ten seconds have passed", met) })
		if took := time.Since(begun); r.failed != "" || took > 10*time.Second+50*time.Millisecond {
			t.Errorf("after %s: %q", took, r.failed)
		}
		if asked > 300 {
			t.Errorf("asked %d times in 10 s", asked)
		}
		begun = time.Now()
		r.run(func() { Until(r, 5*time.Second, "ten seconds have passed", met) })
		if took := time.Since(begun); r.failed != "not within 5s: ten seconds have passed" || took > 5*time.Second+100*time.Millisecond {
			t.Errorf("after %s: %q", took, r.failed)
		}
		asked = 0
		Happens(time.Second, func() bool { asked++; time.Sleep(20 * time.Millisecond); return false })
		if asked > 26 {
			t.Errorf("asked %d times in 1 s what takes 20 ms", asked)
		}
	})
}

func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most = time.Second
		took := map[time.Duration]bool{}
		for range 100 {
			begun := time.Now()
			Pause(most)
			took[time.Since(begun)] = true
		}
		longest := slices.Max(slices.Collect(maps.Keys(took)))
		if len(took) < 90 || longest >= most || longest < most/2 {
			t.Errorf("it took %d different times, at most %s", len(took), longest)
		}
	})
}
