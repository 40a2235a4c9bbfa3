package fence

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// measure is a number of each folder that should not exceed a limit.
type measure struct {
	name  string
	limit int
	// advice says what the number is and how to lower it.
	advice string
}

var measures = []measure{
	{"type-circle", 2, "types that hold each other in their fields; give one of them less, such as a function or what both need as a type of its own"},
	{"file-circle", 4, "files that depend on each other; move declarations so that dependencies go one way"},
	{"longest-function", 100, "lines of the longest function outside of tests; split it"},
	{"long-functions", 0, fmt.Sprintf("functions of more than %d lines outside of tests; split one", maxFunctionLines)},
	{"long-test-functions", 0, fmt.Sprintf("functions of more than %d lines in tests; split one", maxFunctionLines)},
	{"long-files", 0, fmt.Sprintf("files of more than %d lines; split one", maxFileLines)},
	{"sleeps", 0, "uses of time.Sleep in tests outside of bubbles; wait for a condition with testrun.Until, or test in a bubble of testing/synctest"},
	{"contexts-in-structs", 0, "struct fields of type context.Context; pass the context as an argument"},
	{"errors-by-text", 0, "uses of an error's text, or of fmt.Sscanf, to decide; use errors.Is, errors.As or strconv"},
	{"import-names", 0, "imports with the name that the package has anyway; leave the name out"},
	{"import-groups", 0, "files whose imports are not in three groups: the standard library, other modules, this module"},
}

// point is a measure of a folder.
type point struct{ measure, folder string }

// reading is the value of a point, and where it comes from.
type reading struct {
	value int
	from  []string
}

// read measures the module in dir. It omits points whose value is zero.
func read(ctx context.Context, dir string) (map[point]reading, error) {
	readings := map[point]reading{}
	put := func(measure, folder string, value int, from []string) {
		if value > 0 {
			readings[point{measure, folder}] = reading{value, from}
		}
	}
	checked, err := load(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, c := range checked {
		for measure, g := range map[string]graph{"type-circle": c.ownership(), "file-circle": c.fileDependencies()} {
			circle := g.largestCircle()
			put(measure, c.folder, len(circle), g.uses(circle))
		}
	}
	folders, err := count(os.DirFS(dir))
	if err != nil {
		return nil, err
	}
	for folder, c := range folders {
		put("longest-function", folder, c.longest, c.longFunctions)
		put("long-functions", folder, len(c.longFunctions), c.longFunctions)
		put("long-test-functions", folder, len(c.longTestFunctions), c.longTestFunctions)
		put("long-files", folder, len(c.longFiles), c.longFiles)
		put("sleeps", folder, len(c.sleeps), c.sleeps)
		put("contexts-in-structs", folder, len(c.habits.contexts), c.habits.contexts)
		put("errors-by-text", folder, len(c.habits.texts), c.habits.texts)
		put("import-names", folder, len(c.habits.names), c.habits.names)
		put("import-groups", folder, len(c.habits.groups), c.habits.groups)
	}
	return readings, nil
}

// compare returns the faults of readings: a value above the larger of its limit and
// its baseline, and a baseline that is higher than needed. Lowered holds the baselines
// without the latter.
func compare(readings map[point]reading, baselines map[point]int) (grown, shrunk []string, lowered map[point]int) {
	lowered = map[point]int{}
	for _, m := range measures {
		points := map[string]bool{}
		for p := range readings {
			points[p.folder] = points[p.folder] || p.measure == m.name
		}
		for p := range baselines {
			points[p.folder] = points[p.folder] || p.measure == m.name
		}
		for _, folder := range slices.Sorted(maps.Keys(points)) {
			p := point{m.name, folder}
			now, baseline := readings[p], baselines[p]
			needed := now.value
			if needed <= m.limit {
				needed = 0
			}
			switch {
			case needed > baseline:
				grown = append(grown, fmt.Sprintf("%s of %s is %d, at most %d is allowed: %s\n\t%s",
					m.name, folder, now.value, max(m.limit, baseline), m.advice, strings.Join(now.from, "\n\t")))
			case needed < baseline:
				shrunk = append(shrunk, fmt.Sprintf("%s of %s fell from %d to %d: lower the baseline", m.name, folder, baseline, now.value))
			}
			if least := min(needed, baseline); least > 0 {
				lowered[p] = least
			}
		}
	}
	return grown, shrunk, lowered
}

// parseBaselines reads lines of a measure, a folder and a value.
func parseBaselines(text string) (map[point]int, error) {
	baselines := map[point]int{}
	for i, line := range strings.Split(text, "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, fmt.Errorf("line %d: %q; expected a measure, a folder and a value", i+1, line)
		}
		p := point{fields[0], fields[1]}
		value, err := strconv.Atoi(fields[2])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if !slices.ContainsFunc(measures, func(m measure) bool { return m.name == p.measure }) {
			return nil, fmt.Errorf("line %d: unknown measure %q; expected one in internal/fence/ratchet.go", i+1, p.measure)
		}
		if _, twice := baselines[p]; twice {
			return nil, fmt.Errorf("line %d: %s of %s has two baselines", i+1, p.measure, p.folder)
		}
		baselines[p] = value
	}
	return baselines, nil
}

const baselinesHeader = `# Baselines of the measures in internal/fence/ratchet.go: the values that exceed a
# measure's limit, by folder. They only fall. After lowering one, run:
#   go test ./internal/fence -update
`

func formatBaselines(baselines map[point]int) string {
	var text strings.Builder
	text.WriteString(baselinesHeader)
	last := ""
	for _, p := range slices.SortedFunc(maps.Keys(baselines), func(a, b point) int {
		return cmp.Or(cmp.Compare(a.measure, b.measure), cmp.Compare(a.folder, b.folder))
	}) {
		if p.measure != last {
			text.WriteString("\n")
		}
		last = p.measure
		fmt.Fprintf(&text, "%s %s %d\n", p.measure, p.folder, baselines[p])
	}
	return text.String()
}
