package dashboard

import (
	"encoding/json"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// pausesShown is how many pauses the overview shows.
const pausesShown = 20

// pausing are the reason and the end of a pause that an operator asks for.
type pausing struct{ posthaste.PauseOptions }

// until returns the end in the form that the confirmation sends; "" without one.
func (a pausing) until() string {
	if a.Until.IsZero() {
		return ""
	}
	return a.Until.Format(time.RFC3339)
}

// flags returns the reason and the end as flags of the command line.
func (a pausing) flags() (all []string) {
	if a.Reason != "" {
		all = append(all, "--reason="+a.Reason)
	}
	if !a.Until.IsZero() {
		all = append(all, "--until="+a.until())
	}
	return all
}

// body returns the body of a request with these fields and the reason and the end; "" without any.
func (a pausing) body(fields ...string) string {
	body := map[string]string{}
	for i := 0; i < len(fields); i += 2 {
		body[fields[i]] = fields[i+1]
	}
	if a.Reason != "" {
		body["reason"] = a.Reason
	}
	if !a.Until.IsZero() {
		body["until"] = a.until()
	}
	if len(body) == 0 {
		return ""
	}
	text, _ := json.Marshal(body) // always encodes
	return string(text)
}
