package posthaste

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// QueueOption describes one option of a queue. The HTTP API, the command line and the engines
// read these descriptions. CONTRIBUTING.md lists the other places of an option.
type QueueOption struct {
	// Name is the option's name in SQL and over HTTP. "backoff.base" is the field base of
	// the object backoff.
	Name string
	// Usage says in a few words what the option does, as the help of its flag.
	Usage string
	// Default is the value of an option that is not given, with the type of the option's
	// field. Options without a default have nil. Lanes has another default in ordered queues.
	Default any
	// Min and Max bound a number. For a duration, Max is in nanoseconds, and the value must
	// be above zero.
	Min, Max int64
	// Bytes says that a number is a size in bytes.
	Bytes bool
	// Values are the allowed values of a text. The first is the default, also if Default is
	// nil.
	Values []string
	// Fixed says why the option of an existing queue cannot change; "" if it can, as far as
	// [QueueUpdate.Apply] allows it.
	Fixed string

	// perKey says that the option can turn a queue into one that looks at keys.
	perKey bool
	// retries says that the option is about retries, so that an at-most-once queue cannot
	// have it.
	retries bool
	field   func(*QueueOptions) any
}

const day = 24 * time.Hour

// QueueOptionTable returns the descriptions of all options of a queue, in display order. It is
// for engines and programs that show or read options. Callers must not change it.
func QueueOptionTable() []QueueOption { return queueOptions }

var queueOptions = []QueueOption{
	{Name: "max_attempts", Usage: "maximum number of attempts per message", Default: 20, Min: 1, Max: 1000, retries: true,
		field: func(o *QueueOptions) any { return &o.MaxAttempts }},
	{Name: "backoff.base", Usage: "upper bound of the delay before the first retry, doubled for each further one", Default: time.Second, Max: int64(365 * day), retries: true,
		field: func(o *QueueOptions) any { return &o.BackoffBase }},
	{Name: "backoff.max", Usage: "maximum delay between attempts", Default: time.Hour, Max: int64(365 * day), retries: true,
		field: func(o *QueueOptions) any { return &o.BackoffMax }},
	{Name: "timeout", Usage: "timeout of one attempt", Default: 30 * time.Second, Max: int64(365 * day),
		field: func(o *QueueOptions) any { return &o.Timeout }},
	{Name: "max_age", Usage: "age at which a message is not delivered any more and expires", Max: int64(36500 * day),
		field: func(o *QueueOptions) any { return &o.MaxAge }},
	{Name: "max_payload", Usage: "maximum payload size", Default: 1 << 20, Min: 1, Max: MaxPayloadBytes, Bytes: true,
		field: func(o *QueueOptions) any { return &o.MaxPayload }},
	{Name: "lanes", Usage: "number of lanes that can be read in parallel", Default: 1, Min: 1, Max: 64,
		field: func(o *QueueOptions) any { return &o.Lanes }},
	{Name: "mode", Usage: "delivery guarantee", Default: AtLeastOnce, Values: []string{string(AtLeastOnce), string(AtMostOnce)},
		Fixed: "deliveries in flight were claimed under the old guarantee, and would be lost or repeated under the new one",
		field: func(o *QueueOptions) any { return &o.Mode }},
	{Name: "retention", Usage: "how long settled messages can be looked up after their space was reclaimed", Max: int64(36500 * day),
		field: func(o *QueueOptions) any { return &o.Retention }},
	{Name: "retain_payload", Usage: "also keep payloads for the retention period", field: func(o *QueueOptions) any { return &o.RetainPayload }},
	{Name: "ordered", Usage: "deliver the messages of each key strictly in order",
		Fixed: "waiting messages are stored with the order of their keys, or without it, as they were sent", field: func(o *QueueOptions) any { return &o.Ordered }},
	{Name: "on_dead", Usage: "in an ordered queue, whether a dead letter blocks its key until it is replayed or discarded", Values: []string{"continue", "stop"},
		field: func(o *QueueOptions) any { return &o.StopOnDead }},
	{Name: "fair", Usage: "deliver keys in turn, regardless of their backlogs",
		Fixed: "waiting messages are set aside and read ahead so that keys can take turns, or are not, as the queue was created", field: func(o *QueueOptions) any { return &o.Fair }},
	{Name: "concurrency", Usage: "maximum number of messages in flight", Min: 1, Max: 100_000,
		field: func(o *QueueOptions) any { return &o.Limits.Concurrency }},
	{Name: "rate_limit", Usage: "rate limit of deliveries",
		field: func(o *QueueOptions) any { return &o.Limits.RateLimit }},
	{Name: "key_concurrency", Usage: "maximum number of messages in flight per key", Min: 1, Max: 100_000, perKey: true,
		field: func(o *QueueOptions) any { return &o.Limits.KeyConcurrency }},
	{Name: "key_rate_limit", Usage: "rate limit of deliveries per key", perKey: true,
		field: func(o *QueueOptions) any { return &o.Limits.KeyRateLimit }},
	{Name: "kinds", Usage: "max_attempts, timeout and backoff of kinds of messages", field: func(o *QueueOptions) any { return &o.Kinds }},
	{Name: "owner", Usage: "who declares the queue; queue apply changes only queues of its file's owner", field: func(o *QueueOptions) any { return &o.Owner }},
}

// parent returns the name up to the first dot: the field of errors.
func (q *QueueOption) parent() string {
	name, _, _ := strings.Cut(q.Name, ".")
	return name
}

// Field returns a pointer to the option's field: *int, *bool, *string, *[time.Duration],
// *[Mode], *[Rate] or *map[string][KindOptions]. A *bool with Values is false for the first of them and true for the second.
func (q *QueueOption) Field(o *QueueOptions) any { return q.field(o) }

// IsZero reports whether the option is not set in o.
func (q *QueueOption) IsZero(o QueueOptions) bool {
	switch field := q.field(&o).(type) {
	case *int:
		return *field == 0
	case *bool:
		return !*field
	case *time.Duration:
		return *field == 0
	case *string:
		return *field == ""
	case *Mode:
		return *field == ""
	case *Rate:
		return field.IsZero()
	case *map[string]KindOptions:
		return *field == nil
	}
	return true
}

// Meets reports whether this option of an existing queue satisfies a request: the request
// does not set it, or the values are equal. For kinds, those that the request names must be equal.
func (q *QueueOption) Meets(has, wanted QueueOptions) bool {
	if q.IsZero(wanted) {
		return true
	}
	switch field := q.field(&has).(type) {
	case *Rate:
		return field.Is(*q.field(&wanted).(*Rate))
	case *map[string]KindOptions:
		return maps.Equal(withKinds(*field, wanted.Kinds), withKinds(*field, nil))
	}
	return q.Value(has, nil) == q.Value(wanted, nil)
}

// Value returns the option's value as a value of JSON. Durations, including a rate's period,
// are formatted by duration, or unchanged if it is nil.
func (q *QueueOption) Value(o QueueOptions, duration func(time.Duration) string) any {
	format := func(d time.Duration) any {
		if duration == nil {
			return d
		}
		return duration(d)
	}
	switch field := q.field(&o).(type) {
	case *int:
		return *field
	case *bool:
		switch {
		case q.Values == nil:
			return *field
		case *field:
			return q.Values[1]
		}
		return q.Values[0]
	case *time.Duration:
		return format(*field)
	case *string:
		return *field
	case *Mode:
		return string(*field)
	case *Rate:
		rate := map[string]any{"limit": field.Limit}
		if field.Per != 0 {
			rate["per"] = format(field.Per)
		}
		if field.Burst != 0 {
			rate["burst"] = field.Burst
		}
		return rate
	case *map[string]KindOptions:
		kinds := map[string]any{}
		for kind, options := range *field {
			kinds[kind] = options.object(format)
		}
		return kinds
	}
	return nil
}

// orderedLanes is the default of lanes in an ordered queue.
const orderedLanes = 8

// retriesByDefault reports whether the option is about retries and has its default. Such an
// option of an at-most-once queue has no effect, and is accepted when its options are copied.
func (q *QueueOption) retriesByDefault(o QueueOptions) bool {
	return q.retries && q.Value(o, nil) == q.Default
}

// Object returns the options that are set, as the object that SQL and HTTP use.
func (o QueueOptions) Object(duration func(time.Duration) string) map[string]any {
	object := map[string]any{}
	for _, q := range queueOptions {
		// create_queue refuses them with at_most_once, even as defaults.
		if q.IsZero(o) || o.Mode == AtMostOnce && q.retriesByDefault(o) {
			continue
		}
		into, name := object, q.Name
		if parent, child, nested := strings.Cut(q.Name, "."); nested {
			if object[parent] == nil {
				object[parent] = map[string]any{}
			}
			into, name = object[parent].(map[string]any), child
		}
		into[name] = q.Value(o, duration)
	}
	return object
}

// setDefault sets the option in o if it is not set and has a default.
func (q *QueueOption) setDefault(o *QueueOptions) {
	if q.Default == nil || !q.IsZero(*o) {
		return
	}
	switch field := q.field(o).(type) {
	case *int:
		*field = q.Default.(int)
	case *time.Duration:
		*field = q.Default.(time.Duration)
	case *Mode:
		*field = q.Default.(Mode)
	}
}

// check returns an error if the option is outside of its bounds.
func (q *QueueOption) check(o *QueueOptions) error {
	if q.IsZero(*o) {
		return nil
	}
	field := q.parent()
	switch v := q.field(o).(type) {
	case *int:
		if int64(*v) < q.Min || int64(*v) > q.Max {
			return Invalidf(field, "%s must be %d to %d, got %d", q.Name, q.Min, q.Max, *v)
		}
	case *time.Duration:
		if *v < 0 || int64(*v) > q.Max {
			return Invalidf(field, "%s must be above zero and at most %d days, got %s", q.Name, time.Duration(q.Max)/day, *v)
		}
	case *Mode:
		if !slices.Contains(q.Values, string(*v)) {
			return Invalidf(field, "%s must be %s, got %q", q.Name, strings.Join(q.Values, " or "), string(*v))
		}
	case *string:
		return CheckName(q.Name, *v)
	case *Rate:
		return v.check(q.Name)
	case *map[string]KindOptions:
		return checkKinds(*v, o.Mode)
	}
	return nil
}

func (r Rate) check(field string) error {
	switch {
	case r.Limit < 1 || r.Limit > 1e9:
		return Invalidf(field, "%s: limit must be 1 to 1,000,000,000, got %d", field, r.Limit)
	case r.per() < time.Millisecond || r.per() > 366*day:
		return Invalidf(field, "%s: per must be 1 millisecond to 366 days, got %s", field, r.Per)
	case r.Burst < 0 || r.Burst > 1e6:
		return Invalidf(field, "%s: burst must be 1 to 1,000,000 or unset, got %d", field, r.Burst)
	}
	return nil
}

// setDefaults sets the options that are not set to their defaults.
func (o *QueueOptions) setDefaults() {
	if o.Ordered && o.Lanes == 0 {
		o.Lanes = orderedLanes
	}
	for i := range queueOptions {
		queueOptions[i].setDefault(o)
	}
}

// checkAttempts returns an error if options of a message or a kind are outside of their bounds.
func checkAttempts(k KindOptions) error {
	o := QueueOptions{MaxAttempts: k.MaxAttempts, Timeout: k.Timeout, BackoffBase: k.Backoff.Base, BackoffMax: k.Backoff.Max}
	for i := range queueOptions {
		if err := queueOptions[i].check(&o); err != nil {
			return err
		}
	}
	if k.Backoff.Max != 0 && k.Backoff.Max < k.Backoff.Base {
		return Invalidf("backoff", "backoff.max (%s) must not be below backoff.base (%s)", k.Backoff.Max, k.Backoff.Base)
	}
	return nil
}

// checkKinds returns an error if options of kinds are not allowed in a queue of that mode.
func checkKinds(kinds map[string]KindOptions, mode Mode) error {
	if len(kinds) > MaxKinds {
		return Invalidf("kinds", "at most %d kinds can have options, got %d", MaxKinds, len(kinds))
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[kind]
		err := checkAttempts(k)
		switch fault, _ := errors.AsType[*Error](err); {
		case kind == "" || len(kind) > MaxWordBytes:
			return Invalidf("kinds", "a kind has 1 to %d bytes, got %d", MaxWordBytes, len(kind))
		case strings.IndexByte(kind, 0) >= 0 || !utf8.ValidString(kind):
			return Invalidf("kinds", "a kind must be valid UTF-8 without NUL characters")
		case fault != nil:
			return Invalidf("kinds", "kind %q: %s", kind, fault.Message)
		case mode == AtMostOnce && (k.MaxAttempts != 0 || k.Backoff != Backoff{}):
			return Invalidf("kinds", "kind %q: an at-most-once queue never retries: leave out max_attempts and backoff", kind)
		}
	}
	return nil
}

func noRetries(q *QueueOption) error {
	return Invalidf(q.parent(), "an at-most-once queue never retries: leave out max_attempts and backoff")
}

// Complete checks the options of a new queue and sets those that are not given to their
// defaults. The errors are [CodeInvalid] with the option's name.
func (o *QueueOptions) Complete() error {
	for _, q := range queueOptions {
		if o.Mode == AtMostOnce && q.retries && !q.IsZero(*o) && !q.retriesByDefault(*o) {
			return noRetries(&q)
		}
	}
	o.setDefaults()
	o.Kinds = withKinds(o.Kinds, nil)
	for i := range queueOptions {
		if err := queueOptions[i].check(o); err != nil {
			return err
		}
	}
	switch l := &o.Limits; {
	case o.BackoffMax < o.BackoffBase:
		return Invalidf("backoff", "backoff.max (%s) must not be below backoff.base (%s)", o.BackoffMax, o.BackoffBase)
	case o.kindAbove() != "":
		kind := o.kindAbove()
		return &Error{Code: CodeInvalid, Field: "kinds", Message: fmt.Sprintf("kind '%s': its backoff.base (%s) is above the backoff.max of the queue (%s), which would bound it", kind, o.Kinds[kind].Backoff.Base, o.BackoffMax),
			Hint: "also set the backoff.max of the kind"}
	case o.RetainPayload && o.Retention == 0:
		return Invalidf("retain_payload", "retain_payload needs a retention")
	case o.StopOnDead && !o.Ordered:
		return Invalidf("on_dead", "on_dead is only for ordered queues: in others no message waits for another")
	case o.Ordered && o.Fair:
		return Invalidf("fair", "ordered and fair exclude each other: an ordered queue runs its keys concurrently anyway")
	case o.Ordered && o.Mode == AtMostOnce:
		return Invalidf("mode", "an at-most-once queue cannot be ordered: it does not know when a message ends, so it cannot start the next of its key then")
	default:
		return l.check(*o)
	}
}

// kindAbove returns a kind whose backoff.base is above the backoff.max that it gets from the queue,
// or "".
func (o *QueueOptions) kindAbove() string {
	for _, kind := range slices.Sorted(maps.Keys(o.Kinds)) {
		if b := o.Kinds[kind].Backoff; b.Max == 0 && b.Base > o.BackoffMax {
			return kind
		}
	}
	return ""
}

// check returns an error if limits contradict each other or the queue's other options.
func (l *QueueLimits) check(o QueueOptions) error {
	once := o.Mode == AtMostOnce
	switch {
	case o.Ordered && l.KeyConcurrency > 0:
		return Invalidf("key_concurrency", "ordered and key_concurrency exclude each other: an ordered queue runs one message of a key at a time")
	case once && l.Concurrency > 0:
		return Invalidf("concurrency", "an at-most-once queue cannot have a concurrency: its messages are settled as soon as they are handed out; use rate_limit")
	case once && l.KeyConcurrency > 0:
		return Invalidf("mode", "an at-most-once queue cannot have a key_concurrency: it does not know when a message ends")
	case l.Concurrency > 0 && l.KeyConcurrency > l.Concurrency:
		return Invalidf("key_concurrency", "key_concurrency (%d) is above concurrency (%d), so it has no effect", l.KeyConcurrency, l.Concurrency)
	case !l.RateLimit.IsZero() && l.KeyRateLimit.perSecond() > l.RateLimit.perSecond():
		return Invalidf("key_rate_limit", "key_rate_limit (%s) is above rate_limit (%s), so it has no effect", l.KeyRateLimit, l.RateLimit)
	}
	return nil
}
