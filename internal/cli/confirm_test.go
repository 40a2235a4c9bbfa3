package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
)

// The commands that destroy something have the flag, and no others. The script confirm.txtar shows
// that each refuses without it.
func TestJB8_DestructiveCommandsHaveYes(t *testing.T) {
	t.Parallel()
	var got []string
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		if cmd.Flags().Lookup("yes") != nil {
			got = append(got, strings.TrimPrefix(cmd.CommandPath(), "posthaste "))
		}
		for _, c := range cmd.Commands() {
			walk(c)
		}
	}
	walk(newRoot(&app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}))
	slices.Sort(got)
	want := []string{"dead discard", "erase", "migrate down", "queue apply", "queue drop", "queue purge", "queue unsubscribe", "queue update", "up"}
	if !slices.Equal(got, want) {
		t.Errorf("the commands with --yes are %q, want %q", got, want)
	}
	var script []byte
	for _, name := range []string{"confirm", "apply", "queue"} {
		text, err := os.ReadFile("testdata/" + name + ".txtar")
		if err != nil {
			t.Fatal(err)
		}
		script = append(script, text...)
	}
	for _, command := range want {
		if !strings.Contains(string(script), "code 2 posthaste "+command) {
			t.Errorf("no script tries %s without --yes", command)
		}
	}
}

// On a terminal only a yes goes on.
func TestJB8_AnswersToAQuestion(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]posthaste.Code{"y\n": "", "Yes\n": "", " yes \n": "", "y": "", "n\n": posthaste.CodeRefused, "\n": posthaste.CodeRefused, "": posthaste.CodeRefused, "yesterday\n": posthaste.CodeRefused} {
		var stderr bytes.Buffer
		a := &app{stdin: strings.NewReader(answer), stderr: &stderr, terminal: func() bool { return true }}
		err := a.confirm(t.Context(), false, "", func() (string, error) { return "drop queue orders", nil })
		if posthaste.CodeOf(err) != want || (err == nil) != (want == "") {
			t.Errorf("the answer %q: %v, want %q", answer, err, want)
		}
		if !strings.Contains(stderr.String(), "This will drop queue orders. It cannot be undone.") {
			t.Errorf("the question is %q", &stderr)
		}
	}
}

func TestJB8_WithoutAQuestion(t *testing.T) {
	t.Parallel()
	var stderr bytes.Buffer
	a := &app{stdin: strings.NewReader("y\n"), stderr: &stderr}
	err := a.confirm(t.Context(), false, "", func() (string, error) { return "drop queue orders", nil })
	if posthaste.CodeOf(err) != posthaste.CodeInvalid || !strings.Contains(err.Error(), "drop queue orders") {
		t.Errorf("without a terminal: %v", err)
	}
	failed := func() (string, error) { return "", io.ErrUnexpectedEOF }
	if err := a.confirm(t.Context(), true, "", failed); err != nil {
		t.Errorf("with --yes: %v", err)
	}
	if err := a.confirm(t.Context(), false, "", failed); err != io.ErrUnexpectedEOF {
		t.Errorf("if the store fails: %v", err)
	}
	if stderr.Len() > 0 {
		t.Errorf("it prints %q", &stderr)
	}
}

// An interrupt ends the question.
func TestJB8_InterruptedQuestion(t *testing.T) {
	t.Parallel()
	in, end := io.Pipe() // never answers
	defer end.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := &app{stdin: in, stderr: io.Discard, terminal: func() bool { return true }}
	if err := a.confirm(ctx, false, "", func() (string, error) { return "drop queue orders", nil }); err != context.Canceled {
		t.Errorf("after an interrupt: %v", err)
	}
}
