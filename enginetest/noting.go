package enginetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var noting = []test{
	{name: "R5_CheckpointSurvives", run: checkpointSurvives},
	{name: "R5_LateCheckpointIsRefused", run: lateCheckpoint},
	{name: "R5_BadNotes", run: badNotes},
	{name: "R5_ExtendsNoLease", run: noteExtendsNoLease},
	{name: "R5_NewestIsShown", run: newestCheckpointIsShown, needs: features{Attempts: true}},
	{name: "R5_Moved", run: checkpointOfMoved, needs: features{Withdrawal: true}},
	{name: "R5_NotesAreShown", run: notesAreShown, needs: features{Attempts: true, Search: true}},
	{name: "R5_LogIsBounded", run: logIsBounded, needs: features{Attempts: true, Search: true}},
	{name: "R5_NotesAreErased", run: notesAreErased, needs: features{Attempts: true, Search: true}},
	{name: "R6_ProgressIsNoLoss", run: progressIsNoLoss},
	{name: "R6_SameCheckpointIsALoss", run: sameCheckpointIsALoss},
	{name: "JB5_NotesThatRaceWithTheEnd", run: notesThatRace},
}

// note records one note.
func (s *suite) note(d posthaste.RawDelivery, n posthaste.Note) posthaste.SettleResult {
	s.Helper()
	results, err := s.engine.Extend(s.ctx, posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{d.ID}, Notes: []posthaste.Note{n}})
	s.must(err)
	if len(results) != 1 || results[0].Delivery != d.ID {
		s.Fatalf("one note was answered by %+v", results)
	}
	return results[0]
}

// checkpoint records a checkpoint and expects success.
func (s *suite) checkpoint(d posthaste.RawDelivery, value string) {
	s.Helper()
	if r := s.note(d, posthaste.Note{Checkpoint: json.RawMessage(value)}); !r.Settled || r.Err != nil {
		s.Fatalf("the checkpoint %s of delivery %d: %+v", value, d.ID, r)
	}
}

// lose loses what a worker holds.
func (s *suite) lose(w posthaste.WorkerID) {
	s.Helper()
	s.must(s.engine.Unregister(s.ctx, w))
	s.until("nothing is left to rescue", func() bool {
		reply, err := s.engine.Maintain(s.ctx, posthaste.UpkeepRescue)
		s.must(err)
		return reply.Rescued == 0
	})
}

// checkpointSurvives ends attempts in every way and checks that the next one gets the newest
// checkpoint, also after attempts that recorded none.
func checkpointSurvives(s *suite) {
	s.create(quick())
	id := s.send(1)[0]
	w := s.register(time.Minute)
	next := func(want string) posthaste.RawDelivery {
		s.Helper()
		var got []posthaste.RawDelivery
		s.until("it comes again", func() bool { got = s.claimOrAlone(w, 1); return len(got) > 0 })
		if at := string(got[0].LastCheckpoint()); at != want {
			s.Fatalf("attempt %d got the checkpoint %q, want %q", got[0].Attempt, at, want)
		}
		return got[0]
	}
	d := next("")
	s.checkpoint(d, `1`)
	s.checkpoint(d, `{"row":2,"none":null}`)
	s.settle(released, d)
	row, found, err := posthaste.Resume[struct{ Row int }](d)
	if found || err != nil {
		s.Errorf("the first attempt resumes at %v, %v", row, err)
	}

	s.until("it comes again", func() bool {
		got := s.claimOrAlone(w, 1)
		if len(got) > 0 {
			d = got[0]
		}
		return len(got) > 0
	})
	if row, found, err = posthaste.Resume[struct{ Row int }](d); !found || err != nil || row.Row != 2 || d.Attempt != 1 {
		s.Fatalf("released as attempt 1, attempt %d resumes at %v, %v, %v", d.Attempt, row, found, err)
	}
	s.checkpoint(d, `3`)
	s.settle(failed, d)
	d = next(`3`)
	s.settle(released, d) // without a checkpoint of its own
	d = next(`3`)
	s.checkpoint(d, `4`)
	s.lose(w)
	w = s.register(time.Minute)
	d = next(`4`)
	s.checkpoint(d, `5`)
	s.settle(hopeless, d)
	s.wantState(id, posthaste.StateDead)
	if _, err := s.engine.Replay(s.ctx, posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{id}}); err != nil {
		s.Fatal(err)
	}
	d = next(`5`)
	s.settle(failed, d)
	d = next(`5`)
	s.checkpoint(d, `null`)
	s.settle(failed, d)
	s.settle(done, next(`null`))
	s.none(w)
}

// newestCheckpointIsShown: of all attempts of a message the newest checkpoint alone is shown, while
// one runs and after its end.
func newestCheckpointIsShown(s *suite) {
	s.create(quick())
	id := s.send(1)[0]
	shown := func(what, want string, attempts int) {
		s.Helper()
		all := s.state(id).Attempts
		var got []string
		for _, a := range all {
			if a.Checkpoint != nil {
				got = append(got, string(a.Checkpoint))
			}
		}
		if len(all) != attempts || len(got) != 1 || got[0] != want {
			s.Errorf("%s: %d attempts show the checkpoints %q, want %s alone", what, len(all), got, want)
		}
	}
	w := s.register(time.Minute)
	for i, at := range []string{`1`, `2`, `3`} {
		d := s.claimed(w, 1)[0]
		if i > 0 {
			shown("before it stores one", []string{`1`, `2`}[i-1], i+1)
		}
		s.checkpoint(d, at)
		shown("while it runs", at, i+1)
		if i < 2 {
			s.settle(failed, d)
			shown("after it failed", at, i+1)
		} else {
			s.settle(done, d)
			shown("after it is done", at, i+1)
		}
	}
}

// lateCheckpoint checks that a checkpoint is refused once its delivery has ended, and changes
// nothing.
func lateCheckpoint(s *suite) {
	s.create(quick())
	w := s.register(time.Minute)
	for _, end := range []posthaste.Settlement{done, released, failed, hopeless} {
		s.send(1)
		d := s.claimed(w, 1)[0]
		s.settle(end, d)
		if r := s.note(d, posthaste.Note{Checkpoint: json.RawMessage(`1`)}); r.Settled || r.Err != nil {
			s.Errorf("a checkpoint after the delivery became %s: %+v", end.Outcome, r)
		}
		if end.Outcome == posthaste.OutcomeReleased || end.Outcome == posthaste.OutcomeRetried {
			again := s.claimed(w, 1)[0]
			if at := again.LastCheckpoint(); at != nil {
				s.Errorf("after %s, the next attempt got the checkpoint %s, which was refused", end.Outcome, at)
			}
			s.settle(done, again)
		}
	}
	s.send(1)
	d := s.claimed(w, 1)[0]
	s.lose(w)
	w = s.register(time.Minute)
	again := s.claimed(w, 1)[0]
	s.checkpoint(again, `2`)
	if r := s.note(d, posthaste.Note{Checkpoint: json.RawMessage(`1`)}); r.Settled {
		s.Error("a checkpoint of a lost attempt was accepted")
	}
	s.settle(failed, again)
	if at := string(s.claimed(w, 1)[0].LastCheckpoint()); at != `2` {
		s.Errorf("the next attempt got the checkpoint %s, want that of the attempt before", at)
	}
	if r := s.note(posthaste.RawDelivery{ID: 1 << 50}, posthaste.Note{Checkpoint: json.RawMessage(`1`)}); r.Settled {
		s.Error("a checkpoint of an unknown delivery was accepted")
	}
}

func badNotes(s *suite) {
	s.create(quick())
	s.send(1)
	w := s.register(time.Minute)
	d := s.claimed(w, 1)[0]
	half, over := 0.5, 1.5
	most := json.RawMessage(`"` + strings.Repeat("x", posthaste.MaxCheckpointBytes-2) + `"`)
	cases := []struct {
		note  posthaste.Note
		code  posthaste.Code
		field string
	}{
		{posthaste.Note{Checkpoint: append(json.RawMessage(` `), most...)}, posthaste.CodeTooLarge, "checkpoint"},
		{posthaste.Note{Checkpoint: json.RawMessage(`{`)}, posthaste.CodeInvalid, "checkpoint"},
		{posthaste.Note{Checkpoint: json.RawMessage(`"\u0000"`)}, posthaste.CodeInvalid, "checkpoint"},
		{posthaste.Note{}, posthaste.CodeInvalid, "checkpoint"},
		{posthaste.Note{Progress: &over}, posthaste.CodeInvalid, "progress"},
		{posthaste.Note{ProgressText: "half"}, posthaste.CodeInvalid, "progress_text"},
		{posthaste.Note{Progress: &half, ProgressText: strings.Repeat("x", posthaste.MaxProgressChars+1)}, posthaste.CodeInvalid, "progress_text"},
		{posthaste.Note{Progress: &half, ProgressText: "\x00"}, posthaste.CodeInvalid, "progress_text"},
		{posthaste.Note{Log: "\xff\n"}, posthaste.CodeInvalid, "log"},
	}
	for _, c := range cases {
		r := s.note(d, c.note)
		s.wantCode(fmt.Sprintf("note %.60v", c.note), r.Err, c.code)
		if r.Settled || fieldOf(r.Err) != c.field {
			s.Errorf("note %.60v: field %q, want %q; recorded %v", c.note, fieldOf(r.Err), c.field, r.Settled)
		}
	}
	// Others of the same call are recorded, and the later one of a delivery counts.
	results, err := s.engine.Extend(s.ctx, posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{d.ID, d.ID, d.ID},
		Notes: []posthaste.Note{{Checkpoint: json.RawMessage(`1`)}, {}, {Checkpoint: most}}})
	s.must(err)
	if !results[0].Settled || results[1].Err == nil || !results[2].Settled {
		s.Errorf("a bad note between two others: %+v", results)
	}
	s.settle(failed, d)
	if got := s.claimed(w, 1)[0].LastCheckpoint(); string(got) != string(most) {
		s.Errorf("the largest checkpoint of %d bytes came as %d", len(most), len(got))
	}
	_, err = s.engine.Extend(s.ctx, posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{d.ID}, Notes: []posthaste.Note{}})
	s.wantCode("fewer notes than deliveries", err, posthaste.CodeInvalid)
	_, err = s.engine.Extend(s.ctx, posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{d.ID}})
	s.wantCode("neither lease nor notes", err, posthaste.CodeInvalid)
}

func noteExtendsNoLease(s *suite) {
	s.create(quick())
	s.send(2)
	d := s.receive(2, 2*time.Second)
	request := posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{d[0].ID}, Lease: time.Minute, Notes: []posthaste.Note{{Checkpoint: json.RawMessage(`1`)}}}
	if results, err := s.engine.Extend(s.ctx, request); err != nil || !results[0].Settled {
		s.Fatalf("a note with a lease: %+v, %v", results, err)
	}
	s.checkpoint(d[1], `2`)
	s.rescue(1) // only the one whose note asked for no lease
	if again := s.receive(2, time.Minute); len(again) != 1 || again[0].MessageID != d[1].MessageID || string(again[0].LastCheckpoint()) != `2` {
		s.Errorf("came again: %+v", again)
	}
	s.settle(done, d[0])
}

// checkpointOfMoved checks that a message that waits for its next attempt keeps the checkpoint
// when it is rescheduled.
func checkpointOfMoved(s *suite) {
	s.create(quick())
	id := s.send(1)[0]
	w := s.register(time.Minute)
	d := s.claimed(w, 1)[0]
	s.checkpoint(d, `7`)
	later := failed
	later.RetryAfter = time.Hour
	s.settle(later, d)
	if _, err := s.engine.Reschedule(s.ctx, id, time.Now()); err != nil {
		s.Fatal(err)
	}
	if at := string(s.claimed(w, 1)[0].LastCheckpoint()); at != `7` {
		s.Errorf("moved, it got the checkpoint %q", at)
	}
}

func notesAreShown(s *suite) {
	s.create(quick())
	id := s.send(2)[0]
	w := s.register(time.Minute)
	held := s.claimed(w, 2)
	d := held[0]
	if d.MessageID != id {
		d = held[1]
	}
	part := 0.25
	s.note(d, posthaste.Note{Progress: &part, ProgressText: "a quarter", Log: "one\n"})
	s.note(d, posthaste.Note{Checkpoint: json.RawMessage(`{"row": 1}`)})
	s.note(d, posthaste.Note{Log: "two\n"})
	want := func(when string, a posthaste.Attempt) {
		s.Helper()
		if a.Progress != 0.25 || a.ProgressText != "a quarter" || a.Log != "one\ntwo\n" {
			s.Errorf("%s: %+v", when, a)
		}
	}
	attempts := s.state(id).Attempts
	if len(attempts) != 1 {
		s.Fatalf("while it runs: %+v", attempts)
	}
	want("while it runs", attempts[0])
	if string(attempts[0].Checkpoint) == "" {
		s.Errorf("while it runs, its checkpoint is %q", attempts[0].Checkpoint)
	}
	list, err := s.engine.Messages(s.ctx, posthaste.MessageFilter{Queue: s.queue, State: posthaste.StateRunning})
	s.must(err)
	if len(list.Items) != 2 {
		s.Fatalf("%d messages run, want 2", len(list.Items))
	}
	for _, m := range list.Items {
		if m.ID != id {
			continue
		}
		if a := m.Subscriptions[0].Attempts[0]; a.Progress != 0.25 || a.ProgressText != "a quarter" || a.Log != "" || a.Checkpoint != nil {
			s.Errorf("a list has %+v", a)
		}
	}
	s.settle(failed, d)
	again := s.claimed(w, 1)[0]
	want("in the story of the next attempt", again.Story[0])
	s.note(again, posthaste.Note{Log: "three\n"})
	result := done
	result.Receipt = json.RawMessage(`{"rows":1000}`)
	s.settle(result, again)
	attempts = s.state(id).Attempts
	if len(attempts) != 2 || attempts[1].Log != "three\n" || !strings.Contains(string(attempts[1].Receipt), "1000") {
		s.Fatalf("when it is done: %+v", attempts)
	}
	want("when it is done", attempts[0])
}

func logIsBounded(s *suite) {
	s.create(posthaste.QueueOptions{MaxAttempts: 100, BackoffBase: time.Millisecond, BackoffMax: time.Millisecond})
	s.send(1)
	w := s.register(time.Minute)
	line := func(attempt, n int) string { return fmt.Sprintf("%d/%d %s\n", attempt, n, strings.Repeat("ä", 500)) }
	var all string
	for attempt := 1; attempt <= 3; attempt++ {
		d := s.claimed(w, 1)[0]
		for n := range 40 {
			s.note(d, posthaste.Note{Log: line(attempt, n)})
			all += line(attempt, n)
		}
		s.settle(failed, d)
	}
	d := s.claimed(w, 1)[0]
	var logs string
	for _, a := range d.Story {
		logs += a.Log
	}
	if len(logs) > posthaste.MaxLogBytes || len(logs) < posthaste.MaxLogBytes-2*len(line(1, 1)) || !strings.HasSuffix(all, logs) || !strings.HasSuffix(strings.TrimSuffix(all, logs), "\n") {
		s.Errorf("of %d bytes of log lines the story has %d, from %.20q", len(all), len(logs), logs)
	}
}

func notesAreErased(s *suite) {
	s.create(quick())
	ids, err := s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: 1, Terms: []string{"person"}})
	s.must(err)
	w := s.register(time.Minute)
	part := 0.5
	for _, end := range []posthaste.Settlement{failed, done} {
		d := s.claimed(w, 1)[0]
		s.note(d, posthaste.Note{Checkpoint: json.RawMessage(`"secret"`), Progress: &part, ProgressText: "secret", Log: "secret\n"})
		s.settle(end, d)
	}
	if _, err := s.engine.Erase(s.ctx, "person", 0); err != nil {
		s.Fatal(err)
	}
	text, err := json.Marshal(s.state(ids[0].ID).Attempts)
	s.must(err)
	if strings.Contains(string(text), "secret") {
		s.Errorf("erased, it has %s", text)
	}
}

// progressIsNoLoss loses a message over and over, each time with a newer checkpoint.
func progressIsNoLoss(s *suite) {
	s.create(posthaste.QueueOptions{MaxAttempts: 20})
	id := s.send(1)[0]
	for n := range 25 {
		w := s.register(time.Minute)
		d := s.claimed(w, 1)[0]
		if want := fmt.Sprint(n); n > 0 && string(d.LastCheckpoint()) != want || d.Attempt != n+1 || d.Alone {
			s.Fatalf("attempt %d, alone %v, got the checkpoint %s, want %s", d.Attempt, d.Alone, d.LastCheckpoint(), want)
		}
		s.checkpoint(d, fmt.Sprint(n+1))
		s.lose(w)
	}
	w := s.register(time.Minute)
	s.settle(done, s.claimed(w, 1)[0])
	s.wantState(id, posthaste.StateDone)
}

// sameCheckpointIsALoss loses a message over and over with the same checkpoint: it is one that
// kills its worker.
func sameCheckpointIsALoss(s *suite) {
	s.create(posthaste.QueueOptions{MaxAttempts: 2})
	id := s.send(1)[0]
	for n := 0; ; n++ {
		w := s.register(time.Minute)
		var got []posthaste.RawDelivery
		s.until("it comes again or is dead", func() bool {
			got = s.claimOrAlone(w, 1)
			return len(got) > 0 || s.state(id).State == posthaste.StateDead
		})
		if len(got) == 0 {
			if n != 5 { // the first checkpoint is progress; lost twice, and then twice alone
				s.Errorf("dead after %d losses, want 5", n)
			}
			return
		}
		if n > 10 {
			s.Fatal("it never dies")
		}
		s.checkpoint(got[0], `"the same"`)
		s.lose(w)
	}
}

// notesThatRace records checkpoints while the delivery is settled: the newest one that was
// accepted is handed to the next attempt.
func notesThatRace(s *suite) {
	s.create(posthaste.QueueOptions{MaxAttempts: 100, BackoffBase: time.Millisecond, BackoffMax: time.Millisecond})
	s.send(1)
	w := s.register(time.Minute)
	for round := range 20 {
		d := s.claimed(w, 1)[0]
		if round == 0 {
			s.checkpoint(d, `0`)
		}
		accepted := -1
		var group sync.WaitGroup
		first := make(chan struct{})
		group.Go(func() {
			for n := 1; ; n++ {
				results, err := s.engine.Extend(s.ctx, posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{d.ID}, Notes: []posthaste.Note{{Checkpoint: json.RawMessage(fmt.Sprint(1000*round + n))}}})
				if n == 1 {
					close(first)
				}
				if err != nil {
					s.Error(err)
					return
				}
				if !results[0].Settled {
					return
				}
				accepted = 1000*round + n
			}
		})
		<-first
		s.settle(failed, d)
		group.Wait()
		again := s.claimed(w, 1)[0]
		if got := string(again.LastCheckpoint()); got != fmt.Sprint(accepted) {
			s.Fatalf("checkpoint %d was accepted last, and the next attempt got %s", accepted, got)
		}
		s.settle(released, again)
	}
}
