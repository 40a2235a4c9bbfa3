package prove

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/postgres"
)

// queue is the queue of the proof.
const queue = "proof"

// The roles of a process.
const (
	roleSender = "sender"
	roleWorker = "worker"
)

// task describes a process. It comes as one line of JSON on its standard input.
type task struct {
	Role string
	Name string // of its history
	Dir  string // of the histories
	URL  string // of the database
	Rate float64
	Seed uint64
	// Sabotage plants a bug, for tests.
	Sabotage string
}

// The planted bugs. A proof with one of them must fail.
const (
	ackFirst    = "acknowledges before it has handled"
	reportFirst = "reports success before the commit"
)

// Child runs a process of a proof: it reads its task from in and returns when ctx ends. If in
// ends first, its parent died, and the process exits.
func Child(ctx context.Context, in io.Reader, stderr io.Writer) error {
	lines := bufio.NewReader(in)
	var t task
	line, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &t)
	}
	if err != nil {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Message: "this command is started by `posthaste prove` only", Hint: "run: posthaste prove", Cause: err}
	}
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		os.Exit(3)
	}()
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})).With("process", t.Name)
	r, err := history.Open(t.Dir, t.Name)
	if err != nil {
		return err
	}
	engine, err := postgres.Open(ctx, t.URL, postgres.WithLogger(log), postgres.WithLazyConnect())
	if err != nil {
		return err
	}
	defer engine.Close()
	for engine.Ready(ctx) != nil { // a process may start while the database is away
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(50 * time.Millisecond):
		}
	}
	switch t.Role {
	case roleSender:
		return send(ctx, t, r, engine)
	case roleWorker:
		return work(ctx, t, r, engine, log)
	}
	return fmt.Errorf("unknown role %q of a process of the proof", t.Role)
}

// payload is a message's content: the sender's name for it.
type payload struct {
	Token string `json:"token"`
	Part  int    `json:"part"`
}
