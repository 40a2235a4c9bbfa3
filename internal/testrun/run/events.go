package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action, Package, Test, Output, ImportPath, FailedBuild string
	Elapsed                                                float64
}

// name identifies a test of a package, or a package if test is empty.
type name struct{ pkg, test string }

// events collects the events of a step's tests.
type events struct {
	s       step
	version string
	output  map[name]*strings.Builder
	builds  map[string]*strings.Builder
	failed  map[name]bool
	r       result
	told    io.Writer // receives a line for each package
}

func newEvents(s step, version string) *events {
	return &events{s: s, version: version, output: map[name]*strings.Builder{}, builds: map[string]*strings.Builder{},
		failed: map[name]bool{}, told: os.Stdout}
}

func (e *events) read(line []byte) {
	if len(bytes.TrimSpace(line)) == 0 {
		return
	}
	var v event
	if json.Unmarshal(line, &v) != nil {
		fmt.Fprintf(e.told, "%s", line)
		return
	}
	n := name{v.Package, v.Test}
	switch v.Action {
	case "output":
		write(e.output, n, v.Output)
	case "build-output":
		write(e.builds, v.ImportPath, v.Output)
	case "pass", "fail", "skip":
		e.ended(n, v)
	}
}

func write[K comparable](texts map[K]*strings.Builder, key K, text string) {
	if texts[key] == nil {
		texts[key] = &strings.Builder{}
	}
	texts[key].WriteString(text)
}

func (e *events) ended(n name, v event) {
	text := ""
	if b := e.output[n]; b != nil {
		text = b.String()
		delete(e.output, n)
	}
	took := time.Duration(v.Elapsed * float64(time.Second))
	if n.test == "" {
		e.packageEnded(n, v, text, took)
		return
	}
	e.r.slowest = append(e.r.slowest, timing{short(n.pkg) + " " + n.test, took})
	switch v.Action {
	case "pass":
		e.r.passed++
	case "skip":
		e.r.skips = append(e.r.skips, skip{short(n.pkg) + " " + n.test, reasonOf(text)})
	case "fail":
		e.failed[n] = true
		e.r.failures = append(e.r.failures, failure{short(n.pkg) + " " + n.test, e.repeat(n), text})
	}
}

// packageEnded prints the package's line. A package that fails without a failed test is a
// failure itself: it did not build, it panicked, or it exceeded its time.
func (e *events) packageEnded(n name, v event, text string, took time.Duration) {
	if v.Action == "skip" { // it has no tests
		return
	}
	fmt.Fprintf(e.told, "%s\t%s\t%.1fs\n", map[string]string{"pass": "ok  ", "fail": "FAIL"}[v.Action], short(n.pkg), took.Seconds())
	if v.Action != "fail" {
		return
	}
	for failed := range e.failed {
		if failed.pkg == n.pkg {
			return
		}
	}
	if b := e.builds[v.FailedBuild]; b != nil {
		text = b.String()
	}
	for running, b := range e.output { // tests interrupted by a panic
		if running.pkg == n.pkg {
			text += b.String()
		}
	}
	e.r.failures = append(e.r.failures, failure{short(n.pkg), e.repeat(n), tail(text)})
}

// result returns the result of the step, whose command ended with err and printed said besides
// its events.
func (e *events) result(err error, said string) result {
	if err == nil && e.r.passed == 0 && len(e.r.failures) == 0 {
		err = errors.New("no test ran")
	}
	if err != nil && len(e.r.failures) == 0 {
		e.r.failures = append(e.r.failures, failure{e.s.name, e.s.repeat(), fmt.Sprintf("%s\n%v", tail(said), err)})
	}
	// A test whose subtests failed is not listed itself.
	e.r.failures = slices.DeleteFunc(e.r.failures, func(f failure) bool {
		return slices.ContainsFunc(e.r.failures, func(other failure) bool { return strings.HasPrefix(other.what, f.what+"/") })
	})
	slices.SortFunc(e.r.slowest, func(a, b timing) int { return int(b.took - a.took) })
	return e.r
}

// repeat returns the command that runs a single test.
func (e *events) repeat(n name) string {
	parts := []string{"POSTHASTE_TEST_POSTGRES=" + e.version}
	parts = append(parts, e.s.env...)
	parts = append(parts, "go test -count=1")
	if slices.Contains(e.s.command, "-race") {
		parts = append(parts, "-race")
	}
	parts = append(parts, "."+strings.TrimPrefix(short(n.pkg), "."))
	if n.test != "" {
		parts = append(parts, "-run '"+anchored(n.test)+"'")
	}
	return strings.Join(parts, " ")
}

// anchored returns the pattern for -run that matches only this test.
func anchored(test string) string {
	var levels []string
	for level := range strings.SplitSeq(test, "/") {
		levels = append(levels, "^"+regexp.QuoteMeta(level)+"$")
	}
	return strings.Join(levels, "/")
}

const module = "github.com/posthaste-mq/posthaste"

// short returns the package's folder, such as "./sql".
func short(pkg string) string {
	if pkg == module {
		return "."
	}
	return "." + strings.TrimPrefix(pkg, module)
}

var skipped = regexp.MustCompile(`(?s)^.*_test\.go:\d+: |^\s*\w+\.go:\d+: `)

// reasonOf returns the last output of a skipped test.
func reasonOf(output string) string {
	reason := ""
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "=== ") || strings.HasPrefix(line, "--- ") {
			continue
		}
		reason = skipped.ReplaceAllString(line, "")
	}
	return reason
}
