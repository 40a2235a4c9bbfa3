package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
)

// roles are the roles of a child.
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

func serveRole(role string, in io.Reader, out io.Writer) int {
	do, ok := roles[role]
	if !ok {
		fmt.Fprintf(os.Stderr, "%s: unknown role %q\n", roleEnv, role)
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
		defer cancel() // the parent has ended
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
