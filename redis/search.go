package redis

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

const (
	// searchMost is the maximum of messages of a queue that a search reads.
	searchMost = 10_000
	// pageMost is the maximum of messages that one script returns.
	pageMost = 500
	// runningMost is the maximum of messages in flight up to which those are listed. They are in
	// no order, so that a listing reads them all.
	runningMost = 10_000
)

// pages returns up to most places of a queue, newest first, from the place from on. Fewer
// than most are the last ones.
type pages func(ctx context.Context, from int64, most int) ([]string, error)

// search reads the messages of a queue, or of all queues if queue is "", newest first, until
// limit messages match. cutAt is as in [posthaste.MessageAdmin].
func (e *Engine) search(ctx context.Context, queue string, limit int, before posthaste.MessageID, of func(name string) pages, matches func(*told) bool) (found []*told, cutAt posthaste.MessageID, err error) {
	var names []string
	if queue != "" {
		if _, err := e.registry.queue(ctx, queue); err != nil {
			return nil, 0, err
		}
		names = []string{queue}
	} else {
		all, err := e.registry.read(ctx)
		if err != nil {
			return nil, 0, err
		}
		for name := range all {
			names = append(names, name)
		}
	}
	var floor posthaste.MessageID // messages below are not among the limit newest
	for _, name := range names {
		some, cut, err := e.searchQueue(ctx, name, limit, before, floor, of(name), matches)
		if err != nil && (queue != "" || posthaste.CodeOf(err) != posthaste.CodeNotFound) { // or it was dropped since
			return nil, 0, err
		}
		found, cutAt = append(found, some...), max(cutAt, cut)
		slices.SortFunc(found, func(a, b *told) int { return cmp.Compare(b.ID, a.ID) })
		if len(found) >= limit {
			found, floor = found[:limit], found[limit-1].ID
		}
	}
	if cutAt != 0 { // messages below were not read in one queue
		found = slices.DeleteFunc(found, func(t *told) bool { return t.ID < cutAt })
	}
	if len(found) == limit {
		cutAt = 0 // the page is full: the next one begins at its end
	}
	return found, cutAt, nil
}

// searchQueue is search for one queue, down to floor.
func (e *Engine) searchQueue(ctx context.Context, name string, limit int, before, floor posthaste.MessageID, page pages, matches func(*told) bool) (found []*told, cutAt posthaste.MessageID, err error) {
	from := int64(math.MaxInt64 >> numberBits)
	if before != 0 {
		from = int64(before) >> numberBits // an id of another queue may have the same place
	}
	for looked := 0; ; {
		most := min(max(limit, 100), pageMost)
		places, err := page(ctx, from, most)
		if err != nil || len(places) == 0 {
			return found, 0, err
		}
		lowest, _ := parseMicros(places[len(places)-1])
		full := len(places) == most && lowest >= int64(floor)>>numberBits // there may be more
		places = slices.DeleteFunc(places, func(place string) bool {
			n, _ := parseMicros(place)
			return n < int64(floor)>>numberBits
		})
		for some := range slices.Chunk(places, pageMost) {
			all, err := e.tell(ctx, name, some)
			if err != nil {
				return nil, 0, err
			}
			for _, t := range all {
				if t != nil && (before == 0 || t.ID < before) && matches(t) {
					if found = append(found, t); len(found) == limit {
						return found, 0, nil
					}
				}
			}
		}
		if looked += len(places); !full {
			return found, 0, nil
		}
		if looked >= searchMost {
			q, err := e.registry.queue(ctx, name)
			if err != nil {
				return nil, 0, err
			}
			return found, posthaste.MessageID(lowest<<numberBits | q.number), nil
		}
		from = lowest - 1
	}
}

// merged merges the places of all subscriptions of a queue and returns the newest most.
func merged(all []string, most int) []string {
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(b, a)) }) // in numeric order
	all = slices.Compact(all)
	return all[:min(len(all), most)]
}

// worded returns the pages of messages with a reference, or else a term.
func (e *Engine) worded(name, reference, term string) pages {
	word := referenceWord + reference
	if reference == "" {
		word = termWord + term
	}
	var q *queue
	return func(ctx context.Context, from int64, most int) ([]string, error) {
		if q == nil { // each subscription has its own words: use the current ones
			all, err := e.registry.read(ctx)
			if err != nil {
				return nil, err
			}
			if q = all[name]; q == nil {
				_, err := e.registry.queue(ctx, name)
				return nil, err
			}
		}
		var places []string
		for _, s := range q.all() {
			entries, err := e.client.ZRevRangeByLex(ctx, e.keys.own(name, s.subscription, "words"), &goredis.ZRangeBy{
				Max: fmt.Sprintf("[%s\x00%016d", word, from), Min: "[" + word + "\x00", Count: int64(most)}).Result()
			if err != nil {
				return nil, readError(err)
			}
			for _, entry := range entries {
				n, ok := parseMicros(entry[len(word)+1:])
				if !ok {
					return nil, unexpected("a word", entry)
				}
				places = append(places, fmt.Sprint(n))
			}
		}
		return merged(places, most), nil
	}
}

// listed returns the pages of messages in places of list.lua.
func (e *Engine) listed(name, where string) pages {
	return func(ctx context.Context, from int64, most int) ([]string, error) {
		var places []string
		err := e.each(ctx, listScript, name, func(q *queue) arguments {
			return arguments{{"number", q.numberArg}, {"rules", q.rules}, {"highest", from}, {"most", most}, {"places", where}, {"running", runningMost}}
		}, func(_ *queue, reply any) error {
			if reply == "many" {
				return &posthaste.Error{Code: posthaste.CodeTooLarge, Field: "filter", Message: fmt.Sprintf("more than %d messages of queue %s are in flight, too many to list", runningMost, name),
					Hint: "search by reference, term or id"}
			}
			all, err := list("list", reply, 0)
			for i := range all {
				places = append(places, str(all[i]))
			}
			return err
		})
		return merged(places, most), readError(err)
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
// filter it reads up to 10,000 messages of each queue.
func (e *Engine) Messages(ctx context.Context, f posthaste.MessageFilter) (page posthaste.Page[posthaste.MessageInfo], err error) {
	limit, err := limited(f.Limit, "messages")
	if err != nil {
		return page, err
	}
	where, err := whereOf(f.State)
	if err != nil {
		return page, err
	}
	all, cutAt, err := e.search(ctx, f.Queue, limit, f.Before, func(name string) pages {
		if f.Reference != "" || f.Term != "" {
			return e.worded(name, f.Reference, f.Term)
		}
		return e.listed(name, where)
	}, func(t *told) bool {
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
