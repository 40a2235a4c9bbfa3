package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// The exit codes.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitDifferent   = 4 // of a command that compares
)

// exitError sets the exit code of an error. If err is nil, nothing is printed.
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

// misuse makes err a usage error, whatever its code.
func misuse(err error) error { return &exitError{exitUsage, err} }

// each returns the errors that err joins.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

func printError(w io.Writer, err error) {
	for _, err := range each(err) {
		var e *posthaste.Error
		if !errors.As(err, &e) {
			fmt.Fprintln(w, "posthaste: "+err.Error())
			continue
		}
		fmt.Fprintln(w, "posthaste: "+e.Message)
		if hint := wire.Hint(e, wire.CLI); hint != "" {
			fmt.Fprintln(w, "  "+hint)
		}
	}
}

// encodeError writes {"error": {…}} in a format for programs.
func encodeError(w io.Writer, f format, err error) {
	type problem struct {
		Code    posthaste.Code `json:"code,omitempty"`
		Field   string         `json:"field,omitempty"`
		Message string         `json:"message"`
		Hint    string         `json:"hint,omitempty"`
	}
	var messages []string
	var t problem
	for i, err := range each(err) {
		var e *posthaste.Error
		if !errors.As(err, &e) {
			messages = append(messages, err.Error())
			continue
		}
		if i == 0 {
			t = problem{Code: e.Code, Field: e.Field, Hint: wire.Hint(e, wire.CLI)}
		}
		messages = append(messages, e.Message)
	}
	t.Message = strings.Join(messages, "; ")
	_ = encode(w, f, map[string]problem{"error": t})
}
