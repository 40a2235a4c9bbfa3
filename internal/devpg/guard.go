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

// guardEnv makes a process of this program a guard. Its value is the guard's order.
const guardEnv = "POSTHASTE_DEVPG_GUARD"

// guardOrder says what a guard does when its owner dies.
type guardOrder struct {
	// Cluster is the cluster whose postmaster it stops.
	Cluster string
	// Remove lists the paths that it then removes, in order.
	Remove []string
	// RemoveEmpty is a directory to remove afterwards if it is empty.
	RemoveEmpty string
}

// guard is the owner's end of the guard.
type guard struct {
	pipe io.WriteCloser
	cmd  *exec.Cmd
}

// startGuard starts this program again as the guard. The owner's death closes the pipe,
// whatever its cause.
func startGuard(p *location, ephemeral bool) (*guard, error) {
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

// watch tells the guard the postmaster's pid. A lost guard is not an error, because it is only
// a second line of defense.
func (g *guard) watch(pid int) { fmt.Fprintf(g.pipe, "%d\n", pid) }

// release ends the guard without action.
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

// follow reads the owner's pipe until it is closed, and acts if the owner died.
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
	// Only stop the owner's postmaster: a new owner may have started another one.
	if running, err := clusterProcesses(o.Cluster); err == nil && slices.Contains(running, pid) {
		sig := syscall.SIGINT
		if len(o.Remove) > 0 {
			sig = syscall.SIGQUIT // nothing needs to be written to disk
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
