// Command run runs the checks and tests of the project, all of them even if some fail, and
// ends with a summary: failures, how to repeat them, skipped tests, and the slowest tests.
// `make test` and `make nightly` run this command.
//
//	run change                  the steps of each change
//	run nightly [-part 3/20] [-steps pattern]
//	                            all steps or a part of them, and docs/project/nightly.md
//	run page                    docs/project/nightly.md with a row for each step, without running any
//	run table                   the table of docs/project/tests.md
//	run list                    the steps of a night, with their minutes
//
// It must run in the root folder of the repository.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"sync"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("one of change, nightly, page, table and list is missing")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	part := flags.String("part", "", "run part `k/n` of the night only")
	steps := flags.String("steps", ".", "run the steps whose names match a `pattern` only")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	pattern, err := regexp.Compile(*steps)
	if err != nil {
		return fmt.Errorf("-steps: %w", err)
	}
	switch args[0] {
	case "change":
		return runAll(ctx, matching(onChange(), pattern), nil)
	case "nightly":
		chosen, err := partOf(matching(nightly(), pattern), *part)
		if err != nil {
			return err
		}
		return runAll(ctx, chosen, recordNight)
	case "page":
		return writePage()
	case "table":
		return writeTable()
	case "list":
		for _, s := range matching(nightly(), pattern) {
			fmt.Printf("%4d min  %s\n", s.minutes, s.name)
		}
		return nil
	}
	return fmt.Errorf("unknown command %q; expected change, nightly, page, table or list", args[0])
}

func matching(steps []step, pattern *regexp.Regexp) []step {
	var chosen []step
	for _, s := range steps {
		if pattern.MatchString(s.name) {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

// runAll runs the steps one after the other, except those that run beside the previous one. It
// continues after failures. record, if not nil, is called for each.
func runAll(ctx context.Context, steps []step, record func(step, result) error) error {
	if len(steps) == 0 {
		return fmt.Errorf("no step matches")
	}
	sum := summary{}
	begun := time.Now()
	for len(steps) > 0 {
		if ctx.Err() != nil { // the summary still shows the results so far
			return errors.Join(ctx.Err(), sum.print(os.Stdout, time.Since(begun)))
		}
		n := 1
		for n < len(steps) && steps[n].beside == steps[0].name {
			n++
		}
		results := runTogether(ctx, steps[:n])
		for i, r := range results {
			sum.add(steps[i], r)
			if record == nil {
				continue
			}
			if err := record(steps[i], r); err != nil {
				return fmt.Errorf("the result of %s cannot be recorded: %w", steps[i].name, err)
			}
		}
		steps = steps[n:]
	}
	return sum.print(os.Stdout, time.Since(begun))
}

// runTogether runs steps concurrently, and returns their results in order.
func runTogether(ctx context.Context, steps []step) []result {
	results := make([]result, len(steps))
	var all sync.WaitGroup
	for i, s := range steps {
		fmt.Printf("== %s\n", s.name)
		all.Go(func() { results[i] = s.run(ctx) })
	}
	all.Wait()
	return results
}
