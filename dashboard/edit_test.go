package dashboard_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

func (s *stocked) message(t *testing.T, id posthaste.MessageID) posthaste.MessageInfo {
	t.Helper()
	m, err := s.Message(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// A message that waits is edited: only fields that differ change, and big numbers survive.
func TestDB7EditMessage(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	s := newSite(t, stock)
	v := s.viewer(posthaste.ScopeAdmin)
	id := stock.send(t, posthaste.Message{Queue: "emails", Kind: "paid", Key: "k", Reference: "order-1", Payload: []byte(`{"n":9007199254740993,"to":"<ada>"}`), ContentType: "application/json",
		Terms: []string{"ada@example.com"}, Headers: map[string]string{"trace": "1", posthaste.HeaderSender: "http:shop"}, Delay: time.Hour})[0]
	at := "/messages/" + id.String()
	was := stock.message(t, id)
	page := v.follow(v.get(at), "Edit").want(200, "It keeps its id and its times.", `posthaste message update `+id.String(), "9007199254740993", "--if-version "+was.Version)
	form := page.form("/edit")
	if form.Values.Get("payload") != "{\n  \"n\": 9007199254740993,\n  \"to\": \"<ada>\"\n}" || form.Values.Get("headers") != "{\n  \"trace\": \"1\"\n}" || form.Values.Get("terms") != `["ada@example.com"]` {
		t.Fatalf("the form has %q", form.Values)
	}
	v.send(form).want(400, "no field to change")
	form.Values.Set("kind", "refunded")
	form.Values.Set("payload", strings.ReplaceAll(form.Values.Get("payload"), "\n", "\r\n")) // as browsers send it
	v.send(form).want(200, "Saved.", "refunded")
	m := stock.message(t, id)
	if m.Kind != "refunded" || string(m.Payload) != string(was.Payload) || m.Reference != "order-1" || m.Key != "k" || !m.CreatedAt.Equal(was.CreatedAt) || m.Headers[posthaste.HeaderSender] != "http:shop" {
		t.Errorf("%+v", m)
	}

	// Another form, which was opened before, comes too late.
	stale := page.form("/edit")
	stale.Values.Set("reference", "order-2")
	v.send(stale).want(412, "version")

	form = v.get(at + "/edit").form("/edit")
	form.Values.Set("payload", "{\r\n \"n\": 18446744073709551615\r\n}")
	form.Values.Set("headers", `{"region": "eu", "posthaste-sender": "forged"}`)
	form.Values.Set("terms", "")
	form.Values.Set("reference", "")
	v.send(form).want(200, "Saved.", "18446744073709551615")
	m = stock.message(t, id)
	if strings.Join(strings.Fields(string(m.Payload)), "") != `{"n":18446744073709551615}` || m.Headers["region"] != "eu" || m.Headers["trace"] != "" || m.Headers[posthaste.HeaderSender] != "http:shop" || len(m.Terms) != 0 || m.Reference != "" {
		t.Errorf("%s %+v", m.Payload, m)
	}
	for name, value := range map[string]string{"payload": "{", "headers": "[1]", "terms": "ada", "priority": "high", "version": ""} {
		form := v.get(at + "/edit").form("/edit")
		form.Values.Set("kind", "x")
		form.Values.Set(name, value)
		if got := v.send(form); got.status != 400 {
			t.Errorf("%s = %q: status %d:\n%s", name, value, got.status, text(got.body))
		}
	}
	if m := stock.message(t, id); m.Kind != "refunded" {
		t.Errorf("a form with an error changes the kind to %q", m.Kind)
	}
}

// An operator who may not see content changes other fields, and is shown and changes no content.
func TestDB4EditWithoutContent(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	v := newSite(t, stock).viewer(posthaste.ScopeOperate)
	page := v.get("/messages/"+stock.ready.String()+"/edit").want(200, "Payload, headers and terms do not change")
	if found := regexp.MustCompile(`secret-\w+`).FindString(page.body); found != "" {
		t.Errorf("the form shows %s", found)
	}
	form := page.form("/edit")
	form.Values.Set("kind", "paid")
	form.Values.Set("payload", `"forged"`)
	form.Values.Set("headers", "{}")
	form.Values.Set("terms", "[]")
	v.send(form).want(200, "Saved.")
	if m := stock.message(t, stock.ready); m.Kind != "paid" || !strings.Contains(string(m.Payload), "secret-payload") || m.Headers["trace"] != "secret-header" || len(m.Terms) != 1 {
		t.Errorf("%+v", m)
	}
}

// A dead letter is sent again with changes, once for each form. Others cannot be edited.
func TestDB7EditDeadLetter(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	v := newSite(t, stock).viewer(posthaste.ScopeAdmin)
	form := v.follow(v.get("/messages/"+stock.dead.String()), "Edit").want(200, "is sent again with these changes, as a new message").form("/edit")
	form.Values.Set("payload", `{"order": 3}`)
	sent := v.send(form).want(200, "Sent again with the changes", "replay-of "+stock.dead.String(), `"order": 3`)
	if again := v.send(form).want(200); again.at.Path != sent.at.Path {
		t.Errorf("a form that is sent twice leads to %s and %s", sent.at, again.at)
	}
	for _, id := range []posthaste.MessageID{stock.done, stock.dead} {
		v.get("/messages/"+id.String()+"/edit").want(409, "cannot be changed in this way")
	}
}

// A message is shown with the options that it has itself.
func TestDB7OwnOptionsAreShown(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	v := newSite(t, stock).viewer(posthaste.ScopeRead)
	ids := stock.send(t, posthaste.Message{Queue: "emails", MaxAttempts: 3, Timeout: time.Minute, Backoff: posthaste.Backoff{Base: time.Second, Max: time.Hour}}, posthaste.Message{Queue: "emails"})
	v.get("/messages/"+ids[0].String()).want(200, "Max attempts 3 set for this message", "Timeout 1m0s set for this message", "Backoff from 1s up to 1h0m0s set for this message")
	v.get("/messages/" + ids[1].String()).want(200).lacks("set for this message")
}
