package enginetest

import (
	"encoding/json"
	"reflect"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// R7: Each field of a message can be set and removed alone, and leaves the others.
func editEachField(s *suite) {
	s.create(posthaste.QueueOptions{})
	ctx := posthaste.WithActor(s.ctx, "ada")
	text := func(value string) *string { return &value }
	id := s.send(1)[0]
	type fields struct {
		Payload, ContentType, Key, Kind, Reference string
		Headers                                    map[string]string
		Terms                                      []string
	}
	want := fields{Payload: "0", ContentType: posthaste.ContentTypeJSON}
	for i, step := range []struct {
		update posthaste.MessageUpdate
		change func()
	}{
		{posthaste.MessageUpdate{Key: text("key")}, func() { want.Key = "key" }},
		{posthaste.MessageUpdate{Kind: text("kind")}, func() { want.Kind = "kind" }},
		{posthaste.MessageUpdate{Reference: text("ref")}, func() { want.Reference = "ref" }},
		{posthaste.MessageUpdate{Headers: map[string]string{"a": "b"}}, func() { want.Headers = map[string]string{"a": "b"} }},
		{posthaste.MessageUpdate{Terms: []string{"t", "u"}}, func() { want.Terms = []string{"t", "u"} }},
		{posthaste.MessageUpdate{Payload: []byte("hi"), ContentType: text("text/plain")}, func() { want.Payload, want.ContentType = "hi", "text/plain" }},
		{posthaste.MessageUpdate{ContentType: text("text/csv")}, func() { want.ContentType = "text/csv" }},
		{posthaste.MessageUpdate{Payload: 2, ContentType: text("")}, func() { want.Payload, want.ContentType = "2", posthaste.ContentTypeJSON }},
		{posthaste.MessageUpdate{Key: text("")}, func() { want.Key = "" }},
		{posthaste.MessageUpdate{Kind: text("")}, func() { want.Kind = "" }},
		{posthaste.MessageUpdate{Reference: text("")}, func() { want.Reference = "" }},
		{posthaste.MessageUpdate{Headers: map[string]string{}}, func() { want.Headers = nil }},
		{posthaste.MessageUpdate{Terms: []string{}}, func() { want.Terms = nil }},
	} {
		step.change()
		_, err := s.engine.UpdateMessage(ctx, id, step.update)
		s.must(err)
		m, err := s.engine.Message(s.ctx, id)
		s.must(err)
		is := fields{string(m.Payload), m.ContentType, m.Key, m.Kind, m.Reference, m.Headers, m.Terms}
		if len(is.Headers) == 0 {
			is.Headers = nil
		}
		if len(is.Terms) == 0 {
			is.Terms = nil
		}
		if is.ContentType == "" {
			is.ContentType = posthaste.ContentTypeJSON
		}
		if !reflect.DeepEqual(is, want) {
			s.Errorf("after change %d the message is %+v, want %+v", i+1, is, want)
		}
	}
}

// R7: A waiting message is changed, all or nothing, and only in the version that is given.
func editWaiting(s *suite) {
	s.create(posthaste.QueueOptions{MaxPayload: 100})
	ctx := posthaste.WithActor(s.ctx, "ada")
	w := s.register(time.Minute)
	ids, err := posthaste.IDs(s.engine.Send(s.ctx,
		posthaste.Message{Queue: s.queue, Payload: 1, Kind: "a", Headers: map[string]string{"x": "1"}, Reference: "r", Terms: []string{"t"}},
		posthaste.Message{Queue: s.queue, Payload: 2, Delay: time.Hour}))
	s.must(err)
	was, err := s.engine.Message(s.ctx, ids[0])
	s.must(err)
	kind, priority := "b", 2
	u, err := s.engine.UpdateMessage(ctx, ids[0], posthaste.MessageUpdate{Version: was.Version, Payload: 10, Kind: &kind, Headers: map[string]string{"y": "2"}, Terms: []string{"u"}, Priority: &priority})
	s.must(err)
	now, err := s.engine.Message(s.ctx, ids[0])
	s.must(err)
	if u.ID != ids[0] || u.Version != now.Version || u.Version == was.Version || was.Version == "" {
		s.Errorf("the update returned %+v, and the versions are %q and %q", u, was.Version, now.Version)
	}
	if string(now.Payload) != "10" || now.Kind != "b" || len(now.Headers) != 1 || now.Headers["y"] != "2" || now.Reference != "r" || !slices.Equal(now.Terms, []string{"u"}) || !now.CreatedAt.Equal(was.CreatedAt) {
		s.Errorf("the message is now %+v", now)
	}
	_, err = s.engine.UpdateMessage(ctx, ids[0], posthaste.MessageUpdate{Version: was.Version, Payload: 11})
	s.wantCode("an old version", err, posthaste.CodeStale)
	_, err = s.engine.UpdateMessage(ctx, ids[0], posthaste.MessageUpdate{})
	s.wantCode("no change", err, posthaste.CodeInvalid)
	_, err = s.engine.UpdateMessage(ctx, ids[0], posthaste.MessageUpdate{Payload: make([]byte, 101)})
	s.wantCode("a large payload", err, posthaste.CodeTooLarge)
	_, err = s.engine.UpdateMessage(ctx, ids[0], posthaste.MessageUpdate{Payload: json.RawMessage(`"\u0000"`)})
	s.wantCode("JSON that no store can keep", err, posthaste.CodeInvalid)
	_, err = s.engine.UpdateMessage(ctx, 1<<40, posthaste.MessageUpdate{Payload: 1})
	s.wantCode("an unknown message", err, posthaste.CodeNotFound)
	if _, err = s.engine.UpdateMessage(ctx, ids[1], posthaste.MessageUpdate{Payload: 20}); err != nil {
		s.Error(err)
	}
	if later := s.state(ids[1]); later.State != posthaste.StateScheduled || time.Until(later.DueAt) < 50*time.Minute {
		s.Errorf("a scheduled message is %s and due at %s after the change", later.State, later.DueAt)
	}
	got := s.claimed(w, 1)
	if got[0].MessageID != ids[0] || string(got[0].Payload) != "10" || got[0].Kind != "b" || got[0].Attempt != 1 {
		s.Errorf("handed out as %+v", got[0])
	}
	refused := func(state posthaste.State) {
		s.Helper()
		_, err := s.engine.UpdateMessage(ctx, ids[0], posthaste.MessageUpdate{Payload: 12})
		s.wantCode("a message that is "+string(state), err, posthaste.CodeConflict)
		if err != nil && !containsAll(err.Error(), string(state), posthaste.DefaultSubscription) {
			s.Errorf("the error does not say that it is %s in %s: %v", state, posthaste.DefaultSubscription, err)
		}
	}
	refused(posthaste.StateRunning)
	s.settle(failed, got...)
	refused(posthaste.StateRetrying)
	s.settle(done, s.claimed(w, 1)...)
	refused(posthaste.StateDone)
	s.none(w)
}

// R7: An edited dead letter is sent again as a new message.
func editDeadLetter(s *suite) {
	s.create(posthaste.QueueOptions{})
	ctx := posthaste.WithActor(s.ctx, "ada")
	w := s.register(time.Minute)
	ids, err := posthaste.IDs(s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: 1, Kind: "k", Headers: map[string]string{"x": "1", posthaste.HeaderMessageID: "m"}}))
	s.must(err)
	s.settle(hopeless, s.claimed(w, 1)...)
	u, err := s.engine.UpdateMessage(ctx, ids[0], posthaste.MessageUpdate{Payload: 2})
	s.must(err)
	if u.ID == ids[0] {
		s.Errorf("the edited dead letter has its old id %d", u.ID)
	}
	got := s.claimed(w, 1)
	if d := got[0]; d.MessageID != u.ID || string(d.Payload) != "2" || d.Kind != "k" || d.Attempt != 1 || d.Headers["x"] != "1" || d.Headers[posthaste.HeaderReplayOf] != ids[0].String() || d.Headers[posthaste.HeaderMessageID] != "" {
		s.Errorf("handed out as %+v", d)
	}
	s.settle(done, got...)
	dead, err := s.engine.DeadLetters(s.ctx, posthaste.DeadLetterFilter{Queue: s.queue})
	s.must(err)
	if len(dead.Items) != 0 {
		s.Errorf("%d dead letters are left", len(dead.Items))
	}
	s.none(w)
}
