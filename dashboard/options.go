package dashboard

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// shownOption is an option of a queue in the form that changes it.
type shownOption struct {
	Name, Usage, Value, Default string
	// Choices are the values of an option that has few.
	Choices []string
}

// leftOut are options that the form does not change: kinds have their own, and the owner declares
// the queue.
var leftOut = []string{"kinds", "owner"}

// limits are the options that only stores with limits have.
var limits = []string{"concurrency", "rate_limit", "key_concurrency", "key_rate_limit"}

// changeable returns the options that a form can change.
func (d *dashboard) changeable() []posthaste.QueueOption {
	return slices.DeleteFunc(slices.Clone(posthaste.QueueOptionTable()), func(q posthaste.QueueOption) bool {
		return q.Fixed != "" || slices.Contains(leftOut, q.Name) || !d.can.Limits && slices.Contains(limits, q.Name) || !d.can.StopOnDead && q.Name == "on_dead"
	})
}

// optionText returns the value of an option as its field has it; "" for none.
func optionText(q posthaste.QueueOption, o posthaste.QueueOptions) string {
	if text := q.Text(o); text != "none" {
		return text
	}
	return ""
}

// askOptions shows the form with the options of a queue. It leads to the confirmation of the change.
func (d *dashboard) askOptions(p *page) error {
	q, err := p.freshQueue()
	if err != nil {
		return err
	}
	var shown []shownOption
	for _, option := range d.changeable() {
		s := shownOption{Name: option.Name, Usage: option.Usage, Value: optionText(option, q.Options), Default: "none"}
		switch field := option.Field(&posthaste.QueueOptions{}).(type) {
		case *bool:
			if s.Choices = []string{"false", "true"}; option.Values != nil {
				s.Choices = option.Values
			}
			s.Default = s.Choices[0]
		case *posthaste.Rate:
			s.Default = "none, for example 50/s"
		case *time.Duration, *int:
			if option.Default != nil {
				s.Default = fmt.Sprint(option.Default)
			} else if _, ok := field.(*time.Duration); ok {
				s.Default = "none, for example 24h"
			}
		}
		shown = append(shown, s)
	}
	return p.show("options", "Options of queue "+q.Name, "queues", false, struct {
		Queue   *posthaste.QueueInfo
		Options []shownOption
	}{q, shown})
}

// setOption reads the value of an option into a change. An empty value is the default again.
func setOption(q posthaste.QueueOption, update *posthaste.QueueUpdate, text string) (err error) {
	if text != "" {
		switch field := q.Field(&update.Options).(type) {
		case *int:
			*field, err = strconv.Atoi(text)
			err = orInvalid(err, q.Name, "a whole number such as 10", text)
		case *bool:
			values := q.Values
			if values == nil {
				values = []string{"false", "true"}
			}
			if !slices.Contains(values, text) {
				err = posthaste.Invalidf(q.Name, "%s must be %s, got %q.", q.Name, strings.Join(values, " or "), text)
			}
			*field = text == values[1]
		case *time.Duration:
			*field, err = time.ParseDuration(text)
			err = orInvalid(err, q.Name, "a duration such as 90s or 24h", text)
		case *posthaste.Rate:
			*field, err = posthaste.ParseRate(text)
			err = orInvalid(err, q.Name, `a rate such as 50/s, 100/m or "50/s burst 100"`, text)
		default:
			err = posthaste.Invalidf(q.Name, "%s cannot be changed here.", q.Name)
		}
		if _, isBool := q.Field(&update.Options).(*bool); err == nil && !isBool && q.IsZero(update.Options) {
			err = posthaste.Invalidf(q.Name, "%s must be above zero; leave it empty for the default.", q.Name)
		}
	}
	if err == nil && q.IsZero(update.Options) {
		update.Reset = append(update.Reset, q.Name)
	}
	return err
}

func orInvalid(err error, name, wanted, text string) error {
	if err == nil {
		return nil
	}
	return posthaste.Invalidf(name, "%s must be %s, got %q.", name, wanted, text)
}

// freshQueue returns the queue in the path as it is now: others may have changed it a moment ago.
func (p *page) freshQueue() (*posthaste.QueueInfo, error) {
	queues, err := p.d.engine.Queues(p.ctx(), p.r.PathValue("queue"))
	if err == nil && len(queues) == 0 {
		err = notFound("There is no queue %q.", p.r.PathValue("queue"))
	}
	if err != nil {
		return nil, err
	}
	return &queues[0], nil
}

// planUpdateQueue returns the plan of changing options of the queue in the path. Only parameters with
// another value than the option has are changes.
func (d *dashboard) planUpdateQueue(p *page) (*plan, error) {
	q, err := p.freshQueue()
	if err != nil {
		return nil, err
	}
	var update posthaste.QueueUpdate
	var fields []field
	var args []string
	for _, option := range d.changeable() {
		text := p.text(option.Name)
		if !p.query.Has(option.Name) || text == optionText(option, q.Options) {
			continue
		}
		if err := setOption(option, &update, text); err != nil {
			return nil, err
		}
		fields = append(fields, field{option.Name, text})
	}
	is, changes, err := update.Apply(q.Name, q.Options)
	if err != nil {
		return nil, err
	}
	if len(changes) == 0 {
		return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "options", Message: "Nothing would change: all options have these values already.", Hint: "Change at least one value."}
	}
	effects := []string{"The next deliveries follow the new options, in every process. Deliveries in flight keep their timeout."}
	var was []string
	for _, c := range changes {
		effects = append(effects, fmt.Sprintf("%s: %s → %s (%s)", c.Option.Name, c.Option.Text(q.Options), c.Option.Text(is), c.Option.Usage))
		was = append(was, c.Option.Name+" "+c.Option.Text(q.Options))
		args = append(args, "--"+strings.NewReplacer(".", "-", "_", "-").Replace(c.Option.Name)+"="+c.Option.Text(is))
	}
	if q.Options.Owner != "" {
		effects = append(effects, "A file of "+q.Options.Owner+" declares this queue: the next queue apply of that file sets the options back.")
	}
	lowers := is.Retention < q.Options.Retention
	if lowers {
		effects = append(effects, "Settled messages that are older than the new retention are removed for good.")
	}
	body, _ := json.Marshal(update.Object(time.Duration.String)) // always encodes
	return &plan{
		Title: "Change options of queue " + q.Name, Button: "Change", Danger: lowers, Back: p.link("/queues/" + q.Name + "/options"), Effects: effects,
		Fields: append(fields, field{"old_value", strings.Join(was, ", ")}),
		CLI:    command(append([]string{"queue", "update", q.Name}, args...)...), Curl: curl("PATCH", "/v1/queues/"+q.Name, string(body)), SQL: call("update_queue", q.Name, string(body)),
		do: func(p *page) (string, error) {
			return p.queueLink(q.Name, "updated"), d.engine.UpdateQueue(p.ctx(), q.Name, update)
		},
	}, nil
}
