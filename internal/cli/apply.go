package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
)

func newQueueApply(a *app) *cobra.Command {
	var db database
	var yes confirmed
	var diff, prune bool
	cmd := &cobra.Command{
		Use: "apply FILE", Short: "Make queues, subscriptions and schedules as a file declares them",
		Long: `Make queues, subscriptions and schedules as a YAML file declares them: missing
ones are created, and others changed. Options that the file omits do not change. The command is
idempotent.

Queues get the owner of the file; a queue of another owner is refused. Subscriptions and
schedules belong to the owner of their queue. --prune also removes objects of the
owner that the file does not name, if they are empty. Changes that lose something ask first.

The file has owner: and, by name, queues: with options and subscriptions, and schedules:

  owner: shop
  queues:
    orders:
      max_attempts: 30
      backoff: {base: 2s, max: 1h}
      kinds: {sms: {max_attempts: 3}}
      subscriptions:
        audit: {from: oldest, filter: {kind: [paid]}}
  schedules:
    nightly: {queue: orders, spec: "30 2 * * *", time_zone: Europe/Berlin, payload: {report: daily}}

--diff finds the same faults in the file as applying it, and then ends with exit code 2.

On PostgreSQL all changes are one transaction. On Redis they are made one after the other:
if the command is interrupted, run it again.`,
		Example: `  posthaste queue apply queues.yaml --diff
  posthaste queue apply queues.yaml --prune --yes`,
		Args: exactly(1, "a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			declared, err := readDeclaration(args[0])
			if err != nil {
				return err
			}
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error {
				return applyDeclaration(ctx, a, &db, e, declared, yes, diff, prune)
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.flag(cmd)
	needsStore(cmd, "all changes of a file are one transaction")
	flags.BoolVar(&diff, "diff", false, fmt.Sprintf("only show what would change; the exit code is %d if something would", exitDifferent))
	flags.BoolVar(&prune, "prune", false, "also remove objects of the owner that the file does not name")
	yes.flag(cmd)
	return cmd
}

// applyDeclaration makes a store as declared, or shows the difference.
func applyDeclaration(ctx context.Context, a *app, db *database, e posthaste.Store, declared *posthaste.Declaration, yes confirmed, diff, prune bool) error {
	if prune { // so that the counts by which objects are empty are current
		if _, err := e.Maintain(ctx, posthaste.UpkeepSpace); err != nil {
			return err
		}
	}
	changes, err := declared.Changes(ctx, e, prune)
	if err != nil {
		return err
	}
	var lost []string
	for _, c := range changes {
		if c.Lost != "" {
			lost = append(lost, c.Lost)
		}
	}
	if !diff && len(changes) > 0 {
		if len(lost) > 0 {
			if err := a.confirm(ctx, yes, db.place(), func() (string, error) { return strings.Join(lost, ", and "), nil }); err != nil {
				return err
			}
		}
		if err := declared.Apply(ctx, e, prune, changes); err != nil {
			return err
		}
	}
	if err := showChanges(a, changes); err != nil || !diff || len(changes) == 0 {
		return err
	}
	return &exitError{code: exitDifferent}
}

// showChanges prints changes, one a line.
func showChanges(a *app, changes []posthaste.DeclaredChange) error {
	type change struct {
		Sign    string `json:"sign"`
		What    string `json:"what"`
		Details string `json:"details,omitempty"`
	}
	shown := make([]change, len(changes))
	for i, c := range changes {
		shown[i] = change{c.Sign, c.What, c.Details}
	}
	return a.print(shown, func(w *screen) {
		if len(changes) == 0 {
			fmt.Fprintln(w, "no difference")
		}
		for _, c := range changes {
			fmt.Fprintln(w, oneLine(c.String(), 4000))
		}
	})
}
