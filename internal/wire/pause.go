package wire

import (
	"strconv"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Pause is something that is paused.
type Pause struct {
	ID string `json:"id"`
	// What: queue, key, kind or schedule.
	What     string    `json:"what"`
	Queue    string    `json:"queue,omitempty"`
	Key      string    `json:"key,omitempty"`
	Kind     string    `json:"kind,omitempty"`
	Schedule string    `json:"schedule,omitempty"`
	Since    time.Time `json:"since"`
	By       string    `json:"by"`
	Reason   string    `json:"reason,omitempty"`
	// Until is when it ends by itself; absent if it does not.
	Until time.Time `json:"until,omitzero"`
}

// NewPause converts a pause.
func NewPause(p posthaste.Pause) Pause {
	of, queue, name := posthaste.PausableNames(p.What)
	shown := Pause{ID: strconv.FormatInt(p.ID, 10), What: of, Queue: queue, Since: p.Since, By: p.By, Reason: p.Reason, Until: p.Until}
	switch of {
	case "key":
		shown.Key = name
	case "kind":
		shown.Kind = name
	case "schedule":
		shown.Schedule = name
	}
	return shown
}

// Stored returns the pause as an engine returns it.
func (p Pause) Stored() (posthaste.Pause, error) {
	id, err := strconv.ParseInt(p.ID, 10, 64)
	return posthaste.Pause{ID: id, What: posthaste.NewPausable(p.What, p.Queue, p.Key+p.Kind+p.Schedule), Since: p.Since, By: p.By,
		PauseOptions: posthaste.PauseOptions{Reason: p.Reason, Until: p.Until}}, err
}

// PauseOptions takes the fields reason, and until or for, of which the latter counts from now.
func (o *Object) PauseOptions(now time.Time) (p posthaste.PauseOptions) {
	both := o.Has("until") && o.Has("for")
	p.Reason, p.Until = o.Text("reason"), o.Time("until")
	if both {
		o.Fail("for", "cannot be combined with until")
	}
	if d := o.positiveDuration("for"); d > 0 {
		p.Until = now.Add(d)
	}
	return p
}

// PauseBody returns the fields of a request to pause something.
func PauseBody(p posthaste.PauseOptions) map[string]string {
	body := map[string]string{}
	if p.Reason != "" {
		body["reason"] = p.Reason
	}
	if !p.Until.IsZero() {
		body["until"] = p.Until.UTC().Format(time.RFC3339Nano)
	}
	return body
}
