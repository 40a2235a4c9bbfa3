package chaos

import (
	"maps"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/history"
)

// planted is a history with at most one planted fault.
type planted struct {
	plant func(*script)
	want  Rule // "" for none
	kinds []Fault
	open  bool // without an event of a good end
	busy  bool // all processes are busy
}

// Histories in which faults explain everything pass, and each planted fault is found under its
// rule.
func TestPlantedFaultsAreFound(t *testing.T) {
	t.Parallel()
	all := map[string]planted{}
	for _, some := range []map[string]planted{plantedRuns, plantedQueues, plantedDeliveries, plantedEnds} {
		maps.Copy(all, some)
	}
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begun()
			c.plant(s)
			if !c.open {
				s.ended()
			}
			for _, kind := range c.kinds {
				s.at(0, history.Event{Kind: Wanted, Note: string(kind)})
			}
			v, err := Check(s.sorted(), Bounds{Busy: c.busy})
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" && len(v.Violations) > 0 {
				t.Errorf("found %v", v.Violations)
			}
			if c.want != "" && !v.Broke(c.want) {
				t.Errorf("did not find %q, but %v", c.want, v.Violations)
			}
			for _, b := range v.Violations {
				if b.Rule != c.want {
					t.Errorf("found %v, too", b)
				}
			}
		})
	}
}

// A report shows the findings, and only a few violations of each rule.
func TestReport(t *testing.T) {
	t.Parallel()
	s := begun()
	s.strikes(22, 22, KillWorker, "w1")
	s.leavesOut(DiskFull, "a reason", 0)
	s.leavesOut(KillBroker, "another", 1)
	s.leavesOut(Slow, "a reason", 0)
	s.sends(50, "l", Plain, 20, history.Sent)
	v, err := Check(s.ended().sorted(), Bounds{})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	v.Report(&text)
	for _, want := range []string{"worker killed", "BROKEN lost: l.4 of plain", "BROKEN lost: 15 more"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if want := "left out (a reason): disk full, connections slowed\nleft out (another): broker killed\n"; !strings.Contains(text.String(), want) {
		t.Errorf("no %q in\n%s", want, text.String())
	}
	if strings.Contains(text.String(), "l.5 ") {
		t.Errorf("all are told:\n%s", text.String())
	}
}

// Invalid histories are rejected.
func TestNoHistory(t *testing.T) {
	t.Parallel()
	for name, events := range map[string][]history.Event{
		"an answer to nothing": {{Kind: history.Sent, Token: "x"}},
		"a token twice":        {{Kind: Intent, Token: "x", Count: 1}, {Kind: Intent, Token: "x", Count: 1}},
		"an end of nothing":    {{Kind: Intent, Token: "x", Count: 1}, {Kind: history.Handled, Token: "x"}},
	} {
		if v, err := Check(events, Bounds{}); err == nil {
			t.Errorf("%s: %+v", name, v)
		}
	}
	if v, err := Check(nil, Bounds{}); err != nil || !v.Broke(NothingDone) {
		t.Errorf("an empty history: %+v, %v", v, err)
	}
}
