package rabbitmq

import (
	"encoding/json"
	"errors"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/posthaste-mq/posthaste"
)

// channelClosed is the receipt of an attempt during which the broker closed the channel.
// One of the messages in flight on it is the cause, so each of them is published alone
// from then on, in every relay.
type channelClosed struct {
	// Code is the broker's code, such as 403.
	Code int `json:"channel_closed"`
}

// closed returns the code with which the broker closed the channel because of a message,
// or 0 if the link ended in another way.
func closed(lost error) int {
	var broker *amqp.Error
	if errors.As(lost, &broker) && broker.Server && broker.Recover {
		return broker.Code
	}
	return 0
}

// receipt returns the receipt of an attempt whose link ended with an error, or nil if no
// message closed the channel.
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

// suspect reports whether a message may have closed a channel in an earlier attempt.
func suspect(story []posthaste.Attempt) bool {
	for i := range story {
		var r channelClosed
		if len(story[i].Receipt) > 0 && json.Unmarshal(story[i].Receipt, &r) == nil && r.Code != 0 {
			return true
		}
	}
	return false
}
