package smtp

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/catcher"
)

// unicodeMail returns a mail with unicode in all its parts, and its 60 recipients.
func unicodeMail() (e *email.Email, recipients []string) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	e = &email.Email{
		From: "Zoë Ångström 🚀 <zoë@münchen.example>", ReplyTo: "回复 <回复@例え.example>",
		Subject: strings.Repeat("Grüße aus 東京 👩‍👩‍👧‍👦 ", 12),
		Text:    "Zeile eins\n.\n..\n\nünïcödé 🎉 " + strings.Repeat("長い行", 500) + "\n\tfrom \nFrom x",
		HTML:    "<p>Grüße = 100 % 🎉</p>\n<!-- مثال -->",
		Headers: map[string]string{"X-Über": "", "X-Note": "ünïcödé  with   spaces"},
		Attachments: []email.Attachment{
			{Filename: "Übersicht “Q3” 📈.pdf", Content: bytes.Repeat(every, 4000)},
			{Filename: "空.bin", ContentType: "application/x-empty", Content: []byte{}},
		},
	}
	delete(e.Headers, "X-Über")
	for i := range 60 {
		a := fmt.Sprintf("empfänger-%d@example.com", i)
		switch recipients = append(recipients, a); {
		case i < 20:
			e.To = append(e.To, fmt.Sprintf("Empfänger Nr. %d 🎈 <%s>", i, a))
		case i < 40:
			e.Cc = append(e.Cc, a)
		default:
			e.Bcc = append(e.Bcc, a)
		}
	}
	return e, recipients
}

// TestEM1_RoundTrip: 60 recipients and unicode everywhere arrive byte by byte.
func TestEM1_RoundTrip(t *testing.T) {
	t.Parallel()
	c := startCatcher(t, catcher.Config{})
	e, want := unicodeMail()
	r, receipt := attemptOnce(t, newSink(t, c.Addr(), ""), delivery(t, e))
	wantOK(t, r)
	mails := c.Mails()
	if len(mails) != 1 {
		t.Fatalf("%d mails", len(mails))
	}
	m := mails[0]
	if m.From != "zoë@münchen.example" || !slices.Equal(m.To, want) || !m.SMTPUTF8 {
		t.Errorf("envelope %q %q", m.From, m.To)
	}
	if m.Subject != e.Subject || m.Text != e.Text || m.HTML != e.HTML {
		t.Errorf("arrived as %q %q %q", m.Subject, m.Text, m.HTML)
	}
	if len(m.Attachments) != 2 {
		t.Fatalf("%d attachments", len(m.Attachments))
	}
	for i, a := range m.Attachments {
		if a.Filename != e.Attachments[i].Filename || !bytes.Equal(a.Content, e.Attachments[i].Content) {
			t.Errorf("attachment %d arrived as %q, %d bytes", i, a.Filename, len(a.Content))
		}
	}
	// The mail on the wire equals the composed one in every byte.
	if composed, err := e.Compose(email.Identity{ID: 42, CreatedAt: created}); err != nil || !bytes.Equal(m.Raw, composed) {
		t.Errorf("the mail changed on its way (%v)", err)
	}
	for _, hidden := range e.Bcc {
		if bytes.Contains(m.Raw, []byte(hidden)) {
			t.Fatalf("the Bcc recipient %s is visible", hidden)
		}
	}
	if len(receipt.Recipients) != 60 || receipt.MessageID != m.MessageID || receipt.Server != c.Addr() {
		t.Errorf("receipt %+v", receipt)
	}
	for who, a := range receipt.Recipients {
		if a.Status != email.Accepted || a.Code != 250 || a.Enhanced != "2.0.0" || a.Text != "OK: queued" || a.Attempt != 1 || a.At.IsZero() {
			t.Errorf("%s: %+v", who, a)
		}
	}
}

// TestEM1_BadMailBySQL: the sink rejects invalid mails that were sent by SQL and not validated
// before, for good and with the field's name, and sends nothing.
func TestEM1_BadMailBySQL(t *testing.T) {
	t.Parallel()
	c := startCatcher(t, catcher.Config{})
	s := newSink(t, c.Addr(), "")
	for payload, words := range map[string]string{
		`{"from":"ada@example.com","to":["bob@example.com","x"],"text":"a"}`:                                         "to[1]",
		`{"from":"ada@example.com","to":[],"text":"a"}`:                                                              "to",
		`{"from":"ada@example.com","to":["bob@example.com"],"subject":"a\r\nBcc: e@example.com","text":"a"}`:         "subject",
		`{"from":"ada@example.com","to":["bob@example.com"],"headers":{"X-A":"b\nBcc: e@example.com"},"text":"a"}`:   "headers.X-A",
		`{"from":"ada@example.com","to":["bob@example.com"],"attachments":[{"filename":"a","content":"?"}]}`:         "attachments[0].content",
		`{"from":"ada@example.com","to":["bob@example.com"],"text":"a","tex":"b"}`:                                   "tex ",
		`{"from":"ada@example.com","to":["bob@example.com"],"text":"a","idempotency_key":"k"}`:                       "idempotency_key",
		`{"from":"ada@example.com","to":["bob@example.com"],"text":"a","send_at":"2031-01-01T00:00:00Z"}`:            "send_at",
		`{"from":"ada@example.com","to":["bob@example.com"],"subject":"` + strings.Repeat("x", 999) + `","text":""}`: "subject",
		`null`:      "mail",
		`{"from"`:   "JSON",
		"\x00\xff":  "UTF-8",
		`["a","b"]`: "object",
	} {
		r, _ := attemptOnce(t, s, posthaste.RawDelivery{MessageID: 1, Attempt: 1, Payload: []byte(payload), CreatedAt: created})
		wantPermanent(t, r, words)
	}
	d := delivery(t, simple())
	d.ContentType = posthaste.ContentTypeBytes
	r, _ := attemptOnce(t, s, d)
	wantPermanent(t, r, "content_type")
	if n := len(c.Mails()) + c.Stats().Connections; n != 0 {
		t.Errorf("the server was contacted: %+v", c.Stats())
	}
}

func TestSendAtThatWasHonoured(t *testing.T) {
	t.Parallel()
	c := startCatcher(t, catcher.Config{})
	s := newSink(t, c.Addr(), "")
	e := simple()
	e.SendAt = created.Add(3600e9 + 1)
	d := delivery(t, e)
	d.DueAt = created.Add(3600e9)
	r, _ := attemptOnce(t, s, d)
	wantOK(t, r)
	e.SendAt = created.Add(-3600e9)
	r, _ = attemptOnce(t, s, delivery(t, e))
	wantOK(t, r)
}

// failures are the stages at which a server can fail.
var failures = []catcher.Stage{catcher.StageConnect, catcher.StageHello, catcher.StageMail, catcher.StageRcpt, catcher.StageData, catcher.StageEnd}

// TestEM2_FailsTwiceThenAccepts: one mail arrives, the same on every attempt.
func TestEM2_FailsTwiceThenAccepts(t *testing.T) {
	t.Parallel()
	for _, stage := range failures {
		for name, fault := range map[string]catcher.Fault{"4xx": {Code: 451, Text: "4.3.0 try later"}, "drop": {Drop: true}, "421": {Code: 421}} {
			t.Run(fmt.Sprintf("%s/%s", stage, name), func(t *testing.T) {
				t.Parallel()
				c := startCatcher(t, catcher.Config{})
				s := newSink(t, c.Addr(), "")
				fault.Stage, fault.Times = stage, 2
				switch {
				case stage == catcher.StageHello && !fault.Drop:
					fault.Times = 4 // HELO is tried after EHLO
				case stage == catcher.StageRcpt:
					fault.Recipient = "bob@example.com"
				}
				c.Inject(fault)
				d := delivery(t, simple("bob@example.com", "carl@example.com"))
				d.MessageID = 7
				for range 2 {
					r, receipt := attemptOnce(t, s, d)
					words := []string{c.Addr(), "bob@example.com"}
					if fault.Code == 451 {
						words = append(words, "451", "try later")
					}
					wantRetry(t, r, words...)
					if a := receipt.Recipients["bob@example.com"]; a.Status != email.Deferred || a.Text == "" || a.Attempt != d.Attempt {
						t.Errorf("receipt %+v", receipt)
					}
					d = after(d, r, posthaste.OutcomeRetried)
				}
				r, receipt := attemptOnce(t, s, d)
				wantOK(t, r)
				if got := mailed(c); !maps.Equal(got, map[string]int{"bob@example.com": 1, "carl@example.com": 1}) {
					t.Errorf("mailed %v", got)
				}
				for _, m := range c.Mails() {
					if m.MessageID != receipt.MessageID {
						t.Errorf("message id %s", m.MessageID)
					}
				}
			})
		}
	}
}

// TestEM2_SameBytesOnEveryAttempt: a retried mail is the same mail.
func TestEM2_SameBytesOnEveryAttempt(t *testing.T) {
	t.Parallel()
	c := startCatcher(t, catcher.Config{})
	s := newSink(t, c.Addr(), "")
	c.Inject(catcher.Fault{Stage: catcher.StageEnd, Code: 451, Kept: true, Times: 2})
	e := simple()
	e.HTML = "<p>Hi</p>"
	e.Attachments = []email.Attachment{{Filename: "a.txt", Content: []byte("x")}}
	d := delivery(t, e)
	for range 2 {
		r, _ := attemptOnce(t, s, d)
		wantRetry(t, r)
		d = after(d, r, posthaste.OutcomeRetried)
	}
	r, _ := attemptOnce(t, s, d)
	wantOK(t, r)
	m := c.Mails()
	if len(m) != 3 || !bytes.Equal(m[0].Raw, m[1].Raw) || !bytes.Equal(m[0].Raw, m[2].Raw) {
		t.Errorf("%d mails: %s\n%s", len(m), m[0].Raw, m[1].Raw)
	}
}

// TestEM2_5xxIsNotRetried: a refusal of the mail is final, a refusal of the session is not.
func TestEM2_5xxIsNotRetried(t *testing.T) {
	t.Parallel()
	for _, stage := range failures {
		t.Run(string(stage), func(t *testing.T) {
			t.Parallel()
			c := startCatcher(t, catcher.Config{})
			s := newSink(t, c.Addr(), "")
			c.Inject(catcher.Fault{Stage: stage, Code: 554, Text: "5.7.1 not wanted", Times: -1})
			r, receipt := attemptOnce(t, s, delivery(t, simple()))
			if stage == catcher.StageConnect || stage == catcher.StageHello {
				wantRetry(t, r, "554", "not wanted")
				return
			}
			wantPermanent(t, r, "bob@example.com", "554", "not wanted", c.Addr())
			if a := receipt.Recipients["bob@example.com"]; a.Status != email.Refused || a.Code != 554 {
				t.Errorf("receipt %+v", receipt)
			}
			if len(c.Mails()) != 0 {
				t.Error("the mail was sent")
			}
		})
	}
}

// TestEM2_MissingPasswordIsRetried: 530 at MAIL is about the session, not the mail.
func TestEM2_MissingPasswordIsRetried(t *testing.T) {
	t.Parallel()
	c := startCatcher(t, catcher.Config{Username: "ada", Password: "secret"})
	r, _ := attemptOnce(t, newSink(t, c.Addr(), ""), delivery(t, simple()))
	wantRetry(t, r, "530", "Authentication required")
}

// TestEM2_HangIsCut: at each stage, a server that stops replying is cut at the timeout.
func TestEM2_HangIsCut(t *testing.T) {
	t.Parallel()
	for _, stage := range failures {
		t.Run(string(stage), func(t *testing.T) {
			t.Parallel()
			c := startCatcher(t, catcher.Config{})
			// Long enough for every other reply, even of the second attempt.
			s := newSink(t, c.Addr(), "command_timeout=4s&data_timeout=4s")
			in := c.Inject(catcher.Fault{Stage: stage, Hang: true, Kept: true})
			d := delivery(t, simple())
			r, receipt := attemptOnce(t, s, d)
			wantRetry(t, r, "no reply within 4s", "bob@example.com")
			if in.Hits() != 1 {
				t.Errorf("%d hits", in.Hits())
			}
			a := receipt.Recipients["bob@example.com"]
			if a.Status != email.Deferred || a.Unsure != (stage == catcher.StageEnd) {
				t.Errorf("answer %+v", a)
			}
			r, _ = attemptOnce(t, s, after(d, r, posthaste.OutcomeRetried))
			wantOK(t, r)
		})
	}
}

// TestEM2_AnswerLost: if the reply to a mail is lost, its result is unknown. The mail is sent
// again, and the recipient is marked.
func TestEM2_AnswerLost(t *testing.T) {
	t.Parallel()
	c := startCatcher(t, catcher.Config{})
	s := newSink(t, c.Addr(), "")
	c.Inject(catcher.Fault{Stage: catcher.StageEnd, Drop: true, Kept: true})
	d := delivery(t, simple())
	r, receipt := attemptOnce(t, s, d)
	wantRetry(t, r, "may have been delivered")
	if got := statuses(receipt); got != "bob@example.com=deferred/0/1?" {
		t.Errorf("receipt %s", got)
	}
	r, receipt = attemptOnce(t, s, after(d, r, posthaste.OutcomeRetried))
	wantOK(t, r)
	if got := statuses(receipt); got != "bob@example.com=accepted/250/2?" {
		t.Errorf("receipt %s", got)
	}
	if m := c.Mails(); len(m) != 2 || m[0].MessageID != m[1].MessageID {
		t.Errorf("%d mails", len(m))
	}
}

// TestEM2_PartlyRefused: a mail is never sent again to accepted recipients; deferred
// recipients are retried, and refused ones are not and end as an error.
func TestEM2_PartlyRefused(t *testing.T) {
	t.Parallel()
	c := startCatcher(t, catcher.Config{})
	s := newSink(t, c.Addr(), "")
	gone := c.Inject(catcher.Fault{Stage: catcher.StageRcpt, Recipient: "gone@example.com", Code: 550, Text: "5.1.1 no such user", Times: -1})
	c.Inject(catcher.Fault{Stage: catcher.StageRcpt, Recipient: "slow@example.com", Code: 450, Text: "4.2.1 busy", Times: 2})
	e := simple("bob@example.com", "gone@example.com", "slow@example.com")
	e.Bcc = []string{"hidden@example.com"}
	d := delivery(t, e)

	r, receipt := attemptOnce(t, s, d)
	wantRetry(t, r, "slow@example.com: 450", "busy", "gone@example.com: 550", "no such user", "accepted for 2 of 4")
	if got, want := statuses(receipt), "bob@example.com=accepted/250/1 gone@example.com=refused/550/1 hidden@example.com=accepted/250/1 slow@example.com=deferred/450/1"; got != want {
		t.Errorf("receipt %s\nwant    %s", got, want)
	}
	d = after(d, r, posthaste.OutcomeRetried)
	r, _ = attemptOnce(t, s, d)
	wantRetry(t, r, "slow@example.com: 450")
	// An attempt without a receipt does not hide the receipts before it.
	d = after(d, r, posthaste.OutcomeRetried)
	d.Story = append(d.Story, posthaste.Attempt{Attempt: 3, Outcome: posthaste.OutcomeLost})
	d.Attempt++
	r, receipt = attemptOnce(t, s, d)
	wantPermanent(t, r, "gone@example.com: 550", "no such user", "accepted for 3 of 4")
	if strings.Contains(r.Err.Error(), "slow@") {
		t.Errorf("error %q", r.Err)
	}
	if got, want := statuses(receipt), "bob@example.com=accepted/250/1 gone@example.com=refused/550/1 hidden@example.com=accepted/250/1 slow@example.com=accepted/250/4"; got != want {
		t.Errorf("receipt %s\nwant    %s", got, want)
	}
	if gone.Hits() != 1 {
		t.Errorf("the refused recipient was tried %d times", gone.Hits())
	}
	once := map[string]int{"bob@example.com": 1, "hidden@example.com": 1, "slow@example.com": 1}
	if got := mailed(c); !maps.Equal(got, once) {
		t.Errorf("mailed %v", got)
	}

	testReplay(t, c, s, after(d, r, posthaste.OutcomeDead), gone, once)
}

// testReplay replays a dead letter with the refused recipient gone@example.com. once are the
// recipients that have the mail.
func testReplay(t *testing.T, c *catcher.Catcher, s *Sink, d posthaste.RawDelivery, gone *catcher.Injected, once map[string]int) {
	// A replayed dead letter tries the refused recipient once more, and no other.
	r, _ := attemptOnce(t, s, d)
	wantPermanent(t, r, "gone@example.com: 550")
	gone.Remove()
	d = after(d, r, posthaste.OutcomeDead)
	d.Attempt = 1 // a replay may restart the count
	r, receipt := attemptOnce(t, s, d)
	wantOK(t, r)
	once["gone@example.com"] = 1
	if got := mailed(c); !maps.Equal(got, once) {
		t.Errorf("mailed %v", got)
	}
	if receipt.Recipients["gone@example.com"].Status != email.Accepted {
		t.Errorf("receipt %s", statuses(receipt))
	}
	// Later attempts send nothing.
	d.Story = append(d.Story, posthaste.Attempt{Outcome: posthaste.OutcomeLost, Receipt: r.Receipt})
	r, _ = attemptOnce(t, s, d)
	wantOK(t, r)
	if got := mailed(c); !maps.Equal(got, once) {
		t.Errorf("mailed %v", got)
	}
}

// TestEM2_RefusedAfterTheDot: a reply after the content applies to the recipients that were
// accepted before.
func TestEM2_RefusedAfterTheDot(t *testing.T) {
	t.Parallel()
	c := startCatcher(t, catcher.Config{})
	s := newSink(t, c.Addr(), "")
	c.Inject(catcher.Fault{Stage: catcher.StageRcpt, Recipient: "gone@example.com", Code: 550})
	c.Inject(catcher.Fault{Stage: catcher.StageEnd, Code: 451})
	d := delivery(t, simple("bob@example.com", "gone@example.com"))
	r, receipt := attemptOnce(t, s, d)
	wantRetry(t, r)
	if got := statuses(receipt); got != "bob@example.com=deferred/451/1 gone@example.com=refused/550/1" {
		t.Errorf("receipt %s", got)
	}
	r, _ = attemptOnce(t, s, after(d, r, posthaste.OutcomeRetried))
	wantPermanent(t, r, "gone@example.com")
	if got := mailed(c); !maps.Equal(got, map[string]int{"bob@example.com": 1}) {
		t.Errorf("mailed %v", got)
	}
}

// TestEM2_DeadWithDeferred: a mail that ran out of attempts is replayed for all recipients
// that do not have it.
func TestEM2_DeadWithDeferred(t *testing.T) {
	t.Parallel()
	c := startCatcher(t, catcher.Config{})
	s := newSink(t, c.Addr(), "")
	c.Inject(catcher.Fault{Stage: catcher.StageRcpt, Recipient: "slow@example.com", Code: 450})
	c.Inject(catcher.Fault{Stage: catcher.StageRcpt, Recipient: "gone@example.com", Code: 550})
	d := delivery(t, simple("bob@example.com", "gone@example.com", "slow@example.com"))
	r, _ := attemptOnce(t, s, d)
	wantRetry(t, r)
	r, _ = attemptOnce(t, s, after(d, r, posthaste.OutcomeDead))
	wantOK(t, r)
	if got := mailed(c); !maps.Equal(got, map[string]int{"bob@example.com": 1, "gone@example.com": 1, "slow@example.com": 1}) {
		t.Errorf("mailed %v", got)
	}
}

// TestEM2_ManyAnswersFitAnError: the error stays short, and the receipt has everything.
func TestEM2_ManyAnswersFitAnError(t *testing.T) {
	t.Parallel()
	c := startCatcher(t, catcher.Config{})
	var to []string
	for i := range email.MaxRecipients {
		to = append(to, fmt.Sprintf("r%d@example.com", i))
		c.Inject(catcher.Fault{Stage: catcher.StageRcpt, Recipient: to[i], Code: 550, Text: fmt.Sprintf("no %d %s", i%7, strings.Repeat("long ", 300))})
	}
	r, receipt := attemptOnce(t, newSink(t, c.Addr(), ""), delivery(t, simple(to...)))
	wantPermanent(t, r, "r0@example.com", "and 26 more", "and 3 more answers")
	if n := len(r.Err.Error()); n > 2500 {
		t.Errorf("an error of %d bytes", n)
	}
	if len(receipt.Recipients) != email.MaxRecipients || len(r.Receipt) > 120<<10 {
		t.Errorf("%d recipients in %d bytes", len(receipt.Recipients), len(r.Receipt))
	}
}

// A recipient that is named twice gets one mail, whichever fields name it.
func TestEM2_RecipientNamedTwice(t *testing.T) {
	t.Parallel()
	c := startCatcher(t, catcher.Config{})
	e := simple("Bob <bob@example.com>", "bob@EXAMPLE.com", "zoe@münchen.example", "Carl@example.com", "用户@例え.example")
	e.Cc = []string{"bob@Example.Com", `"bob"@example.com`, "zoe@xn--mnchen-3ya.example", "用户@xn--r8jz45g.example"}
	e.Bcc = []string{"Bobby <bob@example.com>", "carl@example.com", "ZOE@MÜNCHEN.example"}
	r, receipt := attemptOnce(t, newSink(t, c.Addr(), ""), delivery(t, e))
	wantOK(t, r)
	// The part before the "@" may be case-sensitive: only the receiving host knows
	// whether Carl is carl.
	want := map[string]int{"bob@example.com": 1, "zoe@xn--mnchen-3ya.example": 1, "Carl@example.com": 1, "carl@example.com": 1, "用户@例え.example": 1, "ZOE@xn--mnchen-3ya.example": 1}
	if got := mailed(c); !maps.Equal(got, want) || len(receipt.Recipients) != len(want) {
		t.Errorf("mailed %v, want %v; the receipt has %d recipients", got, want, len(receipt.Recipients))
	}
}
