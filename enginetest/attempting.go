package enginetest

import (
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

var attempting = []test{
	{name: "JB3_MaxAttemptsOfMessage", run: maxAttemptsOfMessage},
	{name: "JB3_MaxAttemptsInOrder", run: maxAttemptsInOrder, needs: features{Ordered: true}},
	{name: "JB3_BackoffOfMessage", run: backoffOfMessage},
	{name: "JB3_TimeoutOfMessage", run: timeoutOfMessage},
	{name: "JB3_OptionsOfSchedule", run: optionsOfSchedule, needs: features{Schedules: true}},
	{name: "R2_DefaultsOfSchedule", run: defaultsOfSchedule, needs: features{Schedules: true}},
	{name: "R2_OptionsSurvive", run: optionsSurvive},
	{name: "R2_OptionsAreShown", run: optionsAreShown},
	{name: "R2_AtMostOnce", run: optionsAtMostOnce, needs: features{AtMostOnce: true}},
	{name: "R2_BadOptions", run: badOptions},
	{name: "R2_DefaultsOfPayload", run: defaultsOfPayload},
}

// sendMessages sends messages to the suite's queue.
func (s *suite) sendMessages(messages ...posthaste.Message) []posthaste.MessageID {
	s.Helper()
	for i := range messages {
		messages[i].Queue = s.queue
	}
	ids, err := posthaste.IDs(s.engine.Send(s.ctx, messages...))
	s.must(err)
	return ids
}

// failAll fails all deliveries, until n messages are dead. It returns each message's attempts.
func (s *suite) failAll(w posthaste.WorkerID, n int) map[posthaste.MessageID]int {
	s.Helper()
	runs := map[posthaste.MessageID]int{}
	s.until("all messages are dead", func() bool {
		for _, d := range s.claim(w, 10) {
			runs[d.MessageID]++
			if s.settle(failed, d)[0].Outcome == posthaste.OutcomeDead {
				n--
			}
		}
		return n == 0
	})
	return runs
}

func (s *suite) wantRuns(runs map[posthaste.MessageID]int, ids []posthaste.MessageID, want ...int) {
	s.Helper()
	for i, id := range ids {
		if runs[id] != want[i] {
			s.Errorf("message %d of %d ran %d times, want %d", i+1, len(ids), runs[id], want[i])
		}
	}
}

func maxAttemptsOfMessage(s *suite) {
	s.create(quick()) // 3 attempts
	ids := s.sendMessages(posthaste.Message{MaxAttempts: 1}, posthaste.Message{}, posthaste.Message{MaxAttempts: 5}, posthaste.Message{Timeout: time.Minute})
	s.wantRuns(s.failAll(s.register(time.Minute), len(ids)), ids, 1, 3, 5, 3)
}

func maxAttemptsInOrder(s *suite) {
	o := quick()
	o.Ordered = true
	s.create(o)
	ids := s.sendMessages(posthaste.Message{Key: "a", MaxAttempts: 1}, posthaste.Message{Key: "a"}, posthaste.Message{Key: "b", MaxAttempts: 4})
	s.wantRuns(s.failAll(s.register(time.Minute), len(ids)), ids, 1, 3, 4)
}

// backoffOfMessage: with full jitter, a wait below 50 ms is improbable where the bound is an hour.
func backoffOfMessage(s *suite) {
	long, short, jitter := 1000*time.Hour, 2*time.Millisecond, 50*time.Millisecond
	s.create(posthaste.QueueOptions{MaxAttempts: 9, BackoffBase: long, BackoffMax: long})
	w := s.register(time.Minute)
	for what, c := range map[string]struct {
		backoff posthaste.Backoff
		soon    bool
	}{
		"its queue's": {posthaste.Backoff{}, false},
		"both":        {posthaste.Backoff{Base: short, Max: short}, true},
		"base":        {posthaste.Backoff{Base: short}, true},
		"max":         {posthaste.Backoff{Max: short}, true},
		"longer base": {posthaste.Backoff{Base: long, Max: long}, false},
	} {
		ids := s.sendMessages(posthaste.Message{Backoff: c.backoff})
		d := s.claimed(w, 1)[0]
		began := time.Now()
		due := s.settle(failed, d)[0].DueAt
		if c.soon {
			if again := s.claimed(w, 1)[0]; again.MessageID != ids[0] || again.Attempt != 2 {
				s.Errorf("%s: message %d came, attempt %d, want %d", what, again.MessageID, again.Attempt, ids[0])
			} else {
				s.settle(done, again)
			}
		} else if due.Sub(began) < jitter {
			s.Errorf("%s: the retry is due in %s", what, due.Sub(began))
		}
	}
}

func timeoutOfMessage(s *suite) {
	s.create(posthaste.QueueOptions{Timeout: 7 * time.Second})
	ids := s.sendMessages(posthaste.Message{}, posthaste.Message{Timeout: time.Minute}, posthaste.Message{Timeout: 1500 * time.Millisecond, MaxAttempts: 2})
	want := []time.Duration{7 * time.Second, time.Minute, 1500 * time.Millisecond}
	claimed := s.claimed(s.register(time.Minute), 3)
	for _, d := range claimed {
		if w := want[slices.Index(ids, d.MessageID)]; d.Timeout != w {
			s.Errorf("the timeout is %s, want %s", d.Timeout, w)
		}
	}
	s.settle(done, claimed...)
}

// optionsOfSchedule: the message of a tick has the options of its schedule's message.
func optionsOfSchedule(s *suite) {
	s.create(posthaste.QueueOptions{})
	m := posthaste.Message{Queue: s.queue, Payload: 1, MaxAttempts: 1, Timeout: 90 * time.Second, Backoff: posthaste.Backoff{Base: time.Second, Max: time.Minute}}
	_, err := s.engine.PutSchedule(posthaste.WithActor(s.ctx, "ada"), posthaste.Schedule{Name: "each", Spec: "every 1 seconds", Message: m})
	s.must(err)
	infos, err := s.engine.Schedules(s.ctx, "each")
	s.must(err)
	if got := infos[0].Message; got.MaxAttempts != m.MaxAttempts || got.Timeout != m.Timeout || got.Backoff != m.Backoff {
		s.Errorf("the schedule is reported with %d attempts, timeout %s and backoff %+v", got.MaxAttempts, got.Timeout, got.Backoff)
	}
	w := s.register(time.Minute)
	var got []posthaste.RawDelivery
	s.until("a tick is sent", func() bool {
		_, err := s.engine.Maintain(s.ctx, posthaste.UpkeepTicks)
		s.must(err)
		got = s.claim(w, 1)
		return len(got) > 0
	})
	if got[0].Timeout != m.Timeout {
		s.Errorf("the timeout is %s, want %s", got[0].Timeout, m.Timeout)
	}
	if r := s.settle(failed, got...)[0]; r.Outcome != posthaste.OutcomeDead {
		s.Errorf("the only attempt became %s", r.Outcome)
	}
}

// defaultsOfSchedule: the message of a schedule has the defaults of its payload's type, too.
func defaultsOfSchedule(s *suite) {
	s.create(posthaste.QueueOptions{})
	_, err := s.engine.PutSchedule(posthaste.WithActor(s.ctx, "ada"), posthaste.Schedule{Name: "each", Spec: "every 1 hours", Message: posthaste.Message{Payload: note{"a"}}})
	s.must(err)
	infos, err := s.engine.Schedules(s.ctx, "each")
	s.must(err)
	if m := infos[0].Message; m.Queue != s.queue || m.Kind != "note" || m.MaxAttempts != 1 {
		s.Errorf("the schedule's message is %+v", m)
	}
}

// optionsSurvive: the options hold after a retry, a loss, a dead letter and its replay.
func optionsSurvive(s *suite) {
	s.create(posthaste.QueueOptions{MaxAttempts: 9, BackoffBase: time.Hour, BackoffMax: time.Hour, Timeout: time.Hour})
	ids := s.sendMessages(posthaste.Message{MaxAttempts: 2, Timeout: time.Minute, Backoff: posthaste.Backoff{Base: time.Millisecond, Max: time.Millisecond}})
	w := s.register(time.Minute)
	fail := func(want posthaste.Outcome) {
		s.Helper()
		d := s.claimed(w, 1)[0]
		if d.Timeout != time.Minute {
			s.Errorf("attempt %d has the timeout %s", d.Attempt, d.Timeout)
		}
		if r := s.settle(failed, d)[0]; r.Outcome != want {
			s.Errorf("attempt %d became %s, want %s", d.Attempt, r.Outcome, want)
		}
	}
	s.receive(1, time.Millisecond)
	s.rescue(1) // a loss does not count until it is the third
	fail(posthaste.OutcomeRetried)
	fail(posthaste.OutcomeDead)
	_, err := s.engine.Replay(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{IDs: ids})
	s.must(err)
	fail(posthaste.OutcomeRetried)
	fail(posthaste.OutcomeDead)
}

// optionsAreShown: a message is shown with its own options, and only these, while it waits, runs,
// retries and is dead.
func optionsAreShown(s *suite) {
	s.create(posthaste.QueueOptions{MaxAttempts: 9, BackoffBase: time.Millisecond, BackoffMax: time.Millisecond, Timeout: time.Hour})
	want := posthaste.KindOptions{MaxAttempts: 2, Timeout: 1500 * time.Millisecond, Backoff: posthaste.Backoff{Base: time.Millisecond, Max: time.Millisecond}}
	ids := s.sendMessages(posthaste.Message{MaxAttempts: want.MaxAttempts, Timeout: want.Timeout, Backoff: want.Backoff, Headers: map[string]string{"a": "b"}},
		posthaste.Message{}, posthaste.Message{Backoff: posthaste.Backoff{Max: time.Minute}, Delay: time.Hour})
	shows := func(when string, id posthaste.MessageID, want posthaste.KindOptions) {
		s.Helper()
		m, err := s.engine.Message(s.ctx, id)
		s.must(err)
		if m.Options != want {
			s.Errorf("%s: the options are %s, want %s", when, m.Options, want)
		}
	}
	shows("waiting", ids[0], want)
	shows("waiting, without options", ids[1], posthaste.KindOptions{})
	shows("scheduled", ids[2], posthaste.KindOptions{Backoff: posthaste.Backoff{Max: time.Minute}})
	w := s.register(time.Minute)
	claimed := s.claimed(w, 2)
	for _, d := range claimed {
		if d.MessageID != ids[0] {
			s.settle(done, d)
			continue
		}
		shows("running", ids[0], want)
		s.settle(failed, d)
	}
	shows("retrying", ids[0], want)
	s.settle(failed, s.claimed(w, 1)...)
	shows("dead", ids[0], want)
	_, err := s.engine.Replay(posthaste.WithActor(s.ctx, "ada"), posthaste.DeadLetterFilter{IDs: ids[:1]})
	s.must(err)
	shows("replayed", ids[0], want)
	page, err := s.engine.Messages(s.ctx, posthaste.MessageFilter{Queue: s.queue})
	s.must(err)
	for _, m := range page.Items {
		if m.Options != (posthaste.KindOptions{}) {
			s.Errorf("a list shows options: %s", m.Options)
		}
	}
}

func optionsAtMostOnce(s *suite) {
	s.create(posthaste.QueueOptions{Mode: posthaste.AtMostOnce})
	for field, m := range map[string]posthaste.Message{
		"max_attempts": {MaxAttempts: 20}, "backoff": {Backoff: posthaste.Backoff{Max: time.Hour}},
	} {
		m.Queue = s.queue
		_, err := s.engine.Send(s.ctx, m)
		if s.wantCode(field, err, posthaste.CodeInvalid); fieldOf(err) != field {
			s.Errorf("the error about %s names %s", field, fieldOf(err))
		}
	}
	s.sendMessages(posthaste.Message{Timeout: time.Minute})
	if d := s.claimed(s.register(time.Minute), 1)[0]; d.Timeout != time.Minute || !d.AtMostOnce {
		s.Errorf("handed out with a timeout of %s, at most once %v", d.Timeout, d.AtMostOnce)
	}
}

func badOptions(s *suite) {
	s.create(posthaste.QueueOptions{})
	year := 365 * 24 * time.Hour
	for what, c := range map[string]struct {
		field string
		m     posthaste.Message
	}{
		"too many attempts":    {"max_attempts", posthaste.Message{MaxAttempts: 1001}},
		"fewer than none":      {"max_attempts", posthaste.Message{MaxAttempts: -1}},
		"a negative timeout":   {"timeout", posthaste.Message{Timeout: -time.Second}},
		"a long timeout":       {"timeout", posthaste.Message{Timeout: year + 1}},
		"a negative backoff":   {"backoff", posthaste.Message{Backoff: posthaste.Backoff{Base: -time.Second}}},
		"a long backoff":       {"backoff", posthaste.Message{Backoff: posthaste.Backoff{Max: year + 1}}},
		"a max below its base": {"backoff", posthaste.Message{Backoff: posthaste.Backoff{Base: time.Minute, Max: time.Second}}},
	} {
		c.m.Queue = s.queue
		_, err := s.engine.Send(s.ctx, posthaste.Message{Queue: s.queue}, c.m)
		if s.wantCode(what, err, posthaste.CodeInvalid); fieldOf(err) != c.field {
			s.Errorf("%s: the error names %q, want %q", what, fieldOf(err), c.field)
		}
	}
	s.none(s.register(time.Minute))
}

// note is a payload that names its kind, its queue and options.
type note struct {
	Text string `json:"text"`
}

func (note) Kind() string { return "note" }

// The queue is that of every suite.
func (note) SendDefaults() posthaste.Message {
	return posthaste.Message{Queue: "suite", Reference: "notes", MaxAttempts: 1, Timeout: time.Minute, Backoff: posthaste.Backoff{Base: time.Second}}
}

// defaultsOfPayload: what a message does not set comes from its payload's type, in every way of
// sending. The caller's messages do not change.
func defaultsOfPayload(s *suite) {
	s.create(quick())
	messages := []posthaste.Message{{Payload: note{"a"}}, {Payload: note{"b"}, Kind: "letter", MaxAttempts: 2, Timeout: time.Hour}}
	ids, err := s.engine.Send(s.ctx, messages...)
	s.must(err)
	if messages[0].Queue != "" || messages[0].Kind != "" {
		s.Errorf("the caller's message became %+v", messages[0])
	}
	once, _, err := s.engine.SendOnce(s.ctx, posthaste.Idempotency{Key: "k", Digest: []byte("d"), Window: time.Hour}, messages[0])
	s.must(err)
	ids = append(ids, once...)
	w := s.register(time.Minute)
	for _, d := range s.claimed(w, 3) {
		kind, timeout, want := "note", time.Minute, posthaste.OutcomeDead
		if d.MessageID == ids[1].ID {
			kind, timeout, want = "letter", time.Hour, posthaste.OutcomeRetried
		}
		if d.Kind != kind || d.Timeout != timeout || d.Reference != "notes" {
			s.Errorf("%s has kind %q, timeout %s and reference %q, want %q and %s", d.Payload, d.Kind, d.Timeout, d.Reference, kind, timeout)
		}
		if r := s.settle(failed, d)[0]; r.Outcome != want {
			s.Errorf("the first failure of %s became %s, want %s", d.Payload, r.Outcome, want)
		}
	}
}
