package testrun

import (
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
	})
}
