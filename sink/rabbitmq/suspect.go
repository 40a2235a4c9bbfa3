package rabbitmq

import (
	"encoding/json"
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"

	posthaste "github.com/posthaste-mq/posthaste"
)

// channelClosed is the receipt of an attempt during which the broker closed the
// channel. One of the messages that were in flight on it is why, so that each of them
// is published alone from then on, by whichever relay has it.
type channelClosed struct {
	// Code is the broker's, as 403.
	Code int `json:"channel_closed"`
}

// closed is the code with which the broker closed the channel over something that
// was published; 0 if the link ended in another way.
func closed(lost error) int {
	var broker *amqp.Error
	if errors.As(lost, &broker) && broker.Server && broker.Recover {
		return broker.Code
	}
	return 0
}

// receipt is that of an attempt whose link ended so; nil where nobody is suspect.
func receipt(lost error) json.RawMessage {
	code := closed(lost)
	if code == 0 {
		return nil
	}
	r, err := json.Marshal(channelClosed{code})
	if err != nil {
		return nil
	}
	return r
}

// suspect says whether a message may be what ended a channel before.
func suspect(story []posthaste.Attempt) bool {
	for i := range story {
		var r channelClosed
		if len(story[i].Receipt) > 0 && json.Unmarshal(story[i].Receipt, &r) == nil && r.Code != 0 {
			return true
		}
	}
	return false
}
