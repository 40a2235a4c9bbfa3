package cli

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
)

// program is one run of the program in this process.
type program struct {
	app          *app
	root         *cobra.Command
	store        posthaste.Store // nil for the one that flags select
	stdout, errs bytes.Buffer
}

func newProgram(store posthaste.Store) *program {
	p := &program{store: store}
	p.app = &app{stdin: strings.NewReader(""), stdout: &p.stdout, stderr: &p.errs}
	p.root = newRoot(p.app)
	return p
}

func (p *program) run(ctx context.Context, args ...string) (stdout, stderr string, code int) {
	if p.store != nil {
		ctx = context.WithValue(ctx, withStore{}, p.store)
	}
	p.root.SetArgs(args)
	code = p.app.finish(p.root.ExecuteContextC(ctx))
	return p.stdout.String(), p.errs.String(), code
}

// session runs commands on one store, each as a program of its own.
type session struct {
	*testing.T
	store posthaste.Store
	stdin string
	out   string // of the last command
}

// ends runs a command that must end with code, and checks that its output, with its errors, has
// each of the texts, which are regular expressions.
func (s *session) ends(code int, command []string, texts ...string) {
	s.Helper()
	p := newProgram(s.store)
	p.app.stdin = strings.NewReader(s.stdin)
	stdout, stderr, got := p.run(s.Context(), command...)
	s.out, s.stdin = stdout, ""
	if got != code {
		s.Fatalf("%q ends with %d, want %d: %s%s", command, got, code, stdout, stderr)
	}
	for _, text := range texts {
		if !regexp.MustCompile("(?m)" + text).MatchString(stdout + stderr) {
			s.Errorf("%q prints %q and %q, want %q", command, stdout, stderr, text)
		}
	}
}

// does runs a command, given as words, that must succeed.
func (s *session) does(command string, texts ...string) {
	s.Helper()
	s.ends(0, strings.Fields(command), texts...)
}

// refuses runs a command, given as words, that must be a usage error.
func (s *session) refuses(command string, texts ...string) {
	s.Helper()
	s.ends(exitUsage, strings.Fields(command), texts...)
}

// found returns the text of the parentheses in the output of the last command.
func (s *session) found(pattern string) string {
	s.Helper()
	match := regexp.MustCompile(pattern).FindStringSubmatch(s.out)
	if match == nil {
		s.Fatalf("%q does not match %s", s.out, pattern)
	}
	return match[1]
}
