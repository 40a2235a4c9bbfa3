package chaos

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Verdict is the checker's result.
type Verdict struct {
	Messages     int // of all intents
	Acknowledged int // sent, and acknowledged to the sender
	NotSent      int // rejected or rolled back
	Unsure       int // the sender got no answer
	Known        int // of the acknowledged ones, sent again under a dedupe key
	Ticks        int // of the schedule
	Concurrent   int // maximum for the queue with limits
	Handled      int
	Lost         int
	LostOnce     int // of the at-most-once queue
	Twice        int // handled more than once
	Rescued      int // in flight when their worker was killed, and run again
	WorstRescue  time.Duration
	WorstFlow    time.Duration // until messages flowed after the database was back
	WorstGap     time.Duration // longest time without a handled message while senders ran
	Violations   []Violation

	memory  []roleMemory
	account *account
}

// Report writes the findings as text.
func (v *Verdict) Report(to io.Writer) {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FAULT\tTIMES\tSTRUCK\tIN FLIGHT")
	times, struck, hit := map[Fault]int{}, map[Fault]int{}, map[Fault]int{}
	for _, f := range v.account.faults {
		times[f.kind]++
		struck[f.kind] += f.struck
		hit[f.kind] += f.hit
	}
	for _, kind := range AllFaults() {
		if times[kind] > 0 {
			fmt.Fprintf(table, "%s\t%d\t%d\t%d\n", kind, times[kind], struck[kind], hit[kind])
		}
	}
	fmt.Fprintln(table, "\t\t\t")
	line := func(what string, n any) { fmt.Fprintf(table, "%s\t%v\t\t\n", what, n) }
	line("messages", v.Messages)
	line("acknowledged", v.Acknowledged)
	line("refused or rolled back", v.NotSent)
	line("without an answer", v.Unsure)
	line("handled", v.Handled)
	line("sent again under a known key", v.Known)
	line("ticks of the schedule", v.Ticks)
	line("at the same time, of the queue with limits", v.Concurrent)
	line("lost", v.Lost)
	line("lost, of at most once", v.LostOnce)
	line("handled twice", v.Twice)
	line("rescued from killed workers", v.Rescued)
	line("worst rescue", v.WorstRescue.Round(time.Millisecond))
	line("worst until it flows again", v.WorstFlow.Round(time.Millisecond))
	line("worst gap", v.WorstGap.Round(time.Millisecond))
	if v.account.ring { // only PostgreSQL has one
		line("turns of the ring", v.account.turns)
	}
	var stalled time.Duration
	for _, s := range v.account.stalls {
		stalled += s.length()
	}
	line("the machine stood still", stalled.Round(time.Millisecond))
	_ = table.Flush()
	v.reportMemory(to)
	v.reportLeftOut(to)
	counts := map[Rule]int{}
	for _, broken := range v.Violations {
		counts[broken.Rule]++
		if n := counts[broken.Rule]; n <= shown {
			fmt.Fprintf(to, "BROKEN %s\n", broken.Error())
		}
	}
	for rule, n := range counts {
		if n > shown {
			fmt.Fprintf(to, "BROKEN %s: %d more\n", rule, n-shown)
		}
	}
}

// reportMemory reports the memory of the processes, by role.
func (v *Verdict) reportMemory(to io.Writer) {
	if len(v.memory) == 0 {
		return
	}
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "\nMEMORY\tFIRST QUARTER\tLAST QUARTER\tWORST")
	for _, m := range v.memory {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", m.role, megabytes(m.first), megabytes(m.last), megabytes(m.worst))
	}
	_ = table.Flush()
	fmt.Fprintln(to)
}

// megabytes formats a size.
func megabytes(n int) string { return fmt.Sprintf("%.1f MB", float64(n)/(1<<20)) }

// reportLeftOut lists the kinds of faults that were left out, grouped by reason.
func (v *Verdict) reportLeftOut(to io.Writer) {
	var reasons []string
	kinds := map[string][]string{}
	for _, e := range v.account.leftOut {
		if kinds[e.Key] == nil {
			reasons = append(reasons, e.Key)
		}
		kinds[e.Key] = append(kinds[e.Key], e.Note)
	}
	for _, why := range reasons {
		fmt.Fprintf(to, "left out (%s): %s\n", why, strings.Join(kinds[why], ", "))
	}
}

// shown is how many violations of a rule are listed.
const shown = 5

// Broke reports whether a rule was broken.
func (v *Verdict) Broke(rule Rule) bool {
	return slices.ContainsFunc(v.Violations, func(b Violation) bool { return b.Rule == rule })
}
