package dashboard

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/server"
)

// Sizes of payloads: up to maxPretty a payload is shown completely, and of a larger one the
// beginning.
const (
	maxPretty = 256 << 10
	maxShown  = 64 << 10
)

// shownPayload is a payload as the page shows it.
type shownPayload struct {
	// Text is the payload with line breaks and indentation if it is JSON; Raw is the payload as
	// it was sent. Both are empty for binary payloads.
	Text, Raw string
	Size      int
	Cut       bool
	Binary    bool
}

func showPayload(payload []byte) shownPayload {
	shown := shownPayload{Size: len(payload)}
	part := payload
	if shown.Cut = len(payload) > maxPretty; shown.Cut {
		part = payload[:maxShown]
		for i := 0; i < utf8.UTFMax && !utf8.Valid(part); i++ {
			part = part[:len(part)-1] // the cut may lie within a character
		}
	}
	if shown.Binary = !utf8.Valid(part) || bytes.ContainsFunc(part, func(c rune) bool { return unicode.IsControl(c) && !unicode.IsSpace(c) }); shown.Binary {
		return shown
	}
	shown.Raw, shown.Text = string(part), string(part)
	if !shown.Cut {
		shown.Text = pretty(part)
	}
	return shown
}

// shownState is the state of a message for one subscription.
type shownState struct {
	posthaste.MessageState
	// Reasons say why the message has not started.
	Reasons []string
}

// header is one header of a message.
type header struct{ Name, Value string }

// findMessage returns the message in the path, if the caller may see it.
func (p *page) findMessage() (posthaste.MessageInfo, error) {
	id, err := p.pathID()
	if err != nil {
		return posthaste.MessageInfo{}, err
	}
	m, err := p.d.engine.Message(p.ctx(), id)
	if err != nil {
		return m, err
	}
	return m, p.allowQueue(m.Queue)
}

func (d *dashboard) showMessage(p *page) error {
	d.snapshots.begin()
	m, err := p.findMessage()
	if err != nil {
		return err
	}
	s, err := d.snapshots.look(p.ctx())
	if err != nil {
		return err
	}
	data := struct {
		Message   posthaste.MessageInfo
		States    []shownState
		Headers   []header
		Payload   shownPayload
		Hidden    bool
		Actions   []string
		CLI, Curl string
		SQL       string
		Records   []posthaste.Action
		Mail      *shownMail
	}{Message: m, Hidden: !p.Allows(server.ScopeReadPayload), Actions: p.validActions(m), CLI: command("message", "show", m.ID.String()), Curl: curl("GET", "/v1/messages/"+m.ID.String(), "")}
	if d.can.SQL {
		data.SQL = "select * from posthaste.message(" + m.ID.String() + ")"
	}
	for _, state := range m.Subscriptions {
		data.States = append(data.States, shownState{state, reasons(s, m, state)})
	}
	if !data.Hidden {
		if data.Mail = p.newShownMail(m); data.Mail != nil && data.Mail.Preview != "" {
			p.allowFrame()
		}
		data.Payload = showPayload(m.Payload)
		for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
			data.Headers = append(data.Headers, header{name, m.Headers[name]})
		}
	}
	if !p.Limited() {
		if data.Records, err = d.engine.Actions(p.ctx(), posthaste.ActionFilter{MessageID: m.ID, Limit: 20}); err != nil && posthaste.CodeOf(err) != posthaste.CodeUnsupported {
			return err
		}
	}
	follows := p.r.Header.Get("HX-Request") != "" // a page that follows also shows the end
	return p.show("message", "Message "+m.ID.String(), "messages", follows || !hasEnded(m), data)
}

// hasEnded reports whether nothing can happen to the message by itself or by an operator.
func hasEnded(m posthaste.MessageInfo) bool {
	return !slices.ContainsFunc(m.Subscriptions, func(s posthaste.MessageState) bool {
		return !slices.Contains([]posthaste.State{posthaste.StateDone, posthaste.StateHandedOut, posthaste.StateCancelled, posthaste.StateExpired, posthaste.StateDiscarded}, s.State)
	})
}

// reasons say why a waiting message may not have started.
func reasons(s *snapshot, m posthaste.MessageInfo, state posthaste.MessageState) (all []string) {
	q := s.queue(m.Queue)
	if q == nil || state.State != posthaste.StateReady && state.State != posthaste.StateScheduled && state.State != posthaste.StateRetrying {
		return nil
	}
	if !state.DueAt.IsZero() && state.State != posthaste.StateReady {
		all = append(all, "It is due later.")
	}
	words := map[string]string{
		"paused": "The queue is paused.", "key_paused": "Its key is paused.", "kind_paused": "Its kind is paused.", "order": "The queue is ordered: earlier messages of its key come first.",
		"rate_limit":      "The rate limit of the queue is " + q.Options.Limits.RateLimit.String() + ".",
		"key_concurrency": fmt.Sprintf("The queue hands out at most %d messages of a key at a time.", q.Options.Limits.KeyConcurrency),
		"key_rate_limit":  "The rate limit of each key is " + q.Options.Limits.KeyRateLimit.String() + ".",
	}
	for _, held := range posthaste.HeldBy(q, &m, state.Subscription) {
		if words[held] != "" && (m.Key != "" || held != "order" && !strings.HasPrefix(held, "key_")) {
			all = append(all, words[held])
		}
	}
	if !slices.ContainsFunc(s.workers, func(w posthaste.WorkerStatus) bool { return w.LostAt.IsZero() }) && s.workErr == nil {
		all = append(all, "No worker is registered.")
	}
	for _, sub := range q.Subscriptions {
		if sub.Name != state.Subscription {
			continue
		}
		if most := q.Options.Limits.Concurrency; most > 0 && sub.InFlight >= int64(most) {
			all = append(all, fmt.Sprintf("The queue hands out at most %d messages at a time, and %d are in flight.", most, sub.InFlight))
		}
		for _, aside := range sub.SetAside {
			if aside.Kind == m.Kind && !aside.Known {
				all = append(all, "No running worker handles messages of kind "+strconv.Quote(m.Kind)+".")
			}
		}
		if sub.Depth > 1 {
			all = append(all, fmt.Sprintf("%d messages wait in this subscription.", sub.Depth))
		}
	}
	return all
}

// validActions returns the actions that the message's state and the caller's scopes allow.
func (p *page) validActions(m posthaste.MessageInfo) (all []string) {
	if !p.Allows(server.ScopeOperate) {
		return nil
	}
	in := func(states ...posthaste.State) bool {
		return slices.ContainsFunc(m.Subscriptions, func(s posthaste.MessageState) bool { return slices.Contains(states, s.State) })
	}
	if p.d.can.Withdrawal && in(runnable...) {
		all = append(all, "run")
	}
	if p.d.can.Withdrawal && in(rescheduled...) {
		all = append(all, "reschedule")
	}
	if p.d.can.Withdrawal && p.editable(m) {
		all = append(all, "edit")
	}
	if p.d.can.Withdrawal && in(cancelled...) {
		all = append(all, "cancel")
	}
	if in(posthaste.StateDead) {
		all = append(all, "replay", "discard")
	}
	return all
}

// downloadPayload answers with the payload as it was sent. A browser never shows it, because it
// may be a page with scripts.
func (d *dashboard) downloadPayload(p *page) error {
	m, err := p.findMessage()
	if err != nil {
		return err
	}
	if m.Payload == nil {
		return notFound("The payload of message %s is no longer stored.", m.ID)
	}
	extension := "bin"
	if kind, _, _ := mime.ParseMediaType(m.ContentType); kind == "" || kind == posthaste.ContentTypeJSON {
		extension = "json"
	}
	h := p.w.Header()
	h.Set("Content-Type", posthaste.ContentTypeBytes)
	h.Set("Content-Disposition", `attachment; filename="message-`+m.ID.String()+"."+extension+`"`)
	h.Set("Content-Length", strconv.Itoa(len(m.Payload)))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	if p.r.Method != http.MethodHead {
		_, _ = p.w.Write(m.Payload) // the caller is gone
	}
	return nil
}

// planMessage returns the plan of an action on the message in the path, which must be valid now.
func (p *page) planMessage(name, done string, made plan, do func(context.Context, posthaste.MessageInfo) error) (*plan, error) {
	m, err := p.findMessage()
	if err != nil {
		return nil, err
	}
	if !slices.Contains(p.validActions(m), name) {
		return nil, cannotChange(m)
	}
	id := m.ID.String()
	made.Title, made.Back = made.Title+" "+id, p.link("/messages/"+id)
	made.Effects = append(made.Effects, "The message is of queue "+m.Queue+", and "+strings.Join(statesOf(m), ", ")+".")
	made.do = func(p *page) (string, error) { return p.link("/messages/"+id, "done", done, "n", "1"), do(p.ctx(), m) }
	return &made, nil
}

func (d *dashboard) planCancel(p *page) (*plan, error) {
	id := p.r.PathValue("id")
	return p.planMessage("cancel", "cancelled", plan{
		Title: "Cancel message", Button: "Cancel the message", Danger: true, CLI: command("message", "cancel", id), Curl: curl("DELETE", "/v1/messages/"+id, ""), SQL: call("cancel", id),
		Effects: []string{"The message, or its next attempt, is never handed out. Where it is handed out now, its holder is asked to stop."},
	}, func(ctx context.Context, m posthaste.MessageInfo) error {
		return inTime(m.ID)(d.cancelOne(ctx, m.ID))
	})
}

// inTime returns the error of a change that may have come too late.
func inTime(id posthaste.MessageID) func(bool, error) error {
	return func(changed bool, err error) error {
		if err == nil && !changed {
			err = tooLate(id)
		}
		return err
	}
}

func tooLate(id posthaste.MessageID) error {
	return &posthaste.Error{Code: posthaste.CodeConflict, Field: "id", Message: "Message " + id.String() + " was not changed, because it no longer waits."}
}

func (d *dashboard) planRun(p *page) (*plan, error) {
	id := p.r.PathValue("id")
	return p.planMessage("run", "running", plan{
		Title: "Run message now:", Button: "Run now", CLI: command("message", "run", id), Curl: curl("POST", "/v1/messages/"+id+"/run", ""), SQL: call("run_message", id),
		Effects: []string{"The message, or its next attempt, is due now. Pauses, limits and the order of keys still hold."},
	}, func(ctx context.Context, m posthaste.MessageInfo) error {
		return inTime(m.ID)(d.runOne(ctx, m.ID))
	})
}

func (d *dashboard) planReschedule(p *page) (*plan, error) {
	at, err := p.dueTime()
	if err != nil {
		return nil, err
	}
	id, text := p.r.PathValue("id"), at.Format(time.RFC3339)
	return p.planMessage("reschedule", "rescheduled", plan{
		Title: "Reschedule message", Button: "Reschedule", CLI: command("message", "reschedule", id, text), SQL: call("reschedule", id, text),
		Curl: curl("POST", "/v1/messages/"+id+"/reschedule", `{"send_at": "`+text+`"}`), Fields: []field{{"at", text}},
		Effects: []string{"The message, or its next attempt, is due at " + text + fromNow(at) + "."},
	}, func(ctx context.Context, m posthaste.MessageInfo) error {
		return inTime(m.ID)(d.rescheduleOne(ctx, m.ID, at))
	})
}

func (d *dashboard) planReplay(p *page) (*plan, error) {
	id := p.r.PathValue("id")
	return p.planMessage("replay", "replayed", plan{
		Title: "Replay dead letter", Button: "Replay", CLI: command("dead", "replay", id), Curl: curl("POST", "/v1/dead-letters/"+id+"/replay", ""), SQL: call("replay", id),
		Effects: []string{"The message is sent again under its id, with all attempts ahead of it."},
	}, func(ctx context.Context, m posthaste.MessageInfo) error {
		_, err := d.engine.Replay(ctx, posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{m.ID}})
		return err
	})
}

func (d *dashboard) planDiscard(p *page) (*plan, error) {
	id := p.r.PathValue("id")
	return p.planMessage("discard", "discarded", plan{
		Title: "Discard dead letter", Button: "Discard", Danger: true, CLI: command("dead", "discard", id), Curl: curl("POST", "/v1/dead-letters/"+id+"/discard", ""), SQL: call("discard", id),
		Effects: []string{"The dead letter is removed for good, and cannot be replayed."},
	}, func(ctx context.Context, m posthaste.MessageInfo) error {
		_, err := d.engine.Discard(ctx, posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{m.ID}})
		return err
	})
}
