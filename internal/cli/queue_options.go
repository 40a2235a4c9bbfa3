package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/posthaste-mq/posthaste"
)

// optionFlag returns the name of the flag of a queue's option.
func optionFlag(o posthaste.QueueOption) string {
	return strings.NewReplacer("_", "-", ".", "-").Replace(o.Name)
}

// optionFlags adds a flag for each option of a queue.
func optionFlags(flags *pflag.FlagSet, into *posthaste.QueueOptions) {
	for _, o := range posthaste.QueueOptionTable() {
		name, usage := optionFlag(o), o.Usage
		if o.Default != nil {
			usage += fmt.Sprintf(" (default %v)", o.Default)
		}
		switch field := o.Field(into).(type) {
		case *int:
			if o.Bytes {
				flags.Var(size{field}, name, usage)
			} else {
				flags.IntVar(field, name, 0, usage)
			}
		case *time.Duration:
			flags.Var(duration{field}, name, usage)
		case *string:
			flags.StringVar(field, name, "", usage)
		case *posthaste.Mode:
			flags.Var(&choice{values: o.Values, set: func(s string) { *field = posthaste.Mode(s) }}, name, usage+": "+strings.Join(o.Values, " or "))
		case *bool:
			if o.Values == nil {
				flags.BoolVar(field, name, false, usage)
				continue
			}
			flags.Var(&choice{values: o.Values, set: func(s string) { *field = s == o.Values[1] }}, name, usage+": "+strings.Join(o.Values, " or "))
		case *posthaste.Rate:
			flags.Var(rate{field}, name, usage+`, such as 50/s, 100/m or "50/s burst 100"`)
		case *map[string]posthaste.KindOptions:
			flags.Var(kindOptions{field}, name, usage+", such as sms:max_attempts=3,timeout=30s,backoff.max=1m; can be repeated")
		}
	}
}

// positiveOptions returns an error if a number or duration of the options was given as zero.
func positiveOptions(cmd *cobra.Command) error {
	var names []string
	for _, o := range posthaste.QueueOptionTable() {
		switch o.Field(&posthaste.QueueOptions{}).(type) {
		case *int, *time.Duration:
			names = append(names, optionFlag(o))
		}
	}
	return explicitZero(cmd, names...)
}

// optionFields returns the names and values of the options that are set, for [fields].
func optionFields(options posthaste.QueueOptions) (all []any) {
	for _, o := range posthaste.QueueOptionTable() {
		if o.IsZero(options) {
			continue
		}
		value := o.Value(options, time.Duration.String)
		switch o.Field(&options).(type) {
		case *posthaste.Rate, *map[string]posthaste.KindOptions:
			value = o.Text(options)
		}
		if value == true {
			value = "yes"
		} else if o.Bytes {
			value = fmt.Sprintf("%d bytes", value)
		}
		all = append(all, strings.NewReplacer("_", " ", ".", " ").Replace(o.Name), value)
	}
	return all
}

// choice is a flag of one of several words.
type choice struct {
	values []string
	text   string
	set    func(string)
}

func (c *choice) String() string { return c.text }

func (c *choice) Set(s string) error {
	if !slices.Contains(c.values, s) {
		return fmt.Errorf("must be %s, got %s", strings.Join(c.values, " or "), cmp.Or(s, "nothing"))
	}
	c.text = s
	c.set(s)
	return nil
}

// Type is not "string", whose empty values are refused.
func (c *choice) Type() string { return "word" }
