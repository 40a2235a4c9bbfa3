package main

import (
	"bytes"
	"reflect"
	"testing"
)

// run is a step that succeeds at start, has its lease until start + 100 and is confirmed at once.
func run(seq, from uint64, start int64) *step {
	return &step{id: 1, seq: seq, from: from, outcome: done, start: start, end: start + 1, lease: start + 100, settled: start + 2, delivery: 1}
}

func with(s *step, change func(*step)) *step {
	change(s)
	return s
}

func unconfirmed(s *step)  { s.settled = 0 }
func leaseEnded(s *step)   { s.end, s.settled = s.lease+1, 0 }
func late(s *step)         { s.settled = s.lease + 1 }
func isCopy(s *step)       { s.outcome, s.delivery = copied, 2 }
func hasFailed(s *step)    { s.outcome = failed }
func afterFailure(s *step) { s.fails = 1 }

func TestCheck(t *testing.T) {
	t.Parallel()
	plain := sent{confirmed: true, tries: 1}
	for _, test := range []struct {
		name  string
		sent  sent
		left  bool
		steps []*step
		want  findings // without examples
		fails bool
	}{
		{name: "one run", sent: plain, steps: []*step{run(5, 0, 0)}, want: findings{Confirmed: 1, Runs: 1}},
		{name: "lost", sent: plain, want: findings{Confirmed: 1, Lost: 1}, fails: true},
		{name: "lost after a copy", sent: plain, steps: []*step{with(run(5, 0, 0), isCopy)}, want: findings{Confirmed: 1, Copies: 1, Lost: 1}, fails: true},
		{name: "lost after a failure", sent: plain, steps: []*step{with(run(5, 0, 0), hasFailed)},
			want: findings{Confirmed: 1, Runs: 1, Retries: 1, Lost: 1}, fails: true},
		{name: "unknown outcome is not lost", sent: sent{tries: 5}, want: findings{OutcomeUnknown: 1}},
		{name: "stuck", sent: plain, left: true, want: findings{Confirmed: 1, Stuck: 1}, fails: true},
		{name: "left after its run", sent: plain, left: true, steps: []*step{run(5, 0, 0)}, want: findings{Confirmed: 1, Runs: 1, Stuck: 1}, fails: true},
		{name: "a retry is no double", sent: plain, steps: []*step{with(run(5, 0, 0), hasFailed), with(run(7, 5, 50), afterFailure)},
			want: findings{Confirmed: 1, Runs: 2, Retries: 1}},
		{name: "double of a confirmed run", sent: plain, steps: []*step{run(5, 0, 0), with(run(5, 0, 110), isCopy), run(9, 5, 120)},
			want: findings{Confirmed: 1, Runs: 2, Copies: 1, Doubles: 1, Unexplained: 1}, fails: true},
		{name: "unconfirmed run", sent: plain, steps: []*step{with(run(5, 0, 0), unconfirmed), with(run(5, 0, 110), isCopy), run(9, 5, 120)},
			want: findings{Confirmed: 1, Runs: 2, Copies: 1, Doubles: 1, Unconfirmed: 1}},
		{name: "confirmed too late", sent: plain, steps: []*step{with(run(5, 0, 0), late), with(run(5, 0, 110), isCopy), run(9, 5, 120)},
			want: findings{Confirmed: 1, Runs: 2, Copies: 1, Doubles: 1, Unconfirmed: 1}},
		{name: "frozen run", sent: plain, steps: []*step{with(run(5, 0, 0), leaseEnded), with(run(5, 0, 110), isCopy), run(9, 5, 120)},
			want: findings{Confirmed: 1, Runs: 2, Copies: 1, Doubles: 1, LeaseEnded: 1}},
		{name: "two copies, the first unconfirmed", sent: plain,
			steps: []*step{with(with(run(5, 0, 0), isCopy), unconfirmed), with(run(5, 0, 110), isCopy), run(8, 5, 120), run(9, 5, 130)},
			want:  findings{Confirmed: 1, Runs: 2, Copies: 2, Doubles: 1, Unconfirmed: 1}},
		{name: "two copies, both confirmed", sent: plain,
			steps: []*step{with(run(5, 0, 0), isCopy), with(run(5, 0, 110), isCopy), run(8, 5, 120), run(9, 5, 130)},
			want:  findings{Confirmed: 1, Runs: 2, Copies: 2, Doubles: 1, Unexplained: 1}, fails: true},
		{name: "the cause must come before", sent: plain, steps: []*step{run(5, 0, 0), with(run(5, 0, 110), unconfirmed)},
			want: findings{Confirmed: 1, Runs: 2, Doubles: 1, Unexplained: 1}, fails: true},
		{name: "an unconfirmed step elsewhere is no cause", sent: plain,
			steps: []*step{run(5, 0, 0), with(run(5, 0, 110), isCopy), with(run(9, 5, 120), unconfirmed)},
			want:  findings{Confirmed: 1, Runs: 2, Copies: 1, Doubles: 1, Unexplained: 1}, fails: true},
		{name: "stored twice by a plain send", sent: sent{confirmed: true, tries: 2}, steps: []*step{run(5, 0, 0), run(9, 0, 50)},
			want: findings{Confirmed: 1, Runs: 2, Doubles: 1, SentAgain: 1}, fails: true},
		{name: "stored twice by one try", sent: plain, steps: []*step{run(5, 0, 0), run(9, 0, 50)},
			want: findings{Confirmed: 1, Runs: 2, Doubles: 1, Unexplained: 1}, fails: true},
		{name: "stored twice in spite of its record", sent: sent{keyed: true, confirmed: true, tries: 2}, steps: []*step{run(5, 0, 0), run(9, 0, 50)},
			want: findings{Confirmed: 1, Runs: 2, Doubles: 1, Unexplained: 1}, fails: true},
		{name: "two schedules of one unconfirmed failure", sent: plain,
			steps: []*step{with(with(run(5, 0, 0), hasFailed), unconfirmed), with(run(6, 5, 50), afterFailure), with(run(5, 0, 110), isCopy),
				with(run(7, 5, 120), hasFailed), with(run(9, 7, 150), afterFailure)},
			want: findings{Confirmed: 1, Runs: 4, Copies: 1, Retries: 2, Doubles: 2, Unconfirmed: 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			h := &history{sent: map[uint64]*sent{1: &test.sent}, steps: test.steps, left: map[uint64]bool{}}
			if test.left {
				h.left[1] = true
			}
			f := check(h)
			if f.passed() == test.fails || (len(f.Examples) > 0) != test.fails {
				t.Errorf("passed: %v, examples %q", f.passed(), f.Examples)
			}
			f.Examples = nil
			if !reflect.DeepEqual(*f, test.want) {
				t.Errorf("found %+v, want %+v", *f, test.want)
			}
		})
	}
}

func TestCheckSchedulesAndRepeats(t *testing.T) {
	t.Parallel()
	if f := check(&history{schedules: 3, schedulesLeft: 2}); f.passed() || f.SchedulesLost != 1 {
		t.Errorf("a lost schedule: %+v", f)
	}
	if f := check(&history{repeats: 3, repeatsAccepted: 1}); f.passed() {
		t.Errorf("an accepted repeat: %+v", f)
	}
	if f := check(&history{leaked: 1}); f.passed() || f.Leaked != 1 {
		t.Errorf("a leaked message: %+v", f)
	}
	if f := check(&history{leftOther: 1}); f.passed() || f.Stuck != 1 {
		t.Errorf("an unreadable rest: %+v", f)
	}
	if f := check(&history{schedules: 3, schedulesLeft: 3, repeats: 3}); !f.passed() {
		t.Errorf("nothing wrong: %+v", f)
	}
}

func TestStepsAreReadAsWritten(t *testing.T) {
	t.Parallel()
	want := []*step{with(run(5, 3, 10), hasFailed), with(run(6, 5, 20), afterFailure)}
	var log bytes.Buffer
	for _, s := range want {
		s.write(&log)
	}
	got, err := readSteps(&log)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, %v; want %+v", got, err, want)
	}
	if _, err := readSteps(bytes.NewBufferString("d 1 2\n")); err == nil {
		t.Error("a broken line was read")
	}
}
