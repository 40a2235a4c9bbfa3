package wire

import (
	"testing"

	"github.com/posthaste-mq/posthaste"
)

func TestHint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		e         posthaste.Error
		http, cli string
	}{
		{posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue", Message: "queue 'a.b' does not exist", Hint: "SQL"},
			"create it with PUT /v1/queues/a.b; GET /v1/queues lists all", "create it with: posthaste queue create a.b"},
		{posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue", Message: "queue 'a/b' does not exist"}, notAName, notAName},
		{posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue", Message: "queue 'a''b' does not exist"}, notAName, notAName},
		{posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue", Message: "queue 'a\"b' does not exist"}, notAName, notAName},
		{posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue", Message: "queue '..' does not exist"}, notAName, notAName},
		{posthaste.Error{Code: posthaste.CodeNotFound, Field: "name", Message: "schedule 'A' does not exist"}, notAName, "list all with: posthaste schedule ls"},
		{posthaste.Error{Code: posthaste.CodeNotFound, Field: "relays[1].queue", Message: `queue "a" does not exist`},
			"create it with PUT /v1/queues/a; GET /v1/queues lists all", "create it with: posthaste queue create a"},
		{posthaste.Error{Code: posthaste.CodeConflict, Field: "name", Message: "queue 'a' exists with different options"},
			"change options with PATCH /v1/queues/a", "change options with: posthaste queue update a"},
		{posthaste.Error{Code: posthaste.CodeConflict, Field: "name", Message: "exists with different options"},
			"change options with PATCH /v1/queues/NAME", "change options with: posthaste queue update NAME"},
		{posthaste.Error{Code: posthaste.CodeConflict, Field: "name", Message: "token \"a\" already exists", Hint: "a new secret needs a new name"},
			"a new secret needs a new name", "a new secret needs a new name"},
		{posthaste.Error{Code: posthaste.CodeNotFound, Field: "name", Message: "token 'a' does not exist", Hint: "list them"}, "list them", "list all with: posthaste token ls"},
		{posthaste.Error{Code: posthaste.CodeInvalid, Field: "payload", Message: "no", Hint: "send JSON"}, "send JSON", "send JSON"},
	} {
		if http, cli := Hint(&c.e, HTTP), Hint(&c.e, CLI); http != c.http || cli != c.cli {
			t.Errorf("%s %s: %q and %q, want %q and %q", c.e.Code, c.e.Field, http, cli, c.http, c.cli)
		}
	}
}

// The findings of the doctor have hints in the words of each interface.
func TestHintsOfFindings(t *testing.T) {
	t.Parallel()
	for hint, want := range map[string][2]string{
		"posthaste queue resume a": {"POST /v1/queues/a/resume", "posthaste queue resume a"},
		"run a worker for it, unsubscribe it (posthaste.unsubscribe('q', 's')), or bound it with max_lag": {
			"run a worker for it, unsubscribe it (DELETE /v1/queues/q/subscriptions/s), or bound it with max_lag", "run a worker for it, unsubscribe it (posthaste queue unsubscribe q s), or bound it with max_lag"},
		"run a worker, or select posthaste.maintain() every second":           {"run a worker", "run a worker"},
		"run a worker or select posthaste.maintain() to redeliver them":       {"run a worker to redeliver them", "run a worker to redeliver them"},
		"end the worker that holds it (see posthaste.workers): it waits":      {"end the worker that holds it (see GET /v1/workers): it waits", "end the worker that holds it (see posthaste worker ls): it waits"},
		"use `posthaste rebase` (in SQL: posthaste.rebase)":                   {"use `posthaste rebase`", "use `posthaste rebase`"},
		"turn fsync on: alter system set fsync = on; select pg_reload_conf()": {"turn fsync on: alter system set fsync = on; select pg_reload_conf()", "turn fsync on: alter system set fsync = on; select pg_reload_conf()"},
	} {
		for _, by := range []Interface{HTTP, CLI} {
			if got := NewFindings([]posthaste.Finding{{Check: "x", Hint: hint}}, by)[0].Hint; got != want[by] {
				t.Errorf("%q for %d: %q, want %q", hint, by, got, want[by])
			}
		}
	}
}
