package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	goredis "github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
)

// app holds the streams, the logger and the global flags that all commands share.
type app struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
	// terminal says in tests whether the streams are a terminal. It is nil otherwise.
	terminal func() bool
	signal   *signals
	log      *slog.Logger
	// begun is set after arguments and flags are parsed. An error before that is a usage
	// error.
	begun bool

	output    format // empty unless --output is given
	json      bool
	printed   bool          // by print
	frame     *bytes.Buffer // what watch is about to draw, or nil
	logLevel  string
	logFormat string
}

// begin runs before each command, after its arguments and flags are parsed.
func (a *app) begin(cmd *cobra.Command, _ []string) error {
	if err := cmp.Or(bindEnvironment(cmd.Flags()), refuseEmpty(cmd.Flags()), a.chooseFormat(cmd.Flags())); err != nil {
		return err
	}
	log, err := newLogger(a.stderr, a.logLevel, a.logFormat)
	if err != nil {
		return err
	}
	a.log, a.begun = log, true
	if err := checkStore(cmd); err != nil {
		return err
	}
	goredis.SetLogger(redisLog{log}) // the default logger writes to standard error
	return nil
}

// redisLog logs messages of the Redis client at debug level.
type redisLog struct{ *slog.Logger }

// Printf implements the logger interface of the Redis client.
func (l redisLog) Printf(ctx context.Context, format string, args ...any) {
	l.DebugContext(ctx, fmt.Sprintf(format, args...))
}

func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	options := &slog.HandlerOptions{}
	switch strings.ToLower(level) {
	case "debug":
		options.Level = slog.LevelDebug
	case "info":
		options.Level = slog.LevelInfo
	case "warn", "warning":
		options.Level = slog.LevelWarn
	case "error":
		options.Level = slog.LevelError
	default:
		return nil, posthaste.Invalidf("log-level", "--log-level must be debug, info, warn or error, got %q", level)
	}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, posthaste.Invalidf("log-format", "--log-format must be text or json, got %q", format)
}

// finish prints err, unless it is nil, and returns the exit code.
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
	if f := a.format(); f != asTable {
		encodeError(a.stderr, f, err)
		return code
	}
	printError(a.stderr, err)
	if code == exitUsage && posthaste.CodeOf(err) == "" {
		fmt.Fprintf(a.stderr, "  usage: %s --help\n", cmd.CommandPath())
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

// quietly returns a logger that discards everything, unless the log level is debug. It
// is for commands that print the same information.
func (a *app) quietly() *slog.Logger {
	if a.log.Enabled(context.Background(), slog.LevelDebug) {
		return a.log
	}
	return slog.New(slog.DiscardHandler)
}
