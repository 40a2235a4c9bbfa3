package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/rivo/uniseg"

	"github.com/posthaste-mq/posthaste"
)

// screen is where a command writes its text.
type screen struct {
	io.Writer
	// now is the time to which ages are relative.
	now time.Time
	// color says that the reader understands colors.
	color bool
}

// style is a color or a weight, as the parameter of an ANSI escape sequence.
type style string

// The styles of texts.
const (
	bold   style = "1"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
)

// styled is a text with a style.
type styled struct {
	text  string
	style style
}

func (s styled) String() string { return s.text }

// paint returns text in a style if the screen has colors.
func (w *screen) paint(text string, s style) string {
	if !w.color || s == "" || text == "" {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// cell is the value of a table or a field as one line of at most n characters.
func (w *screen) cell(value any, n int, when func(time.Time) string) (text string, s style) {
	switch value := value.(type) {
	case time.Time:
		return when(value), ""
	case styled:
		return oneLine(value.text, n), value.style
	}
	return oneLine(fmt.Sprint(value), n), ""
}

// table writes rows in columns. head holds the column names, separated by spaces. A cell that
// is a time is shown as its age.
func table(w *screen, head string, rows func(row func(cells ...any))) {
	var lines [][]styled
	var widths []int
	add := func(line []styled) {
		lines = append(lines, line)
		for i, cell := range line {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], uniseg.StringWidth(cell.text))
		}
	}
	var names []styled
	for name := range strings.SplitSeq(head, " ") {
		names = append(names, styled{name, bold})
	}
	add(names)
	rows(func(cells ...any) {
		line := make([]styled, len(cells))
		for i, value := range cells {
			text, style := w.cell(value, 80, w.ago)
			line[i] = styled{text, style}
		}
		add(line)
	})
	for _, line := range lines {
		w.line(line, widths)
	}
}

// line writes cells in columns of the given widths.
func (w *screen) line(cells []styled, widths []int) {
	var out strings.Builder
	gap := 0
	for i, cell := range cells {
		if cell.text != "" {
			out.WriteString(strings.Repeat(" ", gap) + w.paint(cell.text, cell.style))
			gap = 0
		}
		gap += widths[i] - uniseg.StringWidth(cell.text) + 2
	}
	fmt.Fprintln(w, out.String())
}

// fields writes pairs of names and values, one per line. It omits empty values. A time is shown
// with its age.
func fields(w *screen, pairs ...any) {
	width := 0
	var lines [][]styled
	for i := 0; i+1 < len(pairs); i += 2 {
		text, style := w.cell(pairs[i+1], 4000, func(t time.Time) string {
			if t.IsZero() {
				return ""
			}
			return clock(t) + " (" + w.ago(t) + ")"
		})
		if text != "" {
			name := fmt.Sprint(pairs[i])
			width = max(width, uniseg.StringWidth(name))
			lines = append(lines, []styled{{name, ""}, {text, style}})
		}
	}
	for _, line := range lines {
		w.line(line, []int{width, 0})
	}
}

// oneLine replaces control characters, since stored text is not trusted on a terminal, and
// truncates text to n characters.
func oneLine(text string, n int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	if runes := []rune(text); len(runes) > n {
		return string(runes[:n-1]) + "…"
	}
	return text
}

// clock formats a time in UTC. The zero time is empty.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// ago formats a time relative to now, such as "3m ago" or "in 2h". The zero time is empty.
func (w *screen) ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	d := w.now.Sub(t)
	text, ahead := "", d <= -time.Second
	switch d = d.Abs(); {
	case d < time.Minute:
		text = fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		text = fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		text = fmt.Sprintf("%dh", d/time.Hour)
	case d < 2*365*24*time.Hour:
		text = fmt.Sprintf("%dd", d/(24*time.Hour))
	default:
		text = fmt.Sprintf("%dy", d/(365*24*time.Hour))
	}
	if ahead {
		return "in " + text
	}
	return text + " ago"
}

// age formats a duration, rounded to seconds if it is at least one second.
func age(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// failures is a number of failures, which is red unless it is 0.
func failures(n int64) styled {
	text := fmt.Sprint(n)
	if n == 0 {
		return styled{text, ""}
	}
	return styled{text, red}
}

// stateStyle returns the style of a state.
func stateStyle(s posthaste.State) style {
	switch s {
	case posthaste.StateDead:
		return red
	case posthaste.StateRetrying, posthaste.StateExpired:
		return yellow
	case posthaste.StateDone:
		return green
	}
	return ""
}

// writePayload writes a payload after an empty line, or that it is hidden.
func writePayload(w *screen, payload []byte, hidden bool) {
	text := payloadText(payload)
	if hidden {
		text = "(the payload, headers and terms are hidden: the token lacks the scope read:payload)"
	}
	fmt.Fprintf(w, "\n%s\n", text)
}

// payloadText returns a payload that is text, or else its size.
func payloadText(payload []byte) string {
	text := string(payload)
	if !strings.ContainsFunc(text, func(r rune) bool {
		return r == unicode.ReplacementChar || unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r'
	}) {
		return text
	}
	return fmt.Sprintf("(%d bytes; use --json to print them)", len(payload))
}

// showAttempts writes a table of attempts.
func showAttempts(w *screen, attempts []posthaste.Attempt) {
	if len(attempts) == 0 {
		return
	}
	table(w, "ATTEMPT OUTCOME CLAIMED ENDED WORKER ERROR", func(row func(...any)) {
		for _, at := range attempts {
			outcome := string(at.Outcome)
			if outcome == "" {
				outcome = "running"
			}
			row(at.Attempt, outcome, at.ClaimedAt, at.EndedAt, at.Worker, at.Error)
		}
	})
	for _, at := range attempts {
		if progress := progressText(at); progress != "" || at.Checkpoint != nil || at.Receipt != nil || at.Log != "" {
			fmt.Fprintf(w, "\nattempt %d\n", at.Attempt)
			fields(w, "progress", progress, "checkpoint", string(at.Checkpoint), "result", string(at.Receipt))
			if at.Log != "" {
				fmt.Fprintln(w, "log")
				for line := range strings.Lines(at.Log) {
					fmt.Fprintf(w, "  %s\n", oneLine(strings.TrimSuffix(line, "\n"), 4000))
				}
			}
		}
	}
}

// progressText returns an attempt's progress, or "".
func progressText(at posthaste.Attempt) string {
	if at.Progress == 0 && at.ProgressText == "" {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("%.0f %% %s", 100*at.Progress, at.ProgressText))
}

// headerText formats headers as --header expects them.
func headerText(headers map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		all = append(all, name+"="+headers[name])
	}
	return strings.Join(all, ", ")
}
