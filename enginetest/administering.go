package enginetest

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var administering = []test{
	{name: "Queues", run: queues},
	{name: "QueueDrop", run: queueDrop},
	{name: "QueueDropIfEmpty", run: queueDropIfEmpty},
	{name: "UnsubscribeIfEmpty", run: unsubscribeIfEmpty, needs: features{Subscriptions: true}},
	{name: "Prune", run: prune},
	{name: "DeadLetters", run: deadLetters},
	{name: "DeadLettersByFilter", run: deadLettersByFilter},
	{name: "NoDeadLetters", run: noDeadLetters},
	{name: "Erase", run: erase, needs: features{Search: true}},
	{name: "EraseUniqueKey", run: eraseUniqueKey, needs: features{Search: true, Unique: true}},
	{name: "Messages", run: messages, needs: features{Search: true}},
	{name: "PagesOfSubscriptions", run: pagesOfSubscriptions, needs: features{Subscriptions: true, Search: true}},
	{name: "Retention", run: retention, needs: features{Attempts: true, Search: true}},
	{name: "Maintain", run: maintain},
}

func queues(s *suite) {
	full := posthaste.QueueOptions{MaxAttempts: 7, BackoffBase: 2 * time.Second, BackoffMax: time.Minute,
		Timeout: 5 * time.Second, MaxPayload: 5000, Lanes: 4, Mode: posthaste.AtLeastOnce,
		Retention: 24 * time.Hour, RetainPayload: true}
	s.must(s.engine.CreateQueue(s.ctx, "a", posthaste.QueueOptions{}))
	s.must(s.engine.CreateQueue(s.ctx, "b", full))
	infos, err := s.engine.Queues(s.ctx, "a", "b", "missing")
	s.must(err)
	slices.SortFunc(infos, func(x, y posthaste.QueueInfo) int { return int(x.Name[0]) - int(y.Name[0]) })
	if len(infos) != 2 || infos[0].Name != "a" || infos[1].Name != "b" {
		s.Fatalf("queues %+v, want a and b", infos)
	}
	defaults := posthaste.QueueOptions{MaxAttempts: 20, BackoffBase: time.Second, BackoffMax: time.Hour, Timeout: 30 * time.Second, MaxPayload: 1 << 20, Lanes: 1, Mode: posthaste.AtLeastOnce}
	if !reflect.DeepEqual(infos[0].Options, defaults) || !reflect.DeepEqual(infos[1].Options, full) {
		s.Errorf("options %+v and %+v", infos[0].Options, infos[1].Options)
	}
	if subs := infos[0].Subscriptions; len(subs) != 1 || subs[0].Name != posthaste.DefaultSubscription || infos[0].CreatedAt.IsZero() {
		s.Errorf("queue a is reported as %+v", infos[0])
	}
	if one, err := s.engine.Queues(s.ctx, "b"); err != nil || len(one) != 1 || one[0].Name != "b" {
		s.Errorf("asked for b: %+v, %v", one, err)
	}

	for _, name := range []string{"", "Upper", "with space", "ü", string(make([]byte, 64))} {
		s.wantCode(fmt.Sprintf("queue named %q", name), s.engine.CreateQueue(s.ctx, name, posthaste.QueueOptions{}), posthaste.CodeInvalid)
	}
	for what, o := range map[string]posthaste.QueueOptions{
		"max_attempts": {MaxAttempts: 1001}, "negative max_attempts": {MaxAttempts: -1}, "max_payload": {MaxPayload: posthaste.MaxPayloadBytes + 1},
		"lanes": {Lanes: 65}, "timeout": {Timeout: -time.Second}, "backoff": {BackoffBase: -time.Second},
		"timeout of years": {Timeout: 366 * 24 * time.Hour}, "backoff of years": {BackoffMax: 366 * 24 * time.Hour},
		"backoff above its bound": {BackoffBase: 2 * time.Second, BackoffMax: time.Second}, "backoff above the default bound": {BackoffBase: 2 * time.Hour},
		"retention": {Retention: -time.Second}, "retention of centuries": {Retention: 200 * 365 * 24 * time.Hour}, "retain_payload": {RetainPayload: true},
	} {
		s.wantCode("bad "+what, s.engine.CreateQueue(s.ctx, "bad", o), posthaste.CodeInvalid)
	}
	if infos, err := s.engine.Queues(s.ctx, "bad"); err != nil || len(infos) != 0 {
		s.Errorf("a refused queue exists: %+v, %v", infos, err)
	}
}

// A queue is dropped only if it is empty, also right after a message was sent, handed out or died,
// and right after it left.
func queueDropIfEmpty(s *suite) {
	s.create(quick())
	w := s.register(time.Minute)
	refused := func(when string) {
		s.Helper()
		s.wantCode(when, s.engine.DropQueue(s.ctx, s.queue, posthaste.DropOptions{IfEmpty: true}), posthaste.CodeRefused)
	}
	s.send(1)
	refused("a message waits")
	got := s.claimed(w, 1)
	refused("a message is in flight")
	s.settle(failed, got...)
	refused("a message waits for its retry")
	s.settle(hopeless, s.claimed(w, 1)...)
	refused("a message is dead")
	_, err := s.engine.Replay(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{got[0].MessageID}})
	s.must(err)
	refused("a message was replayed")
	s.settle(done, s.claimed(w, 1)...)
	_, err = s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: 1, Delay: time.Hour})
	s.must(err)
	refused("a message is scheduled")
	_, err = s.engine.PurgeQueue(s.ctx, s.queue)
	s.must(err)
	s.must(s.engine.DropQueue(s.ctx, s.queue, posthaste.DropOptions{IfEmpty: true}))
	s.wantCode("dropping again", s.engine.DropQueue(s.ctx, s.queue, posthaste.DropOptions{IfEmpty: true}), posthaste.CodeNotFound)
}

// A subscription is removed only if it is empty, whatever the others hold.
func unsubscribeIfEmpty(s *suite) {
	s.create(quick())
	ctx := posthaste.WithActor(s.ctx, "ada")
	s.must(s.engine.Subscribe(ctx, s.queue, "audit", posthaste.SubscriptionOptions{}))
	s.send(1)
	s.wantCode("a message waits", s.engine.Unsubscribe(ctx, s.queue, "audit", posthaste.DropOptions{IfEmpty: true}), posthaste.CodeRefused)
	s.wantCode("a message waits", s.engine.DropQueue(ctx, s.queue, posthaste.DropOptions{IfEmpty: true}), posthaste.CodeRefused)
	reply, err := s.engine.Receive(s.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: s.queue, Subscription: "audit"}, Max: 1, Lease: time.Minute})
	s.must(err)
	s.wantCode("a message is in flight", s.engine.Unsubscribe(ctx, s.queue, "audit", posthaste.DropOptions{IfEmpty: true}), posthaste.CodeRefused)
	s.settle(done, reply.Deliveries...)
	s.must(s.engine.Unsubscribe(ctx, s.queue, "audit", posthaste.DropOptions{IfEmpty: true}))
	s.claimed(s.register(time.Minute), 1)
}

// Pruning removes a queue that is not declared, but never a message with it, even if the message was
// sent after the changes were planned or is not counted yet.
func prune(s *suite) {
	s.create(posthaste.QueueOptions{Owner: s.queue})
	declared := &posthaste.Declaration{Owner: s.queue}
	planned, err := declared.Changes(s.ctx, s.engine, true)
	s.must(err)
	s.send(1)
	s.wantCode("a message waits", declared.Apply(s.ctx, s.engine, true, planned), posthaste.CodeRefused)
	s.settle(done, s.claimed(s.register(time.Minute), 1)...)
	s.until("the queue is pruned", func() bool {
		_, err := s.engine.Maintain(s.ctx, posthaste.UpkeepSpace)
		s.must(err)
		err = declared.Apply(s.ctx, s.engine, true, planned)
		if posthaste.CodeOf(err) != posthaste.CodeRefused { // the counts may lag
			s.must(err)
		}
		return err == nil
	})
	if infos, err := s.engine.Queues(s.ctx, s.queue); err != nil || len(infos) != 0 {
		s.Errorf("a pruned queue exists: %+v, %v", infos, err)
	}
}

func queueDrop(s *suite) {
	s.create(posthaste.QueueOptions{})
	s.send(3)
	w := s.register(time.Minute)
	s.claimed(w, 1)
	s.must(s.engine.DropQueue(s.ctx, s.queue, posthaste.DropOptions{}))
	_, err := s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: 1})
	s.wantCode("send to a dropped queue", err, posthaste.CodeNotFound)
	_, err = s.engine.Claim(s.ctx, s.request(w, 1))
	s.wantCode("claim from a dropped queue", err, posthaste.CodeNotFound)
	// A new queue of the same name is another queue.
	s.create(posthaste.QueueOptions{})
	s.none(w)
	s.send(1)
	s.settle(done, s.claimed(w, 1)...)
}

func deadLetters(s *suite) {
	s.create(quick())
	sent := []posthaste.Message{}
	for i := range 3 {
		sent = append(sent, posthaste.Message{Queue: s.queue, Payload: i, Key: "k", Kind: "kind", Reference: fmt.Sprint("r", i),
			Headers: map[string]string{"h": "v"}, Terms: []string{"t"}})
	}
	ids, err := posthaste.IDs(s.engine.Send(s.ctx, sent...))
	s.must(err)
	w := s.register(time.Minute)
	s.settle(hopeless, s.claimed(w, 3)...)
	list := func() []posthaste.DeadLetter {
		dead, err := s.engine.DeadLetters(s.ctx, posthaste.DeadLetterFilter{Queue: s.queue})
		s.must(err)
		return dead.Items
	}
	s.wantDeadLetters(list(), ids, sent)
	if one, err := s.engine.DeadLetters(s.ctx, posthaste.DeadLetterFilter{IDs: ids[1:2]}); err != nil || len(one.Items) != 1 || one.Items[0].ID != ids[1] {
		s.Errorf("by id: %+v, %v", one.Items, err)
	}
	if page, err := s.engine.DeadLetters(s.ctx, posthaste.DeadLetterFilter{Queue: s.queue, Before: ids[2], Limit: 1}); err != nil || len(page.Items) != 1 || page.Items[0].ID != ids[1] {
		s.Errorf("a page: %+v, %v", page.Items, err)
	}

	alive := s.send(1)
	replayed, err := s.engine.Replay(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{ids[0], ids[1], alive[0], 1 << 50}})
	s.must(err)
	if slices.Sort(replayed.Items); !slices.Equal(replayed.Items, ids[:2]) {
		s.Errorf("replayed %v, want %v", replayed.Items, ids[:2])
	}
	discarded, err := s.engine.Discard(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{ids[0], ids[2]}})
	s.must(err)
	if !slices.Equal(discarded.Items, ids[2:]) {
		s.Errorf("discarded %v, want only messages that are still dead letters", discarded.Items)
	}
	s.wantState(ids[2], posthaste.StateDiscarded)
	if dead := list(); len(dead) != 0 {
		s.Errorf("left: %+v", dead)
	}
	s.wantState(ids[0], posthaste.StateReady) // and not retrying, although it was tried before
	got := s.claimed(w, 3)
	if want := []posthaste.MessageID{ids[0], ids[1], alive[0]}; !slices.Equal(messageIDs(got), want) {
		s.Errorf("handed out after the replay: %v, want %v", messageIDs(got), want)
	}
	for _, d := range got {
		if d.MessageID == ids[0] && (string(d.Payload) != "0" || d.Key != "k" || d.Kind != "kind" || d.Headers["h"] != "v" || d.Reference != "r0") {
			s.Errorf("replayed as %+v", d)
		}
	}
	s.settle(done, got...)
	s.wantState(ids[0], posthaste.StateDone)
	again, err := s.engine.Replay(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{IDs: ids})
	if s.wantCode("replaying once more", err, posthaste.CodeNotFound); len(again.Items) != 0 {
		s.Errorf("replayed once more: %v", again.Items)
	}
}

// wantDeadLetters checks that all messages became dead letters at their first attempt.
func (s *suite) wantDeadLetters(dead []posthaste.DeadLetter, ids []posthaste.MessageID, sent []posthaste.Message) {
	s.Helper()
	if len(dead) != len(sent) {
		s.Fatalf("%d dead letters, want %d", len(dead), len(sent))
	}
	for i, d := range dead {
		at := len(sent) - 1 - i // newest first
		m := sent[at]
		if d.ID != ids[at] || d.Queue != s.queue || d.Key != m.Key || d.Kind != m.Kind || d.Reference != m.Reference || d.Headers["h"] != "v" ||
			string(d.Payload) != fmt.Sprint(m.Payload) || d.Error != hopeless.Error || d.DiedAt.IsZero() || len(d.Attempts) != 1 || d.Attempts[0].Error != hopeless.Error {
			s.Errorf("dead letter %d is %+v", i, d)
		}
	}
}

func messages(s *suite) {
	s.create(posthaste.QueueOptions{})
	ids := s.send(5)
	list := func(f posthaste.MessageFilter) (found []posthaste.MessageID) {
		f.Queue = s.queue
		infos, err := s.engine.Messages(s.ctx, f)
		s.must(err)
		if full := f.Limit > 0 && len(infos.Items) == f.Limit; full && infos.Next != infos.Items[f.Limit-1].ID || !full && infos.Next != 0 {
			s.Errorf("after %d of %d messages the next page begins at %d", len(infos.Items), f.Limit, infos.Next)
		}
		for _, m := range infos.Items {
			found = append(found, m.ID)
		}
		return found
	}
	newest := slices.Clone(ids)
	slices.Reverse(newest)
	if got := list(posthaste.MessageFilter{}); !slices.Equal(got, newest) {
		s.Errorf("messages %v, want %v", got, newest)
	}
	if got := list(posthaste.MessageFilter{Before: ids[3], Limit: 2}); !slices.Equal(got, newest[2:4]) {
		s.Errorf("a page: %v, want %v", got, newest[2:4])
	}
	d := s.claimed(s.register(time.Minute), 2)
	s.settle(done, d[0])
	for state, want := range map[posthaste.State]int{posthaste.StateReady: 3, posthaste.StateRunning: 1, posthaste.StateDone: 1, posthaste.StateDead: 0} {
		if got := list(posthaste.MessageFilter{State: state}); len(got) != want {
			s.Errorf("%d messages are %s, want %d", len(got), state, want)
		}
	}
	before, err := s.engine.Message(s.ctx, ids[4])
	s.must(err)
	if got := list(posthaste.MessageFilter{CreatedFrom: before.CreatedAt}); !slices.Contains(got, ids[4]) {
		s.Errorf("messages from the time of the last one: %v, want at least %v", got, ids[4])
	}
	if got := list(posthaste.MessageFilter{CreatedFrom: before.CreatedAt.Add(time.Millisecond)}); len(got) != 0 {
		s.Errorf("messages after the last one: %v", got)
	}
	other, err := posthaste.IDs(s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Kind: "made"}))
	s.must(err)
	if got := list(posthaste.MessageFilter{Kind: "made", CreatedFrom: before.CreatedAt}); !slices.Equal(got, other) {
		s.Errorf("messages of kind made: %v, want %v", got, other)
	}
	if got := list(posthaste.MessageFilter{Kind: "made", State: posthaste.StateReady}); !slices.Equal(got, other) {
		s.Errorf("ready messages of kind made: %v, want %v", got, other)
	}
	_, err = s.engine.Messages(s.ctx, posthaste.MessageFilter{Limit: 1001})
	s.wantCode("a limit of 1001", err, posthaste.CodeInvalid)
}

// retention: a settled message is found by every property of a message, with its attempts and
// payload.
func retention(s *suite) {
	o := quick()
	o.Retention, o.RetainPayload = time.Hour, true
	s.create(o)
	ids, err := posthaste.IDs(s.engine.Send(s.ctx,
		posthaste.Message{Queue: s.queue, Payload: 1, Key: "k", Reference: "order 1", Terms: []string{"ada@example.com", "bob@example.com"}},
		posthaste.Message{Queue: s.queue, Payload: 2, Key: "l", Reference: "order 2", Terms: []string{"bob@example.com"}}))
	s.must(err)
	w := s.register(time.Minute)
	s.settle(failed, s.claimed(w, 2)[0])
	s.until("the first is handed out again", func() bool {
		d := s.claim(w, 1)
		if len(d) == 1 {
			s.settle(done, d[0])
		}
		return len(d) == 1
	})
	for _, c := range []struct {
		filter posthaste.MessageFilter
		want   []posthaste.MessageID
	}{
		{posthaste.MessageFilter{Key: "k"}, ids[:1]},
		{posthaste.MessageFilter{Reference: "order 1"}, ids[:1]},
		{posthaste.MessageFilter{Term: "ada@example.com"}, ids[:1]},
		{posthaste.MessageFilter{Term: "bob@example.com"}, []posthaste.MessageID{ids[1], ids[0]}},
		{posthaste.MessageFilter{Term: "bob@example.com", State: posthaste.StateDone}, ids[:1]},
		{posthaste.MessageFilter{Reference: "order"}, nil},
	} {
		c.filter.Queue = s.queue
		found, err := s.engine.Messages(s.ctx, c.filter)
		s.must(err)
		var got []posthaste.MessageID
		for _, m := range found.Items {
			got = append(got, m.ID)
		}
		if !slices.Equal(got, c.want) {
			s.Errorf("%+v finds %v, want %v", c.filter, got, c.want)
		}
	}
	info, err := s.engine.Message(s.ctx, ids[0])
	s.must(err)
	if state := info.Subscriptions[0]; state.State != posthaste.StateDone || len(state.Attempts) != 2 || string(info.Payload) != "1" {
		s.Errorf("it is reported as %+v", info)
	}
}

// maintain: rounds of upkeep may run at any time, and update the counts.
func maintain(s *suite) {
	s.create(quick())
	s.send(4)
	w := s.register(time.Minute)
	d := s.claimed(w, 3)
	s.settle(done, d[0])
	s.settle(hopeless, d[1])
	var got posthaste.SubscriptionInfo
	s.until("the counts are up to date", func() bool {
		got = s.counted()
		totals := got.Sent == 4 && got.Done == 1 || !s.engine.Capabilities().Totals
		return totals && got.Depth == 1 && got.InFlight == 1 && got.Dead == 1
	})
	s.settle(done, append(s.claimed(w, 1), d[2])...)
	s.none(w)
}

// pagesOfSubscriptions: following the returned cursors lists every message, even if each has a
// row for several subscriptions and a search stops before a page is full.
func pagesOfSubscriptions(s *suite) {
	s.create(posthaste.QueueOptions{})
	s.must(s.engine.Subscribe(posthaste.WithActor(s.ctx, "ada"), s.queue, "other", posthaste.SubscriptionOptions{}))
	// The newest thousand, which a search reads first, have more rows than a page and fewer
	// messages.
	var all []posthaste.Message
	for i := range 1300 {
		m := posthaste.Message{Queue: s.queue, Payload: i}
		if i >= 300 && i%16 != 0 {
			m.SendAt = time.Now().Add(time.Hour)
		}
		all = append(all, m)
	}
	ids, err := posthaste.IDs(s.engine.Send(s.ctx, all...))
	s.must(err)
	var want, got []posthaste.MessageID
	for i, m := range all {
		if m.SendAt.IsZero() {
			want = append(want, ids[i])
		}
	}
	for filter := (posthaste.MessageFilter{Queue: s.queue, State: posthaste.StateReady, Limit: 100}); ; {
		page, err := s.engine.Messages(s.ctx, filter)
		s.must(err)
		for _, m := range page.Items {
			got = append(got, m.ID)
		}
		if filter.Before = page.Next; len(page.Items) >= filter.Limit {
			filter.Before = page.Items[len(page.Items)-1].ID
		}
		if filter.Before == 0 {
			break
		}
	}
	slices.Reverse(want)
	if !slices.Equal(got, want) {
		s.Errorf("%d messages in all pages, want %d", len(got), len(want))
	}
}
