package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

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
