//go:build unix

package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// process is a running posthaste.
type process struct {
	*exec.Cmd
	t      *testing.T
	out    *bufio.Reader
	mu     sync.Mutex
	stderr bytes.Buffer
	done   chan struct{}
}

// Write collects standard error.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.Write(b)
}

func (p *process) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// start runs posthaste in dir. It is killed with the test.
func start(t *testing.T, dir string, env []string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command("posthaste", args...), t: t, done: make(chan struct{})}
	p.Dir, p.Env, p.Stderr = dir, append(os.Environ(), env...), p
	p.WaitDelay = time.Second
	stdout, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(stdout)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		p.wait()
		if t.Failed() {
			t.Logf("posthaste %s said:\n%s", strings.Join(args, " "), p.said())
		}
	})
	return p
}

// line returns the next line of standard output.
func (p *process) line() string {
	p.t.Helper()
	read := make(chan string, 1)
	go func() {
		line, _ := p.out.ReadString('\n')
		read <- line
	}()
	select {
	case line := <-read:
		if line == "" {
			p.wait()
			p.t.Fatalf("posthaste ended without output: %s\n%s", p.ProcessState, p.said())
		}
		return line
	case <-time.After(patience):
		p.t.Fatalf("posthaste printed no line for %s:\n%s", patience, p.said())
	}
	return ""
}

// wait waits for the end and returns the exit code, -1 after a signal.
func (p *process) wait() int {
	p.mu.Lock()
	ended := p.done
	p.mu.Unlock()
	select {
	case <-ended:
	default:
		_ = p.Wait()
		close(ended)
	}
	return p.ProcessState.ExitCode()
}

// stop sends a signal and returns the exit code.
func (p *process) stop(signal syscall.Signal) int {
	p.t.Helper()
	if err := p.Process.Signal(signal); err != nil {
		p.t.Fatal(err)
	}
	killed := time.AfterFunc(patience, func() { _ = p.Process.Kill() })
	defer killed.Stop()
	return p.wait()
}

// run runs posthaste until it ends.
func run(t *testing.T, dir string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "posthaste", args...)
	var out, err bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &err
	_ = cmd.Run()
	return out.String(), err.String(), cmd.ProcessState.ExitCode()
}

// descendants returns all direct and indirect child processes of pid.
func descendants(t *testing.T, pid int) (all []int) {
	t.Helper()
	parents := map[int][]int{}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	if len(stats) == 0 {
		out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(out), "\n") {
			if f := strings.Fields(line); len(f) == 2 {
				child, _ := strconv.Atoi(f[0])
				parent, _ := strconv.Atoi(f[1])
				parents[parent] = append(parents[parent], child)
			}
		}
	}
	for _, stat := range stats {
		raw, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state ppid …, and a name can contain any character.
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		rest := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
		parent, _ := strconv.Atoi(rest[1])
		parents[parent] = append(parents[parent], child)
	}
	for next := []int{pid}; len(next) > 0; next = next[1:] {
		all = append(all, parents[next[0]]...)
		next = append(next, parents[next[0]]...)
	}
	return all
}

// eventually waits until met returns nil.
func eventually(t *testing.T, what string, met func() error) {
	t.Helper()
	var err error
	if !testrun.Happens(patience, func() bool { err = met(); return err == nil }) {
		t.Fatalf("%s: not within %s: %v", what, patience, err)
	}
}

// get requests JSON and decodes it into value, unless that is nil.
func get(url string, into any) (status int, err error) {
	return do(http.MethodGet, url, "", into)
}

func do(method, url, body string, into any) (status int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Accept", "application/json")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err == nil && into != nil && answer.StatusCode < 300 {
		err = json.Unmarshal(raw, into)
	}
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %s", method, url, answer.Status, raw)
	}
	return answer.StatusCode, err
}
