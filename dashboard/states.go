package dashboard

import (
	"slices"
	"strings"

	"github.com/posthaste-mq/posthaste"
)

// The states in which a message can be changed.
var (
	cancelled   = []posthaste.State{posthaste.StateScheduled, posthaste.StateReady, posthaste.StateRetrying, posthaste.StateRunning}
	rescheduled = []posthaste.State{posthaste.StateScheduled, posthaste.StateReady, posthaste.StateRetrying}
	runnable    = []posthaste.State{posthaste.StateScheduled, posthaste.StateRetrying}
)

// isIn reports whether a message is in one of the states in a subscription.
func isIn(m *posthaste.MessageInfo, states []posthaste.State) bool {
	return slices.ContainsFunc(m.Subscriptions, func(s posthaste.MessageState) bool { return slices.Contains(states, s.State) })
}

// orList returns states with "or" between them.
func orList(states []posthaste.State) string {
	var text strings.Builder
	for i, state := range states {
		switch {
		case i == 0:
		case i == len(states)-1:
			text.WriteString(" or ")
		default:
			text.WriteString(", ")
		}
		text.WriteString(string(state))
	}
	return text.String()
}
