package dashboard

import (
	"slices"
	"strings"
	"sync"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/server"
)

// messageFilter reads the filter of the list of messages.
func (p *page) messageFilter() (f posthaste.MessageFilter, err error) {
	f = posthaste.MessageFilter{Queue: p.text("queue"), State: posthaste.State(p.text("state")), Kind: p.text("kind"), Key: p.query.Get("key"),
		Reference: p.query.Get("reference"), Term: p.query.Get("term"), Limit: pageSize}
	if f.State != "" && !slices.Contains(posthaste.States(), f.State) {
		return f, posthaste.Invalidf("state", "Unknown state %q.", f.State)
	}
	if f.CreatedFrom, err = p.time("from"); err != nil {
		return f, err
	}
	if f.Before, err = p.id("before"); err != nil {
		return f, err
	}
	if f.Term != "" { // the result would tell which messages have the term
		err = p.needs(server.ScopeReadPayload)
	}
	return f, err
}

// listedMessages is the data of the list of messages.
type listedMessages struct {
	Filter   posthaste.MessageFilter
	From     string
	Messages []posthaste.MessageInfo
	States   []posthaste.State
	Queues   []string
	// Next is the address of the next page, and First that of the first; empty for no such page.
	Next, First string
	CLI, Curl   string
	SQL         string
	Terms       bool
	// Selectable reports that messages can be selected. CancelAll and RunAll are the addresses of
	// actions on all that match, and RescheduleAll the fields of a form for it; empty if there is
	// no such action.
	Selectable        bool
	CancelAll, RunAll string
	RescheduleAll     []field
}

// offer adds the actions that are possible with messages of the filter, as far as the page tells.
func (data *listedMessages) offer(p *page) {
	if !p.canChangeMany() {
		return
	}
	of := func(states []posthaste.State) bool {
		return slices.ContainsFunc(data.Messages, func(m posthaste.MessageInfo) bool { return isIn(&m, states) }) ||
			data.Next != "" && (data.Filter.State == "" || slices.Contains(states, data.Filter.State))
	}
	data.Selectable = of(cancelled)
	params := p.messageParams()
	if len(params) == 0 || !of(cancelled) {
		return
	}
	data.CancelAll = p.link("/messages/cancel", params...)
	if of(runnable) {
		data.RunAll = p.link("/messages/run", params...)
	}
	for i := 0; of(rescheduled) && i < len(params); i += 2 {
		data.RescheduleAll = append(data.RescheduleAll, field{params[i], params[i+1]})
	}
}

func (d *dashboard) showMessages(p *page) error {
	f, err := p.messageFilter()
	if err != nil {
		return err
	}
	if f.Queue == "" && p.Limited() {
		f.Queue = p.Token.Queues[0]
		p.query.Set("queue", f.Queue) // links on the page are about the same
	}
	if f.Queue != "" {
		if err := p.allowQueue(f.Queue); err != nil {
			return err
		}
	}
	d.snapshots.begin()
	found, err := d.engine.Messages(p.ctx(), f)
	if err != nil {
		return err
	}
	s, err := d.snapshots.look(p.ctx())
	if err != nil {
		return err
	}
	data := listedMessages{Filter: f, From: p.text("from"), Messages: found.Items, States: posthaste.States(), Terms: p.Allows(server.ScopeReadPayload)}
	for _, row := range p.rows(s) {
		data.Queues = append(data.Queues, row.Name)
	}
	if found.Next != 0 {
		data.Next = p.with("before", found.Next.String())
	}
	if f.Before != 0 {
		data.First = p.with("before", "")
	}
	data.CLI, data.Curl = sameList(f, p.text("from"))
	data.offer(p)
	return p.show("messages", "Messages", "messages", false, data)
}

// sameList returns the commands that list the same messages.
func sameList(f posthaste.MessageFilter, from string) (cli, http string) {
	args, params := []string{"message", "ls"}, []string{}
	for _, x := range []struct{ flag, parameter, value string }{
		{"--queue", "queue", f.Queue}, {"--state", "state", string(f.State)}, {"", "kind", f.Kind}, {"--key", "key", f.Key},
		{"--reference", "reference", f.Reference}, {"--term", "term", f.Term}, {"", "created_from", from},
	} {
		if x.value == "" {
			continue
		}
		params = append(params, x.parameter, x.value)
		if x.flag == "" {
			args = nil // the command has no such flag
		} else if args != nil {
			args = append(args, x.flag, x.value)
		}
	}
	if args != nil {
		cli = command(args...)
	}
	return cli, curl("GET", link("", "/v1/messages", params...), "")
}

// searches are the fields in which the search box looks, in this order.
var searches = []struct {
	Name  string
	scope server.Scope
	set   func(f *posthaste.MessageFilter, text string)
}{
	{"reference", server.ScopeRead, func(f *posthaste.MessageFilter, text string) { f.Reference = text }},
	{"key", server.ScopeRead, func(f *posthaste.MessageFilter, text string) { f.Key = text }},
	{"term", server.ScopeReadPayload, func(f *posthaste.MessageFilter, text string) { f.Term = text }},
}

// hit is a field in which the search found messages.
type hit struct {
	Field, Link string
	Messages    []posthaste.MessageInfo
	// Cut reports that older messages may match.
	Cut bool
}

// search looks for a message by its id, reference, key or a term. It leads straight to the only
// message that it finds.
func (d *dashboard) search(p *page) error {
	text := p.text("q")
	if text == "" {
		return p.redirect(p.link("/messages"))
	}
	var hits []hit
	var id posthaste.MessageID
	if id.UnmarshalText([]byte(strings.TrimPrefix(text, "#"))) == nil {
		switch m, err := d.engine.Message(p.ctx(), id); {
		case err == nil && p.AllowsQueue(m.Queue):
			hits = append(hits, hit{Field: "id", Link: p.link("/messages/" + id.String()), Messages: []posthaste.MessageInfo{m}})
		case err != nil && posthaste.CodeOf(err) != posthaste.CodeNotFound:
			return err
		}
	}
	more, err := d.searchAll(p, text)
	if err != nil {
		return err
	}
	hits = append(hits, more...)
	if len(hits) == 1 && len(hits[0].Messages) == 1 && !hits[0].Cut {
		return p.redirect(p.link("/messages/" + hits[0].Messages[0].ID.String()))
	}
	return p.show("search", "Search", "search", false, struct {
		Text  string
		Hits  []hit
		Terms bool
	}{text, hits, p.Allows(server.ScopeReadPayload)})
}

// searchAll carries out all searches that the caller may make, at the same time, because the one
// by key takes longer than the others together.
func (d *dashboard) searchAll(p *page, text string) (hits []hit, err error) {
	if !d.can.Search || len(text) > posthaste.MaxWordBytes {
		return nil, nil
	}
	found, errs := make([]posthaste.Page[posthaste.MessageInfo], len(searches)), make([]error, len(searches))
	var all sync.WaitGroup
	for i, by := range searches {
		if p.Allows(by.scope) {
			all.Go(func() { found[i], errs[i] = p.find(by.set, text) })
		}
	}
	all.Wait()
	for i, by := range searches {
		if errs[i] != nil {
			return nil, errs[i]
		}
		if len(found[i].Items) > 0 || found[i].Next != 0 {
			hits = append(hits, hit{Field: by.Name, Link: p.link("/messages", by.Name, text), Messages: found[i].Items, Cut: found[i].Next != 0})
		}
	}
	return hits, nil
}

// find lists the newest messages of a search in the queues that the caller may see.
func (p *page) find(set func(*posthaste.MessageFilter, string), text string) (all posthaste.Page[posthaste.MessageInfo], err error) {
	queues := []string{""}
	if p.Limited() {
		queues = p.Token.Queues
	}
	for _, queue := range queues {
		f := posthaste.MessageFilter{Queue: queue, Limit: 10}
		set(&f, text)
		found, err := p.d.engine.Messages(p.ctx(), f)
		if posthaste.CodeOf(err) == posthaste.CodeNotFound {
			continue // a token may name queues that do not exist
		}
		if err != nil {
			return all, err
		}
		all.Items, all.Next = append(all.Items, found.Items...), max(all.Next, found.Next)
	}
	return all, nil
}
