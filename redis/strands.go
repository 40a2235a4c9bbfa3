package redis

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/posthaste-mq/posthaste"
)

const (
	// pageMost is the maximum of messages that one script returns, and of those that are looked
	// at together.
	pageMost = 500
	// pageLeast is the minimum that is read of each of many queues.
	pageLeast = 16
)

// source reads the next page of each queue: up to most places from the place from on, newest first
// for each subscription, into got. Fewer than most are the last ones.
type source func(ctx context.Context, strands []*strand) error

// strand is one of the queues that a search merges.
type strand struct {
	q    *queue
	from int64 // where the next page begins
	most int   // messages of the next page
	more bool  // there may be a next page
	// places are those that were read and not looked at, newest first.
	places []int64
	got    []int64 // by the source
	err    error   // of the source
}

// head returns the id of the next message, or, if that is not read yet, one that it cannot exceed.
func (s *strand) head() (id posthaste.MessageID, read bool) {
	if len(s.places) > 0 {
		return s.id(s.places[0]), true
	}
	return s.id(s.from), false
}

func (s *strand) id(place int64) posthaste.MessageID {
	return posthaste.MessageID(place<<numberBits | s.q.number)
}

// take makes the next page of what the source got from all subscriptions of the queue.
func (s *strand) take(before posthaste.MessageID) {
	slices.SortFunc(s.got, func(a, b int64) int { return cmp.Compare(b, a) })
	s.got = slices.Compact(s.got)
	s.got = s.got[:min(len(s.got), s.most)]
	if s.more = len(s.got) == s.most; s.more {
		s.from = s.got[len(s.got)-1] - 1
	}
	s.most = min(4*s.most, pageMost)
	s.places, s.got = slices.DeleteFunc(s.got, func(place int64) bool { // an id of another queue may have the same place
		return before != 0 && s.id(place) >= before
	}), nil
}

// searching merges the messages of queues, newest first.
type searching struct {
	strands []*strand // those that may have further messages
	source  source
	before  posthaste.MessageID
	one     bool // it is about one queue, which must exist
}

// search reads the messages of a queue, or of all queues if queue is "", newest first, until
// limit messages match or it has looked at 3,000. cutAt is as in [posthaste.MessageAdmin].
func (e *Engine) search(ctx context.Context, queue string, limit int, before posthaste.MessageID, from source, matches func(*told) bool) (found []*told, cutAt posthaste.MessageID, err error) {
	s, err := e.searchIn(ctx, queue, limit, before, from)
	if err != nil {
		return nil, 0, err
	}
	for looked, most := 0, limit; looked < posthaste.MaxSearched; most = pageMost {
		if err := s.read(ctx); err != nil {
			return nil, 0, err
		}
		if len(s.strands) == 0 {
			return found, 0, nil
		}
		next, lowest := s.next(min(most, pageMost, posthaste.MaxSearched-looked))
		all, err := e.tellChosen(ctx, next, queue != "")
		if err != nil {
			return nil, 0, err
		}
		for _, t := range all {
			if t != nil && matches(t) {
				if found = append(found, t); len(found) == limit {
					return found, 0, nil // the page is full: the next one begins at its end
				}
			}
		}
		if looked += len(all); len(all) > 0 {
			cutAt = lowest
		}
	}
	if err := s.read(ctx); err != nil || len(s.strands) == 0 {
		return found, 0, err
	}
	return found, cutAt, nil
}

// searchIn begins a search. It reads which queues and subscriptions there are now.
func (e *Engine) searchIn(ctx context.Context, name string, limit int, before posthaste.MessageID, from source) (*searching, error) {
	all, err := e.registry.read(ctx)
	if err != nil {
		return nil, err
	}
	if name != "" {
		q, err := e.registry.queue(ctx, name)
		if err != nil {
			return nil, err
		}
		all = map[string]*queue{name: q}
	}
	place, most := int64(math.MaxInt64>>numberBits), min(max(limit, 100), pageMost)
	if before != 0 {
		place = int64(before) >> numberBits
	}
	if len(all) > 1 {
		most = min(max(2*limit/len(all), pageLeast), pageMost)
	}
	s := &searching{source: from, before: before, one: name != ""}
	for _, q := range all {
		s.strands = append(s.strands, &strand{q: q, from: place, most: most, more: true})
	}
	return s, nil
}

// read reads the next page of all queues of which nothing is left, and drops those that have none.
func (s *searching) read(ctx context.Context) error {
	for {
		var empty []*strand
		for _, one := range s.strands {
			if len(one.places) == 0 && one.more {
				empty = append(empty, one)
			}
		}
		if len(empty) > 0 {
			if err := s.source(ctx, empty); err != nil {
				return err
			}
		}
		for _, one := range empty {
			if one.err != nil && (s.one || posthaste.CodeOf(one.err) != posthaste.CodeNotFound) { // else it was dropped since
				return one.err
			}
			one.take(s.before)
		}
		s.strands = slices.DeleteFunc(s.strands, func(one *strand) bool { return len(one.places) == 0 && !one.more })
		if !slices.ContainsFunc(s.strands, func(one *strand) bool { return len(one.places) == 0 }) {
			return nil
		}
	}
}

// next takes up to most of the newest messages, as far as they are read. It returns them by their
// queues, and the id of the last one.
func (s *searching) next(most int) (next []chosen, lowest posthaste.MessageID) {
	for len(next) < most {
		var newest *strand
		var head posthaste.MessageID
		for _, one := range s.strands {
			if id, _ := one.head(); (len(one.places) > 0 || one.more) && id > head {
				newest, head = one, id
			}
		}
		if newest == nil {
			break
		}
		if _, read := newest.head(); !read {
			break
		}
		next, lowest = append(next, chosen{newest.q, newest.places[0]}), head
		newest.places = newest.places[1:]
	}
	return next, lowest
}

// chosen is a message of a queue.
type chosen struct {
	q     *queue
	place int64
}

// tellChosen looks up messages of several queues, as tell does for one. Unless one is set, it
// passes over queues that were dropped since.
func (e *Engine) tellChosen(ctx context.Context, all []chosen, one bool) ([]*told, error) {
	type part struct {
		places []string
		at     []int // of all
		found  []*told
	}
	parts := map[string]*part{}
	var queues []*queue
	for i, c := range all {
		p := parts[c.q.name]
		if p == nil {
			p = &part{}
			parts[c.q.name], queues = p, append(queues, c.q)
		}
		p.places, p.at = append(p.places, place(c.place<<numberBits)), append(p.at, i)
	}
	for _, p := range parts {
		p.found = make([]*told, len(p.places))
	}
	failed, err := e.askAll(ctx, tellScript, queues, func(q *queue) arguments {
		return q.telling(parts[q.name].places)
	}, func(q *queue, reply any) error {
		return q.toldAll(parts[q.name].places, reply, parts[q.name].found)
	}, func(name string) { clear(parts[name].found) })
	if err != nil {
		return nil, err
	}
	for _, err := range failed {
		if one || posthaste.CodeOf(err) != posthaste.CodeNotFound {
			return nil, err
		}
	}
	found := make([]*told, len(all))
	for _, p := range parts {
		for i, at := range p.at {
			found[at] = p.found[i]
		}
	}
	return found, nil
}

// askAll runs a script that changes nothing for each subscription of several queues, in few calls,
// and passes the replies to then, as each does for one queue. A queue that has changed since it
// was read is asked again: again prepares for that. failed has the errors of single queues.
func (e *Engine) askAll(ctx context.Context, s script, queues []*queue, args func(*queue) arguments, then func(*queue, any) error, again func(name string)) (failed map[string]error, err error) {
	var all []*queue
	for _, q := range queues {
		all = append(append(all, q), q.subs...)
	}
	replies, missed := e.runEach(ctx, s, all, args)
	if missed != nil && !e.cluster {
		return nil, readError(missed)
	}
	failed, gone := map[string]error{}, map[string]bool{}
	for i, q := range all {
		switch replies[i] {
		case nil:
			lookAgain(e.client, missed)
			failed[q.name] = readError(missed)
		case "gone":
			gone[q.name] = true
		}
	}
	for i, q := range all {
		if failed[q.name] == nil && !gone[q.name] {
			if err := then(q, replies[i]); err != nil {
				return nil, err
			}
		}
	}
	for name := range gone {
		again(name)
		if err := e.each(ctx, s, name, args, then); err != nil {
			failed[name] = cmp.Or(failed[name], readError(err))
		}
	}
	return failed, nil
}
