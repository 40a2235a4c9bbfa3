package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func newSchedule(a *app) *cobra.Command {
	return newGroup("schedule", "Manage recurring schedules",
		newScheduleLs(a), newShown(a, "show SCHEDULE", "Show a schedule with its next ticks", "a schedule", showSchedule), newSchedulePut(a), newNamed(a, "drop SCHEDULE", "Drop a schedule; messages that it has sent are kept", "a schedule", dropSchedule),
		newSchedulePause(a), newNamed(a, "resume SCHEDULE", "Resume a paused schedule", "a schedule", resumeSchedule),
		newNamed(a, "run SCHEDULE", "Send the message of a schedule now; its next tick stays as it is", "a schedule", runSchedule))
}

func newScheduleLs(a *app) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: "ls [SCHEDULE...]", Short: "List schedules with their next ticks",
		Args: between(0, -1, "schedule names"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return db.show(cmd, a, func(ctx context.Context, e posthaste.Store) error { return listSchedules(ctx, a, e, args) })
		},
	}
	db.shownFlag(cmd)
	return cmd
}

func listSchedules(ctx context.Context, a *app, e posthaste.Store, names []string) error {
	schedules, err := e.Schedules(ctx, names...)
	if err != nil {
		return err
	}
	shown := make([]wire.Schedule, len(schedules))
	for i, s := range schedules {
		shown[i] = wire.NewSchedule(s)
	}
	for _, name := range names {
		if !slices.ContainsFunc(schedules, func(s posthaste.ScheduleInfo) bool { return s.Name == name }) {
			return noSchedule(name)
		}
	}
	return a.print(listed{data: shown}, func(w *screen) {
		if len(shown) == 0 {
			fmt.Fprintln(w, "no schedules; create one with: posthaste schedule put NAME QUEUE SPEC")
			return
		}
		table(w, "NAME QUEUE SPEC ZONE NEXT LAST SENT MISSED ERROR", func(row func(...any)) {
			for _, s := range shown {
				next := any(s.NextAt)
				if !s.PausedAt.IsZero() {
					next = styled{"paused", yellow}
				}
				row(s.Name, s.Queue, s.Spec, s.TimeZone, next, s.LastTick, s.Sent, s.Missed, s.Error)
			}
		})
	})
}

func newSchedulePut(a *app) *cobra.Command {
	var db database
	var s posthaste.Schedule
	var headers []string
	cmd := &cobra.Command{
		Use: "put SCHEDULE QUEUE SPEC [PAYLOAD]", Short: "Create or change a schedule",
		Long: `Create a schedule, or change the one with that name. SPEC is a cron expression of
five fields, @hourly, @daily, @weekly, @monthly, @yearly, or "every" and a
duration. PAYLOAD is JSON (default {}). A paused schedule stays paused. If SPEC and
time zone do not change, the next tick does not change either.`,
		Example: `  posthaste schedule put nightly reports '30 2 * * mon-fri' '{"report": "daily"}' --time-zone Europe/Berlin
  posthaste schedule put heartbeat jobs 'every 90 seconds' --catch-up skip`,
		Args: between(3, 4, "a name, a queue, a spec and a payload"),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			s.Name, s.Message.Queue, s.Spec = args[0], args[1], args[2]
			data := []byte("{}")
			if len(args) > 3 {
				data = []byte(args[3])
			}
			if err := wire.Check(data); err != nil {
				return payloadError(err)
			}
			s.Message.Payload = json.RawMessage(data)
			if s.Message.Headers, err = parseHeaders(headers); err != nil {
				return err
			}
			if err := s.Check(); err != nil {
				return err
			}
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error {
				if _, err := e.PutSchedule(ctx, s); err != nil {
					return err
				}
				return showSchedule(ctx, a, e, s.Name)
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.flag(cmd)
	flags.StringVar(&s.TimeZone, "time-zone", "", "time zone of a cron expression, such as Europe/Berlin (default UTC)")
	flags.StringVar((*string)(&s.CatchUp), "catch-up", "", "how missed ticks are handled: once, each or skip (default once)")
	m := &s.Message
	flags.StringVar(&m.Key, "key", "", "key of the messages")
	flags.StringVar(&m.Kind, "kind", "", "kind of the messages")
	flags.StringArrayVar(&headers, "header", nil, "a header, NAME=VALUE; may be repeated")
	flags.StringVar(&m.Reference, "reference", "", "id of your own to look up the messages")
	flags.StringArrayVar(&m.Terms, "term", nil, "further search term for the messages; may be repeated")
	flags.IntVar(&m.Priority, "priority", 0, "priority, 0 to 3; 0 is delivered first")
	return cmd
}

// showSchedule prints the current state of a schedule.
func showSchedule(ctx context.Context, a *app, e posthaste.Store, name string) error {
	schedules, err := e.Schedules(ctx, name)
	if err != nil {
		return err
	}
	if len(schedules) == 0 {
		return noSchedule(name)
	}
	s := wire.NewSchedule(schedules[0])
	return a.print(s, func(w *screen) {
		pairs := []any{"schedule", s.Name, "queue", s.Queue, "spec", s.Spec, "time zone", s.TimeZone, "catch up", s.CatchUp, "paused", s.PausedAt}
		for i, at := range s.Upcoming {
			pairs = append(pairs, []any{"next ticks", " "}[min(i, 1)], at)
		}
		fields(w, pairs...)
	})
}

func dropSchedule(ctx context.Context, a *app, e posthaste.Store, name string) error {
	if err := e.DropSchedule(ctx, name); err != nil {
		return err
	}
	return a.print(map[string]string{"dropped": name}, func(w *screen) { fmt.Fprintf(w, "schedule %s dropped\n", name) })
}

func runSchedule(ctx context.Context, a *app, e posthaste.Store, name string) error {
	id, err := e.RunSchedule(ctx, name)
	if err != nil {
		return err
	}
	return a.print(wire.NewSent(posthaste.Sent{ID: id}), func(w *screen) { fmt.Fprintf(w, "schedule %s sent message %s\n", name, id) })
}

func noSchedule(name string) error {
	return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "name", Message: fmt.Sprintf("schedule %q not found", name)}
}
