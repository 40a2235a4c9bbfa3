package wire

import (
	"bytes"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// ParseQueueOptions reads the options of a queue by the names of [posthaste.QueueOptionTable].
// Empty input means {}.
func ParseQueueOptions(data []byte) (posthaste.QueueOptions, error) {
	update, err := ParseQueueUpdate(data)
	return update.Options, err
}

// ParseQueueUpdate reads a change of a queue's options. An option that is null, false or the
// first of its values is reset. Empty input means {}.
func ParseQueueUpdate(data []byte) (update posthaste.QueueUpdate, err error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return update, nil
	}
	o, err := ParseObject("", data)
	if err != nil {
		return update, err
	}
	return update, o.queueUpdate(&update)
}

// queueUpdate takes all fields of an object as a change of a queue's options.
func (o *Object) queueUpdate(update *posthaste.QueueUpdate) error {
	children := map[string]*Object{}
	for _, option := range posthaste.QueueOptionTable() {
		from, name := o, option.Name
		if parent, child, nested := strings.Cut(name, "."); nested {
			if _, taken := children[parent]; !taken {
				if raw := o.fields[parent]; raw != nil && isNull(raw) {
					update.Reset = append(update.Reset, parent)
				}
				children[parent] = o.Object(parent)
			}
			if from, name = children[parent], child; from == nil {
				continue
			}
		}
		_, given := from.fields[name]
		from.option(name, option, option.Field(&update.Options))
		if given && option.IsZero(update.Options) {
			update.Reset = append(update.Reset, option.Name)
		}
	}
	for _, child := range children {
		if child != nil {
			o.keep(child.Finish())
		}
	}
	return o.Finish()
}

// option takes the option of a queue into its field.
func (o *Object) option(name string, option posthaste.QueueOption, field any) {
	switch field := field.(type) {
	case *int:
		*field = o.Int(name, int(option.Min), int(option.Max))
	case *time.Duration:
		*field = o.positiveDuration(name)
	case *string:
		*field = o.Text(name)
	case *posthaste.Mode:
		*field = posthaste.Mode(o.oneOf(name, option.Values))
	case *bool:
		if option.Values != nil {
			*field = o.oneOf(name, option.Values) == option.Values[1]
		} else {
			*field = o.Bool(name, false)
		}
	case *posthaste.Rate:
		*field = o.rate(name)
	case *map[string]posthaste.KindOptions:
		*field = o.kinds(name)
	}
}

// kinds takes the options of kinds by the names of the kinds. A kind that is null has none.
func (o *Object) kinds(name string) map[string]posthaste.KindOptions {
	given := o.Object(name)
	if given == nil {
		return nil
	}
	all := map[string]posthaste.KindOptions{}
	for _, kind := range given.order {
		var k posthaste.KindOptions
		if of := given.Object(kind); of != nil {
			k.MaxAttempts, k.Timeout, k.Backoff = of.attempts()
			o.keep(of.Finish())
		}
		all[kind] = k
	}
	o.keep(given.Finish())
	return all
}

// attempts takes the options of attempts, of a message or of a kind.
func (o *Object) attempts() (most int, timeout time.Duration, backoff posthaste.Backoff) {
	most, timeout = o.Int("max_attempts", 1, 1000), o.positiveDuration("timeout")
	if b := o.Object("backoff"); b != nil {
		backoff = posthaste.Backoff{Base: b.positiveDuration("base"), Max: b.positiveDuration("max")}
		o.keep(b.Finish())
	}
	return most, timeout, backoff
}

// oneOf takes a text that must be one of values; "" if absent.
func (o *Object) oneOf(name string, values []string) string {
	text := o.Text(name)
	for _, value := range values {
		if text == value {
			return text
		}
	}
	if text != "" {
		o.Fail(name, "must be %s, got %q", strings.Join(values, " or "), text)
	}
	return ""
}

func (o *Object) rate(name string) (r posthaste.Rate) {
	given := o.Object(name)
	if given == nil {
		return r
	}
	r.Limit = given.Int("limit", 1, 1_000_000_000)
	r.Per = given.positiveDuration("per")
	r.Burst = given.Int("burst", 1, 1_000_000)
	if r.Limit == 0 {
		given.Fail("limit", "is required: the number of messages per period")
	}
	o.keep(given.Finish())
	return r
}
