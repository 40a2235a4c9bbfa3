package redis

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

const (
	// searchMost is how many messages of a queue one search looks at.
	searchMost = 10_000
	// pageMost is how many messages one script tells.
	pageMost = 500
	// runningMost is how many messages of a queue may be handed out at once where those
	// are listed: they are in no order, so all are looked at.
	runningMost = 10_000
)

// pages tells places of one queue, newest first: those up to from, most at most.
// Fewer are the last.
type pages func(ctx context.Context, from int64, most int) ([]string, error)

// search looks through one queue, or all if queue is "", newest first, until limit
// messages match. cutAt is as in [posthaste.Admin].
func (e *Engine) search(ctx context.Context, queue string, limit int, before posthaste.MessageID, of func(name string) pages, matches func(*told) bool) (found []*told, cutAt posthaste.MessageID, err error) {
	var names []string
	if queue != "" {
		if _, err := e.queue(ctx, queue); err != nil {
			return nil, 0, err
		}
		names = []string{queue}
	} else {
		all, err := e.queues(ctx)
		if err != nil {
			return nil, 0, err
		}
		for name := range all {
			names = append(names, name)
		}
	}
	var floor posthaste.MessageID // what is below is not among the limit newest
	for _, name := range names {
		some, cut, err := e.searchQueue(ctx, name, limit, before, floor, of(name), matches)
		if err != nil && (queue != "" || posthaste.CodeOf(err) != posthaste.NotFound) { // or it was dropped meanwhile
			return nil, 0, err
		}
		found, cutAt = append(found, some...), max(cutAt, cut)
		slices.SortFunc(found, func(a, b *told) int { return cmp.Compare(b.ID, a.ID) })
		if len(found) >= limit {
			found, floor = found[:limit], found[limit-1].ID
		}
	}
	if cutAt != 0 { // what one queue has below is not known
		found = slices.DeleteFunc(found, func(t *told) bool { return t.ID < cutAt })
	}
	if len(found) == limit {
		cutAt = 0 // the page is full: the next one begins at its end
	}
	return found, cutAt, nil
}

// searchQueue looks through one queue, as search, but no further down than floor.
func (e *Engine) searchQueue(ctx context.Context, name string, limit int, before, floor posthaste.MessageID, page pages, matches func(*told) bool) (found []*told, cutAt posthaste.MessageID, err error) {
	from := int64(math.MaxInt64 >> numberBits)
	if before != 0 {
		from = int64(before) >> numberBits // another queue's id may have this place, too
	}
	for looked := 0; ; {
		most := min(max(limit, 100), pageMost)
		places, err := page(ctx, from, most)
		if err != nil || len(places) == 0 {
			return found, 0, err
		}
		lowest, _ := parseMicros(places[len(places)-1])
		full := len(places) == most && lowest >= int64(floor)>>numberBits // there is more to look at
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
			q, err := e.queue(ctx, name)
			if err != nil {
				return nil, 0, err
			}
			return found, posthaste.MessageID(lowest<<numberBits | q.number), nil
		}
		from = lowest - 1
	}
}

// merged puts together what subscriptions of a queue have: the places that come first,
// most at most.
func merged(all []string, most int) []string {
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(b, a)) }) // as numbers
	all = slices.Compact(all)
	return all[:min(len(all), most)]
}

// worded tells the messages that have a reference, or else a term.
func (e *Engine) worded(name, reference, term string) pages {
	word := referenceWord + reference
	if reference == "" {
		word = termWord + term
	}
	var q *queue
	return func(ctx context.Context, from int64, most int) ([]string, error) {
		if q == nil { // each has its own words: all subscriptions that there are now are asked
			all, err := e.queues(ctx)
			if err != nil {
				return nil, err
			}
			if q = all[name]; q == nil {
				_, err := e.queue(ctx, name)
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

// listed tells the messages that are where list.lua shall look.
func (e *Engine) listed(name, where string) pages {
	return func(ctx context.Context, from int64, most int) ([]string, error) {
		var places []string
		err := e.each(ctx, listScript, name, func(q *queue) []any { return []any{q.numberArg, q.rules, from, most, where, runningMost} }, func(_ *queue, reply any) error {
			if reply == "many" {
				return &posthaste.Error{Code: posthaste.TooLarge, Field: "filter", Message: fmt.Sprintf("over %d messages of queue %s are handed out, too many to list", runningMost, name),
					Hint: "look for messages by a reference, a term or an id"}
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

// whereOf is where list.lua finds messages of a state.
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
	case posthaste.StateDone, posthaste.StateHandedOut, posthaste.StateDiscarded, posthaste.StateCancelled:
		return "kp", nil
	}
	return "", &posthaste.Error{Code: posthaste.Invalid, Field: "state", Message: "state " + quote.Name(string(s)) + " is none",
		Hint: "scheduled, ready, running, retrying, done, handed_out, dead, discarded or cancelled"}
}

// Messages implements [posthaste.Admin]. References and terms are looked up; with
// anything else a search looks at up to 10,000 of each queue.
func (e *Engine) Messages(ctx context.Context, f posthaste.MessageFilter) (found []posthaste.MessageInfo, cutAt posthaste.MessageID, err error) {
	limit, err := limited(f.Limit, "messages")
	if err != nil {
		return nil, 0, err
	}
	where, err := whereOf(f.State)
	if err != nil {
		return nil, 0, err
	}
	all, cutAt, err := e.search(ctx, f.Queue, limit, f.Before, func(name string) pages {
		if f.Reference != "" || f.Term != "" {
			return e.worded(name, f.Reference, f.Term)
		}
		return e.listed(name, where)
	}, func(t *told) bool {
		return (f.Reference == "" || f.Reference == t.Reference) && (f.Key == "" || f.Key == t.Key) &&
			(f.Term == "" || slices.Contains(t.Terms, f.Term)) && (f.State == "" || t.is(f.State))
	})
	for _, t := range all {
		t.Payload = nil
		found = append(found, t.MessageInfo)
	}
	return found, cutAt, err
}

// is says whether a message is in a state for any of its subscriptions.
func (t *told) is(state posthaste.State) bool {
	return slices.ContainsFunc(t.Subscriptions, func(s posthaste.MessageState) bool { return s.State == state })
}

// eraseMost is how many messages one call of Erase deals with.
const eraseMost = 1000

// Erase implements [posthaste.Admin]. The record has the term's SHA-256 only.
func (e *Engine) Erase(ctx context.Context, by, term string, before posthaste.MessageID) (became []posthaste.Erasure, next posthaste.MessageID, err error) {
	if term == "" {
		return nil, 0, posthaste.Invalidf("term", "term must say whose messages are to be erased")
	}
	if err := (&posthaste.Message{Queue: "any", Terms: []string{term}}).Check(); err != nil {
		return nil, 0, err
	}
	// What is over its time is shown no more, and may be there still.
	all, err := e.queues(ctx)
	for more := true; more && err == nil; {
		more, err = e.expire(ctx, all)
	}
	if err != nil {
		return nil, 0, err
	}
	found, next, err := e.search(ctx, "", eraseMost, before, func(name string) pages { return e.worded(name, "", term) },
		func(t *told) bool { return slices.Contains(t.Terms, term) })
	if err != nil {
		return nil, 0, err
	}
	if len(found) == eraseMost {
		next = found[eraseMost-1].ID
	}
	details := fmt.Appendf(nil, `{"term_sha256":"%x"}`, sha256.Sum256([]byte(term)))
	var records []record
	if len(found) == 0 && before == 0 {
		records = []record{{By: by, Action: "erase", Details: json.RawMessage(fmt.Sprintf(`{"term_sha256":"%x","found":0}`, sha256.Sum256([]byte(term))))}}
	}
	byQueue := map[string][]posthaste.MessageID{}
	for _, t := range found {
		byQueue[t.Queue] = append(byQueue[t.Queue], t.ID)
	}
	for name, ids := range byQueue {
		for some := range slices.Chunk(ids, buryMost) {
			reply, _, err := e.tryQueue(ctx, name, func(q *queue) (any, error) {
				names := slices.Clone(q.keys)
				for _, s := range q.subs {
					names = append(names, e.keys.own(name, s.subscription, "st"), e.keys.own(name, s.subscription, "words"))
				}
				args := []any{q.numberArg, q.rules, q.letters()}
				for _, id := range some {
					args = append(args, place(int64(id)))
				}
				return eraseScript.run(ctx, e.client, names, args...)
			})
			if err != nil {
				return nil, 0, writeError(err)
			}
			answers, err := list("erase", reply, len(some))
			if err != nil {
				return nil, 0, err
			}
			for i, id := range some {
				switch answers[i] {
				case "pending":
					became = append(became, posthaste.Erasure{MessageID: id, Queue: name, Pending: true})
				case "erased":
					became = append(became, posthaste.Erasure{MessageID: id, Queue: name})
					records = append(records, record{By: by, Action: "erase", Queue: name, Message: id, Details: details})
				}
			}
		}
	}
	slices.SortFunc(became, func(a, b posthaste.Erasure) int { return cmp.Compare(b.MessageID, a.MessageID) })
	return became, next, writeError(e.record(ctx, records...))
}
