package amqp1

import (
	"encoding/json"
	"slices"

	amqp "github.com/Azure/go-amqp"

	"github.com/posthaste-mq/posthaste"
)

// linkClosed is the receipt of an attempt during which the broker closed the link and
// named a fault of one of the messages in flight on it.
type linkClosed struct {
	Condition amqp.ErrCond `json:"link_closed"`
}

// suspect reports whether a message may have closed a link in an earlier attempt.
func suspect(story []posthaste.Attempt) bool {
	return slices.ContainsFunc(story, func(a posthaste.Attempt) bool {
		var r linkClosed
		return len(a.Receipt) > 0 && json.Unmarshal(a.Receipt, &r) == nil && r.Condition != ""
	})
}
