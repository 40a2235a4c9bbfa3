package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// nightDoc has the last result of each step of a night.
const nightDoc = "docs/project/nightly.md"

// oldest is the maximum age of a step's last result, in commits. A merged branch counts as one,
// so that small commits do not make a result old. All steps take about 19 hours and are run a
// few at a time.
const oldest = 400

const nightHead = `# Nightly results

` + "`make nightly`" + ` runs all tests with all broken twins at their full sizes, the random tests for ten minutes each, fuzzing, an hour of chaos on each engine, and the benches, whose figures must keep their bounds. It can be run in parts: ` + "`make nightly PART=3/20`" + `. [Tests of Posthaste itself](tests.md) says what each step does.

Each step writes its last result into this table. ` + "`make test`" + ` fails if a result is more than 400 commits old, of which a merged branch counts as one.

| step | commit | date | minutes | result |
|---|---|---|---|---|
`

// row is a line of the table.
type row struct{ step, commit, date, minutes, result string }

var rowLine = regexp.MustCompile(`^\| (.+?) \| (\w+) \| (\S+) \| (\S+) \| (.*) \|$`)

func readNight(text string) map[string]row {
	rows := map[string]row{}
	for line := range strings.Lines(text) {
		if m := rowLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil && m[1] != "step" {
			rows[m[1]] = row{m[1], m[2], m[3], m[4], m[5]}
		}
	}
	return rows
}

// writeNight returns the page with a row for each step of a night, in order. A step without a
// result is due since the given commit.
func writeNight(rows map[string]row, steps []step, commit string) string {
	var text strings.Builder
	text.WriteString(nightHead)
	for _, s := range steps {
		r, ok := rows[s.name]
		if !ok {
			r = row{s.name, commit, "-", "-", "not run yet"}
		}
		fmt.Fprintf(&text, "| %s | %s | %s | %s | %s |\n", r.step, r.commit, r.date, r.minutes, r.result)
	}
	return text.String()
}

// recordNight writes a step's result into the page.
func recordNight(s step, r result) error {
	return changePage(func(rows map[string]row, commit string) {
		rows[s.name] = row{s.name, commit, time.Now().UTC().Format(time.DateOnly), fmt.Sprintf("%.1f", r.took.Minutes()), inCell(outcome(r))}
	})
}

// writePage updates the page's rows to the current steps, and keeps all results. If a row's
// commit is from a branch that was merged under another hash, it gets the commit where that
// branch began.
func writePage() error {
	return changePage(func(rows map[string]row, _ string) {
		for name, r := range rows {
			if out, err := exec.Command("git", "merge-base", "HEAD", r.commit).Output(); err == nil && !inHistory(r.commit) {
				r.commit = strings.TrimSpace(string(out))[:10]
				rows[name] = r
			}
		}
	})
}

// inHistory reports whether a commit is an ancestor of HEAD.
func inHistory(commit string) bool {
	return exec.Command("git", "merge-base", "--is-ancestor", commit, "HEAD").Run() == nil
}

func changePage(change func(rows map[string]row, commit string)) error {
	text, err := os.ReadFile(nightDoc)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	commit, err := head()
	if err != nil {
		return err
	}
	rows := readNight(string(text))
	change(rows, commit)
	return os.WriteFile(filepath.Clean(nightDoc), []byte(writeNight(rows, nightly(), commit)), 0o644)
}

// outcome describes a step's result in a few words.
func outcome(r result) string {
	if len(r.failures) == 0 {
		return verdict(r)
	}
	var what []string
	for _, f := range r.failures {
		what = append(what, f.what)
	}
	slices.Sort(what)
	return verdict(r) + ": " + strings.Join(what, ", ")
}

func inCell(text string) string {
	return strings.NewReplacer("\n", " ", "|", `\|`).Replace(text)
}

func head() (string, error) {
	out, err := exec.Command("git", "rev-parse", "--short=10", "HEAD").Output()
	if err != nil {
		return "", fmt.Errorf("git cannot tell the commit: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// checkNight returns the results of the page that are too old. Without the history, as in a
// source archive or a shallow clone, it returns none.
func checkNight() error {
	shallow, err := exec.Command("git", "rev-parse", "--is-shallow-repository").Output()
	if err != nil || strings.TrimSpace(string(shallow)) == "true" {
		return nil
	}
	text, err := os.ReadFile(nightDoc)
	if err != nil {
		return err
	}
	rows := readNight(string(text))
	var late []error
	ages := map[string]error{}
	for _, s := range nightly() {
		r, ok := rows[s.name]
		if !ok {
			late = append(late, fmt.Errorf("%s has no row for the step %q; write it with: make nightly-page", nightDoc, s.name))
			continue
		}
		age, known := ages[r.commit]
		if !known {
			age = checkAge(r.commit)
			ages[r.commit] = age
		}
		if age != nil {
			late = append(late, fmt.Errorf("%s: %w; run: make nightly STEPS='^%s$'", s.name, age, regexp.QuoteMeta(s.name)))
		}
	}
	return errors.Join(late...)
}

// checkAge returns an error if a commit is more than oldest commits old, or not in this
// branch.
func checkAge(commit string) error {
	// A clone has only the history, but here a commit of another branch may exist.
	if !inHistory(commit) {
		return fmt.Errorf("its commit %s is not in the history of this branch; fix the row with: make nightly-page", commit)
	}
	out, err := exec.Command("git", "rev-list", "--first-parent", "--count", commit+"..HEAD").Output()
	if err != nil {
		return err
	}
	var n int
	if _, err := fmt.Sscan(string(out), &n); err != nil {
		return err
	}
	if n > oldest {
		return fmt.Errorf("its result is %d commits old, more than %d", n, oldest)
	}
	return nil
}
