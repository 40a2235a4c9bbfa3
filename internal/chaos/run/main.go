//go:build unix

// Command run is `make chaos`: see docs/project/chaos.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/posthaste-mq/posthaste/internal/chaos"
)

func main() {
	chaos.Child()
	os.Exit(run())
}

func run() int {
	c, check, err := parse()
	if err != nil {
		return tell(nil, err)
	}
	if check != "" {
		v, err := chaos.CheckDir(check)
		return tell(v, err)
	}
	fmt.Printf("seed %d, histories and logs in %s\n", c.Seed, c.Dir)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return tell(chaos.Run(ctx, c))
}

// parse returns the configuration of a run, or the directory whose histories are only to be
// checked.
func parse() (c chaos.Config, check string, err error) {
	flag.StringVar(&c.Program, "program", "bin/posthaste", "the shipped program")
	flag.StringVar(&c.Dir, "dir", "", "an empty directory for histories, logs and data (default: a new one in the temporary directory)")
	flag.DurationVar(&c.Duration, "duration", 40*time.Second, "the time for faults and draining together")
	flag.Uint64Var(&c.Seed, "seed", 0, "seed of the faults; the same seed repeats them (default: random)")
	flag.Float64Var(&c.Rate, "rate", 0, "messages per second of all senders together (default 250)")
	flag.DurationVar(&c.Lease, "lease", 0, "lease of workers and of receives (default 10s)")
	flag.StringVar(&c.Engine, "engine", chaos.OnPostgres, "the engine, postgres or redis")
	flag.StringVar(&c.Fsync, "appendfsync", "", "when Redis flushes its append-only file: everysec (the default) or always")
	flag.StringVar(&c.Postgres.Version, "postgres", "18", "the version of PostgreSQL, 14 or 18")
	only := flag.String("only", "", "inject only this fault")
	without := flag.String("without", "", "faults not to inject, separated by commas")
	flag.StringVar(&check, "check", "", "only check the histories in this directory")
	queues := flag.String("queues", "", "queues of the run, separated by commas: plain and any of ordered, effects, once, emails, relayed, shared, deduped, limited and ticks (default: all that the engine supports)")
	flag.StringVar(&c.Children, "children", "", "the program for senders and receivers (default: this program)")
	clocks := flag.String("clocks", "", "builds of this program with wrong clocks, separated by commas")
	sabotage := flag.String("sabotage", "", "a file of SQL that breaks the ledger, to test whether that is found")
	flag.Parse()
	if check != "" {
		return c, check, nil
	}
	if *only != "" {
		c.Kinds = []chaos.Fault{chaos.Fault(*only)}
	}
	if *without != "" {
		for kind := range strings.SplitSeq(*without, ",") {
			c.Without = append(c.Without, chaos.Fault(strings.TrimSpace(kind)))
		}
	}
	if *queues != "" {
		c.Queues = strings.Split(*queues, ",")
	}
	if *clocks != "" {
		c.Clocks = strings.Split(*clocks, ",")
	}
	if *sabotage != "" {
		text, err := os.ReadFile(*sabotage)
		if err != nil {
			return c, "", err
		}
		c.Sabotage = string(text)
	}
	if c.Seed == 0 {
		c.Seed = uint64(rand.Uint32())
	}
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	if c.Program, err = filepath.Abs(c.Program); err == nil && c.Dir == "" {
		c.Dir, err = os.MkdirTemp("", "posthaste-chaos-")
	}
	if err == nil {
		err = os.Chmod(c.Dir, 0o711) // so that the user that PostgreSQL runs as can enter it
	}
	return c, "", err
}

func tell(v *chaos.Verdict, err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	v.Report(os.Stdout)
	if len(v.Violations) > 0 {
		return 1
	}
	fmt.Println("every promise was kept")
	return 0
}
