// Peers compares Posthaste with other queues in PostgreSQL, on the same server in the same
// run. README.md describes the comparison.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

type options struct {
	products, scenarios []string
	duration            time.Duration
	rounds, fill        int
	json                bool
	pgque, databaseURL  string
	dataDir, cache      string
}

func main() {
	if os.Getenv(roleEnv) != "" {
		os.Exit(serve(os.Stdin, os.Stdout))
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	o, err := parse(os.Args[1:])
	if err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1)
	}
}

// parse parses the command line.
func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	products := flags.String("products", strings.Join(names(), ","), "comma-separated `names` of what to compare")
	chosen := flags.String("scenarios", strings.Join(scenarios, ","), "comma-separated `names` of what to measure")
	flags.DurationVar(&o.duration, "duration", 10*time.Second, "how long each cell is measured, 1s to 10m")
	flags.IntVar(&o.rounds, "rounds", 2, "how often; every other round is in reverse order, 1 to 20")
	flags.IntVar(&o.fill, "fill", 3, "`GB` to write and drop on the embedded server before the first cell")
	flags.BoolVar(&o.json, "json", false, "print all cells as JSON instead of tables")
	flags.StringVar(&o.pgque, "pgque", "", "`directory` of a clone of github.com/NikolayS/PgQue")
	flags.StringVar(&o.databaseURL, "database-url", "", "`URL` of a server to use instead of the embedded PostgreSQL 18; its role needs CREATEDB and pg_checkpoint")
	flags.StringVar(&o.dataDir, "data-dir", "", "`directory` for the embedded server's data (default: that for temporary files)")
	flags.StringVar(&o.cache, "cache", "", "`directory` for packages (default: posthaste/peers in the user's cache directory)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.products, o.scenarios = strings.Split(*products, ","), strings.Split(*chosen, ",")
	for _, name := range o.products {
		if _, err := peerNamed(name); err != nil {
			return o, err
		}
	}
	for _, name := range o.scenarios {
		if !slices.Contains(scenarios, name) {
			return o, fmt.Errorf("unknown scenario %q; expected one of %s", name, strings.Join(scenarios, ", "))
		}
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q; see peers --help", flags.Arg(0))
	case o.duration < time.Second || o.duration > 10*time.Minute:
		return o, fmt.Errorf("--duration must be 1s to 10m, got %s", o.duration)
	case o.rounds < 1 || o.rounds > 20:
		return o, fmt.Errorf("--rounds must be 1 to 20, got %d", o.rounds)
	case o.fill < 0 || o.fill > 100:
		return o, fmt.Errorf("--fill must be 0 to 100, got %d", o.fill)
	}
	return o, nil
}

// bench is one run.
type bench struct {
	o      options
	server *server
}

// plan is a cell to measure.
type plan struct {
	peer          peer
	scenario, row string
}

func run(ctx context.Context, o options) (err error) {
	say := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	t := &tools{cache: o.cache, pgque: o.pgque, say: say}
	if t.cache == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		t.cache = filepath.Join(cache, "posthaste", "peers")
	}
	result := Result{DurationSeconds: o.duration.Seconds(), Rounds: o.rounds, Missing: map[string]string{}}
	plans := o.plans(ctx, t, result.Missing)
	b := &bench{o: o}
	if b.server, err = openServer(ctx, o, say); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.server.close(ctx)) }()
	result.Machine = b.server.machine
	failed := 0
	for round := 1; round <= o.rounds; round++ {
		for _, p := range plans {
			c := b.measure(ctx, p.peer, p.scenario, p.row, round)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if c.Error != "" {
				failed++
			}
			say("round %d: %s", round, c.brief())
			result.Cells = append(result.Cells, c)
		}
		slices.Reverse(plans)
	}
	if err := show(o, &result); err != nil {
		return err
	}
	if failed > 0 {
		return fmt.Errorf("%d cells failed", failed)
	}
	return nil
}

// plans returns the cells of a round. Products that are not available are recorded in missing.
func (o options) plans(ctx context.Context, t *tools, missing map[string]string) (plans []plan) {
	var here []peer
	for _, name := range o.products {
		p, err := peerNamed(name)
		if err == nil {
			err = p.prepare(ctx, t)
		}
		if err != nil {
			missing[name] = err.Error()
			t.say("%s has no figures: %s", name, err)
			continue
		}
		here = append(here, p)
	}
	for _, scenario := range o.scenarios {
		for _, p := range here {
			for _, row := range p.rows(scenario) {
				plans = append(plans, plan{p, scenario, row})
			}
		}
	}
	return plans
}

func show(o options, r *Result) error {
	if o.json {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(r)
	}
	return printTables(os.Stdout, r)
}
