package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

func quiet(s step, version string) *events {
	e := newEvents(s, version)
	e.told = io.Discard
	return e
}

// read feeds events in the format of `go test -json`.
func read(t *testing.T, e *events, all ...event) {
	t.Helper()
	for _, v := range all {
		line, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		e.read(line)
	}
}

func TestFailuresAreToldWithHowToRepeatThem(t *testing.T) {
	t.Parallel()
	e := quiet(step{name: "tests", env: night, command: []string{"-race"}}, "14")
	read(t, e,
		event{Action: "output", Package: module + "/sql", Test: "TestA/b c", Output: "    a_test.go:7: it broke\n"},
		event{Action: "fail", Package: module + "/sql", Test: "TestA/b c", Elapsed: 2},
		event{Action: "fail", Package: module + "/sql", Test: "TestA", Elapsed: 3},
		event{Action: "pass", Package: module + "/sql", Test: "TestB"},
		event{Action: "fail", Package: module + "/sql", Elapsed: 3})
	r := e.result(errors.New("exit status 1"), "")
	if len(r.failures) != 1 || r.passed != 1 {
		t.Fatalf("%+v", r)
	}
	want := failure{"./sql TestA/b c", "POSTHASTE_TEST_POSTGRES=14 POSTHASTE_TEST_NIGHT=1 go test -count=1 -race ./sql -run '^TestA$/^b c$'", "    a_test.go:7: it broke\n"}
	if r.failures[0] != want {
		t.Errorf("%+v", r.failures[0])
	}
}

func TestWhatFailsWithoutATestIsAFailure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events []event
		err    error
		said   string
		want   string // in the output of the only failure
	}{
		"a build":        {[]event{{Action: "build-output", ImportPath: "x", Output: "undefined: y"}, {Action: "fail", Package: module, FailedBuild: "x"}}, errors.New("exit status 1"), "", "undefined: y"},
		"a panic":        {[]event{{Action: "output", Package: module, Test: "TestA", Output: "panic: z"}, {Action: "fail", Package: module}}, errors.New("exit status 1"), "", "panic: z"},
		"the launcher":   {nil, errors.New("exit status 1"), "no server", "no server"},
		"no test at all": {nil, nil, "", ""},
	} {
		e := quiet(step{name: "tests"}, "18")
		read(t, e, c.events...)
		r := e.result(c.err, c.said)
		if len(r.failures) != 1 || !strings.Contains(r.failures[0].output, c.want) {
			t.Errorf("%s: %+v", name, r.failures)
		}
	}
}

func TestSkipsAreToldByTheirReason(t *testing.T) {
	t.Parallel()
	e := quiet(step{name: "tests"}, "18")
	read(t, e, event{Action: "pass", Package: module, Test: "TestB"})
	for _, reason := range []string{"runs at night only (X=1): it takes long", "inconclusive: late; the machine stood still"} {
		read(t, e, event{Action: "output", Package: module, Test: "TestA", Output: "    a_test.go:7: " + reason + "\n"},
			event{Action: "output", Package: module, Test: "TestA", Output: "--- SKIP: TestA (0.00s)\n"},
			event{Action: "skip", Package: module, Test: "TestA"})
	}
	s := summary{}
	s.add(step{name: "tests"}, e.result(nil, ""))
	var text strings.Builder
	if err := s.print(&text, 0); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"1 tests run at night only", "skipped: . TestA: inconclusive: late; the machine stood still", "1 passed, 0 failed, 2 skipped"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the summary lacks %q:\n%s", want, text.String())
		}
	}
}

// Steps that run beside others do not wait for them, and the summary contains all.
func TestStepsBesideOthers(t *testing.T) {
	t.Parallel()
	first, second := make(chan bool), make(chan bool)
	steps := []step{
		{name: "one", do: func() error { close(first); <-second; return nil }},
		{name: "other", beside: "one", do: func() error { close(second); <-first; return nil }},
		{name: "last", do: func() error { return nil }},
	}
	var recorded []string
	err := runAll(t.Context(), steps, func(s step, r result) error {
		recorded = append(recorded, fmt.Sprint(s.name, r.passed))
		return nil
	})
	if want := "one1 other1 last1"; err != nil || strings.Join(recorded, " ") != want {
		t.Errorf("recorded %q, want %q: %v", recorded, want, err)
	}
}

func TestPartsOfANightAreAllOfIt(t *testing.T) {
	t.Parallel()
	const parts, hour = 20, 68
	seen := map[string]int{}
	for k := range parts {
		part, err := partOf(nightly(), string(rune('0'+(k+1)/10))+string(rune('0'+(k+1)%10))+"/20")
		if err != nil {
			t.Fatal(err)
		}
		minutes := 0
		for _, s := range part {
			seen[s.name]++
			minutes += s.minutes
		}
		if minutes > hour {
			t.Errorf("part %d takes %d minutes", k+1, minutes)
		}
	}
	for _, s := range nightly() {
		if seen[s.name] != 1 {
			t.Errorf("%s is in %d parts", s.name, seen[s.name])
		}
	}
	for _, wrong := range []string{"0/3", "4/3", "3", "a/b"} {
		if _, err := partOf(nightly(), wrong); err == nil {
			t.Errorf("part %q is taken", wrong)
		}
	}
}

func TestFiguresAreHeldToTheirBounds(t *testing.T) {
	t.Parallel()
	bounds := []bound{{field: "ratio", least: 0.4}, {field: "v.1.p50_ms", most: 3}}
	for output, want := range map[string]string{
		`{"ratio": 0.4, "v": [{}, {"p50_ms": 3}]}`:  "",
		`{"ratio": 0.39, "v": [{}, {"p50_ms": 3}]}`: "ratio is 0.39",
		`{"ratio": 0.5, "v": [{}, {"p50_ms": 4}]}`:  "v.1.p50_ms is 4",
		`{"ratio": null, "v": [{}, {"p50_ms": 4}]}`: `no "ratio"`,
		`{"ratio": 0.5, "v": []}`:                   `no "v.1.p50_ms"`,
		`nothing`:                                   "no result",
	} {
		_, err := judge(output, bounds)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", output, err, want)
		}
	}
}

func TestThePageKeepsResults(t *testing.T) {
	t.Parallel()
	steps := []step{{name: "a"}, {name: "b | c"}}
	first := writeNight(map[string]row{"a": {"a", "0123456789", "2026-01-02", "3.1", "12 passed"}}, steps[:1], "abc")
	text := writeNight(readNight(first), append(steps[:1:1], step{name: "new"}), "def")
	for _, want := range []string{"| a | 0123456789 | 2026-01-02 | 3.1 | 12 passed |\n", "| new | def | - | - | not run yet |\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	r := result{took: time.Minute, failures: []failure{{what: "./sql TestA"}}}
	if got := outcome(r); got != "FAILED: 1 of 1: ./sql TestA" {
		t.Errorf("outcome %q", got)
	}
}

// Each sized test exists under its name, so that a step cannot pass by running nothing.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	named := map[string][]string{}
	for _, s := range sized {
		named[s.pkg] = append(named[s.pkg], s.tests...)
	}
	for pkg, tests := range sizedOnRedis {
		named[pkg] = append(named[pkg], tests...)
	}
	named["./internal/acceptance"] = append(named["./internal/acceptance"], slices.Collect(maps.Keys(sizedOnNATS))...)
	for pkg, tests := range named {
		out, err := exec.CommandContext(t.Context(), "grep", "-rhoE", "--include=*_test.go", `^func Test[A-Za-z0-9_]+`, "../../../"+pkg).Output()
		if err != nil {
			t.Fatalf("%s: %v", pkg, err)
		}
		there := strings.Fields(string(out))
		for _, test := range tests {
			top, _, _ := strings.Cut(test, "/")
			if !slices.Contains(there, top) {
				t.Errorf("%s has no %s", pkg, top)
			}
		}
	}
}
