package dashboard

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/fingerprint"
	"github.com/posthaste-mq/posthaste/server"
)

// Bounds of reading dead letters, which come with their payloads.
const (
	// maxGrouped is how many dead letters are grouped, and groupedBytes how much of them is read.
	maxGrouped   = 500
	groupedBytes = 32 << 20
	// pageBytes is about how much one statement returns.
	pageBytes = 8 << 20
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
	return d.scanPages(ctx, f, visit, func() bool { return true })
}

// scanPages is scan that asks on whether to continue where the store has cut a search short.
func (d *dashboard) scanPages(ctx context.Context, f posthaste.DeadLetterFilter, visit func(*posthaste.DeadLetter) bool, on func() bool) error {
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
		if found.Next == 0 || len(found.Items) < f.Limit && !on() {
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
	// may have, too. It is empty if the store cannot search for errors.
	Link string
}

// groups groups the newest dead letters that match. all is false if there are more.
func (d *dashboard) groups(p *page, f posthaste.DeadLetterFilter) (groups []*group, n int, all bool, err error) {
	type key struct{ queue, kind, alike string }
	by, read := map[key]*group{}, 0
	all = true
	err = d.scanPages(p.ctx(), f, func(dead *posthaste.DeadLetter) bool {
		if read += len(dead.Payload); n == maxGrouped || read > groupedBytes {
			all = false
			return false
		}
		n++
		alike := fingerprint.Of(dead.Error)
		g := by[key{dead.Queue, dead.Kind, alike}]
		if g == nil {
			g = &group{Queue: dead.Queue, Kind: dead.Kind, Error: alike, First: dead.DiedAt, Last: dead.DiedAt}
			if d.can.Search {
				g.Link = p.with("queue", dead.Queue, "kind", dead.Kind, "error", fingerprint.Part(dead.Error), "before", "")
			}
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
	}, func() bool {
		all = false // a search that finds few would read all dead letters
		return false
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
func (p *page) deadParams() []string {
	return p.given(deadFields)
}

// given returns those parameters that have a value, with it.
func (p *page) given(names []string) (params []string) {
	for _, name := range names {
		if value := p.query.Get(name); strings.TrimSpace(value) != "" {
			params = append(params, name, value)
		}
	}
	return params
}

// asFields returns parameters as fields of a form.
func asFields(params []string) (fields []field) {
	for pair := range slices.Chunk(params, 2) {
		fields = append(fields, field{pair[0], pair[1]})
	}
	return fields
}
