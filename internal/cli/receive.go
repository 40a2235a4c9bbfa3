package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/remote"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// receiveFlags holds the flags of receive.
type receiveFlags struct {
	subscription string
	max          int
	lease, wait  time.Duration
	ack          bool
}

// lookEvery is the maximum interval of polling. Some events, such as the end of a lease,
// ring no doorbell and are not announced.
const lookEvery = 500 * time.Millisecond

func newReceive(a *app) *cobra.Command {
	var db database
	r := receiveFlags{lease: 30 * time.Second}
	cmd := &cobra.Command{
		Use: "receive QUEUE", Short: "Receive messages",
		Long: `Receive messages and print them. They are redelivered after --lease, unless they
are settled earlier by their delivery ids: see message ack, fail, release and extend.
With --ack they are acknowledged after they are printed. To look at messages without
receiving them, use queue peek.

If there is no message, nothing is printed and the exit code is 0.`,
		Example: "  posthaste receive orders --wait 20s --ack\n  posthaste receive orders --max 100 --json\n  posthaste receive orders --subscription billing",
		Args:    exactly(1, "a queue"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.max < 1 || r.max > 1000 {
				return posthaste.Invalidf("max", "--max must be 1 to 1000, got %d", r.max)
			}
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error { return receiveMessages(ctx, a, e, args[0], r) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.flag(cmd)
	db.pollingFlag(cmd)
	flags.StringVar(&r.subscription, "subscription", posthaste.DefaultSubscription, "subscription to receive from")
	flags.IntVar(&r.max, "max", 1, "maximum number of messages, 1 to 1000")
	flags.Var(duration{&r.lease}, "lease", "lease of the messages")
	flags.Var(duration{&r.wait}, "wait", "how long to wait for the first message")
	flags.BoolVar(&r.ack, "ack", false, "acknowledge messages after they are printed")
	return cmd
}

func receiveMessages(ctx context.Context, a *app, e posthaste.Store, queue string, r receiveFlags) error {
	if err := posthaste.CheckName("queue", queue); err != nil {
		return err
	}
	if err := posthaste.CheckName("subscription", r.subscription); err != nil {
		return err
	}
	request := posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: queue, Subscription: r.subscription}, Max: r.max, Lease: r.lease}
	got, err := receiveWithin(ctx, e, request, r.wait)
	if err != nil {
		return err
	}
	if err := printDeliveries(a, got); err != nil {
		return errors.Join(err, handBack(ctx, e, got))
	}
	if !r.ack {
		return nil
	}
	return acknowledge(ctx, e, got)
}

// receiveWithin receives messages, and waits for the first one.
func receiveWithin(ctx context.Context, e posthaste.Store, request posthaste.ReceiveRequest, wait time.Duration) ([]posthaste.RawDelivery, error) {
	if e, ok := e.(*remote.Store); ok {
		reply, err := e.ReceiveWithin(ctx, request, wait)
		return reply.Deliveries, err
	}
	reply, err := e.Receive(ctx, request)
	if err != nil || len(reply.Deliveries) > 0 || wait <= 0 {
		return reply.Deliveries, err
	}
	return receiveLater(ctx, e, request, wait)
}

// receiveLater waits at the doorbell until it has received a message or wait has passed.
func receiveLater(ctx context.Context, e posthaste.Store, request posthaste.ReceiveRequest, wait time.Duration) ([]posthaste.RawDelivery, error) {
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	bell, err := e.Doorbell(ctx)
	if err != nil {
		return nil, err
	}
	defer bell.Close()
	var got []posthaste.RawDelivery
	for len(got) == 0 && limited.Err() == nil {
		err := bell.Sleep(limited, request.Queue, func(context.Context) (posthaste.LookReply, error) {
			// The limited context could cut off a reply, and its messages would stay leased
			// without having been printed.
			reply, err := e.Receive(ctx, request)
			got = reply.Deliveries
			look := posthaste.LookReply{Found: len(got) > 0, NextDue: lookEvery, AtLimit: reply.AtLimit}
			if reply.NextDue >= 0 {
				look.NextDue = min(lookEvery, reply.NextDue)
			}
			return look, err
		})
		if err != nil && limited.Err() == nil {
			return nil, err
		}
	}
	return got, ctx.Err()
}

func printDeliveries(a *app, got []posthaste.RawDelivery) error {
	shown := make([]wire.Delivery, len(got))
	for i, d := range got {
		shown[i] = wire.NewDelivery(d)
	}
	return a.print(shown, func(w *screen) {
		for i, d := range got {
			if i > 0 {
				fmt.Fprintln(w)
			}
			fields(w, "delivery", d.ID, "message", d.MessageID, "attempt", d.Attempt, "key", d.Key, "kind", d.Kind,
				"reference", d.Reference, "headers", headerText(d.Headers), "type", d.ContentType, "created", d.CreatedAt, "checkpoint", string(d.LastCheckpoint()))
			fmt.Fprintln(w, payloadText(d.Payload))
		}
	})
}

func settleAs(outcome posthaste.Outcome, got []posthaste.RawDelivery) []posthaste.Settlement {
	settlements := make([]posthaste.Settlement, len(got))
	for i, d := range got {
		settlements[i] = posthaste.Settlement{Delivery: d.ID, Outcome: outcome}
	}
	return settlements
}

func acknowledge(ctx context.Context, e posthaste.Store, got []posthaste.RawDelivery) error {
	if len(got) == 0 {
		return nil
	}
	results, err := e.Settle(ctx, settleAs(posthaste.OutcomeDone, got))
	if err != nil {
		return fmt.Errorf("the messages are received, but not acknowledged: %w", err)
	}
	for _, r := range results {
		if !r.Settled {
			return &posthaste.Error{Code: posthaste.CodeConflict, Field: "lease", Cause: r.Err,
				Message: fmt.Sprintf("the lease of delivery %s ended before the ack; the message is redelivered", r.Delivery),
				Hint:    "receive with a longer --lease"}
		}
	}
	return nil
}

// handBack releases deliveries that could not be printed, so that they are redelivered at
// once.
func handBack(ctx context.Context, e posthaste.Store, got []posthaste.RawDelivery) error {
	if len(got) == 0 {
		return nil
	}
	_, err := e.Settle(ctx, settleAs(posthaste.OutcomeReleased, got))
	return err
}
