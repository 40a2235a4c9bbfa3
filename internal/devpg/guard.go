//go:build unix

package devpg

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// guardEnv tells a process of this program that it is a guard, and what of.
const guardEnv = "POSTHASTE_DEVPG_GUARD"

// guardOrder is what a guard does when its owner dies.
type guardOrder struct {
	// Cluster is whose postmaster to stop.
	Cluster string
	// Remove lists what to remove then, in order.
	Remove []string
	// RemoveEmpty is a directory to remove if it is empty after that.
	RemoveEmpty string
}

// guard is the owner's end of the guard.
type guard struct {
	pipe io.WriteCloser
	cmd  *exec.Cmd
}

// startGuard starts this program once more as the guard. The owner's death
// closes the pipe, whatever it died of.
func startGuard(p *place, ephemeral bool) (*guard, error) {
	order := guardOrder{Cluster: p.cluster()}
	if ephemeral {
		order.Remove, order.RemoveEmpty = p.paths(), p.dataDir
	}
	raw, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	// The running program itself, even if its file was replaced or removed.
	self := "/proc/self/exe"
	if runtime.GOOS != "linux" {
		if self, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("the guard of PostgreSQL cannot be started: %w", err)
		}
	}
	cmd := exec.Command(self)
	cmd.Dir = "/"
	cmd.Env = []string{guardEnv + "=" + string(raw)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("the guard of PostgreSQL cannot be started: %w", err)
	}
	return &guard{pipe: pipe, cmd: cmd}, nil
}

// watch names the postmaster. A lost guard is no error: it is the second net.
func (g *guard) watch(pid int) { fmt.Fprintf(g.pipe, "%d\n", pid) }

// release sends the guard away.
func (g *guard) release() {
	fmt.Fprintln(g.pipe, "done")
	g.pipe.Close()
	_ = g.cmd.Wait()
}

func init() {
	raw, ok := os.LookupEnv(guardEnv)
	if !ok {
		return
	}
	var order guardOrder
	if json.Unmarshal([]byte(raw), &order) != nil {
		os.Exit(2)
	}
	order.follow(os.Stdin)
	os.Exit(0)
}

// follow reads the owner's pipe to its end and acts if the owner died.
func (o guardOrder) follow(pipe io.Reader) {
	pid := 0
	for in := bufio.NewScanner(pipe); in.Scan(); {
		line := strings.TrimSpace(in.Text())
		if line == "done" {
			return
		}
		pid, _ = strconv.Atoi(line)
	}
	ctx := context.Background()
	// Only the owner's own postmaster: a new owner may have started another.
	if running, err := clusterProcesses(o.Cluster); err == nil && slices.Contains(running, pid) {
		sig := syscall.SIGINT
		if len(o.Remove) > 0 {
			sig = syscall.SIGQUIT // nothing needs to be written out
		}
		if syscall.Kill(pid, sig) == nil {
			waitGone(ctx, o.Cluster, stopPatience)
		}
	}
	if len(o.Remove) > 0 {
		_ = killAll(ctx, o.Cluster, 0)
	}
	for _, path := range o.Remove {
		_ = os.RemoveAll(path)
	}
	if o.RemoveEmpty != "" {
		_ = os.Remove(o.RemoveEmpty)
	}
}
