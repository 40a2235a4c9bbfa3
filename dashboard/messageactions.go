package dashboard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/server"
)

const (
	// messageStep is how many messages a bulk action lists at a time, and changes in the time of a page.
	messageStep = 20
	// maxFailedInRow is after how many errors in a row a bulk action ends.
	maxFailedInRow = 10
)

// change is an action on many messages, one after the other.
type change struct {
	name, title, past string
	effects           []string
	danger            bool
	// states are those in which a message can be changed.
	states []posthaste.State
	// do changes a message, and reports whether that was in time.
	do func(context.Context, posthaste.MessageID) (bool, error)
	// cli, http and sql are the same for one message.
	cli, http, sql func(id string) string
	// params and fields are parameters of the change itself.
	params []string
	fields []field
}

func (d *dashboard) cancelOne(ctx context.Context, id posthaste.MessageID) (bool, error) {
	results, err := d.engine.Cancel(ctx, id)
	return slices.ContainsFunc(results, posthaste.Withdrawal.Cancelled), err
}

func (d *dashboard) rescheduleOne(ctx context.Context, id posthaste.MessageID, at time.Time) (bool, error) {
	results, err := d.engine.Reschedule(ctx, id, at)
	return slices.ContainsFunc(results, posthaste.Withdrawal.Accepted), err
}

func (d *dashboard) runOne(ctx context.Context, id posthaste.MessageID) (bool, error) {
	results, err := d.engine.RunMessage(ctx, id)
	return slices.ContainsFunc(results, func(r posthaste.RunResult) bool { return r.Due }), err
}

func (d *dashboard) planCancelMany(p *page) (*plan, error) {
	return d.planChange(p, change{name: "cancel", title: "Cancel", past: "Cancelled", danger: true, states: cancelled, do: d.cancelOne,
		effects: []string{"The messages, or their next attempts, are never handed out. Where one is handed out now, its holder is asked to stop."},
		cli:     func(id string) string { return command("message", "cancel", id) },
		http:    func(id string) string { return curl("DELETE", "/v1/messages/"+id, "") },
		sql:     func(id string) string { return "posthaste.cancel(" + id + ")" }})
}

func (d *dashboard) planRunMany(p *page) (*plan, error) {
	return d.planChange(p, change{name: "run", title: "Run", past: "Made due now:", states: runnable, do: d.runOne,
		effects: []string{"The messages, or their next attempts, are due now. Pauses, limits and the order of keys still hold."},
		cli:     func(id string) string { return command("message", "run", id) },
		http:    func(id string) string { return curl("POST", "/v1/messages/"+id+"/run", "") },
		sql:     func(id string) string { return "posthaste.run_message(" + id + ")" }})
}

func (d *dashboard) planRescheduleMany(p *page) (*plan, error) {
	at, err := p.dueTime()
	if err != nil {
		return nil, err
	}
	text := at.Format(time.RFC3339) // with the Z of UTC
	return d.planChange(p, change{name: "reschedule", title: "Reschedule", past: "Rescheduled", states: rescheduled, params: []string{"at", text}, fields: []field{{"at", text}},
		do:      func(ctx context.Context, id posthaste.MessageID) (bool, error) { return d.rescheduleOne(ctx, id, at) },
		effects: []string{"The messages, or their next attempts, are due at " + text + fromNow(at) + "."},
		cli:     func(id string) string { return command("message", "reschedule", id, text) },
		http: func(id string) string {
			return curl("POST", "/v1/messages/"+id+"/reschedule", `{"send_at": "`+text+`"}`)
		},
		sql: func(id string) string { return "posthaste.reschedule(" + id + ", " + sqlQuote(text) + ")" }})
}

// dueTime returns the parameter at: a time, or a delay from now on.
func (p *page) dueTime() (time.Time, error) {
	if delay, err := time.ParseDuration(p.text("at")); err == nil {
		return time.Now().UTC().Add(delay).Truncate(time.Second), nil
	}
	at, err := p.time("at")
	if err != nil || at.IsZero() {
		return at, posthaste.Invalidf("at", "The new time must be a time in UTC such as 2026-10-12T08:30, or a delay such as 90m, got %q.", p.text("at"))
	}
	return at, nil
}

// fromNow returns when a time is, as seen from now.
func fromNow(at time.Time) string {
	if left := time.Until(at); left > 0 {
		return ", in " + duration(left)
	}
	return ", which means now"
}

// picked is a choice of messages, as it was counted.
type picked struct {
	filter  posthaste.MessageFilter
	ids     []posthaste.MessageID
	count   int
	highest posthaste.MessageID
	queues  []string
	states  []posthaste.State
}

// planChange returns the plan of an action on many messages. The confirmation has their number and
// highest id. Workers take messages meanwhile, so that fewer may be left; if there are more, the
// plan is another one.
func (d *dashboard) planChange(p *page, is change) (*plan, error) {
	if !d.can.Withdrawal || !d.can.Search {
		return nil, &posthaste.Error{Code: posthaste.CodeUnsupported, Message: "This store cannot find and change waiting messages."}
	}
	c, fields, err := d.pick(p, is.states)
	if err != nil {
		return nil, err
	}
	if c.count == 0 {
		return nil, notFound("No message matches that is %s.", orList(c.states))
	}
	confirmed := p.text("count")
	if n, err := strconv.Atoi(confirmed); p.r.Method != "POST" || err != nil || n < c.count {
		confirmed = strconv.Itoa(c.count)
	}
	messages := amount(c.count, "message")
	made := &plan{Title: is.title + " " + messages, Button: is.title + " " + messages, Danger: is.danger, Back: p.link("/messages", p.messageParams()...), Inputs: []input{rateInput()}}
	made.Fields = append(append(fields, is.fields...), field{"count", confirmed}, field{"highest", c.highest.String()})
	made.Effects = append([]string{fmt.Sprintf("Exactly %s will change: all that match and are %s. The highest message id is %s. Messages that are sent later do not change.", messages, orList(c.states), c.highest)}, is.effects...)
	made.Effects = append(made.Effects, "The messages are changed one after the other. Those that workers take or end before it comes to them do not change.", bulkEffect)
	shown := shownFilter(fields)
	for _, f := range shown {
		made.Effects = append(made.Effects, "Filter: "+f.Name+" = "+f.Value)
	}
	made.CLI, made.Curl, made.SQL = sameChange(is, c, shown)
	made.do = func(p *page) (string, error) {
		return d.begin(p, &bulk{Verb: is.title, Past: is.past, Noun: "message", Total: c.count, Filter: append(shown, is.fields...), path: "/messages/" + is.name, list: "/messages",
			params: append(p.messageParams(), is.params...), queues: c.queues, step: d.changeStep(c, is.do), size: messageStep, KeptBecause: "They no longer waited when it came to them."})
	}
	return made, nil
}

// messageParams returns the parameters of the filter that have a value.
func (p *page) messageParams() []string {
	return p.given(messageFields)
}

// pick reads and counts the messages that the parameters select and that are in one of the states.
func (d *dashboard) pick(p *page, states []posthaste.State) (c picked, fields []field, err error) {
	c.states = states
	params := p.messageParams()
	ids, err := p.selectedIDs(len(params) > 0)
	if err != nil {
		return c, nil, err
	}
	if len(ids) > 0 {
		return d.pickIDs(p, c, ids)
	}
	if len(params) == 0 {
		return c, nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "filter", Message: "No messages are selected.", Hint: "Select some, or give a filter. To remove all waiting messages of a queue, purge it."}
	}
	if c.filter, err = p.messageFilter(); err != nil {
		return c, nil, err
	}
	switch {
	case c.filter.Queue == "" && p.Limited():
		return c, nil, denied("The token is limited to some queues: select one of them.")
	case c.filter.Queue != "":
		if err := p.allowQueue(c.filter.Queue); err != nil {
			return c, nil, err
		}
		c.queues = []string{c.filter.Queue}
	}
	if state := c.filter.State; state != "" {
		if c.states = []posthaste.State{state}; !slices.Contains(states, state) {
			return c, nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "state", Message: fmt.Sprintf("Messages that are %s cannot be changed in this way; only those that are %s can.", state, orList(states))}
		}
	}
	highest, err := p.id("highest")
	if err != nil {
		return c, nil, err
	}
	c.filter.Before, c.filter.Limit = 0, 1000
	if highest > 0 {
		c.filter.Before = highest + 1
	}
	if err := d.countMessages(p.ctx(), &c); err != nil {
		return c, nil, err
	}
	if highest > 0 { // as it was confirmed: the message itself may have been taken
		c.highest = highest
	}
	return c, asFields(params), nil
}

func (d *dashboard) pickIDs(p *page, c picked, ids []posthaste.MessageID) (picked, []field, error) {
	for _, id := range ids {
		m, err := d.engine.Message(p.ctx(), id)
		if posthaste.CodeOf(err) == posthaste.CodeNotFound {
			continue
		}
		if err == nil {
			err = p.allowQueue(m.Queue)
		}
		if err != nil {
			return c, nil, err
		}
		if isIn(&m, c.states) {
			c.ids, c.queues, c.highest = append(c.ids, id), append(c.queues, m.Queue), id
		}
	}
	slices.Sort(c.queues)
	c.queues, c.count = slices.Compact(c.queues), len(c.ids)
	confirmed := joined(c.ids)
	if text := p.text("ids"); p.r.Method == "POST" && text != "" { // some may have been taken since
		confirmed = text
		if highest, err := p.id("highest"); err == nil && highest == ids[len(ids)-1] {
			c.highest = highest
		}
	}
	return c, []field{{"ids", confirmed}}, nil
}

// countMessages counts exactly, within half of the time that a page has.
func (d *dashboard) countMessages(ctx context.Context, c *picked) error {
	within, cancel := context.WithTimeout(ctx, d.timeout/2)
	defer cancel()
	f, begun, looked := c.filter, time.Now(), 0
	asked := false
	for {
		found, err := d.engine.Messages(within, f)
		looked += posthaste.MaxSearched
		if !asked && err == nil && found.Next != 0 && time.Since(begun) > d.timeout/30 {
			if err := d.worthCounting(within, f, looked, time.Since(begun)); err != nil {
				return err
			}
			asked = true
		}
		for i := range found.Items {
			if isIn(&found.Items[i], c.states) {
				c.count, c.highest = c.count+1, max(c.highest, found.Items[i].ID)
			}
		}
		switch {
		case within.Err() != nil:
			return tooMany(c.count, "message", d.timeout/2, "Narrow the filter, for example by the state or the time.")
		case err != nil || found.Next == 0:
			return err
		}
		f.Before = found.Next
	}
}

// worthCounting returns an error if a search by state would not end in the time for counting: it
// looks at every waiting message, and looked at some in the time that it took so far.
func (d *dashboard) worthCounting(ctx context.Context, f posthaste.MessageFilter, looked int, took time.Duration) error {
	if f.State == "" || f.State == posthaste.StateRetrying || f.Reference != "" || f.Term != "" || f.Key != "" {
		return nil
	}
	var names []string
	if f.Queue != "" {
		names = append(names, f.Queue)
	}
	queues, err := d.engine.Queues(ctx, names...)
	waiting := int64(0)
	for _, q := range queues {
		for _, s := range q.Subscriptions {
			waiting += s.Depth
		}
	}
	needed := time.Duration(took.Seconds() * float64(waiting) / float64(looked) * float64(time.Second))
	if err != nil || needed <= d.timeout/2 {
		return err
	}
	return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "filter",
		Message: fmt.Sprintf("Nothing was changed: %s wait, and a search by the state %s looks at each of them, which would take about %s. At most %s are allowed.", amount(int(waiting), "message"), f.State, duration(needed), duration(d.timeout/2)),
		Hint:    "Narrow the filter by the key, the reference or a term, which have indexes, or by the time of sending. To remove all waiting messages of a queue, purge it."}
}

// changeStep changes messages one after the other, from the highest id down, so that it comes to
// each once, and to no more than were counted.
func (d *dashboard) changeStep(c picked, do func(context.Context, posthaste.MessageID) (bool, error)) bulkStep {
	f, ids, left, inRow := c.filter, c.ids, c.count, 0
	f.Before = c.highest + 1
	return func(ctx context.Context, limit int, count func(tally) bool) (last bool, err error) {
		part := ids[:min(limit, len(ids))]
		if ids != nil {
			ids = ids[len(part):]
			last = len(ids) == 0
		} else {
			f.Limit = min(limit, left)
			found, err := d.engine.Messages(ctx, f)
			if err != nil {
				return false, err
			}
			for i := range found.Items {
				if isIn(&found.Items[i], c.states) {
					part = append(part, found.Items[i].ID)
				}
			}
			left -= len(part)
			f.Before, last = found.Next, found.Next == 0 || left <= 0
		}
		for _, id := range part {
			did := changed(id)(do(ctx, id))
			if inRow++; did.fault == nil {
				inRow = 0
			}
			goOn := count(did)
			if inRow >= maxFailedInRow || errors.Is(did.fault, context.DeadlineExceeded) {
				return false, did.fault
			}
			if !goOn {
				return false, nil
			}
		}
		return last, nil
	}
}

// changed counts the change of one message.
func changed(id posthaste.MessageID) func(inTime bool, err error) tally {
	return func(inTime bool, err error) tally {
		switch code := posthaste.CodeOf(err); {
		case err == nil && inTime:
			return tally{Changed: 1}
		case err == nil || code == posthaste.CodeNotFound || code == posthaste.CodeConflict:
			return tally{Kept: 1}
		}
		return tally{Failed: 1, fault: fmt.Errorf("message %s: %w", id, err)}
	}
}

// sameChange returns the commands of the same action: for the ids of a selection, or how to list
// the messages that match and change one of them.
func sameChange(is change, c picked, shown []field) (cli, http, sql string) {
	if c.ids == nil {
		list, listHTTP := sameList(c.filter, fieldOf(shown, "from"))
		return strings.TrimSpace(list + "\n" + is.cli("ID")), listHTTP + "\n" + is.http("ID"), "select * from " + is.sql("ID")
	}
	var clis, https, sqls []string
	for _, id := range c.ids {
		clis, https, sqls = append(clis, is.cli(id.String())), append(https, is.http(id.String())), append(sqls, "select * from "+is.sql(id.String())+";")
	}
	return strings.Join(clis, "\n"), strings.Join(https, "\n"), strings.Join(sqls, "\n")
}

func fieldOf(fields []field, name string) string {
	for _, f := range fields {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// canChangeMany reports whether the caller can act on many messages.
func (p *page) canChangeMany() bool {
	return p.d.can.Withdrawal && p.d.can.Search && p.Allows(server.ScopeOperate)
}
