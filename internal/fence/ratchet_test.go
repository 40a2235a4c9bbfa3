package fence

import (
	"flag"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "lower the baselines that are higher than needed, and write the table of imports in ARCHITECTURE.md")

// Each measure stays at or below its limit or, where today's code exceeds it, the
// baseline.
func TestRatchets(t *testing.T) {
	t.Parallel()
	const file = "testdata/ratchets.txt"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	baselines, err := parseBaselines(string(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	readings, err := read(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	grown, shrunk, lowered := compare(readings, baselines)
	for _, problem := range grown {
		t.Error(problem)
	}
	want := formatBaselines(lowered)
	switch {
	case *update:
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	case string(text) != want:
		for _, problem := range shrunk {
			t.Error(problem)
		}
		t.Errorf("%s is not up to date; run: go test ./internal/fence -update", file)
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name            string
		now, baseline   int
		grown, shrunk   int
		loweredBaseline int
	}{
		{"below the limit", 3, 0, 0, 0, 0},
		{"at the limit", 4, 0, 0, 0, 0},
		{"above the limit without a baseline", 5, 0, 1, 0, 0},
		{"at the baseline", 9, 9, 0, 0, 9},
		{"above the baseline", 10, 9, 1, 0, 9},
		{"below the baseline", 7, 9, 0, 1, 7},
		{"fallen to the limit", 4, 9, 0, 1, 0},
		{"a baseline of a folder that is gone", 0, 9, 0, 1, 0},
	} {
		p := point{"file-circle", "p"}
		readings, baselines := map[point]reading{}, map[point]int{}
		if c.now > 0 {
			readings[p] = reading{value: c.now}
		}
		if c.baseline > 0 {
			baselines[p] = c.baseline
		}
		grown, shrunk, lowered := compare(readings, baselines)
		if len(grown) != c.grown || len(shrunk) != c.shrunk || lowered[p] != c.loweredBaseline {
			t.Errorf("%s: grown %q, shrunk %q, lowered to %d", c.name, grown, shrunk, lowered[p])
		}
	}
}

func TestBaselinesAreParsed(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"sleeps worker", "sleeps worker many", "naps worker 3", "sleeps worker 3\nsleeps worker 3"} {
		if found, err := parseBaselines(text); err == nil {
			t.Errorf("%q was accepted: %v", text, found)
		}
	}
	const text = baselinesHeader + "\nlong-files . 2\n\nsleeps redis 1\nsleeps worker 3\n"
	found, err := parseBaselines(text)
	if err != nil || formatBaselines(found) != text {
		t.Errorf("%v (%v), formatted:\n%s", found, err, formatBaselines(found))
	}
}
