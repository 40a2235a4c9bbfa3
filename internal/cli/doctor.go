package cli

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func newDoctor(a *app) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check the store for problems",
		Long: `Check the store for present and imminent problems, and print how to fix them: a
database that is a copy; settings that lose messages; missing privileges;
long-running transactions, prepared transactions and replication slots; a ring
(the table segments that hold messages) that is nearly full; workers with late
heartbeats, and lost workers; subscriptions that lag; schedules that do not tick;
invalid indexes; clock differences; an unsuitable pooler; a schema of another
version.

Findings of one kind about several queues are printed as one, and listed one by one
as JSON. The exit code is 1 if there is a fault, which needs action now, and 0 if there are
only warnings.`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error { return runDoctor(ctx, a, e) })
		},
	}
	db.flag(cmd)
	return cmd
}

func runDoctor(ctx context.Context, a *app, e posthaste.Store) error {
	found, err := e.Doctor(ctx)
	if err != nil {
		return err
	}
	shown := wire.NewFindings(found, wire.CLI)
	groups := alikeFindings(shown)
	if err := a.print(listed{data: shown}, func(w *screen) {
		if len(groups) == 0 {
			fmt.Fprintln(w, "no problems found")
		}
		for _, group := range groups {
			writeFindings(w, group)
		}
	}); err != nil {
		return err
	}
	faults := int64(0)
	for _, group := range groups {
		if group[0].Fault {
			faults++
		}
	}
	if faults > 0 {
		return &posthaste.Error{Code: posthaste.CodeRefused, Message: "doctor found " + counted(faults, "fault"), Hint: "see the findings above"}
	}
	return nil
}

// varying matches what differs between findings of one kind: names in quotes, numbers, times.
var varying = regexp.MustCompile(`"[^"]*"|'[^']*'|[0-9][0-9.:hms-]*|days?|mons?|years?`)

// alikeFindings groups findings that differ only in their queue, subscription, numbers and times.
// The groups are in the order of their first findings.
func alikeFindings(all []wire.Finding) (groups [][]wire.Finding) {
	type kind struct {
		check, message string
		fault          bool
	}
	index := map[kind]int{}
	for _, f := range all {
		k := kind{f.Check, strings.Join(strings.Fields(varying.ReplaceAllString(f.Message, "")), " "), f.Fault}
		at, known := index[k]
		if !known || f.Queue == "" {
			index[k] = len(groups)
			groups = append(groups, []wire.Finding{f})
			continue
		}
		groups[at] = append(groups[at], f)
	}
	return groups
}

// maxNamed is the number of queues that a finding about several names.
const maxNamed = 10

// writeFindings writes findings of one kind as one.
func writeFindings(w *screen, group []wire.Finding) {
	f, level := group[0], styled{"warning", yellow}
	if f.Fault {
		level = styled{"fault", red}
	}
	of := ""
	if len(group) > 1 {
		of = placesOf(group) + "; first: "
	}
	fmt.Fprintf(w, "%s (%s): %s%s\n", w.paint(level.text, level.style), f.Check, of, oneLine(f.Message, 4000))
	if len(group) > 1 {
		var names []string
		for _, other := range group[1:min(len(group), 1+maxNamed)] {
			name := other.Queue
			if other.Subscription != "" && other.Subscription != posthaste.DefaultSubscription {
				name += "/" + other.Subscription
			}
			names = append(names, name)
		}
		also := strings.Join(slices.Compact(names), ", ")
		if more := len(group) - 1 - maxNamed; more > 0 {
			also += fmt.Sprintf(" and %d more", more)
		}
		fmt.Fprintln(w, "  also in "+also)
	}
	if f.Hint != "" {
		fmt.Fprintln(w, "  "+f.Hint)
	}
}

// placesOf counts the queues of findings, or what else there is more of.
func placesOf(group []wire.Finding) string {
	queues, subscriptions := map[string]bool{}, map[string]bool{}
	for _, f := range group {
		queues[f.Queue], subscriptions[f.Queue+"/"+f.Subscription] = true, true
	}
	switch n := len(group); n {
	case len(queues):
		return counted(int64(n), "queue")
	case len(subscriptions):
		return counted(int64(n), "subscription")
	default:
		return fmt.Sprintf("%d cases in %s", n, counted(int64(len(queues)), "queue"))
	}
}
