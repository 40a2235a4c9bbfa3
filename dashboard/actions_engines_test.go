//go:build unix

package dashboard_test

import (
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
)

// changeMany uses the actions of the pages of messages and queues on an engine.
func changeMany(t *testing.T, engine posthaste.Store) {
	t.Helper()
	ctx := t.Context()
	if err := engine.CreateQueue(ctx, "mails", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	ids, err := posthaste.IDs(engine.Send(ctx, append(later("mails", "digest", 60), later("mails", "welcome", 20)...)...))
	if err != nil {
		t.Fatal(err)
	}
	state := func(id posthaste.MessageID) posthaste.MessageState {
		t.Helper()
		m, err := engine.Message(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return m.Subscriptions[0]
	}
	v := newSite(t, engine).viewer(posthaste.ScopeAdmin)
	list := v.get("/messages?queue=mails&kind=digest")
	done := func(ask *shown, verb, result string) {
		t.Helper()
		v.until(v.send(ask.form("/"+verb)).want(200).at.Path, result)
	}
	done(v.follow(list, "Run all that match now").want(200, "Exactly 60 messages"), "run", "Made due now: 60 messages.")
	done(v.follow(list, "Cancel all that match").want(200, "Exactly 60 messages"), "cancel", "Cancelled 60 messages.")
	if state(ids[0]).State != posthaste.StateCancelled || state(ids[59]).State != posthaste.StateCancelled || state(ids[60]).State != posthaste.StateScheduled {
		t.Errorf("%v %v %v", state(ids[0]), state(ids[59]), state(ids[60]))
	}
	form := v.get("/messages?queue=mails&state=scheduled").form("/messages/reschedule")
	form.Values.Set("at", "2031-02-03T04:05")
	done(v.send(form).want(200, "Exactly 20 messages"), "reschedule", "Rescheduled 20 messages.")
	if at := state(ids[70]).DueAt; !at.Equal(time.Date(2031, 2, 3, 4, 5, 0, 0, time.UTC)) {
		t.Errorf("due at %s", at)
	}

	one := "/messages/" + ids[70].String()
	edit := v.follow(v.get(one), "Edit").form("/edit")
	edit.Values.Set("payload", `{"big": 9007199254740993}`)
	edit.Values.Set("kind", "bye")
	v.send(edit).want(200, "Saved.", "9007199254740993", "bye", "2031-02-03 04:05:00 UTC")

	pause := v.get("/queues/mails").form("/kinds/pause")
	pause.Values.Set("kind", "welcome")
	v.send(v.send(pause).form("/kinds/pause")).want(200, "Paused kinds welcome")
	options := v.follow(v.get("/queues/mails"), "Change options").form("/update")
	options.Values.Set("max_attempts", "7")
	options.Values.Set("rate_limit", "50/s burst 10")
	v.send(v.send(options).want(200, "max_attempts: 20 → 7", "rate_limit: none → 50/s burst 10").form("/update")).want(200, "max_attempts 7", "rate_limit 50/s burst 10")
	for _, action := range []string{"run", "cancel", "reschedule", "update"} {
		actions, err := engine.Actions(ctx, posthaste.ActionFilter{Queue: "mails", Limit: 1000})
		found := false
		for _, a := range actions {
			found = found || strings.HasPrefix(a.Action, action) && strings.HasPrefix(a.By, "http:adminer")
		}
		if err != nil || !found {
			t.Errorf("%s is not on record: %v", action, err)
		}
	}
}

var copies = regexp.MustCompile(`<pre class="copy">([^<]*)</pre>`)

// copiesAreSQL checks that PostgreSQL accepts the statements that pages offer for copying.
func copiesAreSQL(t *testing.T, engine posthaste.Store, database string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	v := newSite(t, engine).viewer(posthaste.ScopeAdmin)
	ids, err := posthaste.IDs(engine.Send(t.Context(), later("mails", "it's \\ odd", 2)...))
	if err != nil {
		t.Fatal(err)
	}
	one, two := ids[0].String(), ids[1].String()
	dead := deadID(t, engine)
	if _, err := engine.CreateToken(t.Context(), posthaste.Token{Name: "spare", Scopes: []posthaste.Scope{posthaste.ScopeRead}}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/messages/" + one, "/messages/" + one + "/cancel", "/messages/" + one + "/run", "/messages/" + one + "/reschedule?at=1h", "/messages/" + one + "/edit", "/messages/" + dead + "/replay", "/messages/" + dead + "/discard",
		"/messages/cancel?id=" + one + "&id=" + two, "/messages/run?queue=mails&state=scheduled", "/messages/reschedule?at=1h&id=" + one, "/dead-letters/replay?queue=orders", "/dead-letters/discard?id=" + dead,
		"/queues/mails/pause", "/queues/mails/resume", "/queues/mails/purge", "/queues/mails/kinds/pause?kind=it%27s&reason=it%27s&for=1h", "/queues/mails/kinds/resume?kind=x", "/queues/orders/keys/pause?key=x", "/queues/orders/keys/resume?key=x",
		"/queues/mails/update?max_attempts=8", "/schedules/nightly/pause", "/schedules/nightly/run", "/tokens/spare/revoke"} {
		n := 0
		for _, found := range copies.FindAllStringSubmatch(v.get(path).want(200).body, -1) {
			for statement := range strings.Lines(html.UnescapeString(found[1])) {
				if !strings.HasPrefix(statement, "select ") {
					continue
				}
				n++
				if _, err := conn.Prepare(t.Context(), "", strings.ReplaceAll(statement, "(ID", "(1")); err != nil {
					t.Errorf("%s: %s: %v", path, statement, err)
				}
			}
		}
		if n == 0 {
			t.Errorf("%s has no SQL to copy", path)
		}
	}
}

// deadID returns the id of a dead letter.
func deadID(t *testing.T, engine posthaste.Store) string {
	t.Helper()
	found, err := engine.DeadLetters(t.Context(), posthaste.DeadLetterFilter{Queue: "orders", Limit: 1})
	if err != nil || len(found.Items) == 0 {
		t.Fatal(found, err)
	}
	return found.Items[0].ID.String()
}
