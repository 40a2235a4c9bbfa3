package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// entry holds the cells of all rounds for a product in one setting.
type entry struct {
	product, version, row string
	cells                 []Cell
}

func (e *entry) name() string { return strings.TrimSpace(e.product + " " + e.row) }

// mean returns the mean of a figure over the rounds.
func (e *entry) mean(of func(*Cell) *float64) *float64 {
	values := make([]*float64, len(e.cells))
	for i := range e.cells {
		values[i] = of(&e.cells[i])
	}
	return mean(values)
}

func (e *entry) remarks() string {
	var all []string
	for _, c := range e.cells {
		if s := cmp.Or(c.Error, c.Remark); s != "" {
			all = append(all, fmt.Sprintf("round %d: %s", c.Round, strings.ReplaceAll(s, "\n", "; ")))
		}
	}
	return strings.Join(all, "; ")
}

// column is a figure of a table. If over is set, each entry's figure is divided by that of the
// entry named over.
type column struct {
	title  string
	format string
	of     func(*Cell) *float64
	over   string
	minus  bool // subtract instead of dividing
}

func ofSent(c *Cell) *float64    { return c.SentPerSecond }
func ofHandled(c *Cell) *float64 { return c.HandledPerSecond }
func ofServer(c *Cell) *float64  { return c.Server }
func ofClient(c *Cell) *float64  { return c.Client }
func ofP50(c *Cell) *float64     { return c.P50 }
func ofP99(c *Cell) *float64     { return c.P99 }

// ofBoth returns the CPU time of server and clients together.
func ofBoth(c *Cell) *float64 {
	if c.Server == nil || c.Client == nil {
		return nil
	}
	return known(*c.Server + *c.Client)
}

// costs returns the last columns of every table with messages.
func costs(reference string) []column {
	return []column{
		{"server µs", "%.1f", ofServer, "", false},
		{"server ×", "%.2f", ofServer, reference, false},
		{"client µs", "%.1f", ofClient, "", false},
		{"both ×", "%.2f", ofBoth, reference, false},
		{"others %", "%.0f", func(c *Cell) *float64 { return c.Others }, "", false},
	}
}

// columns returns the columns of a scenario's table. × is relative to Posthaste.
func columns(scenario string) []column {
	rates := []column{
		{"sent/s", "%.0f", ofSent, "", false},
		{"handled/s", "%.0f", ofHandled, "", false},
	}
	switch scenario {
	case flow:
		return append(append(rates, column{"rate ×", "%.2f", ofHandled, posthasteName, false}), costs(posthasteName)...)
	case single:
		reference := posthasteName + " " + own
		return append(append(rates, column{"rate ×", "%.2f", ofSent, reference, false}), costs(reference)...)
	case transactional:
		return append(append(rates,
			column{"rate ×", "%.2f", ofSent, posthasteName, false},
			column{"of 1 insert", "%.2f", ofSent, "plain " + plainInsert, false},
			column{"of 2 inserts", "%.2f", ofSent, "plain " + twoInserts, false},
			column{"server µs over 1 insert", "%.1f", ofServer, "plain " + plainInsert, true}), costs(posthasteName)...)
	case latency:
		return append([]column{
			{"p50 ms", "%.1f", ofP50, "", false},
			{"p50 ×", "%.2f", ofP50, posthasteName, false},
			{"p99 ms", "%.1f", ofP99, "", false},
			{"max ms", "%.1f", func(c *Cell) *float64 { return c.Max }, "", false},
		}, costs(posthasteName)...)
	}
	return []column{
		{"statements/s", "%.1f", func(c *Cell) *float64 { return c.Statements }, "", false},
		{"transactions/s", "%.1f", func(c *Cell) *float64 { return c.Transactions }, "", false},
		{"server %", "%.2f", func(c *Cell) *float64 { return c.IdleServer }, "", false},
		{"client %", "%.2f", func(c *Cell) *float64 { return c.IdleClient }, "", false},
		{"others %", "%.0f", func(c *Cell) *float64 { return c.Others }, "", false},
	}
}

// text returns the figure of an entry.
func (k column) text(e *entry, all map[string]*entry) string {
	v := e.mean(k.of)
	if v != nil && k.over != "" {
		v = k.against(*v, all[k.over])
	}
	if v == nil {
		return "–"
	}
	return fmt.Sprintf(k.format, *v)
}

func (k column) against(v float64, reference *entry) *float64 {
	if reference == nil {
		return nil
	}
	r := reference.mean(k.of)
	switch {
	case r == nil:
		return nil
	case k.minus:
		return known(v - *r)
	}
	return per(v, *r)
}

// entries returns the entries of a scenario in the order of the first round.
func (r *Result) entries(scenario string) (all []*entry, byName map[string]*entry) {
	byName = map[string]*entry{}
	for _, c := range r.Cells {
		if c.Scenario != scenario {
			continue
		}
		e := &entry{product: c.Product, version: c.Version, row: c.Row}
		if had := byName[e.name()]; had != nil {
			e = had
		} else {
			byName[e.name()] = e
			all = append(all, e)
		}
		e.cells = append(e.cells, c)
	}
	return all, byName
}

// busy is the CPU share of other programs, in percent, from which figures are distorted.
const busy = 5

// worst returns the largest CPU share of other programs.
func worst(all []*entry) (most float64) {
	for _, e := range all {
		for _, c := range e.cells {
			if c.Others != nil {
				most = max(most, *c.Others)
			}
		}
	}
	return most
}

// printTables prints a table for each scenario.
func printTables(w io.Writer, r *Result) error {
	fmt.Fprintf(w, "PostgreSQL %s, %d cores, %g s a cell, %d rounds (means); × is against posthaste\n",
		r.Machine.PostgresVersion, r.Machine.Cores, r.DurationSeconds, r.Rounds)
	for _, name := range slices.Sorted(maps.Keys(r.Missing)) {
		fmt.Fprintf(w, "%s has no figures: %s\n", name, r.Missing[name])
	}
	for _, scenario := range scenarios {
		all, byName := r.entries(scenario)
		if len(all) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s\n", scenario)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprint(t, "\t")
		for _, k := range columns(scenario) {
			fmt.Fprint(t, k.title, "\t")
		}
		fmt.Fprintln(t)
		for _, e := range all {
			fmt.Fprint(t, e.name()+" "+e.version, "\t")
			for _, k := range columns(scenario) {
				fmt.Fprint(t, k.text(e, byName), "\t")
			}
			fmt.Fprintln(t)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if v := worst(all); v > busy {
			fmt.Fprintf(w, "  Others used up to %.0f %% of the processors: figures are too low, and move from run to run.\n", v)
		}
		for _, e := range all {
			if s := e.remarks(); s != "" {
				fmt.Fprintf(w, "  %s: %s\n", e.name(), s)
			}
		}
	}
	return nil
}

// brief returns a cell as one line of progress.
func (c *Cell) brief() string {
	words := []string{c.Scenario, strings.TrimSpace(c.Product + " " + c.Row)}
	for _, k := range columns(c.Scenario) {
		if v := k.of(c); v != nil && k.over == "" {
			words = append(words, k.title+" "+fmt.Sprintf(k.format, *v))
		}
	}
	if s := cmp.Or(c.Error, c.Remark); s != "" {
		words = append(words, s)
	}
	return strings.Join(words, ", ")
}
