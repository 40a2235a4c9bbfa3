package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/memory"
)

// ailing is a store whose doctor returns found.
type ailing struct {
	posthaste.Store
	found []posthaste.Finding
}

func (a ailing) Doctor(context.Context) ([]posthaste.Finding, error) { return a.found, nil }

// Only faults make the command fail. It prints all findings, also as JSON.
func TestDoctorFailsForFaults(t *testing.T) {
	t.Parallel()
	warning := posthaste.Finding{Check: "behind", Message: "one waits", Hint: "run a worker", Queue: "q", Subscription: "default"}
	fault := posthaste.Finding{Check: "settings", Fault: true, Message: "fsync is off", Hint: "turn fsync on"}
	for _, c := range []struct {
		found []posthaste.Finding
		text  string
		code  posthaste.Code
	}{
		{nil, "no problems found\n", ""},
		{[]posthaste.Finding{warning}, "warning (behind): one waits\n  run a worker\n", ""},
		{[]posthaste.Finding{fault, warning}, "fault (settings): fsync is off\n  turn fsync on\nwarning (behind): one waits\n  run a worker\n", posthaste.CodeRefused},
	} {
		for _, asJSON := range []bool{false, true} {
			var stdout bytes.Buffer
			a := &app{stdout: &stdout, stderr: &bytes.Buffer{}, json: asJSON}
			err := runDoctor(t.Context(), a, ailing{memory.Open(), c.found})
			if posthaste.CodeOf(err) != c.code || (err == nil) != (c.code == "") {
				t.Errorf("%+v ends with %v, want %q", c.found, err, c.code)
			}
			if !asJSON {
				if stdout.String() != c.text {
					t.Errorf("%+v is printed as %q, want %q", c.found, &stdout, c.text)
				}
				continue
			}
			var told struct{ Data []map[string]any }
			if err := json.Unmarshal(stdout.Bytes(), &told); err != nil || len(told.Data) != len(c.found) || strings.Count(stdout.String(), "\n") != 1 {
				t.Errorf("%+v is printed as %q, %v", c.found, &stdout, err)
			}
		}
	}
}

// Findings of one kind are printed as one, with the queues that have it.
func TestDoctorGroupsFindings(t *testing.T) {
	t.Parallel()
	var found []posthaste.Finding
	for i := range 13 {
		queue := fmt.Sprintf("q%d", i)
		found = append(found, posthaste.Finding{Check: "behind", Queue: queue, Subscription: "default", Hint: "run a worker",
			Message: fmt.Sprintf("the oldest message that is ready for subscription 'default' of queue '%s' has waited for %d days 0%d:00:00", queue, i%3, i%10)})
	}
	paused := posthaste.Finding{Check: "behind", Queue: "p", Subscription: "audit", Hint: "posthaste queue resume p",
		Message: "the oldest message that is ready for subscription 'audit' of queue 'p' has waited for 05:00:00: the queue is paused"}
	other := posthaste.Finding{Check: "settings", Fault: true, Message: "fsync is off"}
	s := &session{T: t, store: ailing{memory.Open(), append(append([]posthaste.Finding{other}, found...), paused)}}
	s.ends(exitFailed, []string{"doctor"}, "doctor found 1 fault$")
	want := "fault (settings): fsync is off\n" +
		"warning (behind): 13 queues; first: the oldest message that is ready for subscription 'default' of queue 'q0' has waited for 0 days 00:00:00\n" +
		"  also in q1, q2, q3, q4, q5, q6, q7, q8, q9, q10 and 2 more\n  run a worker\n" +
		"warning (behind): the oldest message that is ready for subscription 'audit' of queue 'p' has waited for 05:00:00: the queue is paused\n  posthaste queue resume p\n"
	if s.out != want {
		t.Errorf("it prints\n%s\nwant\n%s", s.out, want)
	}
	s.ends(exitFailed, []string{"doctor", "-o", "jsonl"})
	if n := strings.Count(s.out, "\n"); n != 15 {
		t.Errorf("as JSON there are %d findings", n)
	}
	twice := paused
	twice.Subscription = "default"
	s.store = ailing{memory.Open(), []posthaste.Finding{paused, twice}}
	s.does("doctor", "2 subscriptions; first: ", "^  also in p$")
	s.store = ailing{memory.Open(), []posthaste.Finding{paused, paused, twice}}
	s.does("doctor", "3 cases in 1 queue; first: ")
	s.store = ailing{memory.Open(), []posthaste.Finding{other, other}}
	s.ends(exitFailed, []string{"doctor"}, "doctor found 2 faults")
}
