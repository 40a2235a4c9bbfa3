package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// order is one line of input of a child.
type order struct {
	home
	Queues []string      `json:"queues,omitempty"`
	Rate   float64       `json:"rate,omitempty"`
	During time.Duration `json:"during,omitempty"`
	Expect int           `json:"expect,omitempty"`
	// Patience is the time that the expected messages may take.
	Patience time.Duration `json:"patience,omitempty"`
	Stop     bool          `json:"stop,omitempty"`
}

// report is one line of output of a child.
type report struct {
	Ready   bool            `json:"ready,omitempty"`
	Sent    int             `json:"sent,omitempty"`
	Samples []time.Duration `json:"samples,omitempty"`
	CPU     time.Duration   `json:"cpu,omitempty"`
	RSSMB   float64         `json:"rss_mb,omitempty"`
	Again   int64           `json:"again,omitempty"`
	// Handled is the number of handler calls, Done that of messages settled as done, and Last
	// the time of the last of these.
	Handled int64         `json:"handled,omitempty"`
	Done    int64         `json:"done,omitempty"`
	Last    time.Duration `json:"last,omitempty"`
	Address string        `json:"address,omitempty"` // where the HTTP server listens
	Error   string        `json:"error,omitempty"`
}

// orders is the child's end of the connection to its parent.
type orders struct {
	first order
	next  <-chan order // closed when the parent is gone
	tell  func(report)
}

// stay waits until the parent releases this process. If the process ended now, the CPU time
// of its session could not be read until the server has removed the session.
func (o *orders) stay() {
	for range o.next {
	}
}

// child is the parent's end of the connection.
type child struct {
	role  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	order *json.Encoder
	ready report // its first report
}

// startChild starts this program as a child and waits until it is ready.
func startChild(ctx context.Context, role string, first order) (*child, error) {
	self := "/proc/self/exe" // the running program itself, even if its file was replaced
	if runtime.GOOS != "linux" {
		var err error
		if self, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("the bench's %s cannot be started: %w", role, err)
		}
	}
	c := &child{role: role, cmd: exec.CommandContext(ctx, self)}
	c.cmd.Env = append(os.Environ(), roleEnv+"="+role)
	c.cmd.Stderr = os.Stderr
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("the bench's %s cannot be started: %w", role, err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("the bench's %s cannot be started: %w", role, err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("the bench's %s cannot be started: %w", role, err)
	}
	c.out, c.order = bufio.NewReader(out), json.NewEncoder(c.in)
	err = c.order.Encode(first)
	if err == nil {
		c.ready, err = c.hear()
	}
	if err == nil && !c.ready.Ready {
		err = errors.New("it did not report that it is ready")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the bench's %s did not start: %w", role, err), c.end())
	}
	return c, nil
}

// hear reads the child's next report.
func (c *child) hear() (report, error) {
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return report{}, fmt.Errorf("the bench's %s ended early: %w", c.role, err)
	}
	var r report
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("the bench's %s sent an invalid report: %w", c.role, err)
	}
	if r.Error != "" {
		return r, fmt.Errorf("the bench's %s failed: %s", c.role, r.Error)
	}
	return r, nil
}

// end releases the child and waits until it has ended.
func (c *child) end() error {
	_ = c.in.Close()
	_, _ = io.Copy(io.Discard, c.out)
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("the bench's %s: %w", c.role, err)
	}
	return nil
}

// ask sends an order and reads the child's report.
func (c *child) ask(o order) (report, error) {
	if err := c.order.Encode(o); err != nil {
		return report{}, fmt.Errorf("the bench's %s cannot be reached: %w", c.role, err)
	}
	return c.hear()
}

// roleEnv makes a process of this program part of a bench. Its orders, with the database's
// URL, come on its standard input, because other processes can read an environment.
const roleEnv = "POSTHASTE_BENCH_ROLE"
