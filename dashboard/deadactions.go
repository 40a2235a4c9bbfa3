package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// decision is an action on dead letters.
type decision struct {
	verb, title, past, effect string
	danger                    bool
	do                        func(context.Context, posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error)
}

func (d *dashboard) planReplayMany(p *page) (*plan, error) {
	return d.planMany(p, decision{verb: "replay", title: "Replay", past: "Replayed", do: d.engine.Replay,
		effect: "Each message is sent again under its id, with all attempts ahead of it. A message that dies again is not replayed again."})
}

func (d *dashboard) planDiscardMany(p *page) (*plan, error) {
	return d.planMany(p, decision{verb: "discard", title: "Discard", past: "Discarded", do: d.engine.Discard, danger: true,
		effect: "The dead letters are removed for good, and cannot be replayed."})
}

// chosen is a choice of dead letters, as it was counted.
type chosen struct {
	filter posthaste.DeadLetterFilter
	// count is the number of dead letters, and messages that of their messages: one may be dead in
	// several subscriptions.
	count, messages int
	last, highest   posthaste.MessageID
	// newest is the time of the latest death among them.
	newest time.Time
	// queues are those of selected ids.
	queues []string
}

// planMany returns the plan of an action on many dead letters. The confirmation has their number
// and highest id, and selects no dead letters that die later: their set can then only shrink,
// which the number shows.
func (d *dashboard) planMany(p *page, is decision) (*plan, error) {
	c, fields, err := d.choose(p)
	if err != nil {
		return nil, err
	}
	if c.count == 0 {
		return nil, notFound("No dead letter matches any more.")
	}
	letters := amount(c.count, "dead letter")
	made := &plan{Title: is.title + " " + letters, Button: is.title, Danger: is.danger, Back: p.link("/dead-letters", p.deadParams()...), Inputs: []input{rateInput()}}
	made.Fields = append(fields, field{"count", strconv.Itoa(c.count)}, field{"highest", c.highest.String()})
	made.Effects = []string{fmt.Sprintf("Exactly %s will change. The highest message id is %s.", letters, c.highest), is.effect, bulkEffect}
	shown := shownFilter(fields)
	for _, f := range shown {
		made.Effects = append(made.Effects, "Filter: "+strings.ReplaceAll(f.Name, "_", " ")+" = "+f.Value)
	}
	made.CLI, made.Curl, made.SQL = sameDecision(is.verb, fields, c.filter)
	made.do = func(p *page) (string, error) {
		b := &bulk{Verb: is.title, Past: is.past, Noun: "dead letter", Total: c.messages, Filter: shown, path: "/dead-letters/" + is.verb, list: "/dead-letters", params: p.deadParams(),
			KeptBecause: "They stay dead letters, because other messages hold their unique keys.", queues: c.queues, step: decideStep(c, is.do), size: 1000}
		if p.query.Get("all") == "1" {
			b.params = []string{"all", "1"}
		}
		return d.begin(p, b)
	}
	return made, nil
}

// bulkEffect is the effect that all bulk actions have.
const bulkEffect = "It runs in this server in the background, in steps, and goes on when you close the page. It can be stopped. Each change is in the audit log."

// shownFilter returns the fields of a filter without those that only bound or list the counted
// messages.
func shownFilter(fields []field) []field {
	return slices.DeleteFunc(slices.Clone(fields), func(f field) bool {
		return f.Name == "as_of" || f.Name == "ids" || f.Name == "all" || f.Name == "count" || f.Name == "highest"
	})
}

// choose reads and counts the dead letters that the parameters select: by ids, by a filter, or all.
func (d *dashboard) choose(p *page) (c chosen, fields []field, err error) {
	if ids, err := p.selectedIDs(len(p.deadParams()) > 0 || p.query.Get("all") != ""); err != nil || len(ids) > 0 {
		if err != nil {
			return c, nil, err
		}
		return d.chooseIDs(p, ids)
	}
	if c.filter, err = p.deadFilter(); err != nil {
		return c, nil, err
	}
	params := p.deadParams()
	fields = asFields(params)
	switch all := p.query.Get("all") == "1"; {
	case !all && len(params) == 0:
		return c, nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "filter", Message: "No dead letters are selected.", Hint: "Select some, give a filter, or select all of them."}
	case all && len(params) > 0:
		return c, nil, posthaste.Invalidf("all", "all and a filter exclude each other.")
	case all:
		fields = append(fields, field{"all", "1"})
	}
	if c.filter.Queue != "" {
		c.queues = []string{c.filter.Queue}
	}
	asOf, err := p.time("as_of")
	if err != nil {
		return c, nil, err
	}
	if !asOf.IsZero() && (c.filter.DiedBefore.IsZero() || asOf.Before(c.filter.DiedBefore)) {
		c.filter.DiedBefore = asOf
	}
	if err := d.count(p.ctx(), &c); err != nil {
		return c, nil, err
	}
	if asOf.IsZero() {
		asOf = c.newest.Add(time.Microsecond).UTC() // stores keep microseconds
		if c.filter.DiedBefore.IsZero() || asOf.Before(c.filter.DiedBefore) {
			c.filter.DiedBefore = asOf
		}
	}
	return c, append(fields, field{"as_of", asOf.Format(time.RFC3339Nano)}), nil
}

// selectedIDs returns the ids that the parameters select. filtered reports that they also have a
// filter.
func (p *page) selectedIDs(filtered bool) (ids []posthaste.MessageID, err error) {
	texts := slices.Clone(p.query["id"])
	if text := p.query.Get("ids"); text != "" {
		texts = append(texts, strings.Split(text, ",")...)
	}
	if len(texts) > 0 && filtered {
		return nil, posthaste.Invalidf("id", "A selection and a filter exclude each other.")
	}
	for _, text := range texts {
		var id posthaste.MessageID
		if id.UnmarshalText([]byte(text)) != nil {
			return nil, posthaste.Invalidf("id", "A message id is a positive decimal number, got %q.", text)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	if ids = slices.Compact(ids); len(ids) > 1000 {
		return nil, posthaste.Invalidf("id", "Select at most 1,000 messages, or use a filter.")
	}
	return ids, nil
}

// joined returns ids with commas between them.
func joined(ids []posthaste.MessageID) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = id.String()
	}
	return strings.Join(texts, ",")
}

func (d *dashboard) chooseIDs(p *page, ids []posthaste.MessageID) (c chosen, fields []field, err error) {
	c.filter.IDs = make([]posthaste.MessageID, 0, len(ids)) // those of dead letters: others may die later, in any queue
	var deny error
	for batch := range slices.Chunk(ids, 20) { // their payloads come with them
		found, err := d.engine.DeadLetters(p.ctx(), posthaste.DeadLetterFilter{IDs: batch, Limit: 1000})
		if err != nil {
			return c, nil, err
		}
		for i := range found.Items {
			deny = cmp.Or(deny, p.allowQueue(found.Items[i].Queue))
			c.add(&found.Items[i])
			c.filter.IDs = append(c.filter.IDs, found.Items[i].ID)
			c.queues = append(c.queues, found.Items[i].Queue)
		}
	}
	slices.Sort(c.filter.IDs)
	c.filter.IDs = slices.Compact(c.filter.IDs) // one may be dead in several subscriptions
	slices.Sort(c.queues)
	c.queues = slices.Compact(c.queues)
	return c, []field{{"ids", joined(c.filter.IDs)}}, deny
}

func (c *chosen) add(dead *posthaste.DeadLetter) {
	c.count++
	if dead.ID != c.last { // those of a message follow each other
		c.messages++
	}
	c.last, c.highest = dead.ID, max(c.highest, dead.ID)
	if dead.DiedAt.After(c.newest) {
		c.newest = dead.DiedAt
	}
}

// count counts exactly, within half of the time that a page has.
func (d *dashboard) count(ctx context.Context, c *chosen) error {
	within, cancel := context.WithTimeout(ctx, d.timeout/2)
	defer cancel()
	err := d.scan(within, c.filter, func(dead *posthaste.DeadLetter) bool {
		c.add(dead)
		return within.Err() == nil
	})
	if within.Err() != nil { // also if the time of the page is over: the count is not complete
		err = tooMany(c.count, "dead letter", d.timeout/2, "Narrow the filter, for example by the time of death.")
	}
	return err
}

// tooMany is the error for a filter that could not be counted in time.
func tooMany(n int, noun string, within time.Duration, hint string) error {
	return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "filter", Hint: hint,
		Message: fmt.Sprintf("Nothing was changed: the messages that match could not be counted within %s. At least %s match.", duration(within), amount(n, noun))}
}

// decideStep applies an action to the chosen dead letters, from the highest id down, so that it comes
// to each once.
func decideStep(c chosen, do func(context.Context, posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error)) bulkStep {
	if c.filter.IDs != nil {
		return decideIDs(c.filter.IDs, do)
	}
	f := c.filter
	f.Before = c.highest + 1
	return func(ctx context.Context, limit int, count func(tally) bool) (last bool, err error) {
		f.Limit = limit
		done, err := do(ctx, f)
		count(tally{Changed: len(done.Items), Kept: len(done.Conflicts)})
		f.Before = done.Next
		return done.Next == 0, err
	}
}

func decideIDs(ids []posthaste.MessageID, do func(context.Context, posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error)) bulkStep {
	return func(ctx context.Context, limit int, count func(tally) bool) (last bool, err error) {
		part := ids[:min(limit, len(ids))]
		done, err := do(ctx, posthaste.DeadLetterFilter{IDs: part})
		did := tally{Changed: len(done.Items), Kept: len(done.Conflicts)}
		switch posthaste.CodeOf(err) {
		case posthaste.CodeNotFound: // all of them are gone
			err = nil
		case posthaste.CodeUniqueConflict:
			did.Kept, err = len(part), nil
		}
		count(did)
		if err == nil {
			ids = ids[len(part):]
		}
		return len(ids) == 0, err
	}
}

// sameDecision returns the commands of the same action.
func sameDecision(verb string, fields []field, f posthaste.DeadLetterFilter) (cli, http, sql string) {
	args, filter, body := []string{"dead", verb}, map[string]string{}, map[string]any{}
	for _, f := range fields {
		switch f.Name {
		case "ids":
			args, body["ids"] = append(args, strings.Split(f.Value, ",")...), strings.Split(f.Value, ",")
		case "all": // the field as_of bounds them
		case "died_before":
		default:
			name := f.Name
			if name == "as_of" { // the earlier of both
				name = "died_before"
			}
			args = append(args, "--"+strings.ReplaceAll(name, "_", "-")+"="+f.Value)
			filter[name] = f.Value
		}
	}
	sql = call(verb, "{"+joined(f.IDs)+"}")
	if len(filter) > 0 {
		body["filter"] = filter
		text, _ := json.Marshal(filter) // always encodes
		sql = "select count(*) from posthaste." + verb + "(filter => " + sqlQuote(string(text)) + ") -- at most 1,000 at a time: repeat it until it returns 0"
	}
	text, _ := json.Marshal(body) // always encodes
	return command(args...), curl("POST", "/v1/dead-letters/"+verb, string(text)), sql
}
