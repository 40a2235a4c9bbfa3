// Command run runs the checks and tests of the project, all of them even if some fail,
// and ends with a summary: what failed, how to repeat it, what was skipped, and what
// took long. `make test` and `make nightly` are this command.
//
//	run change                  what runs on each change
//	run nightly [-part 3/18] [-steps pattern]
//	                            everything, or a part of it, and docs/nightly.md
//	run page                    docs/nightly.md with a row for each step, without running any
//	run table                   the table of docs/testing.md
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
	"syscall"
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

// runAll runs the steps one after the other, whatever becomes of them. record, if not
// nil, is called after each.
func runAll(ctx context.Context, steps []step, record func(step, result) error) error {
	if len(steps) == 0 {
		return fmt.Errorf("no step matches")
	}
	sum := summary{}
	for _, s := range steps {
		if ctx.Err() != nil { // the summary still says what ended before
			return errors.Join(ctx.Err(), sum.print(os.Stdout))
		}
		fmt.Printf("== %s\n", s.name)
		r := s.run(ctx)
		sum.add(s, r)
		if record == nil {
			continue
		}
		if err := record(s, r); err != nil {
			return fmt.Errorf("the result of %s cannot be recorded: %w", s.name, err)
		}
	}
	return sum.print(os.Stdout)
}
