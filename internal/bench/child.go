package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// roleEnv tells a process of this program that it is part of a bench. What to
// do, with the database's URL, comes on its standard input: an environment can
// be read by others.
const roleEnv = "POSTHASTE_BENCH_ROLE"

// roles are what such a process can be.
var roles = map[string]func(context.Context, *orders) error{
	"sender":  latencySender,
	"worker":  latencyWorker,
	"handler": handler,
	"server":  httpServer,
}

func init() {
	role := os.Getenv(roleEnv)
	if role == "" {
		return
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	os.Exit(serveRole(role, os.Stdin, os.Stdout))
}

// order is one line that a child is told.
type order struct {
	home
	Queues []string      `json:"queues,omitempty"`
	Rate   float64       `json:"rate,omitempty"`
	During time.Duration `json:"during,omitempty"`
	Expect int           `json:"expect,omitempty"`
	// Patience is how long what is expected may take to come.
	Patience time.Duration `json:"patience,omitempty"`
	Stop     bool          `json:"stop,omitempty"`
}

// report is one line that a child answers.
type report struct {
	Ready   bool            `json:"ready,omitempty"`
	Sent    int             `json:"sent,omitempty"`
	Samples []time.Duration `json:"samples,omitempty"`
	CPU     time.Duration   `json:"cpu,omitempty"`
	RSSMB   float64         `json:"rss_mb,omitempty"`
	Again   int64           `json:"again,omitempty"`
	// Handled counts calls of handlers, and Done messages that were settled as done, the last
	// of them at Last.
	Handled int64         `json:"handled,omitempty"`
	Done    int64         `json:"done,omitempty"`
	Last    time.Duration `json:"last,omitempty"`
	Address string        `json:"address,omitempty"` // where the HTTP server listens
	Error   string        `json:"error,omitempty"`
}

// orders is the child's end of the conversation.
type orders struct {
	first order
	next  <-chan order // closed when the parent is gone
	tell  func(report)
}

// stay waits until the parent lets go of this process. The CPU time of a session
// that ends meanwhile is out of reach until the server has cleared it away.
func (o *orders) stay() {
	for range o.next {
	}
}

func serveRole(role string, in io.Reader, out io.Writer) int {
	do, ok := roles[role]
	if !ok {
		fmt.Fprintf(os.Stderr, "%s: there is no role %q\n", roleEnv, role)
		return 2
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	encoder := json.NewEncoder(out)
	o := &orders{tell: func(r report) { _ = encoder.Encode(r) }}
	lines := json.NewDecoder(in)
	if err := lines.Decode(&o.first); err != nil {
		return 2
	}
	next := make(chan order, 4)
	o.next = next
	go func() {
		defer close(next)
		defer cancel() // nobody is there to hear: end
		for {
			var line order
			if lines.Decode(&line) != nil {
				return
			}
			next <- line
		}
	}()
	if err := do(ctx, o); err != nil {
		o.tell(report{Error: err.Error()})
		return 1
	}
	return 0
}

// child is the parent's end.
type child struct {
	role  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	order *json.Encoder
	ready report // what it said when it was ready
}

// startChild starts this program again and waits until it is ready.
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
		err = errors.New("it did not say that it was ready")
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
		return r, fmt.Errorf("the bench's %s said something odd: %w", c.role, err)
	}
	if r.Error != "" {
		return r, fmt.Errorf("the bench's %s failed: %s", c.role, r.Error)
	}
	return r, nil
}

// end lets go of the child and waits for it.
func (c *child) end() error {
	_ = c.in.Close()
	_, _ = io.Copy(io.Discard, c.out)
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("the bench's %s: %w", c.role, err)
	}
	return nil
}
