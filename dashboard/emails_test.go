package dashboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/dashboard"
	"github.com/posthaste-mq/posthaste/email"
)

// sendMail sends an e-mail, and lets a worker settle it unless outcome is "".
func sendMail(t *testing.T, s posthaste.Store, mail email.Email, outcome posthaste.Outcome, settled posthaste.Settlement) posthaste.MessageID {
	t.Helper()
	message, err := mail.Message()
	if err != nil {
		t.Fatal(err)
	}
	ids, err := posthaste.IDs(s.Send(t.Context(), message))
	if err != nil || outcome == "" {
		if err != nil {
			t.Fatal(err)
		}
		return ids[0]
	}
	got, err := s.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "emails"}, Max: 1, Lease: time.Minute})
	if err != nil || len(got.Deliveries) != 1 || got.Deliveries[0].MessageID != ids[0] {
		t.Fatal(got, err)
	}
	settled.Delivery, settled.Outcome = got.Deliveries[0].ID, outcome
	if _, err := s.Settle(t.Context(), []posthaste.Settlement{settled}); err != nil {
		t.Fatal(err)
	}
	return ids[0]
}

func receipt(t *testing.T, answers map[string]email.Answer) json.RawMessage {
	t.Helper()
	text, err := json.Marshal(email.Receipt{MessageID: "<7@example.com>", Recipients: answers})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// mailed is a store with three e-mails: sent, refused, and one that waits.
func mailed(t *testing.T) (stock *stocked, sent, refused, waits posthaste.MessageID) {
	t.Helper()
	stock = newStock(t)
	sent = sendMail(t, stock, email.Email{From: "shop@example.com", To: []string{"Ada <ada@example.com>"}, Subject: "Your order", HTML: "<p>It is on its way."},
		posthaste.OutcomeDone, posthaste.Settlement{Receipt: receipt(t, map[string]email.Answer{"ada@example.com": {Status: email.Accepted, Code: 250, Enhanced: "2.0.0", Text: "queued as 4711", Attempt: 1}})})
	refused = sendMail(t, stock, email.Email{From: "shop@example.com", To: []string{"bob@example.com", "carl@example.com"}, Subject: "Your invoice", Text: "Please pay"},
		posthaste.OutcomeDead, posthaste.Settlement{Error: "bob@example.com: 550", Receipt: receipt(t, map[string]email.Answer{
			"bob@example.com": {Status: email.Refused, Code: 550, Enhanced: "5.1.1", Text: "no such user", Attempt: 1}, "carl@example.com": {Status: email.Accepted, Code: 250, Attempt: 1}})})
	waits = sendMail(t, stock, email.Email{From: "shop@example.com", To: []string{"dora@example.com"}, Subject: "Reminder", Text: "x", SendAt: time.Now().Add(time.Hour)}, "", posthaste.Settlement{})
	return stock, sent, refused, waits
}

// mailOn shows e-mails and relays on an engine.
func mailOn(t *testing.T, engine posthaste.Store) {
	t.Helper()
	if err := engine.CreateQueue(t.Context(), "emails", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := engine.Register(t.Context(), posthaste.WorkerInfo{Name: "mailer/9", Lease: time.Minute, Sinks: []posthaste.WorkerSink{{Queue: "emails", Subscription: "default", Destination: "mail server mail:587"}}})
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]email.Answer{"ada@example.com": {Status: email.Deferred, Code: 451, Text: "try later", Attempt: 1}}
	mail := email.Email{From: "shop@example.com", To: []string{"ada@example.com"}, Subject: "Your order", HTML: "<p>Hello"}
	id := sendMail(t, engine, mail, posthaste.OutcomeRetried, posthaste.Settlement{Error: "451 try later", Receipt: receipt(t, answers), RetryAfter: time.Hour})
	v := newSite(t, engine).viewer(posthaste.ScopeAdmin)
	v.get("/emails?subject=order&status=scheduled").want(200, id.String()+" scheduled due", "ada@example.com Your order deferred: 451 try later")
	v.get("/messages/"+id.String()).want(200, "ada@example.com deferred 451 try later 1", "<7@example.com>")
	if got := v.get("/messages/" + id.String() + "/preview").want(200); got.body != mail.HTML {
		t.Errorf("the preview is %q", got.body)
	}
	if engine.Capabilities().Search {
		v.get("/emails?recipient=ADA@example.com").want(200, id.String())
		v.get("/emails?recipient=bob@example.com").want(200, "No e-mail matches")
	}
	v.get("/relays").want(200, "mail server mail:587 failing emails ", "451 try later attempt 1", "mailer/9")
}

// A person sees whether a mail arrived, why not, sends it again, and withdraws another one.
func TestEmails(t *testing.T) {
	t.Parallel()
	stock, sent, refused, waits := mailed(t)
	s := newSite(t, stock)
	v := s.viewer(posthaste.ScopeAdmin)
	list := v.follow(v.get("/"), "E-mail").want(200, sent.String()+" sent ada@example.com", "Your order accepted: 250 2.0.0 queued as 4711", "1 refused: 550 5.1.1 no such user; 1 accepted", "bob@example.com and 1 more", "scheduled due")
	page := v.follow(list, "Your order").want(200, "E-mail sent", "ada@example.com accepted 250 2.0.0 queued as 4711 1", "<7@example.com>", "remote content of the mail are blocked")
	if !strings.Contains(page.body, `<iframe class="preview" src="/messages/`+sent.String()+`/preview" sandbox `) || !strings.Contains(page.header.Get("Content-Security-Policy"), "; frame-src 'self'") {
		t.Error(page.body)
	}
	page = v.follow(list, "Resend")
	if !strings.HasSuffix(page.at.Path, refused.String()+"/replay") {
		t.Fatal(page.at)
	}
	v.send(page.form("/replay")).want(200, "Replayed 1 message.")
	page = v.follow(v.get("/emails?status=scheduled&subject=REMIND").want(200, "Reminder").lacks("Your"), "Cancel")
	v.send(page.form("/cancel")).want(200, "Cancelled.", "E-mail cancelled")
	v.get("/emails?status=cancelled").want(200, waits.String()+" cancelled").lacks("Your order")
}

func TestEmailsAreFound(t *testing.T) {
	t.Parallel()
	stock, sent, refused, waits := mailed(t)
	for i := range 30 {
		sendMail(t, stock, email.Email{From: "shop@example.com", To: []string{"eve@example.com"}, Subject: fmt.Sprintf("News %d", i), Text: "x", Reference: "news", SendAt: time.Now().Add(time.Hour)}, "", posthaste.Settlement{})
	}
	v := newSite(t, stock).viewer(posthaste.ScopeReadPayload)
	for query, want := range map[string][]posthaste.MessageID{"recipient=ADA@example.com": {sent}, "recipient=Carl+<carl@Example.com>": {refused}, "subject=your": {sent, refused}, "status=error": {refused}, "subject=nothing": nil,
		"status=scheduled&recipient=dora@example.com": {waits}} {
		page := v.get("/emails?" + strings.NewReplacer("<", "%3C", ">", "%3E").Replace(query)).want(200)
		for _, id := range []posthaste.MessageID{sent, refused, waits} {
			found := false
			for _, w := range want {
				found = found || w == id
			}
			if strings.Contains(page.body, "/messages/"+id.String()) != found {
				t.Errorf("%s finds %s: %t", query, id, !found)
			}
		}
		if want == nil {
			page.want(200, "No e-mail matches")
		}
	}
	v.get("/emails?subject=news").want(200, "News 29").lacks("News 4 ")
	v.follow(v.get("/emails?subject=news"), "Search older ones").want(200, "News 4 ", "News 0 ").lacks("News 29")
	v.follow(v.get("/emails?reference=news").want(200, "posthaste email ls --reference news"), "Older").want(200, "News 0").lacks("News 29")
	v.get("/emails?status=unknown").want(400)
	v.get("/emails?before=x").want(400)
}

// Without read:payload, no page has the recipients and the content of a mail.
func TestEmailsNeedTheScopeOfPayloads(t *testing.T) {
	t.Parallel()
	stock, sent, refused, _ := mailed(t)
	if _, err := stock.Register(t.Context(), posthaste.WorkerInfo{Name: "mailer/9", Lease: time.Minute, Sinks: []posthaste.WorkerSink{{Queue: "emails", Subscription: "default"}}}); err != nil {
		t.Fatal(err)
	}
	s := newSite(t, stock, func(c *dashboard.Config) { c.CaughtMail = "../caught/" })
	s.viewer(posthaste.ScopeReadPayload).get("/relays").want(200, "bob@example.com: 550")
	for _, scope := range []posthaste.Scope{posthaste.ScopeRead, posthaste.ScopeOperate} {
		v := s.viewer(scope)
		v.get("/emails").want(200, sent.String(), "need a token with the scope read:payload").lacks("ada@", "bob@", "Your", "550", "Caught")
		v.get("/relays").want(200, "shown with the scope read:payload").lacks("bob@")
		v.get("/messages/"+sent.String()).want(200).lacks("ada@", "Your order", "4711")
		for _, path := range []string{"/emails?recipient=ada@example.com", "/emails?subject=order", "/messages/" + sent.String() + "/preview"} {
			v.get(path).want(403)
		}
	}
	if v := s.viewer(posthaste.ScopeRead).get("/emails"); strings.Contains(v.body, "/replay") || strings.Contains(v.body, "/cancel") {
		t.Error("a reader is offered an action")
	}
	s.viewer(posthaste.ScopeOperate).get("/emails").want(200, "Resend", "Cancel")
	if page := s.viewer(posthaste.ScopeReadPayload).get("/messages/" + refused.String()); !strings.Contains(page.body, `<a href="/caught/?q=%3C7%40example.com%3E">Caught mail</a>`) || !strings.Contains(page.body, `<a href="/caught/">`) {
		t.Error("no link to caught mail:", page.body)
	}
}

func TestEmailPreviewIsSandboxed(t *testing.T) {
	t.Parallel()
	stock, sent, refused, _ := mailed(t)
	v := newSite(t, stock).viewer(posthaste.ScopeReadPayload)
	page := v.get("/messages/" + sent.String() + "/preview").want(200)
	policy := page.header.Get("Content-Security-Policy")
	if page.body != "<p>It is on its way." || !strings.HasPrefix(policy, "sandbox; default-src 'none'; ") || strings.Contains(policy, "allow") || strings.Contains(policy, "http") || strings.Contains(policy, "script") ||
		page.header.Get("X-Frame-Options") != "SAMEORIGIN" || page.header.Get("X-Content-Type-Options") != "nosniff" || page.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%q %v", page.body, page.header)
	}
	v.get("/messages/"+refused.String()+"/preview").want(404, "has no HTML")
	v.get("/messages/"+stock.ready.String()+"/preview").want(404, "has no HTML")
}

// Text of senders and mail servers stays text.
func TestEmailTextStaysText(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	settled := posthaste.Settlement{Error: evil, Receipt: receipt(t, map[string]email.Answer{evil: {Status: email.AnswerStatus(evil), Text: evil, Enhanced: evil, Attempt: 1}, "a@example.com": {Status: email.Refused, Text: evil}})}
	id := sendMail(t, stock, email.Email{From: evil, To: []string{evil, "a@example.com"}, Cc: []string{evil}, Bcc: []string{evil}, ReplyTo: evil, Subject: evil, Text: "</pre>" + evil, HTML: evil, Headers: map[string]string{evil: evil},
		Attachments: []email.Attachment{{Filename: evil, ContentType: evil}}, Reference: evil}, posthaste.OutcomeDead, settled)
	v := newSite(t, stock).viewer(posthaste.ScopeAdmin)
	for _, path := range []string{"/emails", "/messages/" + id.String(), "/emails?subject=%22%3E%3Cscript%3E", "/emails?recipient=%22%3E%3Cscript%3E&reference=%22%3E%3Cscript%3E"} {
		page := v.get(path).want(200)
		checkSafe(t, page)
		if strings.HasPrefix(path, "/messages/") || path == "/emails" {
			page.want(200, "<script>alert(1)</script>")
		}
	}
}

// The answers of the mail server are shown when the content is no longer stored, as on Redis after
// a success.
func TestEmailsWithoutContent(t *testing.T) {
	t.Parallel()
	stock, sent, _, _ := mailed(t)
	v := newSite(t, &bareStore{stock}, func(c *dashboard.Config) { c.CaughtMail = "../caught/" }).viewer(posthaste.ScopeReadPayload)
	v.get("/emails?status=sent").want(200, "ada@example.com not stored accepted: 250 2.0.0 queued as 4711")
	v.get("/messages/"+sent.String()).want(200, "E-mail sent", "Caught mail", "ada@example.com accepted 250 2.0.0 queued as 4711", "no longer stored").lacks("Preview")
	v.get("/messages/"+sent.String()+"/preview").want(404, "has no HTML")
}

// bareStore keeps no payloads.
type bareStore struct{ *stocked }

func (s *bareStore) Message(ctx context.Context, id posthaste.MessageID) (posthaste.MessageInfo, error) {
	m, err := s.stocked.Message(ctx, id)
	m.Payload = nil
	return m, err
}

// A queue that has messages of another form, or none, shows a page.
func TestEmailsThatAreNone(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	ids, err := posthaste.IDs(stock.Send(t.Context(), posthaste.Message{Queue: "emails", Payload: []int{1}}, posthaste.Message{Queue: "emails", Payload: map[string]any{"to": 7}}))
	if err != nil {
		t.Fatal(err)
	}
	v := newSite(t, stock).viewer(posthaste.ScopeAdmin)
	v.get("/emails").want(200, ids[0].String(), ids[1].String())
	v.get("/messages/" + ids[1].String()).want(200).lacks("Answers of the mail server")
	if err := stock.DropQueue(t.Context(), "emails", posthaste.DropOptions{}); err != nil {
		t.Fatal(err)
	}
	v = newSite(t, stock).viewer(posthaste.ScopeRead)
	v.get("/emails").want(200, "there is no queue emails")
}
