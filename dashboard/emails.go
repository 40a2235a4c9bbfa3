package dashboard

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/server"
)

// Limits of the list of e-mails. Lists of the store have no payloads, so that each subject is read
// by itself.
const (
	mailsShown = 25
	// mailsSearched is how many e-mails a search by subject reads at a time.
	mailsSearched = 200
	// subjectTime and subjectBytes bound the reading of subjects for one page.
	subjectTime  = time.Second
	subjectBytes = 64 << 20
)

// mailRow is an e-mail in the list.
type mailRow struct {
	server.Mail
	Actions []string
}

// To returns the first recipient and the number of further ones.
func (m mailRow) To() string {
	all := m.Terms
	if m.Content != nil && len(m.Content.Recipients()) > 0 {
		all = m.Content.Recipients()
	}
	switch len(all) {
	case 0:
		return ""
	case 1:
		return all[0]
	}
	return all[0] + " and " + strconv.Itoa(len(all)-1) + " more"
}

// Answer returns the most important reply of the provider, or the error of the last attempt.
func (m mailRow) Answer() string {
	counts, texts := map[string]int{}, map[string]string{}
	for _, address := range slices.Sorted(maps.Keys(m.Answers)) {
		a := m.Answers[address]
		counts[string(a.Status)]++
		if texts[string(a.Status)] == "" {
			texts[string(a.Status)] = reply(a.Code, a.Enhanced, a.Text)
		}
	}
	var parts []string
	for _, status := range []string{"refused", "deferred", "accepted"} {
		if counts[status] == 0 {
			continue
		}
		text := status
		if len(m.Answers) > 1 {
			text = strconv.Itoa(counts[status]) + " " + status
		}
		if len(parts) == 0 {
			text += ": " + texts[status]
		}
		parts = append(parts, text)
	}
	if len(parts) == 0 {
		return m.Error
	}
	return strings.Join(parts, "; ")
}

func reply(code int, enhanced, text string) string {
	parts := []string{}
	if code != 0 {
		parts = append(parts, strconv.Itoa(code))
	}
	return strings.Join(slices.DeleteFunc(append(parts, enhanced, text), func(s string) bool { return s == "" }), " ")
}

// listedMails is the data of the list of e-mails.
type listedMails struct {
	Filter   server.MailFilter
	Subject  string
	Statuses []string
	Mails    []mailRow
	// Content reports that the viewer may see addresses, subjects and answers.
	Content bool
	// Queue reports that the queue of e-mails exists.
	Queue bool
	// Searched is how many e-mails a search by subject has read.
	Searched       int
	Next, First    string
	CLI, Curl, SQL string
}

// mailFilter reads the filter of the list of e-mails.
func (p *page) mailFilter() (f server.MailFilter, subject string, err error) {
	f = server.MailFilter{Recipient: p.text("recipient"), Reference: p.query.Get("reference"), Status: p.text("status"), Limit: mailsShown}
	subject = p.text("subject")
	if f.Before, err = p.id("before"); err == nil && (f.Recipient != "" || subject != "") { // the result would tell
		err = p.needs(server.ScopeReadPayload)
	}
	return f, subject, err
}

func (d *dashboard) showEmails(p *page) error {
	if err := p.allowQueue(server.MailQueue); err != nil {
		return err
	}
	f, subject, err := p.mailFilter()
	if err != nil {
		return err
	}
	data := listedMails{Filter: f, Subject: subject, Content: p.Allows(server.ScopeReadPayload), Queue: true}
	for _, status := range server.MailStatuses() {
		data.Statuses = append(data.Statuses, string(status))
	}
	if err := p.listMails(&data); posthaste.CodeOf(err) == posthaste.CodeNotFound {
		data.Queue = false
	} else if err != nil {
		return err
	}
	if f.Before != 0 {
		data.First = p.with("before", "")
	}
	if subject == "" {
		data.CLI, data.Curl = sameMails(f)
	}
	return p.show("emails", "E-mail", "emails", false, data)
}

// listMails reads one page of e-mails, with subjects if the viewer may see them.
func (p *page) listMails(data *listedMails) error {
	f := data.Filter
	if data.Subject != "" {
		f.Limit = mailsSearched
	}
	found, err := server.Mails(p.ctx(), p.d.engine, f)
	if err != nil {
		return err
	}
	next, read, until := found.Next, 0, time.Now().Add(subjectTime)
	for i, m := range found.Items {
		stop := time.Now().After(until) || read > subjectBytes
		if i > 0 && data.Subject != "" && (stop || len(data.Mails) == mailsShown) {
			next = found.Items[i-1].ID
			break
		}
		actions := p.validActions(m)
		if data.Content && !stop {
			whole, err := p.d.engine.Message(p.ctx(), m.ID)
			if err != nil && posthaste.CodeOf(err) != posthaste.CodeNotFound {
				return err
			}
			m.Payload, read = whole.Payload, read+len(whole.Payload)
		}
		row := mailRow{server.NewMail(m), actions}
		if row.MessageInfo.Payload = nil; data.Subject != "" {
			data.Searched++
			if row.Content == nil || !strings.Contains(strings.ToLower(row.Content.Subject), strings.ToLower(data.Subject)) {
				continue
			}
		}
		data.Mails = append(data.Mails, row)
	}
	if next != 0 {
		data.Next = p.with("before", next.String())
	}
	return nil
}

// sameMails returns the commands that list the same e-mails.
func sameMails(f server.MailFilter) (cli, http string) {
	args, params := []string{"email", "ls"}, []string{}
	for _, x := range []struct{ name, value string }{{"recipient", f.Recipient}, {"reference", f.Reference}, {"status", f.Status}} {
		if x.value != "" {
			args, params = append(args, "--"+x.name, x.value), append(params, x.name, x.value)
		}
	}
	return command(args...), curl("GET", link("", "/v1/emails", params...), "")
}

// shownMail is the part of a message's page about its e-mail.
type shownMail struct {
	mailRow
	Recipients []shownRecipient
	// Preview is the address of the HTML; "" without HTML.
	Preview string
	// Caught is where the mail is if the catcher received it.
	Caught string
}

// shownRecipient is a recipient and the provider's answer.
type shownRecipient struct {
	Address, Status, Reply string
	At                     time.Time
	Attempt                int
	Unsure                 bool
}

// newShownMail returns the e-mail of a message; nil for other messages. The answers of the mail
// server may be stored for longer than the content.
func (p *page) newShownMail(m posthaste.MessageInfo) *shownMail {
	mail := server.NewMail(m)
	if m.Queue != server.MailQueue || mail.Content == nil && len(mail.Answers) == 0 {
		return nil
	}
	shown := &shownMail{mailRow: mailRow{Mail: mail}}
	var addresses []string
	if mail.Content != nil {
		addresses = mail.Content.Recipients()
	}
	for _, address := range slices.Sorted(maps.Keys(mail.Answers)) {
		if !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	for _, address := range addresses {
		a := mail.Answers[address]
		shown.Recipients = append(shown.Recipients, shownRecipient{address, string(a.Status), reply(a.Code, a.Enhanced, a.Text), a.At, a.Attempt, a.Unsure})
	}
	if mail.Content != nil && mail.Content.HTML != "" {
		shown.Preview = p.link("/messages/" + m.ID.String() + "/preview")
	}
	if caught := p.caughtMail(); caught != "" && mail.Header != "" {
		shown.Caught = link("", caught, "q", mail.Header)
	}
	return shown
}

// caughtMail returns the address of the pages of caught mails; "" for viewers who may not read
// them.
func (p *page) caughtMail() string {
	to, err := url.Parse(p.d.caughtMail)
	if p.d.caughtMail == "" || err != nil || p.Limited() || !p.Allows(server.ScopeReadPayload) {
		return ""
	}
	return (&url.URL{Path: p.Base + "/"}).ResolveReference(to).EscapedPath()
}

// allowFrame lets the page show a frame of this site, such as a preview.
func (p *page) allowFrame() {
	h := p.w.Header()
	h.Set("Content-Security-Policy", h.Get("Content-Security-Policy")+"; frame-src 'self'")
}

// policyPreview keeps the HTML of senders from running scripts, sending forms and loading anything.
const policyPreview = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"

// previewEmail answers with the HTML of an e-mail, for a sandboxed frame.
func (d *dashboard) previewEmail(p *page) error {
	m, err := p.findMessage()
	if err != nil {
		return err
	}
	mail := server.NewMail(m)
	if m.Queue != server.MailQueue || mail.Content == nil || mail.Content.HTML == "" {
		return notFound("Message %s has no HTML to show.", m.ID)
	}
	h := p.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "SAMEORIGIN")
	h.Set("Content-Security-Policy", policyPreview)
	if p.r.Method != http.MethodHead {
		_, _ = p.w.Write([]byte(mail.Content.HTML)) // the caller is gone
	}
	return nil
}
