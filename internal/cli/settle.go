package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// settleUse describes the arguments of the commands that settle deliveries.
const settleUse = "1 to 1000 delivery ids, as receive prints them"

// newSettle returns a command that settles deliveries as settlement says, after check has
// checked the flags.
func newSettle(a *app, use, short, long string, settlement *posthaste.Settlement, check func(cmd *cobra.Command) error) *cobra.Command {
	return newOnDeliveries(a, use, short, long, check, func(ctx context.Context, e posthaste.Store, ids []posthaste.DeliveryID) ([]posthaste.SettleResult, error) {
		all := make([]posthaste.Settlement, len(ids))
		for i, id := range ids {
			all[i] = *settlement
			all[i].Delivery = id
		}
		return e.Settle(ctx, all)
	})
}

// newOnDeliveries returns a command that does something with received deliveries.
func newOnDeliveries(a *app, use, short, long string, check func(cmd *cobra.Command) error,
	do func(ctx context.Context, e posthaste.Store, ids []posthaste.DeliveryID) ([]posthaste.SettleResult, error)) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: use + " DELIVERY...", Short: short,
		Long: short + ". " + long + `

A delivery that no longer belongs to you was settled before, or its lease ended and
its message was redelivered. It is not changed, and the exit code is 1.`,
		Args: between(1, wire.MaxBatch, settleUse),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := deliveryIDs(args)
			if err != nil {
				return err
			}
			if err := check(cmd); err != nil {
				return err
			}
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error {
				results, err := do(ctx, e, ids)
				if err != nil {
					return err
				}
				return printSettled(a, results)
			})
		},
	}
	cmd.Flags().SortFlags = false
	db.flag(cmd)
	return cmd
}

// deliveryIDs parses arguments that are delivery ids.
func deliveryIDs(args []string) ([]posthaste.DeliveryID, error) {
	ids := make([]posthaste.DeliveryID, len(args))
	seen := map[posthaste.DeliveryID]bool{}
	for i, arg := range args {
		if err := ids[i].UnmarshalText([]byte(arg)); err != nil {
			return nil, posthaste.Invalidf("id", "a delivery id must be a positive decimal number, got %q", arg)
		}
		if seen[ids[i]] {
			return nil, posthaste.Invalidf("id", "delivery id %s is given twice", arg)
		}
		seen[ids[i]] = true
	}
	return ids, nil
}

// printSettled prints the result for each delivery. It fails if one was not settled.
func printSettled(a *app, results []posthaste.SettleResult) error {
	shown := wire.NewSettled(results)
	var gone []string
	var refused error
	for _, r := range results {
		switch {
		case r.Err != nil:
			refused = r.Err
		case !r.Settled:
			gone = append(gone, r.Delivery.String())
		}
	}
	if err := a.print(shown, func(w *screen) {
		table(w, "DELIVERY SETTLED OUTCOME DUE ERROR", func(row func(...any)) {
			for _, s := range shown {
				row(s.ID, s.Settled, s.Outcome, s.DueAt, s.Error)
			}
		})
		for _, s := range shown {
			if s.Cancelled {
				fmt.Fprintf(w, "\nThe message of delivery %s was cancelled. Stop working on it and run: posthaste message release %s\n", s.ID, s.ID)
			}
		}
	}); err != nil {
		return err
	}
	switch {
	case refused != nil:
		return refused
	case gone != nil:
		return &posthaste.Error{Code: posthaste.CodeConflict, Field: "id", Message: "not yours any more: " + strings.Join(gone, ", "),
			Hint: "receive the messages again with: posthaste receive QUEUE"}
	}
	return nil
}

func newMessageAck(a *app) *cobra.Command {
	s := posthaste.Settlement{Outcome: posthaste.OutcomeDone}
	var receipt string
	cmd := newSettle(a, "ack", "Acknowledge received messages", "Their messages are done.", &s, func(*cobra.Command) error { return setReceipt(&s, receipt) })
	cmd.Example = "  posthaste message ack 40960 40961"
	receiptFlag(cmd, &receipt)
	return cmd
}

func newMessageFail(a *app) *cobra.Command {
	s := posthaste.Settlement{Outcome: posthaste.OutcomeRetried}
	var permanent bool
	var receipt string
	cmd := newSettle(a, "fail", "Record a failed attempt of received messages", `Their messages are retried after the
backoff of the queue, or become dead letters after the last attempt or with
--permanent.`, &s, func(cmd *cobra.Command) error {
		later := cmd.Flags().Changed("retry-after")
		switch {
		case strings.TrimSpace(s.Error) == "":
			return posthaste.Invalidf("error", "--error is required: the reason of the failure")
		case permanent && later:
			return posthaste.Invalidf("retry-after", "--retry-after and --permanent are mutually exclusive")
		case permanent:
			s.Outcome = posthaste.OutcomeDead
		case later && s.RetryAfter == 0:
			s.RetryAfter = time.Microsecond // at once; zero means the backoff of the queue
		}
		return setReceipt(&s, receipt)
	})
	cmd.Example = "  posthaste message fail 40960 --error 'the printer is out of paper' --retry-after 10m"
	cmd.Flags().StringVar(&s.Error, "error", "", "reason of the failure (required)")
	cmd.Flags().BoolVar(&permanent, "permanent", false, "do not retry: make the messages dead letters")
	cmd.Flags().Var(duration{&s.RetryAfter}, "retry-after", "time until the next attempt (default the backoff of the queue)")
	receiptFlag(cmd, &receipt)
	return cmd
}

func newMessageRelease(a *app) *cobra.Command {
	s := posthaste.Settlement{Outcome: posthaste.OutcomeReleased}
	cmd := newSettle(a, "release", "Return received messages without counting an attempt", "They are redelivered at once, or after --after.", &s, func(*cobra.Command) error { return nil })
	cmd.Flags().Var(duration{&s.RetryAfter}, "after", "time until they are redelivered (default at once)")
	return cmd
}

func newMessageExtend(a *app) *cobra.Command {
	lease := 30 * time.Second
	cmd := newOnDeliveries(a, "extend", "Extend the leases of received messages", `They are redelivered after --lease,
counted from now. The output says which messages were cancelled meanwhile.`, func(cmd *cobra.Command) error { return explicitZero(cmd, "lease") },
		func(ctx context.Context, e posthaste.Store, ids []posthaste.DeliveryID) ([]posthaste.SettleResult, error) {
			return e.Extend(ctx, posthaste.ExtendRequest{Deliveries: ids, Lease: lease})
		})
	cmd.Flags().Var(duration{&lease}, "lease", "time from now until the leases end, at most 12h")
	return cmd
}

func receiptFlag(cmd *cobra.Command, receipt *string) {
	cmd.Flags().StringVar(receipt, "receipt", "", "JSON to store with the outcome, such as the id that a provider gave")
}

func setReceipt(s *posthaste.Settlement, text string) error {
	if text == "" {
		return nil
	}
	if err := wire.Check([]byte(text)); err != nil {
		return posthaste.Invalidf("receipt", "--receipt must be JSON: %s", err)
	}
	s.Receipt = json.RawMessage(text)
	return nil
}
