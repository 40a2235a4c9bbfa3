package cli

import (
	"context"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
)

// completeWithin bounds how long a shell waits for names from a store.
const completeWithin = 2 * time.Second

// lookup lists names of a store. args are the arguments before the name.
type lookup func(ctx context.Context, e posthaste.Store, args []string) ([]string, error)

// lookups are the names that the arguments of commands stand for, by the words of their usage.
var lookups = map[string]lookup{
	"QUEUE":        queueNames,
	"SUBSCRIPTION": subscriptionNames,
	"SCHEDULE":     scheduleNames,
	"TOKEN":        tokenNames,
}

func queueNames(ctx context.Context, e posthaste.Store, _ []string) (names []string, err error) {
	queues, err := e.Queues(ctx)
	for _, q := range queues {
		names = append(names, q.Name)
	}
	return names, err
}

// subscriptionNames lists the subscriptions of the queue that is the last argument, or of all
// queues without one.
func subscriptionNames(ctx context.Context, e posthaste.Store, args []string) (names []string, err error) {
	queues, err := e.Queues(ctx, args[max(0, len(args)-1):]...)
	for _, q := range queues {
		for _, s := range q.Subscriptions {
			names = append(names, s.Name)
		}
	}
	return names, err
}

func scheduleNames(ctx context.Context, e posthaste.Store, _ []string) (names []string, err error) {
	schedules, err := e.Schedules(ctx)
	for _, s := range schedules {
		names = append(names, s.Name)
	}
	return names, err
}

func tokenNames(ctx context.Context, e posthaste.Store, _ []string) (names []string, err error) {
	tokens, err := e.Tokens(ctx)
	for _, t := range tokens {
		names = append(names, t.Name)
	}
	return names, err
}

// argument matches an argument in the usage of a command.
var argument = regexp.MustCompile(`[A-Z]+\b(\.\.\.)?`)

// completeNames makes the shell complete the names of things in the store: arguments by the
// usage of each command, and the flags --queue and --subscription.
func completeNames(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		completeNames(c)
	}
	if cmd.Flags().Lookup("database-url") == nil {
		return
	}
	arguments := argument.FindAllString(cmd.Use, -1)
	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if find := lookupAt(arguments, len(args)); find != nil {
				return complete(cmd, find, args, begun)
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
	}
	for flag, find := range map[string]lookup{"queue": queueNames, "subscription": subscriptionNames} {
		if cmd.Flags().Lookup(flag) == nil {
			continue
		}
		_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(arguments) == 0 || arguments[0] != "QUEUE" { // of dead ls, for example
				args = nil
				if queue, err := cmd.Flags().GetString("queue"); err == nil && queue != "" {
					args = []string{queue}
				}
			}
			return complete(cmd, find, args, begun)
		})
	}
}

// lookupAt returns the lookup of an argument, or nil if its names are not known. The last argument
// in a usage may stand for several.
func lookupAt(arguments []string, at int) lookup {
	if last := len(arguments) - 1; at > last && last >= 0 && strings.HasSuffix(arguments[last], "...") {
		at = last
	}
	if at >= len(arguments) {
		return nil
	}
	return lookups[strings.TrimSuffix(arguments[at], "...")]
}

// complete returns the names in the store that begin with the typed text. A store that cannot
// be read has none, since a shell cannot show an error.
func complete(cmd *cobra.Command, find lookup, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	flags := cmd.Flags()
	if err := bindEnvironment(flags); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	db := databaseOf(flags)
	engine, err := db.open(ctx, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer engine.Close()
	names, err := find(ctx, engine, args)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, begun) || slices.Contains(args, name) })
	slices.Sort(names)
	return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
}
