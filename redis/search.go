package redis

import (
	"context"
	"fmt"
	"slices"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

// runningMost is the maximum of messages in flight up to which those are listed. They are in no
// order, so that a listing reads them all.
const runningMost = 10_000

// worded returns the source of messages with a reference, or else a term.
func (e *Engine) worded(reference, term string) source {
	word := referenceWord + reference
	if reference == "" {
		word = termWord + term
	}
	return func(ctx context.Context, strands []*strand) error {
		pipe := e.client.Pipeline()
		answers := map[*strand][]*goredis.StringSliceCmd{}
		for _, s := range strands {
			for _, one := range s.q.all() { // each subscription has its own words
				answers[s] = append(answers[s], pipe.ZRevRangeByLex(ctx, e.keys.own(s.q.name, one.subscription, "words"), &goredis.ZRangeBy{
					Max: fmt.Sprintf("[%s\x00%016d", word, s.from), Min: "[" + word + "\x00", Count: int64(s.most)}))
			}
		}
		_, _ = pipe.Exec(ctx) // each answer has its own error
		for s, all := range answers {
			for _, answer := range all {
				entries, err := answer.Result()
				if err != nil {
					lookAgain(e.client, err)
					return readError(err)
				}
				for _, entry := range entries {
					n, ok := parseMicros(entry[len(word)+1:])
					if !ok {
						return unexpected("a word", entry)
					}
					s.got = append(s.got, n)
				}
			}
		}
		return nil
	}
}

// placed are the keys of the places of list.lua.
var placed = map[rune][]string{
	'w': {"ready0", "ready1", "ready2", "ready3", "aside0", "aside1", "aside2", "aside3"},
	'k': {"known"}, 'r': {"run"}, 'p': {"past"}, 'd': {"dead"},
}

// filled returns those of queues that have something in places of list.lua. It costs less than
// the script, which a search of many queues then needs for few.
func (e *Engine) filled(ctx context.Context, strands []*strand, where string) (some []*strand, err error) {
	pipe := e.client.Pipeline()
	answers := make([][]*goredis.IntCmd, len(strands))
	for i, s := range strands {
		for _, one := range s.q.all() {
			var names []string
			for _, place := range where {
				for _, what := range placed[place] {
					names = append(names, one.keys[slices.Index(ofQueue, what)])
				}
			}
			answers[i] = append(answers[i], pipe.Exists(ctx, names...))
		}
	}
	_, _ = pipe.Exec(ctx) // each answer has its own error
	for i, s := range strands {
		any := false
		for _, answer := range answers[i] {
			if err := answer.Err(); err != nil {
				lookAgain(e.client, err)
				return nil, readError(err)
			}
			any = any || answer.Val() > 0
		}
		if any {
			some = append(some, s)
		}
	}
	return some, nil
}

// listed returns the source of messages in places of list.lua.
func (e *Engine) listed(where string) source {
	return func(ctx context.Context, strands []*strand) (err error) {
		if len(strands) > 1 && !strings.Contains(where, "w") { // most queues have waiting messages
			if strands, err = e.filled(ctx, strands, where); err != nil || len(strands) == 0 {
				return err
			}
		}
		by, queues := map[string]*strand{}, make([]*queue, len(strands))
		for i, s := range strands {
			by[s.q.name], queues[i] = s, s.q
		}
		failed, err := e.askAll(ctx, listScript, queues, func(q *queue) arguments {
			s := by[q.name]
			return arguments{{"number", q.numberArg}, {"rules", q.rules}, {"highest", s.from}, {"most", s.most}, {"places", where}, {"running", runningMost}}
		}, func(q *queue, reply any) error {
			if reply == "many" {
				return &posthaste.Error{Code: posthaste.CodeTooLarge, Field: "filter", Message: fmt.Sprintf("more than %d messages of queue %s are in flight, too many to list", runningMost, q.name),
					Hint: "search by reference, term or id"}
			}
			all, err := list("list", reply, 0)
			for i := range all {
				n, ok := parseMicros(str(all[i]))
				if !ok {
					return unexpected("a place", all[i])
				}
				by[q.name].got = append(by[q.name].got, n)
			}
			return err
		}, func(name string) { by[name].got = nil })
		if err != nil {
			return err
		}
		for name, err := range failed {
			by[name].err = err
		}
		return nil
	}
}

// whereOf returns the places of list.lua that have messages of a state.
func whereOf(s posthaste.State) (string, error) {
	switch s {
	case "":
		return "wkrp", nil
	case posthaste.StateReady:
		return "wk", nil
	case posthaste.StateScheduled, posthaste.StateRetrying:
		return "k", nil
	case posthaste.StateRunning:
		return "r", nil
	case posthaste.StateDead:
		return "d", nil
	case posthaste.StateDone, posthaste.StateHandedOut, posthaste.StateDiscarded, posthaste.StateCancelled, posthaste.StateExpired:
		return "kp", nil
	}
	return "", &posthaste.Error{Code: posthaste.CodeInvalid, Field: "state", Message: "unknown state " + quote.Name(string(s)),
		Hint: "expected one of scheduled, ready, running, retrying, done, handed_out, dead, discarded, cancelled, expired"}
}

// Messages implements [posthaste.MessageAdmin]. It looks up references and terms. With any other
// filter it reads the newest 3,000 messages.
func (e *Engine) Messages(ctx context.Context, f posthaste.MessageFilter) (page posthaste.Page[posthaste.MessageInfo], err error) {
	limit, err := limited(f.Limit, "messages")
	if err != nil {
		return page, err
	}
	where, err := whereOf(f.State)
	if err != nil {
		return page, err
	}
	from := e.listed(where)
	if f.Reference != "" || f.Term != "" {
		from = e.worded(f.Reference, f.Term)
	}
	all, cutAt, err := e.search(ctx, f.Queue, limit, f.Before, from, func(t *told) bool {
		return (f.Reference == "" || f.Reference == t.Reference) && (f.Key == "" || f.Key == t.Key) && (f.Kind == "" || f.Kind == t.Kind) &&
			!t.CreatedAt.Before(f.CreatedFrom) &&
			(f.Term == "" || slices.Contains(t.Terms, f.Term)) && (f.State == "" || t.is(f.State))
	})
	for _, t := range all {
		page.Items = append(page.Items, t.Brief())
	}
	return posthaste.NewPage(page.Items, limit, cutAt, func(m *posthaste.MessageInfo) posthaste.MessageID { return m.ID }), err
}

// is reports whether a message is in a state for any of its subscriptions.
func (t *told) is(state posthaste.State) bool {
	return slices.ContainsFunc(t.Subscriptions, func(s posthaste.MessageState) bool { return s.State == state })
}
