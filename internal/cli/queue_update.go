package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
)

func newQueueCreate(a *app) *cobra.Command {
	var db database
	var o posthaste.QueueOptions
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create a queue",
		Long: `Create a queue. If the queue exists nothing changes, and the command fails if one
of the given options has another value there. To change options, use "queue update".`,
		Args: exactly(1, "a queue"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			if err := posthaste.CheckName("name", name); err != nil {
				return err
			}
			if err := positiveOptions(cmd); err != nil {
				return err
			}
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error {
				if err := e.CreateQueue(ctx, name, o); err != nil {
					return withUpdate(ctx, cmd.Flags(), e, name, o, err)
				}
				return showOptions(ctx, a, e, name)
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.flag(cmd)
	optionFlags(flags, &o)
	return cmd
}

// withUpdate gives the error of creating a queue that exists with other options the command that
// changes them.
func withUpdate(ctx context.Context, flags *pflag.FlagSet, e posthaste.Store, name string, o posthaste.QueueOptions, err error) error {
	told, ok := errors.AsType[*posthaste.Error](err)
	if !ok || told.Code != posthaste.CodeConflict {
		return err
	}
	queues, fault := e.Queues(ctx, name)
	if fault != nil || len(queues) == 0 {
		return err
	}
	command := "posthaste queue update " + name
	for _, c := range queues[0].Options.Differences(o) {
		flag := optionFlag(*c.Option)
		values := []string{flags.Lookup(flag).Value.String()}
		if kinds, ok := flags.Lookup(flag).Value.(kindOptions); ok {
			values = kinds.each()
		}
		for _, value := range values {
			if strings.Contains(value, " ") {
				value = "'" + value + "'"
			}
			command += " --" + flag + " " + value
		}
	}
	with := *told
	with.Field, with.Hint = "options", "change it with: "+command
	if _, _, fault := (posthaste.QueueUpdate{Options: o}).Apply(name, queues[0].Options); fault != nil {
		with.Hint = "use another queue, or leave out what cannot change"
	}
	return &with
}

func newQueueUpdate(a *app) *cobra.Command {
	var db database
	var yes confirmed
	var o posthaste.QueueOptions
	cmd := &cobra.Command{
		Use: "update QUEUE", Short: "Change options of a queue while it runs",
		Long: `Change the given options of a queue while it runs, from the next delivery on, in all
processes. Options that are not given do not change. "none" removes an option, or
gives it its default again. Options that determine where messages lie cannot change:
ordered, fair, mode; the number of lanes can grow if the queue has no keys and no
priorities. Lowering the retention asks first.`,
		Example: `  posthaste queue update mails --rate-limit 50/s --max-age none
  posthaste queue update mails --max-attempts 30 --backoff-max 2h
  posthaste queue update notices --kinds sms:max_attempts=3,timeout=10s --kinds fax:none`,
		Args: exactly(1, "a queue"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := positiveOptions(cmd); err != nil {
				return err
			}
			update := posthaste.QueueUpdate{Options: o}
			for _, option := range posthaste.QueueOptionTable() {
				f := cmd.Flags().Lookup(optionFlag(option))
				if f.Changed && (f.Value.String() == "none" || option.IsZero(o)) {
					update.Reset = append(update.Reset, option.Name)
				}
			}
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error {
				if err := confirmUpdate(ctx, a, yes, &db, e, args[0], update); err != nil {
					return err
				}
				if err := e.UpdateQueue(ctx, args[0], update); err != nil {
					return err
				}
				return showOptions(ctx, a, e, args[0])
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.flag(cmd)
	yes.flag(cmd)
	optionFlags(flags, &o)
	for _, option := range posthaste.QueueOptionTable() {
		if f := flags.Lookup(optionFlag(option)); f.Value.Type() != "bool" {
			f.Value = &orNone{Value: f.Value}
		}
	}
	return cmd
}

// confirmUpdate asks for confirmation if an update lowers the retention of a queue.
func confirmUpdate(ctx context.Context, a *app, yes confirmed, db *database, e posthaste.Store, name string, update posthaste.QueueUpdate) error {
	queues, err := e.Queues(ctx, name)
	if err != nil || len(queues) == 0 {
		return err // UpdateQueue says that the queue does not exist
	}
	was := queues[0].Options
	is, _ := update.Requested(was)
	lost := posthaste.LostByUpdate(name, was, is)
	if lost == "" {
		return nil
	}
	return a.confirm(ctx, yes, db.place(), func() (string, error) { return lost, nil })
}

// orNone is a flag that "none" resets.
type orNone struct {
	pflag.Value
	none bool
}

func (o *orNone) Set(s string) error {
	if o.none = s == "none"; o.none {
		return nil
	}
	return o.Value.Set(s)
}

func (o *orNone) String() string {
	if o.none {
		return "none"
	}
	return o.Value.String()
}
