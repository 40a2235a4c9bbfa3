package cli

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/posthaste-mq/posthaste"
)

// confirmed is the flag --yes of commands that destroy something.
type confirmed bool

func (yes *confirmed) flag(cmd *cobra.Command) {
	cmd.Flags().BoolVarP((*bool)(yes), "yes", "y", false, "do not ask for confirmation")
}

// confirm returns nil if the user agrees to what a command is about to do: by --yes, or by the
// answer to a question. what completes "This will …"; it is called only if there is a question.
// Without a terminal the command fails.
func (a *app) confirm(ctx context.Context, yes confirmed, what func() (string, error)) error {
	if yes {
		return nil
	}
	text, err := what()
	if err != nil {
		return err
	}
	if !a.interactive() {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "yes", Message: "this would " + text + ", and there is no terminal to ask for confirmation",
			Hint: "add --yes; nothing was changed"}
	}
	fmt.Fprintf(a.stderr, "This will %s. It cannot be undone.\nContinue? [y/N] ", text)
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(a.stdin).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case line := <-answer:
		if line == "y" || line == "yes" {
			return nil
		}
		return &posthaste.Error{Code: posthaste.CodeRefused, Field: "yes", Message: "not confirmed; nothing was changed", Hint: "answer y to continue"}
	case <-ctx.Done(): // an interrupt
		fmt.Fprintln(a.stderr)
		return context.Cause(ctx)
	}
}

// interactive reports whether a person can be asked: standard input and error are terminals.
func (a *app) interactive() bool {
	if a.terminal != nil {
		return a.terminal()
	}
	return isTerminal(a.stdin) && isTerminal(a.stderr)
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// contents describes the messages of a queue, or of one of its subscriptions if that is not
// empty.
func contents(ctx context.Context, e posthaste.Store, queue, subscription string) (string, error) {
	infos, err := e.Queues(ctx, queue)
	if err != nil {
		return "", err
	}
	if len(infos) == 0 {
		return "", &posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue", Message: fmt.Sprintf("queue %q does not exist", queue)}
	}
	var waiting, running, dead int64
	for _, s := range infos[0].Subscriptions {
		if subscription == "" || s.Name == subscription {
			waiting, running, dead = waiting+s.Depth, running+s.InFlight, dead+s.Dead
		}
	}
	return fmt.Sprintf("%s waiting, %d in flight and %s", counted(waiting, "message"), running, counted(dead, "dead letter")), nil
}

// counted is a number with its noun.
func counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
