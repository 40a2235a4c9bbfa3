package cli

import (
	"bytes"
	"context"
	"encoding/json"
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
	fault := posthaste.Finding{Check: "settings", Fault: true, Message: "fsync is off", Hint: "turn it on"}
	for _, c := range []struct {
		found []posthaste.Finding
		text  string
		code  posthaste.Code
	}{
		{nil, "no problems found\n", ""},
		{[]posthaste.Finding{warning}, "warning (behind): one waits\n  run a worker\n", ""},
		{[]posthaste.Finding{fault, warning}, "fault (settings): fsync is off\n  turn it on\nwarning (behind): one waits\n  run a worker\n", posthaste.CodeRefused},
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
			var told []map[string]any
			if err := json.Unmarshal(stdout.Bytes(), &told); err != nil || len(told) != len(c.found) || strings.Count(stdout.String(), "\n") != 1 {
				t.Errorf("%+v is printed as %q, %v", c.found, &stdout, err)
			}
		}
	}
}
