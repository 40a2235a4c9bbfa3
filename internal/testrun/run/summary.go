package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// summary is the result of all steps of a run.
type summary struct {
	names   []string
	results []result
}

func (s *summary) add(of step, r result) {
	s.names = append(s.names, of.name)
	s.results = append(s.results, r)
}

// print writes the summary of a run of that duration, and returns an error if a step failed.
func (s *summary) print(w io.Writer, total time.Duration) error {
	var passed, failed int
	var skips []skip
	var slowest []timing
	fmt.Fprintf(w, "\n== Summary\n")
	var cpu time.Duration
	for i, r := range s.results {
		cpu += r.cpu
		fmt.Fprintf(w, "%7.0f s %7.0f CPU s  %-36s %s\n", r.took.Seconds(), r.cpu.Seconds(), s.names[i], verdict(r))
		passed += r.passed
		failed += len(r.failures)
		skips = append(skips, r.skips...)
		for _, t := range r.slowest {
			slowest = append(slowest, timing{s.names[i] + " " + t.what, t.took})
		}
	}
	fmt.Fprintf(w, "%7.0f s %7.0f CPU s  in all\n", total.Seconds(), cpu.Seconds())
	printSlowest(w, slowest)
	printSkips(w, skips)
	for i, r := range s.results {
		for _, f := range r.failures {
			fmt.Fprintf(w, "\n== FAILED in %s: %s\n%s\nTo repeat it: %s\n", s.names[i], f.what, strings.TrimRight(f.output, "\n"), f.repeat)
		}
	}
	fmt.Fprintf(w, "\n%d passed, %d failed, %d skipped\n", passed, failed, len(skips))
	if failed > 0 {
		return fmt.Errorf("%d failures, listed above", failed)
	}
	return nil
}

func verdict(r result) string {
	switch {
	case len(r.failures) > 0:
		return fmt.Sprintf("FAILED: %d of %d", len(r.failures), r.passed+len(r.failures))
	case r.figures != "":
		return r.figures
	case r.passed > 1:
		return fmt.Sprintf("%d passed", r.passed)
	}
	return "passed"
}

func printSlowest(w io.Writer, all []timing) {
	const shown = 15
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(a, b timing) int { return int(b.took - a.took) })
	fmt.Fprintf(w, "\nThe slowest tests:\n")
	for _, t := range all[:min(shown, len(all))] {
		fmt.Fprintf(w, "%7.1f s  %s\n", t.took.Seconds(), t.what)
	}
}

// printSkips counts the tests that run at night only, and lists all other skipped tests.
func printSkips(w io.Writer, skips []skip) {
	nights := 0
	for _, s := range skips {
		if strings.HasPrefix(s.reason, "runs at night only") {
			nights++
		}
	}
	if nights > 0 {
		fmt.Fprintf(w, "\n%d tests run at night only; docs/project/tests.md lists them.\n", nights)
	}
	for _, s := range skips {
		if !strings.HasPrefix(s.reason, "runs at night only") {
			fmt.Fprintf(w, "skipped: %s: %s\n", s.what, s.reason)
		}
	}
}
