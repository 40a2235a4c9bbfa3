//go:build unix

package chaos

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/history"
)

// chosen returns a rig that has chosen its parameters.
func chosen(t *testing.T, c Config) (*rig, error) {
	t.Helper()
	c.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	c, err := c.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Config: c, random: rand.New(rand.NewPCG(1, 1)), left: map[Fault]history.Event{}}
	return r, r.choose()
}

// Each kind of fault of the engine is injected or left out with a reason, and requested
// omissions are distinguished from others.
func TestEachKindIsBroughtAboutOrLeftOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		Config
		has, lacks []Fault
	}{
		"a short run":                 {Config{Duration: time.Minute}, []Fault{KillWorker, KillPostgres}, []Fault{Slow, Clock}},
		"a long run":                  {Config{Duration: longRun}, []Fault{Slow, DiskFull, KillBroker}, []Fault{Clock}},
		"one kind":                    {Config{Duration: longRun, Kinds: []Fault{Slow}}, []Fault{Slow}, []Fault{KillWorker, KillBroker}},
		"without one kind":            {Config{Duration: longRun, Without: []Fault{DiskFull}}, []Fault{Slow}, []Fault{DiskFull}},
		"without clocks":              {Config{Duration: longRun, Clocks: []string{"x"}, Without: []Fault{Clock}}, []Fault{Slow}, []Fault{Clock}},
		"without a queue":             {Config{Duration: longRun, Queues: []string{Plain, Mails}}, []Fault{RefuseMails}, []Fault{KillBroker, BrokerAlarm}},
		"a long run on Redis":         {Config{Duration: longRun, Engine: OnRedis}, []Fault{KillRedis}, []Fault{Clock}},
		"one kind of a missing queue": {Config{Duration: longRun, Queues: []string{Plain}, Kinds: []Fault{KillBroker}}, nil, []Fault{KillBroker, Slow}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := chosen(t, c.Config)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range AllFaults() {
				e, left := r.left[f]
				exists := r.can[f] != nil && !(r.Engine == OnRedis && only(f) == Relayed) || f == Clock
				if slices.Contains(r.Kinds, f) == left && exists || !exists && left {
					t.Errorf("%s is injected: %t, and left out: %t", f, slices.Contains(r.Kinds, f), left)
				}
				if left && (e.Key == "" || e.Count == 0) {
					t.Errorf("%s is left out because of %q, as asked: %d", f, e.Key, e.Count)
				}
				if slices.Contains(c.has, f) && left || slices.Contains(c.lacks, f) && !left {
					t.Errorf("%s is left out: %t", f, left)
				}
			}
		})
	}
	for _, c := range []Config{{Kinds: []Fault{"x"}}, {Without: []Fault{"x"}}, {Engine: OnRedis, Without: []Fault{DiskFull}}, {Engine: OnRedis, Kinds: []Fault{KillBroker}}} {
		if _, err := chosen(t, c); err == nil {
			t.Errorf("a kind that there is not was taken: %v, without %v", c.Kinds, c.Without)
		}
	}
	r, err := chosen(t, Config{Duration: longRun})
	if err != nil {
		t.Fatal(err)
	}
	r.leaveOut(DiskFull, "mounting is not allowed here", false)
	if r.left[DiskFull].Count != 0 || slices.Contains(r.Kinds, DiskFull) {
		t.Errorf("left out of necessity: %+v, and the kinds are %q", r.left[DiskFull], r.Kinds)
	}
}

// In a long run one process of each role with several processes is never killed, and all
// others can be.
func TestSomeAreSparedInALongRun(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{OnPostgres, OnRedis} {
		for duration, spares := range map[time.Duration]bool{time.Minute: false, longRun: true} {
			r, err := chosen(t, Config{Engine: engine, Duration: duration})
			if err != nil {
				t.Fatal(err)
			}
			killed := map[int]bool{}
			for range 1000 {
				for _, role := range r.cast {
					killed[r.mortal(role)] = true
				}
			}
			lives := map[string]int{}
			for place, role := range r.cast {
				if !killed[place] {
					lives[role]++
				}
			}
			for _, role := range memoryRoles {
				want := 0
				if n := len(slices.DeleteFunc(slices.Clone(r.cast), func(other string) bool { return other != role })); spares && n > 1 {
					want = 1
				}
				if lives[role] != want {
					t.Errorf("on %s, in %s, %d of role %s live on, want %d", engine, duration, lives[role], role, want)
				}
			}
		}
	}
}
