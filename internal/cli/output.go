package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/posthaste-mq/posthaste"
)

// table writes rows in columns. head holds the column names, separated by spaces.
func table(w io.Writer, head string, rows func(row func(cells ...any))) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, strings.ReplaceAll(head, " ", "\t"))
	rows(func(cells ...any) {
		for i, cell := range cells {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, oneLine(fmt.Sprint(cell), 80))
		}
		fmt.Fprintln(t)
	})
	t.Flush()
}

// fields writes pairs of names and values, one per line. It omits empty values.
func fields(w io.Writer, pairs ...any) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for i := 0; i+1 < len(pairs); i += 2 {
		if text := fmt.Sprint(pairs[i+1]); text != "" {
			fmt.Fprintf(t, "%v\t%s\n", pairs[i], oneLine(text, 4000))
		}
	}
	t.Flush()
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
func showAttempts(w io.Writer, attempts []posthaste.Attempt) {
	if len(attempts) == 0 {
		return
	}
	table(w, "ATTEMPT OUTCOME CLAIMED ENDED WORKER ERROR", func(row func(...any)) {
		for _, at := range attempts {
			outcome := string(at.Outcome)
			if outcome == "" {
				outcome = "running"
			}
			row(at.Attempt, outcome, clock(at.ClaimedAt), clock(at.EndedAt), at.Worker, at.Error)
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

// maxShownRejections is the number of rejected rows or jobs that an import prints.
const maxShownRejections = 10
