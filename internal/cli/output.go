package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/posthaste-mq/posthaste"
)

// print writes value as one line of JSON, or calls text for people.
func (a *app) print(value any, text func(w io.Writer)) error {
	var out bytes.Buffer
	if a.json {
		encoder := json.NewEncoder(&out)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(value); err != nil {
			return fmt.Errorf("the answer cannot be shown as JSON: %w", err)
		}
	} else {
		text(&out)
	}
	if _, err := a.stdout.Write(out.Bytes()); err != nil {
		return fmt.Errorf("the answer cannot be written: %w", err)
	}
	return nil
}

// table writes rows under a head, in columns.
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

// fields writes names and values below each other; empty values are left out.
func fields(w io.Writer, pairs ...any) {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for i := 0; i+1 < len(pairs); i += 2 {
		if text := fmt.Sprint(pairs[i+1]); text != "" {
			fmt.Fprintf(t, "%v\t%s\n", pairs[i], oneLine(text, 4000))
		}
	}
	t.Flush()
}

// oneLine makes text safe for a terminal and cuts it to n characters: what is
// stored was written by others.
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

// clock shows a time, or nothing for none.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// age shows a duration as people say it.
func age(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// payloadText shows a payload: text as it is, all else by its size.
func payloadText(payload []byte) string {
	text := string(payload)
	if !strings.ContainsFunc(text, func(r rune) bool {
		return r == unicode.ReplacementChar || unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r'
	}) {
		return text
	}
	return fmt.Sprintf("(%d bytes, which --json shows)", len(payload))
}

// showAttempts writes the story of a message.
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
}
