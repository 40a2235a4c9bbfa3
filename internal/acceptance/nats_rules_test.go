//go:build unix

package acceptance

import (
	"testing"

	"github.com/posthaste-mq/posthaste/internal/history"
)

// The rules of the scenarios find planted faults, and nothing in a history without faults.
func TestRulesOfNATS(t *testing.T) {
	t.Parallel()
	started := func(process string, attempt int) history.Event {
		return history.Event{Kind: history.Started, ID: 1, Attempt: attempt, Process: process, Token: "a"}
	}
	settled := func(kind history.Kind, process string, attempt int, outcome string) history.Event {
		return history.Event{Kind: kind, ID: 1, Attempt: attempt, Process: process, Note: outcome}
	}
	sent := history.Event{Kind: history.Sent, ID: 1, Token: "a"}
	entry := func(sequence int, schedule string) history.Event {
		return history.Event{Kind: delivered, ID: 1, Attempt: 2, Process: "p", Count: sequence, Key: schedule}
	}
	twice := func(entries ...history.Event) []history.Event {
		return append(entries, sent, started("p", 2), started("q", 2))
	}
	for name, c := range map[string]struct {
		events []history.Event
		rule   history.Rule
	}{
		"once":                      {[]history.Event{sent, started("p", 1), settled(confirmed, "p", 1, "done")}, ""},
		"again after a failure":     {[]history.Event{sent, started("p", 1), settled(confirmed, "p", 1, "retried"), started("q", 2)}, ""},
		"again after a late ack":    {[]history.Event{sent, started("p", 1), settled(late, "p", 1, "done"), started("q", 2)}, ""},
		"again after a death":       {[]history.Event{sent, started("p", 1), started("q", 2)}, ""},
		"again after a confirmed":   {[]history.Event{sent, started("p", 1), settled(confirmed, "p", 1, "done"), started("q", 2)}, unexplainedDouble},
		"confirmed, again later":    {[]history.Event{sent, started("p", 1), started("q", 2), settled(confirmed, "q", 2, "done"), started("p", 3)}, unexplainedDouble},
		"fired twice":               {append(twice(entry(7, "s"), entry(8, "s")), settled(confirmed, "p", 2, "done")), ""},
		"fired twice, one ran both": {[]history.Event{entry(7, "s"), entry(8, "s"), sent, started("p", 2), started("p", 2)}, history.Again},
		"fired by two schedules":    {twice(entry(7, "s"), entry(8, "r")), history.Again},
		"one entry twice":           {twice(entry(7, "s"), entry(7, "s")), history.Again},
		"stored twice":              {twice(entry(7, ""), entry(8, "")), history.Again},
		"fired twice, ran again":    {append(twice(entry(7, "s"), entry(8, "s")), started("p", 2)), history.Again},
		"not sent":                  {[]history.Event{started("p", 1)}, strayMessage},
		"refused":                   {[]history.Event{{Kind: refused, Token: "a"}, started("p", 1)}, strayMessage},
		"without an answer":         {[]history.Event{{Kind: unknown, Token: "a"}, started("p", 1)}, ""},
		"under two ids":             {[]history.Event{{Kind: unknown, Token: "a"}, started("p", 1), {Kind: history.Started, ID: 2, Attempt: 1, Token: "a"}}, strayMessage},
		"under another id":          {[]history.Event{{Kind: history.Sent, ID: 2, Token: "a"}, started("p", 1)}, strayMessage},
	} {
		faults := append(doubles(c.events), stray(c.events)...)
		if c.rule == "" && len(faults) > 0 || c.rule != "" && (len(faults) != 1 || faults[0].Rule != c.rule) {
			t.Errorf("%s: found %v, want %q", name, faults, c.rule)
		}
	}
}
