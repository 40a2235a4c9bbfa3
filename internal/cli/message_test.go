package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/memory"
)

// cut is a store whose searches by state stop at message 4711 without a result.
type cut struct{ posthaste.Store }

func (cut) Messages(_ context.Context, f posthaste.MessageFilter) (posthaste.Page[posthaste.MessageInfo], error) {
	if f.State != "" {
		return posthaste.Page[posthaste.MessageInfo]{Next: 4711}, nil
	}
	return posthaste.Page[posthaste.MessageInfo]{}, nil
}

// A partial search reports where it stopped, in its result and on stderr.
func TestCutListingSaysSo(t *testing.T) {
	t.Parallel()
	for _, json := range []bool{false, true} {
		for state, want := range map[posthaste.State]string{posthaste.StateDone: "--before 4711\n", "": ""} {
			var stdout, stderr bytes.Buffer
			a := &app{stdout: &stdout, stderr: &stderr, json: json}
			if err := listMessages(t.Context(), a, cut{memory.Open()}, posthaste.MessageFilter{Limit: 100}, []posthaste.State{state}); err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(stderr.String(), want) || want == "" && stderr.Len() > 0 || strings.Contains(stdout.String(), "4711") != (want != "") {
				t.Errorf("state %q, JSON %v: stderr %q, stdout %q", state, json, &stderr, &stdout)
			}
		}
	}
}

// Progress is shown in the list of what runs; the checkpoint, the result and the log with the
// message.
func TestNotesAreShown(t *testing.T) {
	t.Parallel()
	ctx, e := t.Context(), memory.Open()
	if err := e.CreateQueue(ctx, "imports", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	ids, err := posthaste.IDs(e.Send(ctx, posthaste.Message{Queue: "imports", Payload: 1}))
	if err != nil {
		t.Fatal(err)
	}
	reply, err := e.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "imports"}, Max: 1, Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	shown := func(show func(a *app) error) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if err := show(&app{stdout: &stdout, stderr: &stderr}); err != nil {
			t.Fatal(err)
		}
		return stdout.String()
	}
	d, part := reply.Deliveries[0].ID, 0.4
	_, err = e.Extend(ctx, posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{d}, Notes: []posthaste.Note{{
		Checkpoint: []byte(`{"row":400}`), Progress: &part, ProgressText: "reading rows", Log: "level=INFO msg=begun\nlevel=INFO msg=\x1b[2J\n"}}})
	if err != nil {
		t.Fatal(err)
	}
	if list := shown(func(a *app) error {
		return listMessages(ctx, a, e, posthaste.MessageFilter{Limit: 100}, []posthaste.State{posthaste.StateRunning})
	}); !strings.Contains(list, "running 40 %") {
		t.Errorf("the list is\n%s", list)
	}
	text := shown(func(a *app) error { return showMessage(ctx, a, e, ids[0]) })
	for _, want := range []string{"running 40 %", "40 % reading rows", `{"row":400}`, "log\n  level=INFO msg=begun\n  level=INFO msg= [2J\n"} { // not a terminal's commands
		if !strings.Contains(text, want) {
			t.Errorf("without %q:\n%s", want, text)
		}
	}
	if _, err := e.Settle(ctx, []posthaste.Settlement{{Delivery: d, Outcome: posthaste.OutcomeDone, Receipt: []byte(`{"rows":1000}`)}}); err != nil {
		t.Fatal(err)
	}
	if text := shown(func(a *app) error { return showMessage(ctx, a, e, ids[0]) }); !strings.Contains(text, `result      {"rows":1000}`) {
		t.Errorf("when it is done:\n%s", text)
	}
}

// A message is shown with the options that it has itself.
func TestOwnOptionsAreShown(t *testing.T) {
	t.Parallel()
	ctx, e := t.Context(), memory.Open()
	if err := e.CreateQueue(ctx, "imports", posthaste.QueueOptions{MaxAttempts: 9}); err != nil {
		t.Fatal(err)
	}
	ids, err := posthaste.IDs(e.Send(ctx, posthaste.Message{Queue: "imports", MaxAttempts: 3, Timeout: time.Minute, Backoff: posthaste.Backoff{Max: time.Hour}}, posthaste.Message{Queue: "imports"}))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"max_attempts=3,timeout=1m0s,backoff.max=1h0m0s", ""} {
		var table, json bytes.Buffer
		if err := showMessage(ctx, &app{stdout: &table, stderr: &table}, e, ids[i]); err != nil {
			t.Fatal(err)
		}
		if text := table.String(); !strings.Contains(text, want) || strings.Contains(text, "options") != (want != "") {
			t.Errorf("without %q:\n%s", want, text)
		}
		if err := showMessage(ctx, &app{stdout: &json, stderr: &json, json: true}, e, ids[i]); err != nil {
			t.Fatal(err)
		}
		if text := json.String(); strings.Contains(text, `"max_attempts":3,"timeout":"1m0s","backoff":{"max":"1h0m0s"}`) != (want != "") {
			t.Errorf("as JSON: %s", text)
		}
	}
}
