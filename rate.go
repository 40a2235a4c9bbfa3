package posthaste

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Rate is how many messages may be handed out in how long: tokens come evenly,
// and those that are not used are kept up to Burst.
type Rate struct {
	// Limit is how many (0: no limit).
	Limit int
	// Per is in how long, 1 ms to 366 days (default 1 s).
	Per time.Duration
	// Burst is how many may be handed out at once after a pause (default: what
	// comes in a tenth of a second, at least 2, or 1 where no more than one comes
	// in a second).
	Burst int
}

// IsZero reports whether there is no limit.
func (r Rate) IsZero() bool { return r.Limit == 0 && r.Burst == 0 }

// perSecond is how many come in a second.
func (r Rate) perSecond() float64 { return float64(r.Limit) / max(r.per(), 1).Seconds() }

func (r Rate) per() time.Duration {
	if r.Per == 0 {
		return time.Second
	}
	return r.Per
}

// Is reports whether r, as it is, is what was asked for: the same rate, however
// written, and the same burst unless none was asked for.
func (r Rate) Is(asked Rate) bool {
	is, want := r.perSecond(), asked.perSecond()
	return is-want <= 1e-9*want && want-is <= 1e-9*want && (asked.Burst == 0 || asked.Burst == r.Burst)
}

// String writes the rate as [ParseRate] reads it, "" if there is no limit.
func (r Rate) String() string {
	if r.IsZero() {
		return ""
	}
	per := "s"
	switch r.per() {
	case time.Second:
	case time.Minute:
		per = "m"
	case time.Hour:
		per = "h"
	default:
		per = r.per().String()
	}
	text := fmt.Sprintf("%d/%s", r.Limit, per)
	if r.Burst != 0 {
		text += fmt.Sprintf(" burst %d", r.Burst)
	}
	return text
}

// ParseRate reads a rate such as "50/s", "100/m", "5/10s" or "50/s burst 100".
func ParseRate(text string) (Rate, error) {
	var r Rate
	fail := fmt.Errorf("must be a rate such as 50/s, 100/m, 5/10s or \"50/s burst 100\", and is %q", text)
	rate, burst, bursts := strings.Cut(strings.TrimSpace(text), " burst ")
	limit, per, ok := strings.Cut(rate, "/")
	if !ok {
		return r, fail
	}
	var err error
	if r.Limit, err = strconv.Atoi(strings.TrimSpace(limit)); err != nil {
		return Rate{}, fail
	}
	if per = strings.TrimSpace(per); per != "" && strings.Trim(per, "hmsun") == "" {
		per = "1" + per
	}
	if r.Per, err = time.ParseDuration(per); err != nil {
		return Rate{}, fail
	}
	if bursts {
		if r.Burst, err = strconv.Atoi(strings.TrimSpace(burst)); err != nil {
			return Rate{}, fail
		}
		if r.Burst < 1 {
			return Rate{}, fmt.Errorf("must have a burst of 1 at least, and is %q", text)
		}
	}
	switch {
	case r.Limit < 1:
		return Rate{}, fmt.Errorf("must let at least one through, and is %q: to stop a queue pause it", text)
	case r.Per <= 0:
		return Rate{}, fail
	}
	return r, nil
}
