package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/posthaste-mq/posthaste"
)

// watching holds the flags of commands that can show something again and again.
type watching struct {
	on       bool
	interval time.Duration
}

// shownFlag adds the flags of a command that shows something of the store.
func (d *database) shownFlag(cmd *cobra.Command) {
	d.flag(cmd)
	d.watch.interval = 2 * time.Second
	cmd.Flags().BoolVar(&d.watch.on, "watch", false, "show it again every --interval until interrupted; a terminal is redrawn, other outputs get one document after the other")
	cmd.Flags().Var(duration{&d.watch.interval}, "interval", "time between two documents of --watch")
}

// show runs f with an engine once, or with --watch until the program is interrupted.
func (d *database) show(cmd *cobra.Command, a *app, f func(ctx context.Context, e posthaste.Store) error) error {
	switch {
	case d.watch.interval < 100*time.Millisecond:
		return posthaste.Invalidf("interval", "--interval must be at least 100ms, got %s", d.watch.interval)
	case !d.watch.on && typed(cmd.Flags(), "interval"):
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "interval", Message: "--interval has no effect without --watch", Hint: "add --watch"}
	}
	return d.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error {
		if !d.watch.on {
			return f(ctx, e)
		}
		title := fmt.Sprintf("every %s: %s", d.watch.interval, strings.Join(append([]string{cmd.CommandPath()}, cmd.Flags().Args()...), " "))
		return a.watch(ctx, d.watch.interval, title, func() error { return f(ctx, e) })
	})
}

// watch calls show until ctx ends, which is no error. If the store becomes unavailable, it says
// so and goes on. Any other error ends it.
func (a *app) watch(ctx context.Context, interval time.Duration, title string, show func() error) error {
	redraw := a.onTerminal() && (a.format() == asTable || a.format() == asYAML)
	for begun := false; ; begun = true {
		if redraw {
			a.frame, a.printed = &bytes.Buffer{}, false
			fmt.Fprintf(a.frame, "%s    %s\n\n", title, clock(time.Now()))
		} else if begun && a.format() == asTable {
			fmt.Fprintln(a.stdout)
		}
		err := show()
		if err != nil && begun && posthaste.CodeOf(err) == posthaste.CodeUnavailable {
			_, notices := a.streams()
			printError(notices, err)
			err = nil
		}
		if frame := a.frame; frame != nil {
			a.frame = nil
			if err == nil {
				err = draw(a.stdout, frame.String(), !begun)
			}
		}
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return nil
		}
	}
}

// streams returns where results and notices go: to standard output and error, or to the frame
// that watch is about to draw.
func (a *app) streams() (results, notices io.Writer) {
	if a.frame != nil {
		return a.frame, a.frame
	}
	return a.stdout, a.stderr
}

// Escape sequences of terminals.
const (
	clearScreen = "\x1b[2J"
	toTop       = "\x1b[H"
	clearLine   = "\x1b[K" // to its end
	clearBelow  = "\x1b[J"
	wrapOff     = "\x1b[?7l"
	wrapOn      = "\x1b[?7h"
)

// draw replaces the content of a terminal by text. Lines that do not fit are cut.
func draw(w io.Writer, text string, first bool) error {
	height := 0
	if f, ok := w.(*os.File); ok {
		_, height, _ = term.GetSize(int(f.Fd()))
	}
	var out strings.Builder
	if first {
		out.WriteString(clearScreen)
	}
	out.WriteString(toTop + wrapOff)
	for _, line := range fitting(strings.Split(strings.TrimSuffix(text, "\n"), "\n"), height) {
		out.WriteString(line + clearLine + "\n")
	}
	out.WriteString(clearBelow + wrapOn)
	if _, err := io.WriteString(w, out.String()); err != nil {
		return fmt.Errorf("write the output: %w", err)
	}
	return nil
}

// fitting returns the lines that fit on a terminal with its cursor on the last line, and how many
// do not. A height of 0 is unknown.
func fitting(lines []string, height int) []string {
	if height < 3 || len(lines) < height {
		return lines
	}
	rest := len(lines) - (height - 2)
	return append(lines[:height-2:height-2], fmt.Sprintf("… %d more lines", rest))
}
