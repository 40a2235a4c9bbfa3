package enginetest

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste"
)

var settling = []test{
	{name: "DS5_MaxAttemptsExactly", run: maxAttempts},
	{name: "DS5_PermanentRunsOnce", run: permanent},
	{name: "RetryAfter", run: retryAfter},
	{name: "ReleasedIsNoAttempt", run: releasedIsNoAttempt},
	{name: "ReleasedForLater", run: releasedForLater},
	{name: "DS7_SettledOnce", run: settledOnce},
	{name: "DS7_SettledTwiceInACall", run: settledTwice},
	{name: "UnknownDeliveries", run: unknownDeliveries},
	{name: "BadSettlements", run: badSettlements},
	{name: "ErrorTexts", run: errorTexts, needs: features{Attempts: true}},
	{name: "TR3_Story", run: story, needs: features{Attempts: true, Search: true}},
	{name: "FoundTerms", run: foundTerms, needs: features{Search: true}},
	{name: "ClaimRepeated", run: claimRepeated},
	{name: "Unsettled", run: unsettled},
	{name: "SingleClaims", run: singleClaims},
	{name: "BadClaims", run: badClaims},
	{name: "DU1_ConcurrentClaimers", run: concurrentClaimers},
	{name: "DU1_ConcurrentReceivers", run: concurrentReceivers},
	{name: "DS7_SettlesThatRace", run: settlesThatRace},
}

func maxAttempts(s *suite) {
	s.create(quick())
	ids := s.send(2)
	w := s.register(time.Minute)
	runs := map[posthaste.MessageID][]int{}
	for range 6 {
		d := s.claimed(w, 1)[0]
		runs[d.MessageID] = append(runs[d.MessageID], d.Attempt)
		want := posthaste.OutcomeRetried
		if d.Attempt == 3 {
			want = posthaste.OutcomeDead
		}
		if r := s.settle(failed, d)[0]; r.Outcome != want {
			s.Errorf("attempt %d of 3 became %s, want %s", d.Attempt, r.Outcome, want)
		}
	}
	for _, id := range ids {
		if !slices.Equal(runs[id], []int{1, 2, 3}) {
			s.Errorf("message %d had the attempts %v, want 1 2 3", id, runs[id])
		}
		s.wantState(id, posthaste.StateDead)
	}
	s.none(w)
	totals := s.engine.Capabilities().Totals
	s.until("two attempts of each are counted as repeated, and not the last", func() bool {
		counts := s.counted()
		if counts.Retried > 4 {
			s.Fatalf("%d attempts are counted as repeated, and 4 were", counts.Retried)
		}
		return (counts.Retried == 4 || !totals) && counts.Dead == 2
	})
}

func permanent(s *suite) {
	s.create(quick())
	ids := s.send(1)
	w := s.register(time.Minute)
	if r := s.settle(hopeless, s.claimed(w, 1)...)[0]; r.Outcome != posthaste.OutcomeDead {
		s.Errorf("became %s, want dead", r.Outcome)
	}
	s.wantState(ids[0], posthaste.StateDead)
	s.none(w)
}

func retryAfter(s *suite) {
	s.create(quick())
	ids := s.send(1)
	w := s.register(time.Minute)
	with := failed
	with.RetryAfter = 24 * time.Hour
	r := s.settle(with, s.claimed(w, 1)...)[0]
	if left := time.Until(r.DueAt); r.Outcome != posthaste.OutcomeRetried || left < 23*time.Hour || left > 25*time.Hour {
		s.Errorf("became %s, due in %s", r.Outcome, left)
	}
	if at := s.state(ids[0]); at.State != posthaste.StateRetrying || time.Until(at.DueAt) < 23*time.Hour {
		s.Errorf("is reported as %+v", at)
	}
	s.none(w)

	s.send(1)
	with.RetryAfter = 200 * time.Millisecond
	d := s.claimed(w, 1)
	before := time.Now() // it is due this long after a time that has not come yet
	s.settle(with, d...)
	d = s.claimed(w, 1)
	if after := time.Since(before); d[0].Attempt != 2 || after < with.RetryAfter {
		s.Errorf("attempt %d came after %s, want the second after %s", d[0].Attempt, after, with.RetryAfter)
	}
}

func releasedIsNoAttempt(s *suite) {
	s.create(posthaste.QueueOptions{MaxAttempts: 1})
	ids := s.send(1)
	w := s.register(time.Minute)
	for range 5 {
		d := s.claimed(w, 1)[0]
		if d.Attempt != 1 || d.MessageID != ids[0] {
			s.Fatalf("message %d, attempt %d: releasing must not count", d.MessageID, d.Attempt)
		}
		if r := s.settle(released, d)[0]; r.Outcome != posthaste.OutcomeReleased {
			s.Errorf("became %s, want released", r.Outcome)
		}
	}
	s.settle(done, s.claimed(w, 1)...)
	s.wantState(ids[0], posthaste.StateDone)
}

// A message released with a delay is redelivered then, under the same attempt and without a
// failure, and is scheduled until then.
func releasedForLater(s *suite) {
	s.create(posthaste.QueueOptions{MaxAttempts: 1})
	ids := s.send(2)
	w := s.register(time.Minute)
	d := s.claimed(w, 2)
	with := released
	with.RetryAfter = 24 * time.Hour
	if r := s.settle(with, d[0])[0]; r.Outcome != posthaste.OutcomeReleased || time.Until(r.DueAt) < 23*time.Hour || time.Until(r.DueAt) > 25*time.Hour {
		s.Errorf("became %s and is due at %s, want released and due in a day", r.Outcome, r.DueAt)
	}
	s.wantState(ids[0], posthaste.StateScheduled)
	with.RetryAfter = 200 * time.Millisecond
	before := time.Now()
	s.settle(with, d[1])
	d = s.claimed(w, 1)
	if after := time.Since(before); d[0].MessageID != ids[1] || d[0].Attempt != 1 || len(d[0].Story) != 0 || after < with.RetryAfter {
		s.Errorf("message %d, attempt %d came after %s with the attempts %+v, want the first attempt after %s", d[0].MessageID, d[0].Attempt, after, d[0].Story, with.RetryAfter)
	}
	s.settle(done, d...)
	s.wantState(ids[1], posthaste.StateDone)
}

func settledOnce(s *suite) {
	s.create(quick())
	w := s.register(time.Minute)
	all := []posthaste.Settlement{done, failed, hopeless, released}
	for _, first := range all {
		ids := s.send(1)
		d := s.claimed(w, 1)
		s.settle(first, d...)
		before := s.state(ids[0])
		for _, second := range all {
			if r := s.trySettle(second, d...)[0]; r.Settled || r.Outcome != "" || r.Delivery != d[0].ID {
				s.Errorf("settled as %s, then as %s: %+v", first.Outcome, second.Outcome, r)
			}
		}
		after := s.state(ids[0])
		if before.State != after.State && first.Outcome == posthaste.OutcomeDone || len(before.Attempts) != len(after.Attempts) {
			s.Errorf("settled as %s; a second settle changed %+v to %+v", first.Outcome, before, after)
		}
		if first.Outcome == posthaste.OutcomeRetried || first.Outcome == posthaste.OutcomeReleased {
			s.settle(done, s.claimed(w, 1)...) // only one of them had an effect
		}
		s.none(w)
	}
	// The same delivery twice in one call: the first settlement wins.
	s.send(1)
	d := s.claimed(w, 1)[0]
	results := s.trySettle(done, d, d)
	if !results[0].Settled || results[1].Settled {
		s.Errorf("one delivery twice in a call: %+v", results)
	}
}

// settledTwice: if one call settles a delivery in two ways, the first one wins, and the other
// deliveries of its claim are still rescued.
func settledTwice(s *suite) {
	s.create(quick())
	other := s.register(time.Minute)
	receipt := done
	receipt.Receipt = json.RawMessage(`{"code": 250}`)
	for name, second := range map[string]posthaste.Settlement{"done with a receipt": receipt, "retried": failed} {
		s.send(2)
		d := s.claimed(s.register(short), 2)
		first := done
		first.Delivery, second.Delivery = d[0].ID, d[0].ID
		results, err := s.engine.Settle(s.ctx, []posthaste.Settlement{first, second})
		s.must(err)
		if !results[0].Settled || results[1].Settled {
			s.Fatalf("one delivery done, then %s, in one call: %+v", name, results)
		}
		s.rescue(1)
		s.wantState(d[0].MessageID, posthaste.StateDone)
		again := s.claimed(other, 1)
		if again[0].MessageID != d[1].MessageID || again[0].Attempt != 2 {
			s.Errorf("message %d came, attempt %d, want message %d, attempt 2", again[0].MessageID, again[0].Attempt, d[1].MessageID)
		}
		s.settle(done, again...)
	}
}

func unknownDeliveries(s *suite) {
	s.create(quick())
	w := s.register(time.Minute)
	s.send(2)
	d := s.claimed(w, 2)
	for _, id := range []posthaste.DeliveryID{1 << 50, d[1].ID + 4000, 1} {
		results, err := s.engine.Settle(s.ctx, []posthaste.Settlement{
			{Delivery: id, Outcome: posthaste.OutcomeDone}, {Delivery: d[0].ID, Outcome: posthaste.OutcomeDone}})
		s.must(err)
		if id != d[0].ID && results[0].Settled {
			s.Errorf("delivery %d was never handed out and could be settled", id)
		}
		if results[1].Delivery != d[0].ID {
			s.Errorf("answers out of order: %+v", results)
		}
	}
	s.wantState(d[0].MessageID, posthaste.StateDone)
	s.wantState(d[1].MessageID, posthaste.StateRunning)
	if results, err := s.engine.Settle(s.ctx, nil); err != nil || len(results) != 0 {
		s.Errorf("settling nothing: %v, %v", results, err)
	}
	_, err := s.engine.Message(s.ctx, 1<<50)
	s.wantCode("unknown message", err, posthaste.CodeNotFound)
}

// badSettlements: an invalid settlement must not affect the others of its call.
func badSettlements(s *suite) {
	s.create(quick())
	w := s.register(time.Minute)
	s.send(7)
	d := s.claimed(w, 7)
	results, err := s.engine.Settle(s.ctx, []posthaste.Settlement{
		{Delivery: d[0].ID, Outcome: posthaste.OutcomeDone},
		{Delivery: d[1].ID, Outcome: posthaste.OutcomeDone, Receipt: json.RawMessage(`{"a":`)},
		{Delivery: d[2].ID, Outcome: posthaste.OutcomeRetried, Error: strings.Repeat("ü", 3000) + " with a long text"},
		{Delivery: d[3].ID, Outcome: posthaste.OutcomeDead, Error: "refused", Receipt: json.RawMessage(`{"code": 550}`)},
		{Delivery: d[4].ID, Outcome: posthaste.OutcomeDone, Terms: []string{"ada", strings.Repeat("x", posthaste.MaxWordBytes+1)}},
		{Delivery: d[5].ID, Outcome: posthaste.OutcomeDone, Receipt: json.RawMessage(`[1e131000]`)},
		{Delivery: d[6].ID, Outcome: posthaste.OutcomeDone, Receipt: json.RawMessage(`"\ud800"`)},
	})
	s.must(err)
	for what, i := range map[string]int{"a receipt that is no JSON": 1, "a term that is too long": 4, "a number that is too large": 5, "half a surrogate pair": 6} {
		if r := results[i]; r.Settled || r.Err == nil {
			s.Errorf("%s: %+v, want an error", what, r)
		}
	}
	if r := results[1]; posthaste.CodeOf(r.Err) != posthaste.CodeInvalid {
		s.Errorf("a receipt that is no JSON: %+v, want an error with code invalid", r)
	}
	for _, i := range []int{0, 2, 3} {
		if r := results[i]; !r.Settled || r.Err != nil {
			s.Errorf("settlement %d beside a bad one: %+v", i, r)
		}
	}
	s.settle(done, d[1], d[4], d[5], d[6]) // nothing was recorded
	s.wantState(d[1].MessageID, posthaste.StateDone)
}

// errorTexts checks that every engine stores the text of a failure in the same form, and that
// no failure is rejected because of its text.
func errorTexts(s *suite) {
	s.create(quick())
	texts := map[string]string{
		strings.Repeat("ü", 4000): strings.Repeat("ü", 4000),
		strings.Repeat("😀", 5000): strings.Repeat("😀", 4000),
		" \n\t":                   "failed without saying why",
		"":                        "failed without saying why",
		"a\x00b\xff":              "a\uFFFDb\uFFFD",
		" kept \n as it is ":      " kept \n as it is ",
		strings.Repeat("x", 3999) + "\x00" + "xx": strings.Repeat("x", 3999) + "\uFFFD",
	}
	for text, want := range texts {
		ids := s.send(1)
		d := s.receive(1, time.Minute)
		s.settle(posthaste.Settlement{Outcome: posthaste.OutcomeDead, Error: text}, d...)
		m, err := s.engine.Message(s.ctx, ids[0])
		s.must(err)
		if got := m.Subscriptions[0].Attempts[0].Error; got != want {
			s.Errorf("%.20q is kept as %.30q of %d characters, want %.30q", text, got, utf8.RuneCountInString(got), want)
		}
	}
}

func story(s *suite) {
	s.create(posthaste.QueueOptions{MaxAttempts: 3, BackoffBase: time.Millisecond, BackoffMax: time.Millisecond})
	_, err := s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue, Payload: "x", Reference: "order 7", Terms: []string{"ada"}})
	s.must(err)
	w := s.register(time.Minute)
	first := s.claimed(w, 1)[0]
	with := failed
	with.Receipt, with.Duration = json.RawMessage(`{"code": 451}`), 1500*time.Microsecond
	s.settle(with, first)
	second := s.claimed(w, 1)[0]
	if len(second.Story) != 1 || second.Story[0].Error != failed.Error || second.Story[0].Attempt != 1 || second.Story[0].Outcome != posthaste.OutcomeRetried {
		s.Errorf("the second attempt gets the attempts %+v", second.Story)
	}
	s.settle(failed, second)
	third := s.claimed(w, 1)[0]
	if len(third.Story) != 2 {
		s.Errorf("the third attempt gets the attempts %+v", third.Story)
	}
	s.wantState(third.MessageID, posthaste.StateRunning)
	s.settle(done, third)

	at := s.state(first.MessageID)
	if at.State != posthaste.StateDone || len(at.Attempts) != 3 {
		s.Fatalf("is reported as %+v, want done after three attempts", at)
	}
	for i, a := range at.Attempts {
		want := []posthaste.Outcome{posthaste.OutcomeRetried, posthaste.OutcomeRetried, posthaste.OutcomeDone}[i]
		if a.Attempt != i+1 || a.Outcome != want || a.Worker != "tester" || a.ClaimedAt.IsZero() || a.EndedAt.Before(a.ClaimedAt) || (a.Error == "") != (i == 2) {
			s.Errorf("attempt %d is reported as %+v", i+1, a)
		}
	}
	if a := at.Attempts[0]; !samePayload(posthaste.ContentTypeJSON, a.Receipt, with.Receipt) || a.DurationMS < 1.4 || a.DurationMS > 1.6 {
		s.Errorf("the first attempt is reported as %+v", a)
	}
	for name, f := range map[string]posthaste.MessageFilter{"reference": {Reference: "order 7"}, "term": {Term: "ada"}, "queue": {Queue: s.queue}, "state": {Queue: s.queue, State: posthaste.StateDone}} {
		if found, err := s.engine.Messages(s.ctx, f); err != nil || len(found.Items) != 1 || found.Items[0].ID != first.MessageID {
			s.Errorf("found by %s: %+v, %v", name, found.Items, err)
		}
	}
}

// foundTerms: a message sent without terms is found by the terms of its settlement, whatever
// its outcome. A message sent with terms keeps them.
func foundTerms(s *suite) {
	ids := s.settledWithTerms()
	find := func(f posthaste.MessageFilter) (found []posthaste.MessageID) {
		s.Helper()
		rows, err := s.engine.Messages(s.ctx, f)
		s.must(err)
		for _, m := range rows.Items {
			found = append(found, m.ID)
		}
		return found
	}
	newest := []posthaste.MessageID{ids[2], ids[1], ids[0]}
	for _, term := range []string{"ada", "bob"} {
		if got := find(posthaste.MessageFilter{Term: term}); !slices.Equal(got, newest) {
			s.Errorf("by %s %v are found, want %v", term, got, newest)
		}
	}
	if got := find(posthaste.MessageFilter{Term: "ada", Limit: 1}); !slices.Equal(got, newest[:1]) {
		s.Errorf("the newest is %v, want %v", got, newest[:1])
	}
	if got := find(posthaste.MessageFilter{Term: "ada", Before: ids[1]}); !slices.Equal(got, newest[2:]) {
		s.Errorf("before the second %v are found, want %v", got, newest[2:])
	}
	if got := find(posthaste.MessageFilter{Reference: "order 7", Term: "bob"}); !slices.Equal(got, newest[2:]) {
		s.Errorf("by reference and term %v are found, want %v", got, newest[2:])
	}
	if got := find(posthaste.MessageFilter{Reference: "order 7", Term: "eve"}); got != nil {
		s.Errorf("by reference and the term of another message %v are found", got)
	}
	if got := find(posthaste.MessageFilter{Term: "eve"}); !slices.Equal(got, ids[3:]) {
		s.Errorf("by the term it was sent with %v are found, want %v", got, ids[3:])
	}
	for i, want := range [][]string{{"ada", "bob"}, {"ada", "bob"}, {"ada", "bob"}, {"eve"}} {
		if info, err := s.engine.Message(s.ctx, ids[i]); err != nil || !slices.Equal(info.Terms, want) {
			s.Errorf("message %d has the terms %q, want %q: %v", i, info.Terms, want, err)
		}
	}
	letters, err := s.engine.DeadLetters(s.ctx, posthaste.DeadLetterFilter{Term: "bob"})
	if err != nil || len(letters.Items) != 1 || letters.Items[0].ID != ids[1] {
		s.Errorf("dead letters by term: %+v, %v", letters.Items, err)
	}
	erased, err := s.engine.Erase(posthaste.WithActor(s.ctx, "tester"), "ada", 0)
	if err != nil || len(erased.Items) != 3 {
		s.Errorf("erased by term: %+v, %v", erased.Items, err)
	}
	if got := find(posthaste.MessageFilter{Term: "bob"}); got != nil {
		s.Errorf("after erasing, %v are found", got)
	}
}

// settledWithTerms sends four messages. The first three get the terms ada and bob with their
// settlements: as done, dead and retried. The fourth was sent with the term eve.
func (s *suite) settledWithTerms() []posthaste.MessageID {
	s.Helper()
	s.create(posthaste.QueueOptions{MaxAttempts: 5, BackoffBase: time.Millisecond, BackoffMax: time.Millisecond})
	ids, err := posthaste.IDs(s.engine.Send(s.ctx,
		posthaste.Message{Queue: s.queue, Payload: "done", Reference: "order 7"}, posthaste.Message{Queue: s.queue, Payload: "dead"},
		posthaste.Message{Queue: s.queue, Payload: "retried"}, posthaste.Message{Queue: s.queue, Payload: "named", Terms: []string{"eve"}}))
	s.must(err)
	w := s.register(time.Minute)
	for _, d := range s.claimed(w, 4) {
		with := done
		switch d.MessageID {
		case ids[1]:
			with = hopeless
		case ids[2]:
			with = failed
		}
		with.Terms = []string{"ada", "bob"}
		s.settle(with, d)
	}
	s.settle(done, s.claimed(w, 1)...) // the retry, without new terms
	return ids
}
