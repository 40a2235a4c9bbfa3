package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/memory"
)

// cutStore is a store whose searches stop before they found anything.
type cutStore struct{ posthaste.Store }

func (cutStore) Messages(context.Context, posthaste.MessageFilter) (posthaste.Page[posthaste.MessageInfo], error) {
	return posthaste.Page[posthaste.MessageInfo]{Next: 4711}, nil
}

func (cutStore) DeadLetters(context.Context, posthaste.DeadLetterFilter) (posthaste.Page[posthaste.DeadLetter], error) {
	return posthaste.Page[posthaste.DeadLetter]{Next: 4711}, nil
}

// A search that was cut short does not say that there is nothing, neither to people nor in
// JSON; one that was not does.
func TestSearchesThatWereCutSaySo(t *testing.T) {
	t.Parallel()
	whole := memory.Open()
	for what, list := range map[string]func(*app, posthaste.Store) error{
		"dead_letters": func(a *app, e posthaste.Store) error {
			return a.deadLetters(t.Context(), e, posthaste.DeadLetterFilter{Limit: 100})
		},
		"messages": func(a *app, e posthaste.Store) error {
			return a.messages(t.Context(), e, posthaste.MessageFilter{Limit: 100})
		},
	} {
		for _, asJSON := range []bool{false, true} {
			said := func(e posthaste.Store) string {
				var out, errs bytes.Buffer
				if err := list(&app{stdout: &out, stderr: &errs, json: asJSON}, e); err != nil {
					t.Fatal(err)
				}
				if (e == whole) != (errs.Len() == 0) {
					t.Errorf("%s told %q beside", what, errs.String())
				}
				return out.String()
			}
			cut, none := said(cutStore{whole}), said(whole)
			if asJSON && (cut != `{"`+what+`":[],"next":"4711"}`+"\n" || none != `{"`+what+`":[]}`+"\n") {
				t.Errorf("%s as JSON: %s and %s", what, cut, none)
			}
			if !asJSON && (!strings.Contains(cut, "--before 4711") || strings.Contains(none, "--before") || strings.Contains(cut, "there are no")) {
				t.Errorf("%s: %s and %s", what, cut, none)
			}
		}
	}
}
