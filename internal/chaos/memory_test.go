package chaos

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/history"
)

// In a long run growing memory is found, within a process's life and from one process of a
// role to the next. Fluctuations are not reported.
func TestGrowingMemoryIsFound(t *testing.T) {
	t.Parallel()
	flat := func(int) int { return 40 }
	leaks := func(age int) int { return 40 + age/2 }
	generations := func(s *script, each func(n int) int) {
		for n := range 10 {
			s.lives(n*30, n*30+30, roleServer, fmt.Sprint("v", n), func(int) int { return each(n) })
		}
	}
	for name, c := range map[string]struct {
		plant func(*script)
		short bool
		want  bool
	}{
		"not measured":             {plant: func(*script) {}},
		"it is flat":               {plant: func(s *script) { s.lives(0, 300, roleMailWorker, "m", flat) }},
		"it grows":                 {want: true, plant: func(s *script) { s.lives(0, 300, roleMailWorker, "m", leaks) }},
		"it grows in a short run":  {short: true, plant: func(s *script) { s.lives(0, 300, roleMailWorker, "m", leaks) }},
		"it grows in a short life": {plant: func(s *script) { s.lives(0, 170, roleMailWorker, "m", func(age int) int { return 40 + age }) }},
		"it grows after a start late in the run": {want: true, plant: func(s *script) {
			s.lives(0, 100, roleRelay, "r1", flat)
			s.lives(100, 290, roleRelay, "r2", func(age int) int { return 40 + age })
		}},
		"it grows to a half more and less than the bound": {plant: func(s *script) {
			s.lives(0, 300, roleWorker, "w", func(age int) int { return 40 + age*45/300 })
		}},
		"it is much more for a while": {plant: func(s *script) {
			s.lives(0, 300, roleWorker, "w", func(age int) int {
				if age > 240 && age < 270 {
					return 400
				}
				return 40
			})
		}},
		"it shrinks":                           {plant: func(s *script) { s.lives(0, 300, roleSender, "s2", func(age int) int { return 400 - age }) }},
		"all begin with as much":               {plant: func(s *script) { generations(s, func(n int) int { return 40 + n%3 }) }},
		"each begins with more":                {want: true, plant: func(s *script) { generations(s, func(n int) int { return 40 + 10*n }) }},
		"each begins with more in a short run": {short: true, plant: func(s *script) { generations(s, func(n int) int { return 40 + 10*n }) }},
		"one has much more, in the middle": {plant: func(s *script) {
			generations(s, func(n int) int { return 40 + 400*max(0, 1-(n-5)*(n-5)) })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begun()
			c.plant(s)
			if !c.short {
				s.long()
			}
			v, err := Check(s.ended().sorted(), Bounds{})
			if err != nil {
				t.Fatal(err)
			}
			if v.Broke(Grows) != c.want || !c.want && len(v.Violations) > 0 {
				t.Errorf("found %v", v.Violations)
			}
		})
	}
}

// The report contains for each role the memory at first, at the end and the maximum.
func TestMemoryIsReported(t *testing.T) {
	t.Parallel()
	s := begun()
	s.lives(0, 300, roleMailWorker, "m", func(age int) int { return 40 + age/10 })
	v, err := Check(s.ended().sorted(), Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	v.Report(&text)
	if want := "mail-worker  43.0 MB        66.0 MB       69.0 MB"; !strings.Contains(text.String(), want) {
		t.Errorf("no %q in\n%s", want, text.String())
	}
	if n := strings.Count(text.String(), " MB"); n != 3 {
		t.Errorf("%d sizes in\n%s", n, text.String())
	}
}

// Old histories lack such events, and -check uses the events that a history has.
func TestCheckGoesByWhatTheRunRecorded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events []history.Event
		want   []Rule
	}{
		"nothing":                     {},
		"a kind that struck nothing":  {[]history.Event{{Kind: Wanted, Note: string(KillWorker)}}, []Rule{StruckNone}},
		"one left out of a short run": {[]history.Event{{Kind: LeftOut, Note: string(DiskFull), Key: "x"}}, nil},
		"one left out of a long run":  {[]history.Event{{Kind: Planned, Took: longRun}, {Kind: LeftOut, Note: string(DiskFull), Key: "x"}}, []Rule{NotTried}},
		"a ring that stands":          {[]history.Event{{Kind: Planned, Took: longRun}, {Kind: Turned}}, []Rule{Stands}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r, err := history.Open(dir, "rig")
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			s := begun().ended()
			for _, e := range append(c.events, s.sorted()...) {
				r.Record(e)
			}
			v, err := CheckDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, rule := range c.want {
				if !v.Broke(rule) {
					t.Errorf("did not find %q", rule)
				}
			}
			if len(v.Violations) != len(c.want) {
				t.Errorf("found %v", v.Violations)
			}
		})
	}
}

// In a short run a kind of fault may find nothing in flight, but not all of them.
func TestStrikesOfAShortRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		planned time.Duration
		hits    int // of the second kind
		want    int
	}{
		"short, one hit": {allKinds / 2, 1, 0}, "short, none hit": {allKinds / 2, 0, 2}, "long, one hit": {allKinds, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checked := checker{v: &Verdict{}, account: &account{planned: c.planned, wanted: []Fault{KillWorker, Cut}, faults: []*fault{{kind: KillWorker, struck: 1}, {kind: Cut, struck: 1, hit: c.hits}}}}
			checked.checkStrikes()
			if n := len(checked.v.Violations); n != c.want {
				t.Errorf("%d violations, want %d: %v", n, c.want, checked.v.Violations)
			}
		})
	}
}
