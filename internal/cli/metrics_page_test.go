//go:build unix

package cli_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	help   = regexp.MustCompile(`(?m)^# HELP (posthaste_\S+) (.+)$`)
	sample = regexp.MustCompile(`(?m)^(posthaste_[a-z0-9_]+)\{([^}]*)\} `)
	label  = regexp.MustCompile(`(\w+)="`)
)

// compareMetrics compares a page of /metrics with the reference: each metric has a row that
// begins with its type, its labels and its help text.
func compareMetrics(t *testing.T, page string) {
	t.Helper()
	const file = "../../docs/reference/metrics.md"
	reference, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	helps, labels := map[string]string{}, map[string]string{}
	for _, m := range help.FindAllStringSubmatch(page, -1) {
		helps[m[1]] = m[2]
	}
	for _, m := range sample.FindAllStringSubmatch(page, -1) {
		name := m[1]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if short := strings.TrimSuffix(name, suffix); helps[short] != "" {
				name = short
			}
		}
		var names []string
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			if l[1] != "le" { // the bound of a histogram's bucket
				names = append(names, "`"+l[1]+"`")
			}
		}
		labels[name] = strings.Join(names, ", ")
	}
	for _, m := range typed.FindAllStringSubmatch(page, -1) {
		row := "| `" + m[1] + "` | " + m[2] + " | " + labels[m[1]] + " | " + helps[m[1]]
		if !strings.Contains(string(reference), "\n"+row) {
			t.Errorf("%s lacks the row %s", file, row)
		}
	}
}
