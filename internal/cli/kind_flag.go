package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// kindOptions is a flag with the options of a kind of messages, such as
// sms:max_attempts=3,timeout=30s. It can be repeated.
type kindOptions struct {
	all *map[string]posthaste.KindOptions
}

// each returns the flag's values.
func (k kindOptions) each() (values []string) {
	if k.all == nil {
		return nil
	}
	for _, kind := range slices.Sorted(maps.Keys(*k.all)) {
		values = append(values, kind+":"+(*k.all)[kind].String())
	}
	return values
}

func (k kindOptions) String() string { return strings.Join(k.each(), " ") }

func (kindOptions) Type() string { return "kind" }

func (k kindOptions) Set(s string) error {
	// A kind may contain a colon, and the options do not.
	at := strings.LastIndexByte(s, ':')
	if at < 1 {
		return fmt.Errorf("must be a kind and its options, such as sms:max_attempts=3,timeout=30s, got %q", s)
	}
	kind, rest := s[:at], s[at+1:]
	var o posthaste.KindOptions
	if rest != "none" {
		for part := range strings.SplitSeq(rest, ",") {
			if err := setKindOption(&o, part); err != nil {
				return fmt.Errorf("kind %s: %w", kind, err)
			}
		}
	}
	if *k.all == nil {
		*k.all = map[string]posthaste.KindOptions{}
	}
	(*k.all)[kind] = o
	return nil
}

// setKindOption sets one option of a kind, such as timeout=30s.
func setKindOption(o *posthaste.KindOptions, part string) error {
	name, value, _ := strings.Cut(part, "=")
	into := map[string]*time.Duration{"timeout": &o.Timeout, "backoff.base": &o.Backoff.Base, "backoff.max": &o.Backoff.Max}[name]
	switch {
	case name == "max_attempts":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return fmt.Errorf("max_attempts must be a number from 1 to 1000, got %q", value)
		}
		o.MaxAttempts = n
	case into == nil:
		return fmt.Errorf("unknown option %q; expected one of max_attempts, timeout, backoff.base, backoff.max, or none for all of them", name)
	default:
		if err := (duration{into}).Set(value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if *into == 0 {
			return fmt.Errorf("%s must be above zero", name)
		}
	}
	return nil
}
