package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
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
// place is where the command does it (see [database.place]). Without a terminal the command fails.
func (a *app) confirm(ctx context.Context, yes confirmed, place string, what func() (string, error)) error {
	if yes {
		if place != "" {
			fmt.Fprintf(a.stderr, "posthaste: working%s\n", place)
		}
		return nil
	}
	text, err := what()
	if err != nil {
		return err
	}
	text += place
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

// askToken asks for the token of a server, which is not shown. An empty answer means none.
func (a *app) askToken(ctx context.Context, server string) (string, error) {
	fmt.Fprintf(a.stderr, "Token for %s (empty for none): ", server)
	read := func() (string, error) {
		line, err := bufio.NewReader(a.stdin).ReadString('\n')
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return line, err
	}
	if f, ok := a.stdin.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		state, err := term.GetState(int(f.Fd()))
		if err != nil {
			return "", fmt.Errorf("read the token: %w", err)
		}
		defer func() { _ = term.Restore(int(f.Fd()), state) }() // an interrupt ends the program while it reads
		read = func() (string, error) {
			line, err := term.ReadPassword(int(f.Fd()))
			return string(line), err
		}
	}
	type answer struct {
		line string
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		line, err := read()
		answers <- answer{line, err}
	}()
	select {
	case got := <-answers:
		fmt.Fprintln(a.stderr)
		if got.err != nil {
			return "", fmt.Errorf("read the token: %w", got.err)
		}
		return strings.TrimSpace(got.line), nil
	case <-ctx.Done():
		fmt.Fprintln(a.stderr)
		return "", context.Cause(ctx)
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

// newLossy returns a command that asks before it deletes messages of a queue, or of a subscription
// if its arguments name one. verb begins the question.
func newLossy(a *app, use, short string, args cobra.PositionalArgs, verb string, do func(ctx context.Context, e posthaste.Store, args []string) error) *cobra.Command {
	var db database
	var yes confirmed
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error {
				if err := a.confirm(ctx, yes, db.place(), func() (string, error) {
					what, err := contents(ctx, e, args)
					return verb + " " + what, err
				}); err != nil {
					return err
				}
				return do(ctx, e, args)
			})
		},
	}
	db.flag(cmd)
	yes.flag(cmd)
	return cmd
}

// contents names a queue, or the subscription that the second name is, with the numbers of its
// messages.
func contents(ctx context.Context, e posthaste.Store, names []string) (string, error) {
	infos, err := e.Queues(ctx, names[0])
	if err != nil {
		return "", err
	}
	if len(infos) == 0 {
		return "", &posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue", Message: fmt.Sprintf("queue %q does not exist", names[0])}
	}
	what := "queue " + names[0]
	subscriptions := infos[0].Subscriptions
	if len(names) > 1 {
		what = fmt.Sprintf("subscription %s of queue %s", names[1], names[0])
		subscriptions = slices.DeleteFunc(subscriptions, func(s posthaste.SubscriptionInfo) bool { return s.Name != names[1] })
	}
	var waiting, running, dead int64
	for _, s := range subscriptions {
		waiting, running, dead = waiting+s.Depth, running+s.InFlight, dead+s.Dead
	}
	return fmt.Sprintf("%s, with %s waiting, %d in flight and %s", what, counted(waiting, "message"), running, counted(dead, "dead letter")), nil
}

// counted is a number with its noun.
func counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
