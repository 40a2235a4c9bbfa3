package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/memory"
)

// cutStore is a store whose searches stop without a result.
type cutStore struct{ posthaste.Store }

func (cutStore) Messages(context.Context, posthaste.MessageFilter) (posthaste.Page[posthaste.MessageInfo], error) {
	return posthaste.Page[posthaste.MessageInfo]{Next: 4711}, nil
}

func (cutStore) DeadLetters(context.Context, posthaste.DeadLetterFilter) (posthaste.Page[posthaste.DeadLetter], error) {
	return posthaste.Page[posthaste.DeadLetter]{Next: 4711}, nil
}

// Only a complete search reports that there is no result, as text and as JSON.
func TestSearchesThatWereCutSaySo(t *testing.T) {
	t.Parallel()
	whole := memory.Open()
	for what, list := range map[string]func(*app, posthaste.Store) error{
		"dead_letters": func(a *app, e posthaste.Store) error {
			return listDeadLetters(t.Context(), a, e, posthaste.DeadLetterFilter{Limit: 100})
		},
		"messages": func(a *app, e posthaste.Store) error {
			return listMessages(t.Context(), a, e, posthaste.MessageFilter{Limit: 100}, []posthaste.State{""})
		},
	} {
		for _, asJSON := range []bool{false, true} {
			said := func(e posthaste.Store) string {
				var out, errs bytes.Buffer
				if err := list(&app{stdout: &out, stderr: &errs, json: asJSON}, e); err != nil {
					t.Fatal(err)
				}
				if (e == whole) != (errs.Len() == 0) {
					t.Errorf("%s wrote %q to stderr", what, errs.String())
				}
				return out.String()
			}
			cut, none := said(cutStore{whole}), said(whole)
			if asJSON && (cut != `{"data":[],"next":"4711","has_more":true}`+"\n" || none != `{"data":[],"has_more":false}`+"\n") {
				t.Errorf("%s as JSON: %s and %s", what, cut, none)
			}
			if !asJSON && (!strings.Contains(cut, "stopped at message 4711") || strings.Contains(none, "stopped") || strings.Contains(cut, "no messages") || strings.Contains(cut, "no dead letters")) {
				t.Errorf("%s: %s and %s", what, cut, none)
			}
		}
	}
}
