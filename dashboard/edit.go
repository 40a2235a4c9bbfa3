package dashboard

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/server"
)

// editable reports whether a message can be changed now: it waits and no subscription was handed it,
// or it is dead and waits in none.
func (p *page) editable(m posthaste.MessageInfo) bool {
	if !p.d.can.Updates || !m.ErasedAt.IsZero() || len(m.Subscriptions) == 0 {
		return false
	}
	if s, err := p.d.snapshots.look(p.ctx()); err == nil {
		if q := s.queue(m.Queue); q != nil && q.Options.Ordered {
			return false
		}
	}
	untouched, dead, runs := true, false, false
	for _, s := range m.Subscriptions {
		waits := s.State == posthaste.StateScheduled || s.State == posthaste.StateReady
		untouched = untouched && waits && len(s.Attempts) == 0
		runs = runs || waits || s.State == posthaste.StateRunning || s.State == posthaste.StateRetrying
		dead = dead || s.State == posthaste.StateDead
	}
	return untouched || dead && !runs
}

// edited are the fields of the form that changes a message.
type edited struct {
	Payload, ContentType, Kind, Key, Reference, Headers, Terms, Priority string
}

// hasPayload reports whether the payload can be changed in a form: it is text, and not too long.
func hasPayload(m posthaste.MessageInfo) bool {
	return m.Payload != nil && len(m.Payload) <= maxPretty && utf8.Valid(m.Payload) && !bytes.ContainsAny(m.Payload, "\x00\r")
}

// fieldsOf returns the fields of a message as the form has them.
func fieldsOf(m posthaste.MessageInfo) edited {
	f := edited{ContentType: cmp.Or(m.ContentType, posthaste.ContentTypeJSON), Kind: m.Kind, Key: m.Key, Reference: m.Reference, Headers: "{}", Terms: "[]"}
	if hasPayload(m) {
		if f.Payload = string(m.Payload); isJSON(f.ContentType) {
			f.Payload = pretty(m.Payload)
		}
	}
	headers := maps.Clone(m.Headers)
	delete(headers, posthaste.HeaderSender) // it stays
	if len(headers) > 0 {
		text, _ := json.Marshal(headers) // always encodes
		f.Headers = pretty(text)
	}
	if len(m.Terms) > 0 {
		text, _ := json.Marshal(m.Terms) // always encodes
		f.Terms = string(text)
	}
	return f
}

func isJSON(contentType string) bool {
	kind, _, _ := mime.ParseMediaType(contentType)
	return kind == "" || kind == posthaste.ContentTypeJSON || strings.HasSuffix(kind, "+json")
}

// findEditable returns the message in the path if it can be changed now.
func (p *page) findEditable() (posthaste.MessageInfo, error) {
	m, err := p.findMessage()
	if err == nil && !slices.Contains(p.validActions(m), "edit") {
		err = cannotChange(m)
	}
	return m, err
}

// askEdit shows the form that changes a message.
func (d *dashboard) askEdit(p *page) error {
	m, err := p.findEditable()
	if err != nil {
		return err
	}
	sees := p.Allows(server.ScopeReadPayload)
	shown := struct {
		Message        posthaste.MessageInfo
		Fields         edited
		Sees, Payload  bool
		Dead           bool
		Keyed          bool
		Once           string
		CLI, Curl, SQL string
	}{Message: m, Fields: fieldsOf(m), Sees: sees, Payload: sees && hasPayload(m), Once: rand.Text()}
	shown.Dead = slices.ContainsFunc(m.Subscriptions, func(s posthaste.MessageState) bool { return s.State == posthaste.StateDead })
	if s, err := d.snapshots.look(p.ctx()); err == nil {
		if q := s.queue(m.Queue); q != nil {
			shown.Keyed = keyed(q.Options)
		}
	}
	id, changes := m.ID.String(), map[string]any{"kind": cmp.Or(m.Kind, "KIND")}
	if shown.Payload && len(m.Payload) < 2000 && json.Valid(m.Payload) {
		changes["payload"] = json.RawMessage(m.Payload)
	}
	text, _ := json.Marshal(changes) // always encodes
	shown.CLI = command("message", "update", id, string(text), "--if-version", m.Version)
	shown.Curl = curl("PATCH", "/v1/messages/"+id, string(text)) + " -H " + shellQuote("If-Match: "+strconv.Quote(m.Version))
	if d.can.SQL {
		shown.SQL = "select * from posthaste.update_message(" + id + ", " + sqlQuote(string(text)) + ", " + sqlQuote(m.Version) + ")"
	}
	return p.show("edit", "Edit message "+id, "messages", false, shown)
}

// edit changes a message by the fields of the form that differ from its present ones.
func (d *dashboard) edit(p *page) error {
	if once := p.text("once"); once != "" { // a form that was changed before it is sent again is another one
		digest := sha256.Sum256([]byte(p.query.Encode()))
		p.query.Set("once", once+hex.EncodeToString(digest[:8]))
	}
	to, err := d.forms.once(p, func() (string, error) {
		m, err := p.findEditable()
		if err != nil {
			return "", err
		}
		update, err := p.messageUpdate(m)
		if err != nil {
			return "", err
		}
		defer d.snapshots.forget()
		done, err := d.engine.UpdateMessage(p.ctx(), m.ID, update)
		if err != nil {
			return "", err
		}
		notice := "edited"
		if done.ID != m.ID {
			notice = "resent"
		}
		return p.link("/messages/"+done.ID.String(), "done", notice), nil
	})
	if err != nil {
		return err
	}
	return p.redirect(to)
}

// messageUpdate returns the change of a message that the form asks for. Fields that the form lacks,
// because the caller may not see them, do not change.
func (p *page) messageUpdate(m posthaste.MessageInfo) (u posthaste.MessageUpdate, err error) {
	u.Version = p.text("version")
	if u.Version == "" {
		return u, posthaste.Invalidf("version", "The form is incomplete; load it again.")
	}
	was := fieldsOf(m)
	changed := func(name, was string) bool { return p.query.Has(name) && !sameField(p.form(name), was) }
	for _, x := range []struct {
		name string
		was  string
		into **string
	}{{"kind", was.Kind, &u.Kind}, {"key", was.Key, &u.Key}, {"reference", was.Reference, &u.Reference}, {"content_type", was.ContentType, &u.ContentType}} {
		if changed(x.name, x.was) {
			text := p.form(x.name)
			*x.into = &text
		}
	}
	sees := p.Allows(server.ScopeReadPayload)
	if hasPayload(m) && sees && changed("payload", was.Payload) {
		contentType := was.ContentType
		if u.ContentType != nil {
			contentType = *u.ContentType
		}
		u.Payload, u.ContentType = p.form("payload"), &contentType
		if isJSON(contentType) {
			u.Payload = json.RawMessage(cmp.Or(strings.TrimSpace(p.form("payload")), "null"))
		}
	}
	if sees && changed("headers", was.Headers) {
		if u.Headers, err = headersOf(p.form("headers")); err != nil {
			return u, err
		}
		if sender, ok := m.Headers[posthaste.HeaderSender]; ok {
			u.Headers[posthaste.HeaderSender] = sender
		}
	}
	if sees && changed("terms", was.Terms) {
		if err := json.Unmarshal([]byte(cmp.Or(p.text("terms"), "[]")), &u.Terms); err != nil || u.Terms == nil {
			return u, posthaste.Invalidf("terms", `Terms must be a JSON array of texts such as ["ada@example.com"], got %q.`, line(p.text("terms")))
		}
	}
	if text := p.text("priority"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return u, posthaste.Invalidf("priority", "The priority must be a whole number, got %q.", text)
		}
		u.Priority = &n
	}
	return u, nil
}

// sameField reports whether a field of a form still has its value, as browsers return it: without
// the first line break of a text of several lines, and without all of them in one of one line.
func sameField(is, was string) bool {
	return is == was || "\n"+is == was || is == strings.NewReplacer("\r", "", "\n", "").Replace(was)
}

// headersOf reads headers from JSON. A header with the sender is left out: it stays as it is.
func headersOf(text string) (map[string]string, error) {
	headers := map[string]string{}
	if err := json.Unmarshal([]byte(cmp.Or(strings.TrimSpace(text), "{}")), &headers); err != nil || headers == nil {
		return nil, posthaste.Invalidf("headers", `Headers must be a JSON object of texts such as {"region": "eu"}, got %q.`, line(text))
	}
	maps.DeleteFunc(headers, func(name, _ string) bool { return strings.EqualFold(name, posthaste.HeaderSender) })
	return headers, nil
}

// form returns a field of a form. Browsers send line breaks as CR and LF.
func (p *page) form(name string) string { return strings.ReplaceAll(p.query.Get(name), "\r\n", "\n") }

// cannotChange is the error for an action that the state of a message does not allow.
func cannotChange(m posthaste.MessageInfo) error {
	return &posthaste.Error{Code: posthaste.CodeConflict, Field: "id", Message: fmt.Sprintf("Message %s cannot be changed in this way: it is %s.", m.ID, strings.Join(statesOf(m), ", "))}
}

// statesOf returns the states of a message with their subscriptions.
func statesOf(m posthaste.MessageInfo) (states []string) {
	for _, s := range m.Subscriptions {
		states = append(states, string(s.State)+" in "+s.Subscription)
	}
	return states
}
