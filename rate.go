package posthaste

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Rate is the maximum number of messages that may be handed out in a period. It is a token
// bucket: tokens arrive evenly, and up to Burst unused tokens are kept.
type Rate struct {
	// Limit is the number of messages (0: no limit).
	Limit int
	// Per is the period, 1 ms to 366 days (default 1 s).
	Per time.Duration
	// Burst is the size of the bucket: how many messages may be handed out at once after a
	// pause (default: the tokens of a tenth of a second, at least 2, or 1 if the rate is at
	// most one per second).
	Burst int
}

// IsZero reports whether nothing is set, which means no limit.
func (r Rate) IsZero() bool { return r == Rate{} }

// perSecond is the number of tokens per second.
func (r Rate) perSecond() float64 { return float64(r.Limit) / max(r.per(), 1).Seconds() }

func (r Rate) per() time.Duration {
	if r.Per == 0 {
		return time.Second
	}
	return r.Per
}

// Is reports whether r is the same limit as asked: the same rate in any notation, and the
// same burst unless asked has none.
func (r Rate) Is(asked Rate) bool {
	is, want := r.perSecond(), asked.perSecond()
	return is-want <= 1e-9*want && want-is <= 1e-9*want && (asked.Burst == 0 || asked.Burst == r.Burst)
}

// String formats the rate for [ParseRate]; it is "" if there is no limit.
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

// ParseRate parses a rate such as "50/s", "100/m", "5/10s" or "50/s burst 100".
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
