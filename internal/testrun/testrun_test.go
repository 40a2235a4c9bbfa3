package testrun

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// at returns a time on the test's clock.
func at(ms int) time.Time { return time.UnixMilli(1_000_000 + int64(ms)) }

func TestLongestIsOfOneKindWithinTheTime(t *testing.T) {
	t.Parallel()
	seen := []Stall{
		{"process", at(0), at(100)},     // 50 ms of it within
		{"process", at(200), at(230)},   // 30 ms
		{"fsync", at(60), at(130)},      // 70 ms
		{"notify", at(900), at(2000)},   // 100 ms
		{"process", at(2000), at(9000)}, // none
	}
	if got := longest(seen, at(50), at(1000)); got != 100*time.Millisecond {
		t.Errorf("%s, want the 100 ms of notify", got)
	}
	if got := longest(seen, at(50), at(900)); got != 80*time.Millisecond {
		t.Errorf("%s, want the 80 ms of process", got)
	}
	if got := longest(seen, at(300), at(900)); got != 0 {
		t.Errorf("%s where nothing stood still", got)
	}
}

func TestStallsAreReadAsWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "stalls")
	want := Stall{"fsync", at(3), at(44)}
	if err := os.WriteFile(path, []byte(want.Line()+want.Line()+"notify 17"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readStalls(path)
	if err != nil || len(got) != 2 || got[1].What != want.What || !got[1].From.Equal(want.From) || !got[1].To.Equal(want.To) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := readStalls(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestWitnessSeesWhatIsSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := NewWitness(func(Stall) { cancel() })
		err := w.WatchNotify(ctx, func(context.Context) error {
			time.Sleep(2 * shortest)
			return nil
		})
		seen := w.Stalls()
		if err != nil || len(seen) != 1 || seen[0].What != "notify" || seen[0].To.Sub(seen[0].From) != 2*shortest {
			t.Errorf("%v, %v", seen, err)
		}
		lost := errors.New("lost")
		if err := w.WatchNotify(t.Context(), func(context.Context) error { return lost }); !errors.Is(err, lost) {
			t.Errorf("a round trip that fails: %v", err)
		}
	})
}

// recorder is a test whose outcome is inspected.
type recorder struct {
	testing.TB
	name, failed, skipped string
}

// run runs a test with the recorder, up to its end.
func (r *recorder) run(test func()) {
	defer func() {
		if p := recover(); p != nil && p != any(r) {
			panic(p)
		}
	}()
	test()
}

func (r *recorder) Helper()                        {}
func (r *recorder) Logf(string, ...any)            {}
func (r *recorder) Failed() bool                   { return r.failed != "" }
func (r *recorder) Error(args ...any)              { r.failed = fmt.Sprint(args...) }
func (r *recorder) Fatalf(format string, a ...any) { r.failed = fmt.Sprintf(format, a...); panic(r) }
func (r *recorder) Name() string                   { return r.name }
func (r *recorder) Skip(args ...any)               { r.skipped = fmt.Sprint(args...); panic(r) }
func (r *recorder) Skipf(format string, a ...any)  { r.skipped = fmt.Sprintf(format, a...); panic(r) }

func TestTimed(t *testing.T) {
	t.Parallel()
	const bound = 30 * time.Millisecond
	for name, c := range map[string]struct {
		faults  []string        // of each measurement
		stood   []time.Duration // during each measurement with a fault
		made    int
		failed  string
		skipped string
	}{
		"in time":                      {[]string{""}, nil, 1, "", ""},
		"late on a machine that runs":  {[]string{"late"}, []time.Duration{bound/3 - 1}, 1, "late", ""},
		"late on one that stood still": {[]string{"late", ""}, []time.Duration{bound / 3}, 2, "", ""},
		"late at last":                 {[]string{"late", "later"}, []time.Duration{bound, 0}, 2, "later", ""},
		"a machine that never runs":    {[]string{"late", "late", "late"}, []time.Duration{bound, bound, bound}, 3, "", "inconclusive: late"},
		"a record that cannot be read": {[]string{"late"}, []time.Duration{-1}, 1, "cannot be read", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, made := &recorder{TB: t}, 0
			r.run(func() {
				timed(r, bound, func(time.Time, time.Time) (time.Duration, error) {
					if d := c.stood[made-1]; d >= 0 {
						return d, nil
					}
					return 0, errors.New("gone")
				}, func() string {
					made++
					return c.faults[made-1]
				})
			})
			if made != c.made || !strings.Contains(r.failed, c.failed) || (r.failed == "") != (c.failed == "") ||
				!strings.HasPrefix(r.skipped, c.skipped) || (r.skipped == "") != (c.skipped == "") {
				t.Errorf("%d measurements, failed %q, skipped %q", made, r.failed, r.skipped)
			}
		})
	}
}
