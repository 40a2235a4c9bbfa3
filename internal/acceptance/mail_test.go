//go:build unix

package acceptance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/mail"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/catcher"
	"github.com/posthaste-mq/posthaste/sink/smtp"
	"github.com/posthaste-mq/posthaste/worker"
)

// post is the whole path of a mail: HTTP API, queue, worker, sink, and a mail server with
// injected faults.
type post struct {
	*stage
	api    *api
	server *catcher.Catcher
}

// newPost creates a post; timeout bounds one answer of the mail server.
func newPost(t *testing.T, timeout time.Duration) *post {
	t.Helper()
	s := newStage(t)
	s.failing()
	s.must(s.engine.CreateQueue(s.ctx, email.Queue, s.keeping(posthaste.QueueOptions{MaxAttempts: 6, MaxPayload: 32 << 20,
		BackoffBase: time.Millisecond, BackoffMax: 10 * time.Millisecond})))
	server, err := catcher.Start(catcher.Config{MaxMails: 10_000})
	s.must(err)
	t.Cleanup(func() { _ = server.Close() })
	sink, err := smtp.New(smtp.Config{URL: "smtp://" + server.Addr() + "?tls=none", CommandTimeout: timeout, DataTimeout: timeout})
	s.must(err)
	t.Cleanup(func() { _ = sink.Close() })
	w := worker.New(s.open(), worker.Config{Logger: s.log})
	worker.HandleSink(w, email.Queue, sink)
	s.run(w)
	return &post{s, s.http(), server}
}

// follow is a mail as its sender sees it.
type follow struct {
	ID       posthaste.MessageID
	Status   email.Status
	Attempts []posthaste.Attempt
	Answers  map[string]email.Answer
}

func (p *post) send(m email.Email) posthaste.MessageID {
	p.Helper()
	body, err := json.Marshal(m)
	p.must(err)
	var sent struct{ ID posthaste.MessageID }
	p.must(json.Unmarshal(p.api.want(201, "POST", "/v1/emails", string(body)).body, &sent))
	return sent.ID
}

// ends waits until a mail has its final state.
func (p *post) ends(id posthaste.MessageID) (f follow) {
	p.Helper()
	p.until("the mail is sent or in error", func() bool {
		p.must(json.Unmarshal(p.api.want(200, "GET", "/v1/emails/"+id.String(), "").body, &f))
		return f.Status == email.StatusSent || f.Status == email.StatusError
	})
	return f
}

func simple(to ...string) email.Email {
	return email.Email{From: "shop@example.com", To: to, Subject: "Hello", Text: "Hi\n"}
}

// Invalid mails are rejected with the field's name, and nothing is stored.
func TestEM1_BadMailsAreRefused(t *testing.T) {
	t.Parallel()
	p := newPost(t, time.Minute)
	bad := map[string]func(*email.Email){
		"from":          func(m *email.Email) { m.From = "shop" },
		"to":            func(m *email.Email) { m.To = nil },
		"to[0]":         func(m *email.Email) { m.To = []string{""} },
		"to[1]":         func(m *email.Email) { m.To = []string{"a@example.com", "a@b@example.com"} },
		"cc[0]":         func(m *email.Email) { m.Cc = []string{"x@example.com\r\nBcc: y@example.com"} },
		"bcc[0]":        func(m *email.Email) { m.Bcc = []string{strings.Repeat("x", 65) + "@example.com"} },
		"reply_to":      func(m *email.Email) { m.ReplyTo = "a@example.com, b@example.com" },
		"subject":       func(m *email.Email) { m.Subject = "Hello\r\nBcc: victim@example.com" },
		"headers.X-Foo": func(m *email.Email) { m.Headers = map[string]string{"X-Foo": "a\nX-Bar: b"} },
		"text":          func(m *email.Email) { m.Text = "" },
		"reference":     func(m *email.Email) { m.Reference = strings.Repeat("r", 256) },
		"attachments[0].filename": func(m *email.Email) {
			m.Attachments = []email.Attachment{{Filename: "../../etc/passwd", Content: []byte("x")}}
		},
		"headers.References": func(m *email.Email) { m.Headers = map[string]string{"References": "order 7"} },
	}
	for field, spoil := range bad {
		m := simple("ada@example.com")
		spoil(&m)
		body, err := json.Marshal(m)
		p.must(err)
		got := p.api.call("POST", "/v1/emails", string(body))
		var problem struct{ Field, Detail string }
		p.must(json.Unmarshal(got.body, &problem))
		if got.status < 400 || got.status > 422 || problem.Field != field || problem.Detail == "" {
			t.Errorf("%s: answered by %d %s", field, got.status, got.body)
		}
	}
	// The same mail by SQL is stored, because SQL does not check mails, and becomes a dead
	// letter with the field's name.
	conn := p.conn()
	fields := map[posthaste.MessageID]string{}
	for field, spoil := range bad {
		m := simple("ada@example.com")
		spoil(&m)
		body, err := json.Marshal(m)
		p.must(err)
		fields[posthaste.MessageID(one[int64](p.stage, conn, "select posthaste.send('emails', $1::text::jsonb)", string(body)))] = field
	}
	nonsense := posthaste.MessageID(one[int64](p.stage, conn, `select posthaste.send('emails', '[1]')`))
	fields[nonsense] = ""
	p.until("all are dead", func() bool { return len(p.letters(email.Queue)) >= len(fields) })
	for _, l := range p.letters(email.Queue) {
		field, sent := fields[l.ID]
		if !sent {
			t.Errorf("%s was stored though HTTP refused it: %s", l.ID, l.Payload)
		}
		if !strings.Contains(l.Error, field) || l.Error == "" || len(l.Attempts) != 1 {
			t.Errorf("dead letter of %q says %q after %d attempts", field, l.Error, len(l.Attempts))
		}
	}
	if n := p.server.Stats().Transactions; n > 0 {
		t.Errorf("%d mails were begun", n)
	}
	if all, err := p.engine.Messages(p.ctx, posthaste.MessageFilter{Queue: email.Queue, Limit: 1000}); err != nil || len(all.Items) != len(fields) {
		t.Errorf("%d messages are stored, %v", len(all.Items), err)
	}
}

// A mail with 60 recipients and Unicode everywhere arrives as it was sent.
func TestEM1_ArrivesAsSent(t *testing.T) {
	t.Parallel()
	p := newPost(t, time.Minute)
	random := seeded(t)
	blob := make([]byte, 100_000)
	for i := range blob {
		blob[i] = byte(random.Uint32())
	}
	m := email.Email{
		From: "Ünïcode 商店 <shop@example.com>", ReplyTo: "Änne <änne@exämple.com>",
		Subject:     "Größe 大 😀 " + strings.Repeat("sehr lang und ünïcode ", 20),
		Text:        "Zeile 1 ü\n.\n..zwei\n\nFrom here\n" + strings.Repeat("lang ", 400) + "\n\ttab 😀\n",
		HTML:        "<p>Größe &amp; 大 😀</p>\n" + strings.Repeat("<b>x</b>", 500),
		Headers:     map[string]string{"X-Order": "zwölf 😀"},
		Attachments: []email.Attachment{{Filename: "größe 大.bin", ContentType: "application/octet-stream", Content: blob}, {Filename: "leer.txt", ContentType: "text/plain", Content: []byte{}}},
		Reference:   "Bestellung ü-1",
	}
	for i := range 60 {
		address := fmt.Sprintf("Nr. %d ü <empfänger%d@exämple.com>", i, i)
		switch i % 3 {
		case 0:
			m.To = append(m.To, address)
		case 1:
			m.Cc = append(m.Cc, address)
		default:
			m.Bcc = append(m.Bcc, address)
		}
	}
	id := p.send(m)
	f := p.ends(id)
	if f.Status != email.StatusSent || len(f.Attempts) != 1 || len(f.Answers) != 60 {
		t.Fatalf("it is %s after %d attempts, with %d answers: %+v", f.Status, len(f.Attempts), len(f.Answers), f.Attempts)
	}
	mails := p.server.Mails()
	if len(mails) != 1 {
		t.Fatalf("%d mails were caught", len(mails))
	}
	got := mails[0]
	if want := m.Recipients(); !slices.Equal(sortedCopy(got.To), sortedCopy(want)) {
		t.Errorf("it went to %q instead of %q", got.To, want)
	}
	if got.Subject != m.Subject || got.Text != m.Text || got.HTML != m.HTML {
		t.Errorf("subject %q\ntext %.300q\nhtml %.300q", got.Subject, got.Text, got.HTML)
	}
	if len(got.Attachments) != 2 || got.Attachments[0].Filename != m.Attachments[0].Filename || !bytes.Equal(got.Attachments[0].Content, blob) || len(got.Attachments[1].Content) != 0 {
		t.Errorf("%d attachments", len(got.Attachments))
	}
	header, _, _ := bytes.Cut(got.Raw, []byte("\r\n\r\n"))
	if bytes.Contains(bytes.ToLower(header), []byte("\nbcc:")) || bytes.Contains(header, []byte("nger2@")) || !bytes.Contains(header, []byte("nger3@")) {
		t.Errorf("bcc shows, or the others do not: %s", header)
	}
	head, err := mail.ReadMessage(bytes.NewReader(got.Raw))
	p.must(err)
	if order, err := new(mime.WordDecoder).DecodeHeader(head.Header.Get("X-Order")); err != nil || order != m.Headers["X-Order"] {
		t.Errorf("the header X-Order arrived as %q: %v", order, err)
	}
	if n := len(head.Header["Message-Id"]); n != 1 || got.MessageID == "" {
		t.Errorf("%d Message-IDs", n)
	}
	for name, want := range map[string]int{"From": 1, "To": 20, "Cc": 20, "Reply-To": 1} {
		list, err := head.Header.AddressList(name)
		if err != nil || len(list) != want {
			t.Errorf("%s has %d addresses: %v", name, len(list), err)
		}
	}
	// It is found by its reference and by each recipient.
	for _, query := range []string{"reference=Bestellung+%C3%BC-1", "recipient=empf%C3%A4nger59@ex%C3%A4mple.com", "recipient=empf%C3%A4nger0@ex%C3%A4mple.com&status=sent"} {
		var found []follow
		p.must(json.Unmarshal(p.api.want(200, "GET", "/v1/emails?"+query, "").entries(t), &found))
		if len(found) != 1 || found[0].ID != id {
			t.Errorf("%s finds %+v", query, found)
		}
	}
}

func sortedCopy(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

// The server fails twice and then accepts: one mail, with one Message-ID.
func TestEM2_FailsTwiceThenAccepts(t *testing.T) {
	t.Parallel()
	p := newPost(t, time.Minute)
	p.server.Inject(catcher.Fault{Stage: catcher.StageEnd, Times: 2, Code: 451})
	f := p.ends(p.send(simple("ada@example.com")))
	if f.Status != email.StatusSent || len(f.Attempts) != 3 {
		t.Errorf("it is %s after %d attempts: %+v", f.Status, len(f.Attempts), f.Attempts)
	}
	for i, a := range f.Attempts[:min(2, len(f.Attempts))] {
		if a.Outcome != posthaste.OutcomeRetried || !strings.Contains(a.Error, "451 ") || !strings.Contains(a.Error, "injected at end") {
			t.Errorf("attempt %d ended as %s: %q", i+1, a.Outcome, a.Error)
		}
	}
	if n := len(p.server.Mails()); n != 1 {
		t.Errorf("%d mails were caught", n)
	}
}

// A delayed mail has its due time as its date on every attempt, whichever way it was sent.
func TestEM2_HeldBackMailIsDatedWhenDue(t *testing.T) {
	t.Parallel()
	p := newPost(t, time.Minute)
	p.server.Inject(catcher.Fault{Stage: catcher.StageEnd, Times: 8, Code: 451, Kept: true})
	const hold = 6 * time.Second // all must be sent, and moved, before
	due := time.Now().Add(hold)
	bySQL := func(options string) posthaste.MessageID {
		return posthaste.MessageID(one[int64](p.stage, p.conn(), "select posthaste.send('emails', '"+mailJSON(t)+"', "+options+")"))
	}
	m := simple("ada@example.com")
	m.SendAt = due
	message, err := m.Message()
	p.must(err)
	ids, err := posthaste.IDs(p.engine.Send(p.ctx, message, posthaste.Message{Queue: email.Queue, Payload: json.RawMessage(mailJSON(t)), Delay: hold}))
	p.must(err)
	ids = append(ids, p.send(m),
		bySQL(`jsonb_build_object('send_at', '`+due.UTC().Format(time.RFC3339Nano)+`')`),
		bySQL(`'{"delay": "6 seconds"}'`))
	// The first one is moved while it waits.
	_, err = p.engine.Reschedule(posthaste.WithActor(p.ctx, "ada"), ids[0], due.Add(hold))
	p.must(err)
	dates := map[posthaste.MessageID]time.Time{}
	for _, id := range ids {
		info, err := p.engine.Message(p.ctx, id)
		p.must(err)
		if dates[id] = info.Subscriptions[0].DueAt.Truncate(time.Second); dates[id].IsZero() {
			t.Fatalf("message %d is not held back: %+v", id, info)
		}
	}
	for _, id := range ids {
		if f := p.ends(id); f.Status != email.StatusSent {
			t.Fatalf("mail %d is %s: %+v", id, f.Status, f.Attempts)
		}
	}
	mails := p.server.Mails()
	if len(mails) != len(ids)+8 {
		t.Errorf("%d mails were caught", len(mails))
	}
	for _, caught := range mails {
		id, err := strconv.ParseInt(strings.Split(caught.MessageID, ".")[1], 10, 64)
		p.must(err)
		read, err := mail.ReadMessage(bytes.NewReader(caught.Raw))
		p.must(err)
		if date, err := read.Header.Date(); err != nil || !date.Equal(dates[posthaste.MessageID(id)]) {
			t.Errorf("mail %d is dated %s (%v), and was due at %s", id, date, err, dates[posthaste.MessageID(id)])
		}
	}
}

// mailJSON returns a mail as it is sent by SQL.
func mailJSON(t *testing.T) string {
	t.Helper()
	body, err := json.Marshal(simple("bob@example.com"))
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// A mail with a 5xx answer is not retried.
func TestEM2_RefusedIsNotRetried(t *testing.T) {
	t.Parallel()
	p := newPost(t, time.Minute)
	p.server.Inject(catcher.Fault{Stage: catcher.StageRcpt, Times: -1, Code: 550})
	id := p.send(simple("absent@example.com"))
	f := p.ends(id)
	if f.Status != email.StatusError || len(f.Attempts) != 1 || f.Answers["absent@example.com"].Code != 550 || len(p.server.Mails()) != 0 {
		t.Errorf("it is %s after %d attempts: %+v", f.Status, len(f.Attempts), f.Answers)
	}
	if l := p.letters(email.Queue); len(l) != 1 || l[0].ID != id || !strings.Contains(l[0].Error, "absent@example.com") {
		t.Errorf("dead letters: %+v", l)
	}
}

// The connection to a hanging server is cut at the timeout, and the mail is sent when the
// server works again. A slow machine may also cut a server that does not hang; then there is
// one more attempt.
func TestEM2_HangingServerIsCut(t *testing.T) {
	t.Parallel()
	p := newPost(t, 4*time.Second) // also bounds the answers of the second attempt
	hang := p.server.Inject(catcher.Fault{Stage: catcher.StageMail, Hang: true})
	f := p.ends(p.send(simple("ada@example.com")))
	if f.Status != email.StatusSent || len(f.Attempts) < 2 || hang.Hits() != 1 || len(p.server.Mails()) != 1 {
		t.Errorf("it is %s after %d attempts: %+v", f.Status, len(f.Attempts), f.Attempts)
	}
}

// Some recipients are accepted, some deferred, some refused: accepted ones never get the mail
// twice.
func TestEM2_RecipientsByThemselves(t *testing.T) {
	t.Parallel()
	p := newPost(t, time.Minute)
	p.server.Inject(catcher.Fault{Stage: catcher.StageRcpt, Recipient: "full@example.com", Times: 2, Code: 450})
	p.server.Inject(catcher.Fault{Stage: catcher.StageRcpt, Recipient: "absent@example.com", Times: -1, Code: 550})
	f := p.ends(p.send(simple("ada@example.com", "full@example.com", "absent@example.com")))
	if f.Status != email.StatusError || len(f.Attempts) != 3 { // one was refused permanently
		t.Errorf("it is %s after %d attempts: %+v", f.Status, len(f.Attempts), f.Attempts)
	}
	for address, want := range map[string]email.AnswerStatus{"ada@example.com": email.Accepted, "full@example.com": email.Accepted, "absent@example.com": email.Refused} {
		if a := f.Answers[address]; a.Status != want || a.Code == 0 {
			t.Errorf("%s was answered by %+v", address, a)
		}
	}
	var to []string
	for _, m := range p.server.Mails() {
		to = append(to, m.To...)
	}
	if !slices.Equal(sortedCopy(to), []string{"ada@example.com", "full@example.com"}) {
		t.Errorf("mails went to %q", to)
	}
}
