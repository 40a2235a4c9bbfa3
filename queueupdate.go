package posthaste

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// QueueUpdate is a change of a queue's options. Options that it does not name do not change.
type QueueUpdate struct {
	// Options has the new values. Options with zero values do not change.
	Options QueueOptions
	// Reset names options, as [QueueOptionTable] does, that get their default again; an
	// option without a default has no value then. "backoff" names both of its options.
	Reset []string
}

// OptionChange is an option of a queue whose value changes, or differs from a requested one.
type OptionChange struct {
	Option   *QueueOption
	Old, New QueueOptions
}

// String returns the option's name with both values.
func (c OptionChange) String() string {
	return fmt.Sprintf("%s is %s, requested %s", c.Option.Name, c.Option.Text(c.Old), c.Option.Text(c.New))
}

// resets reports whether the update resets an option.
func (u *QueueUpdate) resets(q *QueueOption) bool {
	return slices.Contains(u.Reset, q.Name) || slices.Contains(u.Reset, q.parent())
}

// Requested returns what the options of a queue with the options has would be after the
// update, without any check, and the options that would change.
func (u QueueUpdate) Requested(has QueueOptions) (QueueOptions, []OptionChange) {
	is, standard := has, QueueOptions{Ordered: has.Ordered}
	standard.setDefaults()
	standard.Ordered = false // it was set for the default of lanes
	for i := range queueOptions {
		switch q := &queueOptions[i]; {
		case u.resets(q):
			q.copy(&is, standard)
		case q.Meets(has, u.Options):
		case q.Name == "kinds":
			is.Kinds = withKinds(has.Kinds, u.Options.Kinds)
		default:
			q.copy(&is, u.Options)
		}
	}
	var changes []OptionChange
	for i := range queueOptions {
		if q := &queueOptions[i]; !q.equal(has, is) {
			changes = append(changes, OptionChange{Option: q, Old: has, New: is})
		}
	}
	return is, changes
}

// Apply returns the options of a queue after the update, and those that change. The errors are
// [CodeInvalid] for values that are not allowed, and [CodeUnsupported] for options that cannot
// change, which say why.
func (u QueueUpdate) Apply(name string, has QueueOptions) (QueueOptions, []OptionChange, error) {
	for _, reset := range u.Reset {
		if !slices.ContainsFunc(queueOptions, func(q QueueOption) bool { return q.Name == reset || q.parent() == reset }) {
			return has, nil, Invalidf(reset, "unknown option %q", reset)
		}
	}
	is, changes := u.Requested(has)
	for _, c := range changes {
		if why := c.Option.fixed(has, is); why != "" {
			return has, nil, &Error{Code: CodeUnsupported, Field: c.Option.parent(),
				Message: fmt.Sprintf("option '%s' of queue '%s' cannot be changed (%s, requested %s): %s", c.Option.Name, name, c.Option.Text(has), c.Option.Text(is), why),
				Hint:    "create another queue, send to it, and drop this one when it is empty"}
		}
	}
	if has.Mode == AtMostOnce {
		for i := range queueOptions {
			if q := &queueOptions[i]; q.retries && !q.IsZero(u.Options) && !q.retriesByDefault(u.Options) {
				return has, nil, noRetries(q)
			}
		}
	}
	if err := is.Complete(); err != nil {
		return has, nil, err
	}
	return is, changes, nil
}

// Object returns the update as the object that SQL and HTTP use: options that are reset are
// null. Durations are formatted by duration.
func (u QueueUpdate) Object(duration func(time.Duration) string) map[string]any {
	object := u.Options.Object(duration)
	for _, reset := range u.Reset {
		parent, child, nested := strings.Cut(reset, ".")
		if !nested {
			object[reset] = nil
			continue
		}
		inner, _ := object[parent].(map[string]any)
		if inner == nil {
			inner = map[string]any{}
			object[parent] = inner
		}
		inner[child] = nil
	}
	return object
}

// fixed says why an option cannot change from has to is, or "" if it can.
func (q *QueueOption) fixed(has, is QueueOptions) string {
	switch {
	case q.Name == "lanes" && has.keyed():
		return "the key of a message determines its lane, so waiting messages would lie in other lanes than later ones of their keys"
	case q.Name == "lanes" && is.Lanes < has.Lanes:
		return "messages may wait in the lanes that would end; more lanes are possible"
	case has.keyed() != is.keyed() && q.perKey:
		return "a queue that looks at keys stores its messages in another way, and this would make it one, or stop it from being one"
	}
	return q.Fixed
}

// keyed reports whether a queue looks at keys.
func (o *QueueOptions) keyed() bool {
	return o.Ordered || o.Fair || o.Limits.KeyConcurrency > 0 || !o.Limits.KeyRateLimit.IsZero()
}

// Differences returns the options that wanted names and that have other values in o. Options
// that are not set in wanted match any value.
func (o QueueOptions) Differences(wanted QueueOptions) []OptionChange {
	_, changes := QueueUpdate{Options: wanted}.Requested(o)
	return changes
}

// ConflictError is for engines. It returns the [CodeConflict] error of creating a queue that
// exists with other options. differences must not be empty.
func ConflictError(name string, differences []OptionChange) *Error {
	var each []string
	for _, c := range differences {
		text := c.String()
		if c.Option.fixed(c.Old, c.New) != "" {
			text += " (it cannot change)"
		}
		each = append(each, text)
	}
	return &Error{Code: CodeConflict, Field: "name", Message: fmt.Sprintf("queue '%s' exists with different options: %s", name, strings.Join(each, "; ")),
		Hint: "UpdateQueue changes options of an existing queue"}
}

// ChangeDetails is for engines. It returns the details of the [Action] that records a change:
// an object with the old and the new value of each option, null for none.
func ChangeDetails(changes []OptionChange) json.RawMessage {
	details := map[string]any{}
	for _, c := range changes {
		value := func(o QueueOptions) any {
			if c.Option.IsZero(o) && c.Option.Values == nil {
				return nil
			}
			return c.Option.Value(o, time.Duration.String)
		}
		details[c.Option.Name] = map[string]any{"old": value(c.Old), "new": value(c.New)}
	}
	text, err := json.Marshal(details)
	if err != nil {
		panic(err) // texts, numbers and booleans
	}
	return text
}

// Text returns the option's value as a text of one line, "none" if it has none.
func (q *QueueOption) Text(o QueueOptions) string {
	if _, ok := q.field(&o).(*bool); !ok && q.IsZero(o) {
		return "none"
	}
	switch field := q.field(&o).(type) {
	case *Rate:
		return field.String()
	case *map[string]KindOptions:
		return kindsText(*field)
	}
	return fmt.Sprint(q.Value(o, time.Duration.String))
}

// equal reports whether the option has the same value in a and b.
func (q *QueueOption) equal(a, b QueueOptions) bool {
	switch field := q.field(&a).(type) {
	case *Rate:
		return *field == *q.field(&b).(*Rate)
	case *map[string]KindOptions:
		return maps.Equal(*field, b.Kinds)
	}
	return q.Value(a, nil) == q.Value(b, nil)
}

// copy sets the option in into to its value in from.
func (q *QueueOption) copy(into *QueueOptions, from QueueOptions) {
	switch field := q.field(into).(type) {
	case *int:
		*field = *q.field(&from).(*int)
	case *bool:
		*field = *q.field(&from).(*bool)
	case *time.Duration:
		*field = *q.field(&from).(*time.Duration)
	case *string:
		*field = *q.field(&from).(*string)
	case *Mode:
		*field = *q.field(&from).(*Mode)
	case *Rate:
		*field = *q.field(&from).(*Rate)
	case *map[string]KindOptions:
		*field = *q.field(&from).(*map[string]KindOptions)
	}
}
