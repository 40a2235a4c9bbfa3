package posthaste

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxReason is the maximum number of characters of a pause's reason.
const MaxReason = 500

// MaxPause is how far ahead the end of a pause may be.
const MaxPause = 36500 * 24 * time.Hour

// EndOfPause is [Action.By] of a resume that no operator requested: the end of the pause was
// reached.
const EndOfPause = "end of pause"

// PauseOptions set the reason and the end of a pause. The zero value is a pause without a
// reason that lasts until it is resumed.
type PauseOptions struct {
	// Reason is one line of at most [MaxReason] characters.
	Reason string
	// Until is when the pause ends by itself, in the future and at most [MaxPause] ahead; zero if
	// it does not. It is rounded down to microseconds. A process that maintains the store ends the
	// pause (see [MaintainReply.PausesEnded]): a worker at that time, others within seconds. If none
	// runs, the pause lasts until one does.
	Until time.Time
}

// Complete rounds Until, and returns an error if the options are invalid at the time now. It is
// for engines.
func (o *PauseOptions) Complete(now time.Time) error {
	if !utf8.ValidString(o.Reason) {
		return Invalidf("reason", "reason is not valid UTF-8")
	}
	if n := utf8.RuneCountInString(o.Reason); n > MaxReason {
		return &Error{Code: CodeTooLarge, Field: "reason", Message: fmt.Sprintf("reason has %d characters, at most %d are allowed", n, MaxReason)}
	}
	for _, r := range o.Reason {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return Invalidf("reason", "reason contains the character %U: it must be one line without control characters", r)
		}
	}
	if o.Until.IsZero() {
		return nil
	}
	o.Until = o.Until.UTC().Truncate(time.Microsecond)
	switch ahead := o.Until.Sub(now); {
	case ahead <= 0:
		return Invalidf("until", "until is %s, which has passed: the end of a pause must be in the future", o.Until.Format(time.RFC3339))
	case ahead > MaxPause:
		return Invalidf("until", "until is %s: the end of a pause must be at most 36500 days ahead; a pause without an end lasts until it is resumed", o.Until.Format(time.RFC3339))
	}
	return nil
}

// Pause is a queue, key, kind or schedule that is paused.
type Pause struct {
	// ID grows with time. A pause whose reason or end is changed gets a new one.
	ID   int64
	What Pausable
	// Since is when it was paused.
	Since time.Time
	// By is who paused it, or who changed the reason or the end last (see [Action.By]).
	By string
	PauseOptions
}

// Note returns since when, by whom, until when and why it is paused, as the end of a sentence.
func (p Pause) Note() string {
	const layout = "2006-01-02 15:04:05Z"
	until, reason := "it is resumed", ""
	if !p.Until.IsZero() {
		until = p.Until.UTC().Format(layout)
	}
	if p.Reason != "" {
		reason = " (" + p.Reason + ")"
	}
	return fmt.Sprintf(" since %s by %s, until %s%s", p.Since.UTC().Format(layout), p.By, until, reason)
}

// PauseFilter selects pauses. Empty fields select all.
type PauseFilter struct {
	// Queue selects the pauses of a queue, of its keys and of its kinds.
	Queue string
	// Before selects pauses with lower ids, for paging.
	Before int64
	// Limit is at most 1,000; 0 means 100.
	Limit int
}

// PausableNames returns the names of an object that can be paused: "queue", "key", "kind" or "schedule"; the
// queue, which a schedule does not have; and the key, the kind or the name of the schedule.
func PausableNames(what Pausable) (of, queue, name string) {
	switch x := what.(type) {
	case OfQueue:
		return "queue", string(x), ""
	case OfKey:
		return "key", x.Queue, x.Key
	case OfKind:
		return "kind", x.Queue, x.Kind
	case OfSchedule:
		return "schedule", "", string(x)
	}
	return "", "", ""
}

// NewPausable returns the object with the names that [PausableNames] returns, or nil.
func NewPausable(of, queue, name string) Pausable {
	switch of {
	case "queue":
		return OfQueue(queue)
	case "key":
		return OfKey{Queue: queue, Key: name}
	case "kind":
		return OfKind{Queue: queue, Kind: name}
	case "schedule":
		return OfSchedule(name)
	}
	return nil
}

// PauseAction returns the record of a pause or a resume. It is for engines.
func PauseAction(what Pausable, pause bool, o PauseOptions) Action {
	of, queue, name := PausableNames(what)
	action := "resume"
	if pause {
		action = "pause"
	}
	details := map[string]string{}
	switch of {
	case "queue":
	case "schedule":
		action = "schedule_" + action
		details[of] = name
	default:
		action += "_" + of
		details[of] = name
	}
	if o.Reason != "" {
		details["reason"] = o.Reason
	}
	if !o.Until.IsZero() {
		details["until"] = o.Until.Format(time.RFC3339Nano)
	}
	a := Action{Action: action, Queue: queue}
	if len(details) > 0 {
		a.Details, _ = json.Marshal(details) // always encodes
	}
	return a
}
