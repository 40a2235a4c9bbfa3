//go:build unix

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/posthaste-mq/posthaste/internal/history"
)

// childEnv makes a process of this program a child of a run. Its task comes on standard input.
const childEnv = "POSTHASTE_CHAOS_CHILD"

// roles are the possible roles of a child. They start immediately and end with ctx.
var roles = map[string]func(ctx context.Context, t task, r *history.Recorder) error{
	roleSender:       engineSender,
	roleSQLSender:    sqlSender,
	roleHTTPSender:   httpSender,
	roleWorker:       workerRole,
	roleSQLReceiver:  sqlReceiver,
	roleHTTPReceiver: httpReceiver,
}

// Child runs this process as a child, and exits, if it was started as one. The program that
// runs a rig must call it first.
func Child() {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
}

func child() int {
	in := bufio.NewReader(os.Stdin)
	var t task
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &t)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "a child without a task:", err)
		return 2
	}
	slog.SetDefault(slog.New(slog.NewTextHandler(os.Stderr, nil)))
	go func() { // this process ends with the rig
		_, _ = io.Copy(io.Discard, in)
		os.Exit(3)
	}()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	r, err := history.Open(t.Dir, t.Name)
	if err == nil {
		err = roles[t.Role](ctx, t, r)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", t.Name, err)
		return 1
	}
	return 0
}
