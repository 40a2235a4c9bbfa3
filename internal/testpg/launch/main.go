//go:build unix

// Launch runs a command, such as go test, with PostgreSQL servers for its tests:
//
//	go run ./internal/testpg/launch [-versions 14,18] -- go test ./...
//
// It starts one server for each version and passes their addresses in the environment (see
// packages testdb and testrun, for which it watches for stalls). It gives the command a
// directory for temporary files, in memory if there is plenty, runs it, stops the servers and
// exits with the command's exit code. SIGINT and SIGTERM are forwarded to the command. If
// launch itself is killed, the guards of the servers stop them.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/internal/testpg/testdb"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// Exit codes besides those of the command.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	versions := flag.String("versions", strings.Join(testdb.Versions(), ","), "comma-separated `versions` of PostgreSQL to start")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: launch [-versions 14,18] -- command [argument ...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	wanted := strings.Split(*versions, ",")
	for _, v := range wanted {
		if !slices.Contains(testdb.Versions(), v) {
			fmt.Fprintf(os.Stderr, "launch: unknown version %q; expected one of %v\n", v, testdb.Versions())
			os.Exit(exitUsage)
		}
	}
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(exitUsage)
	}
	os.Exit(launch(wanted, flag.Args()))
}

func launch(versions, command []string) int {
	// From here on a signal does not end this process before its servers.
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	started := make(chan error, 1)
	servers := make([]*devpg.Server, len(versions))
	go func() { started <- startAll(ctx, versions, servers) }()
	select {
	case err := <-started:
		defer stopAll(servers)
		if err != nil {
			fmt.Fprintln(os.Stderr, "launch:", err)
			return exitFailed
		}
	case sig := <-signals:
		cancel()
		<-started
		stopAll(servers)
		return 128 + int(sig.(syscall.Signal))
	}
	temp, remove, err := testdb.TempDir()
	if err != nil {
		fmt.Fprintln(os.Stderr, "launch:", err)
		return exitFailed
	}
	defer remove()
	stalls, stop, err := watchStalls(servers[0].URL(), temp)
	if err != nil {
		fmt.Fprintln(os.Stderr, "launch:", err)
		return exitFailed
	}
	defer stop()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// Compiled packages stay on the disk.
	cmd.Env = append(os.Environ(), testrun.StallsEnv+"="+stalls, "GOTMPDIR="+cmp.Or(os.Getenv("GOTMPDIR"), os.TempDir()), "TMPDIR="+temp)
	for i, v := range versions {
		cmd.Env = append(cmd.Env, testdb.URLEnv(v)+"="+servers[i].URL())
	}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "launch:", err)
		return exitFailed
	}
	go func() {
		for sig := range signals {
			_ = cmd.Process.Signal(sig)
		}
	}()
	return exitCode(cmd.Wait())
}

// startAll starts the servers concurrently. Started servers are in servers even if others
// failed.
func startAll(ctx context.Context, versions []string, servers []*devpg.Server) error {
	all, ctx := errgroup.WithContext(ctx)
	for i, v := range versions {
		all.Go(func() error {
			c := testdb.Config(v)
			c.Progress = tell(v)
			s, err := devpg.Start(ctx, c)
			if err != nil {
				return fmt.Errorf("PostgreSQL %s cannot be started: %w", v, err)
			}
			servers[i] = s
			return nil
		})
	}
	return all.Wait()
}

// tell returns a function that prints each slow stage once.
func tell(version string) func(string, int64, int64) {
	told := map[string]bool{}
	return func(stage string, _, total int64) {
		if told[stage] || (stage != devpg.StageFetch && stage != devpg.StageUnpack) {
			return
		}
		told[stage] = true
		fmt.Fprintf(os.Stderr, "PostgreSQL %s: %s (%.0f MB)\n", version, stage, float64(total)/1e6)
	}
}

func stopAll(servers []*devpg.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, s := range servers {
		if s == nil {
			continue
		}
		if err := s.Stop(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "launch:", err)
		}
	}
}

// exitCode returns the command's exit code, or that of a shell if a signal ended it.
func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal())
		}
		return exit.ExitCode()
	}
	fmt.Fprintln(os.Stderr, "launch:", err)
	return exitFailed
}
