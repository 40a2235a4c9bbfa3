package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// The exit codes.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
)

// exitError carries an exit code past what the error itself says. A nil err
// means that everything was said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// misuse makes err one of wrong use, where its code does not say so.
func misuse(err error) error { return &exitError{exitUsage, err} }

// finish tells the error, if there is one, and returns the exit code.
func (a *app) finish(cmd *cobra.Command, err error) int {
	if err == nil {
		return 0
	}
	code := a.exitCode(err)
	var wrapped *exitError
	if errors.As(err, &wrapped) && wrapped.err == nil {
		return code
	}
	if errors.Is(err, context.Canceled) && a.signal.code() != 0 {
		fmt.Fprintln(a.stderr, "posthaste: interrupted")
		return a.signal.code()
	}
	if a.json {
		a.tellJSON(err)
		return code
	}
	a.tell(err)
	if code == exitUsage && posthaste.CodeOf(err) == "" {
		fmt.Fprintf(a.stderr, "  %s --help tells how it is used\n", cmd.CommandPath())
	}
	return code
}

func (a *app) exitCode(err error) int {
	var e *exitError
	if errors.As(err, &e) {
		return e.code
	}
	switch posthaste.CodeOf(err) {
	case posthaste.CodeUnavailable:
		return exitUnreachable
	case posthaste.CodeInvalid, posthaste.CodeTooLarge, posthaste.CodeUnsupported:
		return exitUsage
	}
	if !a.begun {
		return exitUsage
	}
	return exitFailed
}

// each lists the errors that were joined into err.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

func (a *app) tell(err error) {
	for _, err := range each(err) {
		var e *posthaste.Error
		if !errors.As(err, &e) {
			fmt.Fprintln(a.stderr, "posthaste: "+err.Error())
			continue
		}
		fmt.Fprintln(a.stderr, "posthaste: "+e.Message)
		if hint := wire.Hint(e, wire.CLI); hint != "" {
			fmt.Fprintln(a.stderr, "  "+hint)
		}
	}
}

// tellJSON writes {"error": {…}} on one line of the standard error.
func (a *app) tellJSON(err error) {
	type told struct {
		Code    posthaste.Code `json:"code,omitempty"`
		Field   string         `json:"field,omitempty"`
		Message string         `json:"message"`
		Hint    string         `json:"hint,omitempty"`
	}
	var messages []string
	var t told
	for i, err := range each(err) {
		var e *posthaste.Error
		if !errors.As(err, &e) {
			messages = append(messages, err.Error())
			continue
		}
		if i == 0 {
			t = told{Code: e.Code, Field: e.Field, Hint: wire.Hint(e, wire.CLI)}
		}
		messages = append(messages, e.Message)
	}
	t.Message = strings.Join(messages, "; ")
	encoder := json.NewEncoder(a.stderr)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(map[string]told{"error": t})
}
