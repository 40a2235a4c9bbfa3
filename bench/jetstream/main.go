// Jetstream tries the protocol of an engine on NATS JetStream: three servers, four workers,
// faults, and a checker of the history. README.md describes it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

type options struct {
	duration, ackWait       time.Duration
	rate, schedules, rounds int
	faults, json            bool
	dir, retention          string
}

func main() {
	if err := start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// start plays the role of this process: a server, a worker, or else the trial.
func start() error {
	switch os.Getenv(roleEnv) {
	case "server":
		return serve(os.Args[1])
	case "worker":
		return runWorker(os.Args[1])
	}
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	// A child ends with the thread that started it, and the main thread lives until the end.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	r, err := try(ctx, o)
	if err != nil {
		return err
	}
	if o.json {
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		fmt.Println(string(text))
	} else {
		fmt.Print(r.words())
	}
	if !r.Passed {
		return errors.New("the rule is broken")
	}
	return nil
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("jetstream", flag.ContinueOnError)
	flags.DurationVar(&o.duration, "duration", 2*time.Minute, "how long messages are sent, 10s to 2h; 30m is the full form")
	flags.DurationVar(&o.ackWait, "ack-wait", 9*time.Second, "the consumer's AckWait, 4s to 1m; the lease is one second shorter")
	flags.IntVar(&o.rate, "rate", 500, "messages a second, 1 to 5000")
	flags.IntVar(&o.schedules, "schedules", 300_000, "schedules that lie in the stream, 0 to 1000000")
	flags.IntVar(&o.rounds, "rounds", 5, "rounds in which the claims are compared, 0 to 50; with 0 the rule cannot be kept")
	flags.BoolVar(&o.faults, "faults", true, "kill, freeze and cut off servers and workers")
	flags.BoolVar(&o.json, "json", false, "print the report as JSON")
	flags.StringVar(&o.retention, "retention", "workqueue", "retention of the stream: workqueue, or interest with two filters and keepers")
	flags.StringVar(&o.dir, "dir", os.TempDir(), "`directory` below which the servers store")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	for _, limit := range []struct {
		flag      string
		within    bool
		allowance string
	}{
		{"duration", o.duration >= 10*time.Second && o.duration <= 2*time.Hour, "10s to 2h"},
		{"ack-wait", o.ackWait >= 4*time.Second && o.ackWait <= time.Minute, "4s to 1m"},
		{"rate", o.rate >= 1 && o.rate <= 5000, "1 to 5000"},
		{"schedules", o.schedules >= 0 && o.schedules <= 1_000_000, "0 to 1000000"},
		{"rounds", o.rounds >= 0 && o.rounds <= 50, "0 to 50"},
	} {
		if !limit.within {
			return o, fmt.Errorf("--%s is out of range; allowed: %s", limit.flag, limit.allowance)
		}
	}
	if o.retention != "workqueue" && o.retention != "interest" {
		return o, fmt.Errorf("--retention is %q; allowed: workqueue, interest", o.retention)
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q; there are only flags", flags.Arg(0))
	}
	return o, nil
}
