//go:build unix

// Command run is `make chaos`: see docs/chaos.md.
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
	var c chaos.Config
	flag.StringVar(&c.Program, "program", "bin/posthaste", "the program as it is shipped")
	flag.StringVar(&c.Dir, "dir", "", "an empty directory for histories, logs and data; default a new one in the temporary directory")
	flag.DurationVar(&c.Duration, "duration", 40*time.Second, "the time for faults and draining together")
	flag.Uint64Var(&c.Seed, "seed", 0, "repeats a run's faults; default a random one")
	flag.Float64Var(&c.Rate, "rate", 0, "messages a second of all senders together (default 250)")
	flag.DurationVar(&c.Lease, "lease", 0, "lease of workers and of receives (default 10s)")
	flag.StringVar(&c.Engine, "engine", chaos.OnPostgres, "the engine, postgres or redis")
	flag.StringVar(&c.Fsync, "appendfsync", "", "of a Redis: everysec (the default) or always")
	flag.StringVar(&c.Postgres.Version, "postgres", "18", "the version of PostgreSQL, 14 or 18")
	only := flag.String("only", "", "bring about this fault alone")
	without := flag.String("without", "", "do not bring about these faults, with commas between")
	check := flag.String("check", "", "only check the histories in this directory again")
	queues := flag.String("queues", "", "the queues to run with, plain and any of ordered, effects, once, emails, relayed, shared, deduped, limited and ticks, with commas between; default all that the engine has")
	flag.StringVar(&c.Children, "children", "", "the program that plays senders and receivers; default this very one")
	clocks := flag.String("clocks", "", "builds of this program whose clocks are off, with commas between")
	sabotage := flag.String("sabotage", "", "a file of SQL that breaks the ledger, to see whether that is found")
	flag.Parse()
	if *check != "" {
		v, err := chaos.CheckDir(*check)
		return tell(v, err)
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
			return tell(nil, err)
		}
		c.Sabotage = string(text)
	}
	if c.Seed == 0 {
		c.Seed = uint64(rand.Uint32())
	}
	c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	var err error
	if c.Program, err = filepath.Abs(c.Program); err == nil && c.Dir == "" {
		c.Dir, err = os.MkdirTemp("", "posthaste-chaos-")
	}
	if err == nil {
		err = os.Chmod(c.Dir, 0o711) // for the user that PostgreSQL runs as
	}
	if err != nil {
		return tell(nil, err)
	}
	fmt.Printf("seed %d, histories and logs in %s\n", c.Seed, c.Dir)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return tell(chaos.Run(ctx, c))
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
