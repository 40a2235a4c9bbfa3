package posthaste

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Declaration describes the queues of an owner, with their subscriptions and the schedules that
// send to them. Ownership is that of queues: a subscription and a schedule belong
// to the owner of their queue.
type Declaration struct {
	// Owner has the characters of a name.
	Owner     string
	Queues    []DeclaredQueue
	Schedules []Schedule
}

// DeclaredQueue is a queue of a [Declaration]. Options that it does not name may have any value.
type DeclaredQueue struct {
	Name    string
	Options QueueUpdate
	// Subscriptions are those besides [DefaultSubscription].
	Subscriptions map[string]SubscriptionOptions
}

// DeclaredChange is one change that brings a store closer to its declaration.
type DeclaredChange struct {
	// Sign is "+" if an object is created, "~" if it changes, and "-" if it is removed.
	Sign string
	// What names the object, such as "queue orders".
	What string
	// Details says what changes; it may be empty.
	Details string
	// Lost says what the change loses, in words that follow "this will", or is "".
	Lost string

	do func(context.Context, Declarable) error
}

// String returns the change as a line of text.
func (c DeclaredChange) String() string {
	if c.Details == "" {
		return c.Sign + " " + c.What
	}
	return c.Sign + " " + c.What + ": " + c.Details
}

// Declarable is a store to which a [Declaration] can be applied.
type Declarable interface {
	QueueAdmin
	ScheduleAdmin
	Queues(ctx context.Context, names ...string) ([]QueueInfo, error)
}

// Transactor is a store that can make several changes in one transaction.
type Transactor interface {
	// Transaction calls do with a view of the store whose changes all take effect when do
	// returns nil, or not at all.
	Transaction(ctx context.Context, do func(Declarable) error) error
}

// Changes returns the changes after which a store matches the declaration. With prune,
// objects of the owner that are not declared are removed; they must be empty. The errors are
// [CodeConflict] if a queue belongs to another owner or a subscription has other options,
// [CodeRefused] for objects that are not empty, and those of [QueueUpdate.Apply]. On PostgreSQL,
// the counts can be out of date here; removing an object counts again.
func (d *Declaration) Changes(ctx context.Context, store Declarable, prune bool) ([]DeclaredChange, error) {
	if err := CheckName("owner", d.Owner); err != nil {
		return nil, err
	}
	queues, err := store.Queues(ctx)
	if err != nil {
		return nil, err
	}
	schedules, err := store.Schedules(ctx)
	if err != nil {
		return nil, err
	}
	p := planned{Declaration: d, queues: map[string]QueueInfo{}, schedules: map[string]Schedule{}, declared: map[string]*DeclaredQueue{}}
	for _, q := range queues {
		p.queues[q.Name] = q
	}
	for _, s := range schedules {
		p.schedules[s.Name] = s.Schedule
	}
	for i := range d.Queues {
		if err := p.queue(&d.Queues[i]); err != nil {
			return nil, err
		}
	}
	for i := range d.Schedules {
		if err := p.schedule(d.Schedules[i]); err != nil {
			return nil, err
		}
	}
	if prune {
		if err := p.prune(); err != nil {
			return nil, err
		}
	}
	// Subscribing waits for upkeep, and so comes before changes of rows that upkeep may want.
	return slices.Concat(p.created, p.subscribed, p.updated, p.scheduled, p.pruned), nil
}

// Apply makes the changes that [Declaration.Changes] returned: in one transaction if the store
// is a [Transactor], and one after the other otherwise. If it is interrupted, repeat it with new
// changes. If the store needs other changes by now, Apply changes nothing and the error is
// [CodeConflict].
func (d *Declaration) Apply(ctx context.Context, store Declarable, prune bool, changes []DeclaredChange) error {
	do := func(store Declarable) error {
		now, err := d.Changes(ctx, store, prune)
		if err != nil {
			return err
		}
		same := func(a, b DeclaredChange) bool { return a.String() == b.String() && a.Lost == b.Lost }
		if !slices.EqualFunc(now, changes, same) {
			return &Error{Code: CodeConflict, Message: "the store was changed in the meantime, so that other changes are needed; nothing was changed", Hint: "look at the difference again"}
		}
		for _, c := range now {
			if err := c.do(ctx, store); err != nil {
				return fmt.Errorf("%s: %w", c, err)
			}
		}
		return nil
	}
	if t, ok := store.(Transactor); ok {
		return t.Transaction(ctx, do)
	}
	return do(store)
}

// planned collects the changes of a declaration.
type planned struct {
	*Declaration
	queues    map[string]QueueInfo // as they are
	schedules map[string]Schedule
	declared  map[string]*DeclaredQueue

	created, subscribed, updated, scheduled, pruned []DeclaredChange
}

// owns returns an error if a queue belongs to another owner.
func (p *planned) owns(name string) error {
	if owner := p.queues[name].Options.Owner; owner != "" && owner != p.Owner {
		return &Error{Code: CodeConflict, Field: "owner", Message: fmt.Sprintf("queue '%s' belongs to owner '%s', and not to '%s'", name, owner, p.Owner),
			Hint: "leave it out, or change the owner of the queue first"}
	}
	return nil
}

func (p *planned) queue(q *DeclaredQueue) error {
	if p.declared[q.Name] != nil {
		return Invalidf("queues", "queue %q is declared twice", q.Name)
	}
	p.declared[q.Name] = q
	update := q.Options
	update.Options.Owner = p.Owner
	is, exists := p.queues[q.Name]
	switch {
	case update.resets(&queueOptions[len(queueOptions)-1]) || q.Options.Options.Owner != "":
		return Invalidf("owner", "queue %s has an owner of its own: the owner is that of the declaration", q.Name)
	case !exists:
		if err := CheckName("name", q.Name); err != nil {
			return err
		}
		options := update.Options
		if err := options.Complete(); err != nil {
			return err
		}
		p.created = append(p.created, DeclaredChange{Sign: "+", What: "queue " + q.Name, Details: optionsGiven(q.Options.Options), do: func(ctx context.Context, store Declarable) error {
			return store.CreateQueue(ctx, q.Name, update.Options)
		}})
	default:
		if err := p.owns(q.Name); err != nil {
			return err
		}
		if err := p.update(q.Name, is.Options, update); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(q.Subscriptions)) {
		if err := p.subscription(q, name, is.Subscriptions); err != nil {
			return err
		}
	}
	return nil
}

// optionsGiven lists the options that are set, with their values.
func optionsGiven(o QueueOptions) string {
	var given []string
	for i := range queueOptions {
		if option := &queueOptions[i]; !option.IsZero(o) {
			given = append(given, option.Name+" "+option.Text(o))
		}
	}
	return strings.Join(given, ", ")
}

func (p *planned) update(name string, was QueueOptions, update QueueUpdate) error {
	is, changes, err := update.Apply(name, was)
	if err != nil || len(changes) == 0 {
		return err
	}
	var details []string
	for _, c := range changes {
		details = append(details, fmt.Sprintf("%s %s → %s", c.Option.Name, c.Option.Text(c.Old), c.Option.Text(c.New)))
	}
	p.updated = append(p.updated, DeclaredChange{Sign: "~", What: "queue " + name, Details: strings.Join(details, ", "), Lost: LostByUpdate(name, was, is),
		do: func(ctx context.Context, store Declarable) error { return store.UpdateQueue(ctx, name, update) }})
	return nil
}

// LostByUpdate describes the loss when the options of a queue change, as text
// that follows "this will", or returns "".
func LostByUpdate(name string, was, is QueueOptions) string {
	switch {
	case is.Retention >= was.Retention:
		return ""
	case is.Retention == 0:
		return fmt.Sprintf("remove the retention of queue %s (%s), so that its settled messages are no longer kept", name, was.Retention)
	}
	return fmt.Sprintf("lower the retention of queue %s from %s to %s, so that its settled messages are forgotten earlier", name, was.Retention, is.Retention)
}

func (p *planned) subscription(q *DeclaredQueue, name string, has []SubscriptionInfo) error {
	wanted := q.Subscriptions[name]
	for _, s := range has {
		if s.Name != name {
			continue
		}
		if !s.Filter.same(wanted.Filter) || s.MaxLag != wanted.MaxLag {
			return &Error{Code: CodeConflict, Field: "subscription", Message: fmt.Sprintf("subscription '%s' of queue '%s' exists with a different filter or max_lag, which cannot change", name, q.Name),
				Hint: "unsubscribe it first, or use another name"}
		}
		return nil
	}
	p.subscribed = append(p.subscribed, DeclaredChange{Sign: "+", What: "subscription " + q.Name + "/" + name, Details: wanted.given(),
		do: func(ctx context.Context, store Declarable) error { return store.Subscribe(ctx, q.Name, name, wanted) }})
	return nil
}

// given lists the options that are set, with their values.
func (o SubscriptionOptions) given() string {
	var given []string
	add := func(set bool, name string, value any) {
		if set {
			given = append(given, fmt.Sprint(name, " ", value))
		}
	}
	add(o.From != "", "from", o.From)
	add(o.Scheduled, "scheduled", true)
	add(len(o.Filter.Kinds) > 0, "filter.kind", strings.Join(o.Filter.Kinds, " or "))
	for _, header := range slices.Sorted(maps.Keys(o.Filter.Headers)) {
		add(true, "filter.headers."+header, strings.Join(o.Filter.Headers[header], " or "))
	}
	add(o.MaxLag > 0, "max_lag", o.MaxLag)
	return strings.Join(given, ", ")
}

// same reports whether two filters select the same messages.
func (f Filter) same(other Filter) bool {
	set := func(words []string) []string { return slices.Compact(slices.Sorted(slices.Values(words))) }
	return slices.Equal(set(f.Kinds), set(other.Kinds)) && maps.EqualFunc(f.Headers, other.Headers, func(a, b []string) bool { return slices.Equal(set(a), set(b)) })
}

func (p *planned) schedule(s Schedule) error {
	if err := s.Check(); err != nil {
		return err
	}
	queue := s.Message.Queue
	if _, exists := p.queues[queue]; !exists && p.declared[queue] == nil {
		return &Error{Code: CodeNotFound, Field: "queue", Message: fmt.Sprintf("queue '%s' of schedule '%s' does not exist", queue, s.Name), Hint: "declare it, too"}
	}
	if err := p.owns(queue); err != nil {
		return err
	}
	change := DeclaredChange{Sign: "+", What: "schedule " + s.Name, do: func(ctx context.Context, store Declarable) error {
		_, err := store.PutSchedule(ctx, s)
		return err
	}}
	change.Details = strings.Join(s.differs(&Schedule{}), ", ")
	if is, exists := p.schedules[s.Name]; exists {
		if err := p.owns(is.Message.Queue); err != nil {
			return err
		}
		fields := s.differs(&is)
		if len(fields) == 0 {
			return nil
		}
		change.Sign, change.Details = "~", strings.Join(fields, ", ")
	}
	p.scheduled = append(p.scheduled, change)
	return nil
}

// scheduleField is a field of a schedule as text; "" is its default. Equal fields have equal texts.
type scheduleField struct{ name, text, shown string }

// fields returns the fields of a schedule.
func (s *Schedule) fields() []scheduleField {
	m := &s.Message
	encoded := func(value any, empty bool) string {
		if empty {
			return ""
		}
		text, _ := json.Marshal(value) // always encodes: strings, and decoded JSON
		return string(text)
	}
	number := func(value any, empty bool) string {
		if empty {
			return ""
		}
		return fmt.Sprint(value)
	}
	body, _, _ := m.Body()
	payload := payloadOf(m)
	backoff := KindOptions{Backoff: m.Backoff}.String()
	all := []scheduleField{
		{"queue", m.Queue, ""}, {"spec", strings.TrimSpace(s.Spec), ""}, {"time_zone", unless("UTC", s.TimeZone), ""},
		{"catch_up", unless(string(CatchUpOnce), string(s.CatchUp)), ""}, {"payload", encoded(payload, payload == nil), strings.TrimSpace(string(body))},
		{"content_type", unless(ContentTypeJSON, m.ContentType), ""}, {"key", m.Key, ""}, {"kind", m.Kind, ""},
		{"headers", encoded(m.Headers, len(m.Headers) == 0), ""}, {"reference", m.Reference, ""}, {"terms", encoded(m.Terms, len(m.Terms) == 0), ""},
		{"priority", number(m.Priority, m.Priority == 0), ""}, {"max_attempts", number(m.MaxAttempts, m.MaxAttempts == 0), ""},
		{"timeout", number(m.Timeout, m.Timeout == 0), ""}, {"backoff", unless("none", backoff), ""},
	}
	for i := range all {
		const most = 200 // bytes of a value
		if all[i].text != "" {
			all[i].shown = cut(cmp.Or(all[i].shown, all[i].text), most)
		}
	}
	return all
}

// unless returns a value, or "" if it is the default.
func unless(standard, value string) string {
	if value == standard {
		return ""
	}
	return value
}

// differs returns the fields in which a schedule differs from a stored one, with both values, or
// with one if the stored one is empty.
func (s Schedule) differs(from *Schedule) (fields []string) {
	s.Message.Complete() // as storing it does
	old := from.fields()
	for i, field := range s.fields() {
		switch {
		case field.text == old[i].text:
		case from.Name == "":
			fields = append(fields, field.name+": "+field.shown)
		default:
			fields = append(fields, fmt.Sprintf("%s: %s → %s", field.name, cmp.Or(old[i].shown, "default"), cmp.Or(field.shown, "default")))
		}
	}
	return fields
}

// cut returns the beginning of a text of more than most bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// payloadOf returns the payload of a message as decoded JSON, for comparing it.
func payloadOf(m *Message) (is any) {
	body, _, _ := m.Body()
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber() // a float64 does not tell large numbers apart
	_ = d.Decode(&is)
	return plainNumbers(is)
}

// plainNumbers writes equal numbers in decoded JSON alike: 100, 1e2 and 100.0.
func plainNumbers(is any) any {
	switch v := is.(type) {
	case map[string]any:
		for name := range v {
			v[name] = plainNumbers(v[name])
		}
	case []any:
		for i := range v {
			v[i] = plainNumbers(v[i])
		}
	case json.Number:
		mantissa, power, _ := strings.Cut(strings.ToLower(v.String()), "e")
		exponent, err := strconv.Atoi(cmp.Or(power, "0"))
		if err != nil {
			return is // too large for any store
		}
		sign := ""
		if rest, negative := strings.CutPrefix(mantissa, "-"); negative {
			sign, mantissa = "-", rest
		}
		whole, fraction, _ := strings.Cut(mantissa, ".")
		digits := strings.TrimLeft(whole+fraction, "0")
		plain := strings.TrimRight(digits, "0")
		if plain == "" {
			return json.Number("0")
		}
		return json.Number(fmt.Sprintf("%s%se%d", sign, plain, exponent-len(fraction)+len(digits)-len(plain)))
	}
	return is
}

// prune plans to remove objects of the owner that are not declared.
func (p *planned) prune() error {
	keeps := map[string]bool{}
	for _, s := range p.Schedules {
		keeps[s.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(p.schedules)) {
		if p.queues[p.schedules[name].Message.Queue].Options.Owner == p.Owner && !keeps[name] {
			p.pruned = append(p.pruned, DeclaredChange{Sign: "-", What: "schedule " + name, Lost: "drop schedule " + name,
				do: func(ctx context.Context, store Declarable) error { return store.DropSchedule(ctx, name) }})
		}
	}
	var dropped []DeclaredChange
	for _, name := range slices.Sorted(maps.Keys(p.queues)) {
		q := p.queues[name]
		if q.Options.Owner != p.Owner {
			continue
		}
		declared := p.declared[name]
		for _, s := range q.Subscriptions {
			if declared != nil {
				if _, keep := declared.Subscriptions[s.Name]; keep || s.Name == DefaultSubscription {
					continue
				}
			}
			if err := s.RefuseContents(name); err != nil {
				return err
			}
			if declared != nil {
				p.pruned = append(p.pruned, DeclaredChange{Sign: "-", What: "subscription " + name + "/" + s.Name, Lost: "remove subscription " + s.Name + " of queue " + name,
					do: func(ctx context.Context, store Declarable) error {
						return store.Unsubscribe(ctx, name, s.Name, DropOptions{IfEmpty: true})
					}})
			}
		}
		if declared == nil {
			dropped = append(dropped, DeclaredChange{Sign: "-", What: "queue " + name, Lost: "drop queue " + name,
				do: func(ctx context.Context, store Declarable) error {
					return store.DropQueue(ctx, name, DropOptions{IfEmpty: true})
				}})
		}
	}
	p.pruned = append(p.pruned, dropped...)
	return nil
}
