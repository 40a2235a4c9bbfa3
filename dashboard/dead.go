package dashboard

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/server"
)

// Bounds of reading dead letters, which come with their payloads.
const (
	// maxGrouped is how many dead letters are grouped, and groupedBytes how much of them is read.
	maxGrouped   = 500
	groupedBytes = 32 << 20
	// pageBytes is about how much one statement returns.
	pageBytes = 8 << 20
	// maxCounted is how many dead letters one action can change.
	maxCounted = 100_000
)

// deadFilter reads the parameters of a filter.
func (p *page) deadFilter() (f posthaste.DeadLetterFilter, err error) {
	f = posthaste.DeadLetterFilter{Queue: p.text("queue"), Subscription: p.text("subscription"), Kind: p.text("kind"), Key: p.query.Get("key"),
		Reference: p.query.Get("reference"), Term: p.query.Get("term"), Error: p.query.Get("error")}
	if f.DiedFrom, err = p.time("died_from"); err != nil {
		return f, err
	}
	if f.DiedBefore, err = p.time("died_before"); err != nil {
		return f, err
	}
	if f.Subscription != "" && f.Queue == "" {
		return f, posthaste.Invalidf("subscription", "A subscription needs its queue.")
	}
	if f.Term != "" { // the result would tell which messages have the term
		if err = p.needs(server.ScopeReadPayload); err != nil {
			return f, err
		}
	}
	if f.Queue == "" && p.Limited() {
		return f, denied("The token is limited to some queues: select one of them.")
	}
	if f.Queue != "" {
		err = p.allowQueue(f.Queue)
	}
	return f, err
}

// scan visits the dead letters that match, newest first, until visit returns false.
func (d *dashboard) scan(ctx context.Context, f posthaste.DeadLetterFilter, visit func(*posthaste.DeadLetter) bool) error {
	f.Limit = pageSize
	for {
		found, err := d.engine.DeadLetters(ctx, f)
		if err != nil {
			return err
		}
		read := 1
		for i := range found.Items {
			read += len(found.Items[i].Payload)
			if !visit(&found.Items[i]) {
				return nil
			}
		}
		if found.Next == 0 {
			return nil
		}
		f.Before, f.Limit = found.Next, min(max(pageBytes*len(found.Items)/read, 10), 1000)
	}
}

// group is the dead letters of a queue and kind with alike errors.
type group struct {
	Queue, Kind, Error string
	Count              int
	First, Last        time.Time
	// Link lists the dead letters of the group. It selects by a part of the error, which others
	// may have, too.
	Link string
}

// variable matches the parts of an error that differ between alike errors.
var variable = regexp.MustCompile(`"[^"]*"|'[^']*'|[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|0x[0-9a-fA-F]+|[0-9a-fA-F]{12,}|[0-9]+(?:[.:,][0-9]+)*`)

// fingerprint returns an error without the parts that differ between alike errors, and its
// longest part that does not.
func fingerprint(text string) (alike, part string) {
	text, _, _ = strings.Cut(text, "\n")
	if len(text) > 500 {
		text = strings.ToValidUTF8(text[:500], "")
	}
	for _, between := range variable.Split(text, -1) {
		if between = strings.TrimSpace(between); len(between) > len(part) {
			part = between
		}
	}
	if len(part) < 8 {
		part = text
	}
	return variable.ReplaceAllString(text, "…"), part
}

// groups groups the newest dead letters that match. all is false if there are more.
func (d *dashboard) groups(p *page, f posthaste.DeadLetterFilter) (groups []*group, n int, all bool, err error) {
	type key struct{ queue, kind, alike string }
	by, read := map[key]*group{}, 0
	all = true
	err = d.scan(p.ctx(), f, func(dead *posthaste.DeadLetter) bool {
		if read += len(dead.Payload); n == maxGrouped || read > groupedBytes {
			all = false
			return false
		}
		n++
		alike, part := fingerprint(dead.Error)
		g := by[key{dead.Queue, dead.Kind, alike}]
		if g == nil {
			g = &group{Queue: dead.Queue, Kind: dead.Kind, Error: alike, First: dead.DiedAt, Last: dead.DiedAt, Link: p.with("queue", dead.Queue, "kind", dead.Kind, "error", part, "before", "")}
			by[key{dead.Queue, dead.Kind, alike}] = g
			groups = append(groups, g)
		}
		g.Count++
		if dead.DiedAt.Before(g.First) {
			g.First = dead.DiedAt
		}
		if dead.DiedAt.After(g.Last) {
			g.Last = dead.DiedAt
		}
		return true
	})
	slices.SortStableFunc(groups, func(a, b *group) int { return cmp.Compare(b.Count, a.Count) })
	return groups, n, all, err
}

func (d *dashboard) showDeadLetters(p *page) error {
	if p.Limited() && p.text("queue") == "" {
		return p.redirect(p.with("queue", p.Token.Queues[0]))
	}
	f, err := p.deadFilter()
	if err != nil {
		return err
	}
	d.snapshots.begin()
	groups, n, all, err := d.groups(p, f)
	if err != nil {
		return err
	}
	f.Limit = pageSize
	if f.Before, err = p.id("before"); err != nil {
		return err
	}
	found, err := d.engine.DeadLetters(p.ctx(), f)
	if err != nil {
		return err
	}
	s, err := d.snapshots.look(p.ctx())
	if err != nil {
		return err
	}
	var queues []string
	for _, row := range p.rows(s) {
		queues = append(queues, row.Name)
	}
	params := p.deadParams()
	if len(params) == 0 {
		params = []string{"all", "1"}
	}
	next := ""
	if found.Next != 0 {
		next = p.with("before", found.Next.String())
	}
	return p.show("dead", "Dead letters", "dead", false, struct {
		Filter                posthaste.DeadLetterFilter
		From, Before          string
		Groups                []*group
		Grouped               int
		AllGrouped            bool
		Items                 []posthaste.DeadLetter
		Queues                []string
		Next                  string
		ReplayAll, DiscardAll string
		Operates, Terms       bool
	}{f, p.text("died_from"), p.text("died_before"), groups, n, all, found.Items, queues, next,
		p.link("/dead-letters/replay", params...), p.link("/dead-letters/discard", params...), p.Allows(server.ScopeOperate), p.Allows(server.ScopeReadPayload)})
}

// deadParams returns the parameters of the filter that have a value.
func (p *page) deadParams() (params []string) {
	for _, name := range deadFields {
		if value := p.query.Get(name); strings.TrimSpace(value) != "" {
			params = append(params, name, value)
		}
	}
	return params
}

func (d *dashboard) planReplayMany(p *page) (*plan, error) {
	return d.planMany(p, "replay", "Replay", d.engine.Replay, "Each message is sent again under its id, with all attempts ahead of it.")
}

func (d *dashboard) planDiscardMany(p *page) (*plan, error) {
	return d.planMany(p, "discard", "Discard", d.engine.Discard, "The dead letters are removed for good, and cannot be replayed.")
}

func plural(n int) string {
	if n == 1 {
		return "1 dead letter"
	}
	return number(n) + " dead letters"
}

type decide func(context.Context, posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error)

// chosen is a choice of dead letters, as it was counted.
type chosen struct {
	filter  posthaste.DeadLetterFilter
	count   int
	highest posthaste.MessageID
	// newest is the time of the latest death among them.
	newest time.Time
}

// planMany returns the plan of an action on many dead letters. The confirmation has their number
// and highest id, and selects no dead letters that die later: their set can then only shrink,
// which the number shows.
func (d *dashboard) planMany(p *page, verb, title string, do decide, effect string) (*plan, error) {
	c, fields, err := d.choose(p)
	if err != nil {
		return nil, err
	}
	if c.count == 0 {
		return nil, notFound("No dead letter matches any more.")
	}
	made := &plan{Title: title + " " + plural(c.count), Button: title, Danger: verb == "discard", Back: p.link("/dead-letters", p.deadParams()...)}
	made.Fields = append(fields, field{"count", strconv.Itoa(c.count)}, field{"highest", c.highest.String()})
	made.Effects = []string{fmt.Sprintf("Exactly %s will change. The highest message id is %s.", plural(c.count), c.highest), effect}
	for _, f := range fields {
		if f.Name != "as_of" && f.Name != "ids" && f.Name != "all" {
			made.Effects = append(made.Effects, "Filter: "+strings.ReplaceAll(f.Name, "_", " ")+" = "+f.Value)
		}
	}
	made.CLI, made.Curl = sameDecision(verb, fields)
	made.do = func(p *page) (string, error) {
		n, kept, err := decideAll(p.ctx(), c, do)
		if err != nil && n > 0 {
			err = &posthaste.Error{Code: cmp.Or(posthaste.CodeOf(err), posthaste.CodeOutcomeUnknown), Message: fmt.Sprintf("%s changed, then it failed: %s", plural(n), err), Hint: "Open the action again for the rest.", Cause: err}
		}
		done := verb + "ed"
		if kept > 0 {
			done = "kept"
		}
		return p.link("/dead-letters", append(p.deadParams(), "done", done, "n", strconv.Itoa(n))...), err
	}
	return made, nil
}

// choose reads and counts the dead letters that the parameters select: by ids, by a filter, or all.
func (d *dashboard) choose(p *page) (c chosen, fields []field, err error) {
	ids := slices.Clone(p.query["id"])
	if text := p.query.Get("ids"); text != "" {
		ids = append(ids, strings.Split(text, ",")...)
	}
	if len(ids) > 0 {
		return d.chooseIDs(p, ids)
	}
	if c.filter, err = p.deadFilter(); err != nil {
		return c, nil, err
	}
	params := p.deadParams()
	for i := 0; i < len(params); i += 2 {
		fields = append(fields, field{params[i], params[i+1]})
	}
	switch all := p.query.Get("all") == "1"; {
	case !all && len(params) == 0:
		return c, nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "filter", Message: "No dead letters are selected.", Hint: "Select some, give a filter, or select all of them."}
	case all && len(params) > 0:
		return c, nil, posthaste.Invalidf("all", "all and a filter exclude each other.")
	case all:
		fields = append(fields, field{"all", "1"})
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

func (d *dashboard) chooseIDs(p *page, texts []string) (c chosen, fields []field, err error) {
	if len(p.deadParams()) > 0 || p.query.Get("all") != "" {
		return c, nil, posthaste.Invalidf("id", "A selection and a filter exclude each other.")
	}
	for _, text := range texts {
		var id posthaste.MessageID
		if id.UnmarshalText([]byte(text)) != nil {
			return c, nil, posthaste.Invalidf("id", "A message id is a positive decimal number, got %q.", text)
		}
		c.filter.IDs = append(c.filter.IDs, id)
	}
	slices.Sort(c.filter.IDs)
	c.filter.IDs = slices.Compact(c.filter.IDs)
	if len(c.filter.IDs) > 1000 {
		return c, nil, posthaste.Invalidf("id", "Select at most 1,000 dead letters, or use a filter.")
	}
	f := c.filter
	c.filter.IDs = make([]posthaste.MessageID, 0, len(f.IDs)) // those of dead letters: others may die later, in any queue
	var deny error
	for batch := range slices.Chunk(f.IDs, 20) { // their payloads come with them
		f.IDs, f.Limit = batch, 1000
		found, err := d.engine.DeadLetters(p.ctx(), f)
		if err != nil {
			return c, nil, err
		}
		for i := range found.Items {
			deny = cmp.Or(deny, p.allowQueue(found.Items[i].Queue))
			c.add(&found.Items[i])
			c.filter.IDs = append(c.filter.IDs, found.Items[i].ID)
		}
	}
	slices.Sort(c.filter.IDs)
	c.filter.IDs = slices.Compact(c.filter.IDs) // one may be dead in several subscriptions
	joined := make([]string, len(c.filter.IDs))
	for i, id := range c.filter.IDs {
		joined[i] = id.String()
	}
	return c, []field{{"ids", strings.Join(joined, ",")}}, deny
}

func (c *chosen) add(dead *posthaste.DeadLetter) {
	c.count++
	c.highest = max(c.highest, dead.ID)
	if dead.DiedAt.After(c.newest) {
		c.newest = dead.DiedAt
	}
}

func (d *dashboard) count(ctx context.Context, c *chosen) error {
	err := d.scan(ctx, c.filter, func(dead *posthaste.DeadLetter) bool {
		c.add(dead)
		return c.count <= maxCounted
	})
	if err == nil && c.count > maxCounted {
		err = posthaste.Invalidf("filter", "More than %d dead letters match. Narrow the filter, for example by the time of death.", maxCounted)
	}
	return err
}

// decideAll applies an action to the chosen dead letters, 1,000 in each transaction. kept counts
// those that stay.
func decideAll(ctx context.Context, c chosen, do decide) (n, kept int, err error) {
	f := c.filter
	if f.IDs == nil {
		f.Limit, f.Before = 1000, c.highest+1
	}
	for {
		done, err := do(ctx, f)
		n, kept = n+len(done.Items), kept+len(done.Conflicts)
		if err != nil || done.Next == 0 || f.IDs != nil {
			return n, kept, err
		}
		f.Before = done.Next
	}
}

// sameDecision returns the commands of the same action.
func sameDecision(verb string, fields []field) (cli, http string) {
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
	if len(filter) > 0 {
		body["filter"] = filter
	}
	text, _ := json.Marshal(body) // always encodes
	return command(args...), curl("POST", "/v1/dead-letters/"+verb, string(text))
}
