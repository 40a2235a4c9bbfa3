package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// step is one command of a run.
type step struct {
	name    string
	minutes int      // approximate minutes on two cores; a night is split by them
	env     []string // added to the environment
	command []string
	// packages of `go test`. If not empty, command contains only its flags, and the step runs
	// with the servers of versions.
	packages []string
	versions string // of PostgreSQL, comma-separated; the tests use the first
	// beside names the step beside which this step runs, if that is the previous one.
	beside string
	// do is called instead of a command.
	do func() error
	// check, if not nil, judges the command's output, and returns figures to record.
	check func(output string) (figures string, err error)
}

// failure is a failed test, or a failed step without tests.
type failure struct{ what, repeat, output string }

// skip is one test that was skipped.
type skip struct{ what, reason string }

// result is the result of a step.
type result struct {
	took     time.Duration
	cpu      time.Duration // of all processes that have ended
	passed   int
	failures []failure
	skips    []skip
	slowest  []timing
	figures  string
}

// timing is the duration of a test.
type timing struct {
	what string
	took time.Duration
}

const launcher = ".cache/launch"

func (s step) run(ctx context.Context) result {
	begun := time.Now()
	var r result
	if len(s.packages) > 0 {
		r = s.runTests(ctx)
	} else {
		r = s.runCommand(ctx)
	}
	r.took = time.Since(begun)
	return r
}

// cpuOf returns the CPU time of a finished command and its finished children.
func cpuOf(cmd *exec.Cmd) time.Duration {
	if cmd.ProcessState == nil {
		return 0
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// runCommand runs a command that passes or fails as a whole.
func (s step) runCommand(ctx context.Context) result {
	if s.do != nil {
		if err := s.do(); err != nil {
			return result{failures: []failure{{s.name, "make " + s.name, err.Error()}}}
		}
		return result{passed: 1}
	}
	var said bytes.Buffer
	cmd := command(ctx, s.env, s.command)
	cmd.Stdout = io.MultiWriter(os.Stdout, &said)
	cmd.Stderr = cmd.Stdout
	err := cmd.Run()
	r := result{cpu: cpuOf(cmd)}
	if err == nil && s.check != nil {
		r.figures, err = s.check(said.String())
	}
	if err != nil {
		r.failures = []failure{{s.name, s.repeat(), fmt.Sprintf("%s\n%v", tail(said.String()), err)}}
		return r
	}
	r.passed = 1
	return r
}

// tail returns the end of a long output.
func tail(text string) string {
	const most = 8 << 10
	if len(text) > most {
		return "…" + text[len(text)-most:]
	}
	return text
}

// repeat returns the command that repeats the step.
func (s step) repeat() string {
	return strings.Join(append(slices.Clone(s.env), s.command...), " ")
}

// runTests runs `go test` with servers, and reads its events.
func (s step) runTests(ctx context.Context) result {
	first, _, _ := strings.Cut(s.versions, ",")
	args := append([]string{launcher, "-versions", s.versions, "--", "go", "test", "-json", "-count=1", "-vet=off"}, s.command...)
	cmd := command(ctx, append(slices.Clone(s.env), "POSTHASTE_TEST_POSTGRES="+first), append(args, s.packages...))
	events := newEvents(s, first)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return result{failures: []failure{{s.name, s.repeat(), err.Error()}}}
	}
	var said bytes.Buffer
	cmd.Stderr = io.MultiWriter(os.Stderr, &said)
	// All events are stored, to be read during and after the step.
	kept, err := os.Create(filepath.Join(filepath.Dir(launcher), "events "+strings.ReplaceAll(s.name, "/", " ")+".json"))
	if err != nil {
		return result{failures: []failure{{s.name, s.repeat(), err.Error()}}}
	}
	defer kept.Close()
	if err = cmd.Start(); err == nil {
		lines := bufio.NewReader(io.TeeReader(out, kept))
		for {
			line, readErr := lines.ReadBytes('\n')
			events.read(line)
			if readErr != nil {
				break
			}
		}
		err = cmd.Wait()
	}
	r := events.result(err, said.String())
	r.cpu = cpuOf(cmd)
	return r
}

// command is stopped with SIGINT, so that the launcher stops its servers.
func command(ctx context.Context, env, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// partOf returns part k of n, given as "k/n", or all steps for "". The steps are distributed
// by their minutes, so that all parts take about the same time.
func partOf(steps []step, part string) ([]step, error) {
	if part == "" {
		return steps, nil
	}
	first, second, _ := strings.Cut(part, "/")
	k, err := strconv.Atoi(first)
	n, err2 := strconv.Atoi(second)
	if err != nil || err2 != nil || k < 1 || k > n {
		return nil, fmt.Errorf("part %q is not of the form 3/20", part)
	}
	order := slices.Clone(steps)
	slices.SortStableFunc(order, func(a, b step) int { return b.minutes - a.minutes })
	minutes := make([]int, n)
	mine := map[string]bool{}
	for _, s := range order {
		least := slices.Index(minutes, slices.Min(minutes))
		minutes[least] += s.minutes
		mine[s.name] = least == k-1
	}
	return slices.DeleteFunc(slices.Clone(steps), func(s step) bool { return !mine[s.name] }), nil
}

// Environments of the sizes of a run.
var (
	night = []string{testrun.NightEnv + "=1"}
	full  = []string{testrun.FullEnv + "=1"}
)
