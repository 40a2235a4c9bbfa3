package enginetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// deadLettersByFilter: dead letters are found, replayed and discarded by filter, in pages, and
// each action is recorded.
func deadLettersByFilter(s *suite) {
	s.create(quick())
	ids := s.bury()
	s.findByFilter(ids)
	s.wantFiltersRefused(ids)
	s.replayInPages(ids)
	discarded, err := s.engine.Discard(posthaste.WithActor(s.ctx, "bob"), posthaste.DeadLetterFilter{Queue: s.queue, Error: "by 0"})
	if s.must(err); !slices.Equal(discarded.Items, ids[:1]) || discarded.Next != 0 {
		s.Errorf("discarded %v (next %d), want %v", discarded.Items, discarded.Next, ids[:1])
	}
	s.wantActions(ids)
}

// bury makes dead letters of six messages that differ in key, kind, reference, term and
// error.
func (s *suite) bury() []posthaste.MessageID {
	s.Helper()
	var sent []posthaste.Message
	for i := range 6 {
		sent = append(sent, posthaste.Message{Queue: s.queue, Payload: i, Key: fmt.Sprint("key", i%2), Kind: fmt.Sprint("kind", i%3),
			Reference: fmt.Sprint("ref", i), Terms: []string{fmt.Sprint("term", i/3)}})
	}
	ids, err := posthaste.IDs(s.engine.Send(s.ctx, sent...))
	s.must(err)
	w := s.register(time.Minute)
	got := s.claimed(w, 6)
	slices.SortFunc(got, func(a, b posthaste.RawDelivery) int { return cmp.Compare(a.MessageID, b.MessageID) })
	for i, d := range got {
		s.settle(posthaste.Settlement{Outcome: posthaste.OutcomeDead, Error: fmt.Sprintf("Größe: Broken by %d", i/2)}, d)
	}
	return ids
}

// findByFilter checks which of the dead letters each filter finds.
func (s *suite) findByFilter(ids []posthaste.MessageID) {
	s.Helper()
	one, err := s.engine.DeadLetters(s.ctx, posthaste.DeadLetterFilter{IDs: ids[3:4]})
	s.must(err)
	if len(one.Items) != 1 {
		s.Fatalf("%d dead letters with one id", len(one.Items))
	}
	died := one.Items[0].DiedAt
	for what, c := range map[string]struct {
		filter posthaste.DeadLetterFilter
		want   []int
	}{
		"all":                    {posthaste.DeadLetterFilter{}, []int{5, 4, 3, 2, 1, 0}},
		"key":                    {posthaste.DeadLetterFilter{Key: "key1"}, []int{5, 3, 1}},
		"kind":                   {posthaste.DeadLetterFilter{Kind: "kind0"}, []int{3, 0}},
		"reference":              {posthaste.DeadLetterFilter{Reference: "ref4"}, []int{4}},
		"reference and kind":     {posthaste.DeadLetterFilter{Reference: "ref4", Kind: "kind0"}, nil},
		"term":                   {posthaste.DeadLetterFilter{Term: "term1"}, []int{5, 4, 3}},
		"error":                  {posthaste.DeadLetterFilter{Error: "BROKEN by 1"}, []int{3, 2}},
		"error with an umlaut":   {posthaste.DeadLetterFilter{Error: "gRößE: bRoken by 2"}, []int{5, 4}},
		"umlaut in another case": {posthaste.DeadLetterFilter{Error: "GRÖßE"}, nil},
		"no such error":          {posthaste.DeadLetterFilter{Error: "Broken_by"}, nil},
		"key and term":           {posthaste.DeadLetterFilter{Key: "key1", Term: "term0"}, []int{1}},
		"subscription":           {posthaste.DeadLetterFilter{Subscription: posthaste.DefaultSubscription}, []int{5, 4, 3, 2, 1, 0}},
		"died from":              {posthaste.DeadLetterFilter{DiedFrom: died}, []int{5, 4, 3}},
		"died before":            {posthaste.DeadLetterFilter{DiedBefore: died}, []int{2, 1, 0}},
		"a page":                 {posthaste.DeadLetterFilter{Before: ids[4], Limit: 2}, []int{3, 2}},
		"ids and a filter":       {posthaste.DeadLetterFilter{IDs: ids[:3], Key: "key0"}, []int{2, 0}},
		"some of ids":            {posthaste.DeadLetterFilter{IDs: ids, Limit: 2}, []int{5, 4}},
	} {
		c.filter.Queue = s.queue
		found, err := s.engine.DeadLetters(s.ctx, c.filter)
		s.must(err)
		next := posthaste.MessageID(0)
		if c.filter.Limit > 0 {
			next = ids[c.want[len(c.want)-1]]
		}
		if got := places(ids, found.Items); !slices.Equal(got, c.want) || found.Next != next {
			s.Errorf("by %s: found %v, and the next page begins at %d; want %v, %d", what, got, found.Next, c.want, next)
		}
	}
}

// wantFiltersRefused checks the errors of filters that are ambiguous, too wide or name
// unknown queues.
func (s *suite) wantFiltersRefused(ids []posthaste.MessageID) {
	s.Helper()
	_, err := s.engine.DeadLetters(s.ctx, posthaste.DeadLetterFilter{Subscription: "x"})
	s.wantCode("a subscription of no queue", err, posthaste.CodeInvalid)
	_, err = s.engine.DeadLetters(s.ctx, posthaste.DeadLetterFilter{Queue: s.queue, Subscription: "missing"})
	s.wantCode("an unknown subscription", err, posthaste.CodeNotFound)
	_, err = s.engine.Replay(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{IDs: ids, Queue: s.queue})
	s.wantCode("ids and a filter", err, posthaste.CodeInvalid)
	for what, f := range map[string]posthaste.DeadLetterFilter{"nothing": {}, "a page": {Before: ids[0], Limit: 2}, "all of a queue": {All: true, Queue: s.queue}} {
		_, err = s.engine.Replay(posthaste.WithActor(s.ctx, "ada"), f)
		s.wantCode("replaying "+what, err, posthaste.CodeInvalid)
		_, err = s.engine.Discard(posthaste.WithActor(s.ctx, "ada"), f)
		s.wantCode("discarding "+what, err, posthaste.CodeInvalid)
	}
	if none, err := s.engine.Replay(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{All: true, Before: 1}); err != nil || len(none.Items) != 0 || none.Next != 0 {
		s.Errorf("replayed %v of all before the first one, next %d: %v", none.Items, none.Next, err)
	}
	_, err = s.engine.Discard(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{Queue: "missing-s"})
	s.wantCode("of an unknown queue", err, posthaste.CodeNotFound)
}

// replayInPages replays the dead letters of one key in pages of two, and settles them.
func (s *suite) replayInPages(ids []posthaste.MessageID) {
	s.Helper()
	var replayed []posthaste.MessageID
	for filter := (posthaste.DeadLetterFilter{Queue: s.queue, Key: "key1", Limit: 2}); ; {
		were, err := s.engine.Replay(posthaste.WithActor(s.ctx, "ada"), filter)
		s.must(err)
		if len(were.Items) > 2 {
			s.Errorf("replayed %v, want two at most", were.Items)
		}
		replayed = append(replayed, were.Items...)
		if were.Next == 0 {
			break
		}
		filter.Before = were.Next
	}
	slices.Sort(replayed)
	if want := []posthaste.MessageID{ids[1], ids[3], ids[5]}; !slices.Equal(replayed, want) {
		s.Errorf("replayed %v, want %v", replayed, want)
	}
	s.settle(done, s.claimed(s.register(time.Minute), 3)...)
}

// noDeadLetters: replaying or discarding messages that are not dead letters returns an error
// with an id, and changes nothing. With a filter, finding nothing is not an error.
func noDeadLetters(s *suite) {
	s.create(quick())
	ids := s.send(3)
	w := s.register(time.Minute)
	got := s.claimed(w, 3)
	slices.SortFunc(got, func(a, b posthaste.RawDelivery) int { return cmp.Compare(a.MessageID, b.MessageID) })
	s.settle(hopeless, got[:2]...)
	_, err := s.engine.Replay(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{ids[0]}})
	s.must(err)
	_, err = s.engine.Discard(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{ids[1]}})
	s.must(err)
	tell := func() string {
		told := fmt.Sprint(len(s.actions()))
		for _, id := range ids {
			info, err := s.engine.Message(s.ctx, id)
			s.must(err)
			told += fmt.Sprint(" ", info.Subscriptions[0].State, len(info.Subscriptions[0].Attempts))
		}
		return told
	}
	before := tell()
	for what, ids := range map[string][]posthaste.MessageID{
		"a replayed message": ids[:1], "a discarded message": ids[1:2], "a running message": ids[2:], "what never was": {1 << 50}, "all of these": {ids[0], ids[1], ids[2], 1 << 50},
	} {
		for verb, act := range map[string]func(context.Context, posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error){"replaying ": s.engine.Replay, "discarding ": s.engine.Discard} {
			were, err := act(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{IDs: ids})
			s.wantCode(verb+what, err, posthaste.CodeNotFound)
			if err != nil && !strings.Contains(err.Error(), ids[0].String()) || len(were.Items) != 0 {
				s.Errorf("%s%s, message %d, is answered with %v, %v", verb, what, ids[0], were.Items, err)
			}
		}
	}
	if after := tell(); after != before {
		s.Errorf("it became of %s: %s", before, after)
	}
	for what, f := range map[string]posthaste.DeadLetterFilter{
		"that selects nothing": {}, "without ids": {IDs: []posthaste.MessageID{}}, "by ids and a queue": {IDs: ids, Queue: s.queue}, "by ids and all": {IDs: ids, All: true},
	} {
		_, err := s.engine.Replay(s.ctx, f)
		s.wantCode("a filter "+what, err, posthaste.CodeInvalid)
	}
	were, err := s.engine.Discard(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{Queue: s.queue})
	if s.must(err); len(were.Items) != 0 || were.Next != 0 {
		s.Errorf("by filter, %v were discarded, and then %d", were.Items, were.Next)
	}
}

// wantActions checks the recorded actions of deadLettersByFilter.
func (s *suite) wantActions(ids []posthaste.MessageID) {
	all := s.actions()
	var told []string
	for i, a := range all {
		told = append(told, fmt.Sprintf("%s %s %d", a.By, a.Action, slices.Index(ids, a.MessageID)))
		if a.At.IsZero() || a.Queue != s.queue || i > 0 && a.ID >= all[i-1].ID {
			s.Errorf("action %d is %+v", i, a)
		}
	}
	if first := told[0]; first != "bob discard 0" {
		s.Errorf("the newest action is %q", first)
	}
	if slices.Sort(told); !slices.Equal(told, []string{"ada replay 1", "ada replay 3", "ada replay 5", "bob discard 0"}) {
		s.Errorf("actions %v", told)
	}
	one, err := s.engine.Actions(s.ctx, posthaste.ActionFilter{MessageID: ids[3]})
	if s.must(err); len(one) != 1 || one[0].MessageID != ids[3] {
		s.Errorf("actions on message 3: %+v", one)
	}
	page, err := s.engine.Actions(s.ctx, posthaste.ActionFilter{Queue: s.queue, Before: all[0].ID, Limit: 2})
	if s.must(err); len(page) != 2 || page[0].ID != all[1].ID {
		s.Errorf("a page of actions: %+v", page)
	}
	_, err = s.engine.Actions(s.ctx, posthaste.ActionFilter{Limit: 1001})
	s.wantCode("a limit of 1001", err, posthaste.CodeInvalid)
}

// places returns the indexes in ids of the found dead letters.
func places(ids []posthaste.MessageID, found []posthaste.DeadLetter) (at []int) {
	for _, d := range found {
		at = append(at, slices.Index(ids, d.ID))
	}
	return at
}

// erase removes the stored data of a term's messages and keeps the record that they existed.
// Pending messages are reported and still delivered.
func erase(s *suite) {
	o := quick()
	o.Retention, o.RetainPayload = time.Hour, true // so that messages that are not erased are still there
	s.create(o)
	var sent []posthaste.Message
	for i := range 3 {
		sent = append(sent, posthaste.Message{Queue: s.queue, Payload: "secret", Key: "secret", Kind: "kind", Reference: fmt.Sprint("secret", i),
			Headers: map[string]string{"h": "secret"}, Terms: []string{"ada", "secret"}})
	}
	ids, err := posthaste.IDs(s.engine.Send(s.ctx, sent...))
	s.must(err)
	other := s.send(1)
	w := s.register(time.Minute)
	got := s.claimed(w, 4)
	slices.SortFunc(got, func(a, b posthaste.RawDelivery) int { return cmp.Compare(a.MessageID, b.MessageID) })
	s.settle(posthaste.Settlement{Outcome: posthaste.OutcomeDone, Receipt: []byte(`{"to":"secret"}`)}, got[0])
	s.settle(posthaste.Settlement{Outcome: posthaste.OutcomeDead, Error: "secret"}, got[1])

	found, err := s.engine.Erase(posthaste.WithActor(s.ctx, "officer"), "ada", 0)
	s.must(err)
	want := []posthaste.Erasure{{MessageID: ids[2], Queue: s.queue, Pending: true}, {MessageID: ids[1], Queue: s.queue}, {MessageID: ids[0], Queue: s.queue}}
	if !slices.Equal(found.Items, want) || found.Next != 0 {
		s.Errorf("erased %+v, then %d, want %+v", found.Items, found.Next, want)
	}
	s.settle(done, got[2:]...)
	found, err = s.engine.Erase(posthaste.WithActor(s.ctx, "officer"), "ada", 0)
	if s.must(err); !slices.Equal(found.Items, []posthaste.Erasure{{MessageID: ids[2], Queue: s.queue}}) {
		s.Errorf("the second time it erased %+v, want the pending messages", found.Items)
	}
	s.wantErased(ids)
	if info, err := s.engine.Message(s.ctx, other[0]); err != nil || string(info.Payload) != "0" {
		s.Errorf("another message is reported as %+v, %v", info, err)
	}
	actions, err := s.engine.Actions(s.ctx, posthaste.ActionFilter{MessageID: ids[0]})
	if s.must(err); len(actions) != 1 || actions[0].By != "officer" || actions[0].Action != "erase" || strings.Contains(string(actions[0].Details), "ada") {
		s.Errorf("on record is %+v", actions)
	}
	_, err = s.engine.Erase(posthaste.WithActor(s.ctx, "officer"), "", 0)
	s.wantCode("erasing an empty term", err, posthaste.CodeInvalid)
}

// eraseUniqueKey: the unique key of a dead letter is erased with it, and so is free.
func eraseUniqueKey(s *suite) {
	s.create(quick())
	key := &posthaste.Unique{Key: "welcome ada", Until: posthaste.UntilResolved}
	m := posthaste.Message{Queue: s.queue, Payload: 1, Terms: []string{"ada"}, Unique: key}
	first, err := s.engine.Send(s.ctx, m)
	s.must(err)
	s.settle(posthaste.Settlement{Outcome: posthaste.OutcomeDead, Error: "no"}, s.claimed(s.register(time.Minute), 1)...)
	again, err := s.engine.Send(s.ctx, m)
	if s.must(err); again[0].ID != first[0].ID || again[0].State != posthaste.StateDead {
		s.Errorf("before the erasure: %+v, want %d", again[0], first[0].ID)
	}
	found, err := s.engine.Erase(s.ctx, "ada", 0)
	if s.must(err); len(found.Items) != 1 || found.Items[0].Pending {
		s.Errorf("erased %+v", found.Items)
	}
	again, err = s.engine.Send(s.ctx, m)
	s.must(err)
	s.wantNew("after the erasure", again[0])
}

// wantErased checks that three messages, the second a dead letter, show nothing of the erased
// data, are not found by it, and can be discarded but not replayed.
func (s *suite) wantErased(ids []posthaste.MessageID) {
	s.Helper()
	for i, id := range ids {
		info, err := s.engine.Message(s.ctx, id)
		s.must(err)
		told := fmt.Sprintf("%+v %s", info, info.Payload)
		if strings.Contains(told, "secret") || strings.Contains(told, "ada") || info.ErasedAt.IsZero() || info.Kind != "kind" || info.CreatedAt.IsZero() || len(info.Subscriptions[0].Attempts) != 1 {
			s.Errorf("message %d is reported as %s", i, told)
		}
	}
	s.wantState(ids[0], posthaste.StateDone)
	s.wantState(ids[1], posthaste.StateDead)
	for what, f := range map[string]posthaste.MessageFilter{"term": {Term: "secret"}, "reference": {Reference: "secret0"}, "key": {Key: "secret"}} {
		f.Queue = s.queue
		if infos, err := s.engine.Messages(s.ctx, f); err != nil || len(infos.Items) != 0 {
			s.Errorf("by %s %d are found, %v", what, len(infos.Items), err)
		}
	}
	dead, err := s.engine.DeadLetters(s.ctx, posthaste.DeadLetterFilter{Queue: s.queue})
	if s.must(err); len(dead.Items) != 1 || dead.Items[0].ErasedAt.IsZero() || strings.Contains(fmt.Sprintf("%+v %s", dead.Items[0], dead.Items[0].Payload), "secret") {
		s.Errorf("the dead letters are %+v", dead.Items)
	}
	_, err = s.engine.Replay(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{ids[1]}})
	s.wantCode("replaying an erased message", err, posthaste.CodeNotFound)
	if were, err := s.engine.Discard(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{ids[1]}}); err != nil || len(were.Items) != 1 {
		s.Errorf("an erased message was not discarded: %v, %v", were.Items, err)
	}
}
