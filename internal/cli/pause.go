package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// newPause returns a command that pauses what its arguments name, with a reason and an end, and
// then calls done.
func newPause(a *app, use, short string, args cobra.PositionalArgs, what func(args []string) posthaste.Pausable,
	done func(ctx context.Context, e posthaste.Store, args []string, o posthaste.PauseOptions) error) *cobra.Command {
	var db database
	var o posthaste.PauseOptions
	var lasts time.Duration
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: args,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := explicitZero(cmd, "for"); err != nil {
				return err
			}
			if lasts != 0 && !o.Until.IsZero() {
				return posthaste.Invalidf("for", "--for cannot be combined with --until")
			}
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error {
				o := o
				if lasts != 0 {
					o.Until = time.Now().Add(lasts).UTC().Truncate(time.Microsecond)
				}
				if err := e.Pause(ctx, what(args), o); err != nil {
					return err
				}
				return done(ctx, e, args, o)
			})
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.flag(cmd)
	flags.StringVar(&o.Reason, "reason", "", "why, in one line of at most 500 characters")
	flags.Var(instant{&o.Until}, "until", "when the pause ends by itself, such as 2026-10-12T08:30:00Z (default: when it is resumed)")
	flags.Var(duration{&lasts}, "for", "how long the pause lasts, such as 30m")
	return cmd
}

// untilText returns the end of a pause as the end of a sentence.
func untilText(o posthaste.PauseOptions) string {
	if o.Until.IsZero() {
		return ""
	}
	return " until " + o.Until.UTC().Format("2006-01-02 15:04:05Z")
}

func newQueuePause(a *app) *cobra.Command {
	return newPause(a, "pause QUEUE", "Pause delivery of a queue", exactly(1, "a queue"), func(args []string) posthaste.Pausable { return posthaste.OfQueue(args[0]) },
		func(_ context.Context, _ posthaste.Store, args []string, o posthaste.PauseOptions) error {
			return a.print(map[string]string{"paused": args[0]}, func(w *screen) { fmt.Fprintf(w, "queue %s paused%s\n", args[0], untilText(o)) })
		})
}

func newQueueResume(a *app) *cobra.Command {
	return newNamed(a, "resume QUEUE", "Resume delivery of a paused queue", "a queue", func(ctx context.Context, a *app, e posthaste.Store, name string) error {
		if err := e.Resume(ctx, posthaste.OfQueue(name)); err != nil {
			return err
		}
		return a.print(map[string]string{"resumed": name}, func(w *screen) { fmt.Fprintf(w, "queue %s resumed\n", name) })
	})
}

// pausedWord is a part of a queue that a word names.
type pausedWord struct {
	name string
	of   func(queue, word string) posthaste.Pausable
}

var (
	keyWord  = pausedWord{"key", func(queue, key string) posthaste.Pausable { return posthaste.OfKey{Queue: queue, Key: key} }}
	kindWord = pausedWord{"kind", func(queue, kind string) posthaste.Pausable { return posthaste.OfKind{Queue: queue, Kind: kind} }}
)

func (p pausedWord) use(verb string) string {
	return verb + "-" + p.name + " QUEUE " + strings.ToUpper(p.name)
}

func (p pausedWord) args() cobra.PositionalArgs { return exactly(2, "a queue and a "+p.name) }

// printed prints that a word was paused or resumed.
func (p pausedWord) printed(a *app, args []string, done, end string) error {
	return a.print(map[string]string{"queue": args[0], done: args[1]}, func(w *screen) {
		fmt.Fprintf(w, "%s %s of queue %s %s%s\n", p.name, oneLine(args[1], 255), args[0], done, end)
	})
}

// newWordPause returns a command that pauses a key or a kind of a queue.
func newWordPause(a *app, word pausedWord, short string) *cobra.Command {
	return newPause(a, word.use("pause"), short, word.args(), func(args []string) posthaste.Pausable { return word.of(args[0], args[1]) },
		func(_ context.Context, _ posthaste.Store, args []string, o posthaste.PauseOptions) error {
			return word.printed(a, args, "paused", untilText(o))
		})
}

// newWordResume returns a command that resumes a key or a kind of a queue.
func newWordResume(a *app, word pausedWord, short string) *cobra.Command {
	var db database
	cmd := &cobra.Command{
		Use: word.use("resume"), Short: short,
		Args: word.args(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return db.with(cmd, a.log, func(ctx context.Context, e posthaste.Store) error {
				if err := e.Resume(ctx, word.of(args[0], args[1])); err != nil {
					return err
				}
				return word.printed(a, args, "resumed", "")
			})
		},
	}
	db.flag(cmd)
	return cmd
}

func newSchedulePause(a *app) *cobra.Command {
	return newPause(a, "pause SCHEDULE", "Pause a schedule", exactly(1, "a schedule"), func(args []string) posthaste.Pausable { return posthaste.OfSchedule(args[0]) },
		func(ctx context.Context, e posthaste.Store, args []string, _ posthaste.PauseOptions) error {
			return showSchedule(ctx, a, e, args[0])
		})
}

func resumeSchedule(ctx context.Context, a *app, e posthaste.Store, name string) error {
	if err := e.Resume(ctx, posthaste.OfSchedule(name)); err != nil {
		return err
	}
	return showSchedule(ctx, a, e, name)
}

// newQueuePauses returns the command that lists pauses.
func newQueuePauses(a *app) *cobra.Command {
	var db database
	var f posthaste.PauseFilter
	var before string
	cmd := &cobra.Command{
		Use: "pauses [QUEUE]", Short: "List paused queues, keys, kinds and schedules, with who paused them, since when, why and until when",
		Args: between(0, 1, "a queue"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var id posthaste.MessageID
			if err := paging(f.Limit, before, &id); err != nil {
				return err
			}
			f.Before = int64(id)
			if len(args) > 0 {
				f.Queue = args[0]
			}
			return db.show(cmd, a, func(ctx context.Context, e posthaste.Store) error { return listPauses(ctx, a, e, f) })
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	db.shownFlag(cmd)
	flags.IntVar(&f.Limit, "limit", 100, "maximum number of results, 1 to 1000")
	flags.StringVar(&before, "before", "", "only ids below this one, to get the next page")
	return cmd
}

func listPauses(ctx context.Context, a *app, e posthaste.Store, f posthaste.PauseFilter) error {
	pauses, err := e.Pauses(ctx, f)
	if err != nil {
		return err
	}
	shown := make([]wire.Pause, len(pauses))
	for i, p := range pauses {
		shown[i] = wire.NewPause(p)
	}
	next := posthaste.NewPage(pauses, f.Limit, 0, func(p *posthaste.Pause) posthaste.MessageID { return posthaste.MessageID(p.ID) }).Next
	return page{shown, "nothing is paused", next}.print(a, len(pauses), func(w *screen) {
		table(w, "ID WHAT QUEUE NAME SINCE BY UNTIL REASON", func(row func(...any)) {
			for _, p := range pauses {
				of, queue, name := posthaste.PausableNames(p.What)
				row(strconv.FormatInt(p.ID, 10), of, queue, oneLine(name, 255), p.Since, p.By, p.Until, p.Reason)
			}
		})
	})
}
