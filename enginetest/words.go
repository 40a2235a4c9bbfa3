package enginetest

import (
	"errors"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// errorWords checks that an error has the same code, field and message on every engine. The
// hint may differ.
func errorWords(s *suite) {
	s.create(posthaste.QueueOptions{})
	e, ctx, long := s.engine, s.ctx, strings.Repeat("x", 256)
	send := func(m posthaste.Message) func() error {
		if m.Queue == "" {
			m.Queue = s.queue
		}
		return func() error { _, err := e.Send(ctx, m); return err }
	}
	for what, c := range map[string]struct {
		do   func() error
		want string
	}{
		"send nowhere": {send(posthaste.Message{Queue: "missing"}), `not_found queue: queue 'missing' does not exist`},
		"drop nothing": {func() error { return e.DropQueue(ctx, "missing", posthaste.DropOptions{}) }, `not_found queue: queue 'missing' does not exist`},
		"drop half":    {func() error { return e.DropQueue(ctx, "a'b", posthaste.DropOptions{}) }, `not_found queue: queue 'a''b' does not exist`},
		"pause nothing": {func() error {
			return e.Pause(posthaste.WithActor(ctx, "ada"), posthaste.OfQueue("missing"), posthaste.PauseOptions{})
		}, `not_found queue: queue 'missing' does not exist`},
		"no such message": {func() error { _, err := e.Message(ctx, 1<<40); return err }, `not_found id: message 1099511627776 is unknown, or its space was reclaimed`},
		"replay none": {func() error {
			_, err := e.Replay(posthaste.WithActor(ctx, "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{1 << 40}})
			return err
		}, `not_found message_ids: no dead letter to act on: message 1099511627776`},
		"erase nothing":   {func() error { _, err := e.Erase(posthaste.WithActor(ctx, "ada"), "", 0); return err }, `invalid term: term must not be empty`},
		"list of queue":   {func() error { _, err := e.Messages(ctx, posthaste.MessageFilter{Queue: "missing"}); return err }, `not_found queue: queue 'missing' does not exist`},
		"list half":       {func() error { _, err := e.Messages(ctx, posthaste.MessageFilter{State: "a'b"}); return err }, `invalid state: unknown state 'a''b'`},
		"list too much":   {func() error { _, err := e.Messages(ctx, posthaste.MessageFilter{Limit: 1001}); return err }, `invalid limit: a call lists 1 to 1000 messages, not 1001`},
		"list what state": {func() error { _, err := e.Messages(ctx, posthaste.MessageFilter{State: "gone"}); return err }, `invalid state: unknown state 'gone'`},
		"dead of no queue": {func() error {
			_, err := e.DeadLetters(ctx, posthaste.DeadLetterFilter{Subscription: "x"})
			return err
		}, `invalid subscription: subscription needs a queue`},
		"drop no schedule": {func() error { return e.DropSchedule(ctx, "missing") }, `not_found name: schedule 'missing' does not exist`},
		"drop half of one": {func() error { return e.DropSchedule(ctx, "a'b") }, `not_found name: schedule 'a''b' does not exist`},
		"other options": {func() error { return e.CreateQueue(ctx, s.queue, posthaste.QueueOptions{MaxAttempts: 77}) },
			"conflict name: queue '" + s.queue + "' exists with different options: max_attempts is 20, requested 77"},
		"half a subscription": {func() error {
			_, err := e.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: s.queue, Subscription: "a'b"}, Max: 1, Lease: time.Second})
			return err
		}, "not_found subscription: queue '" + s.queue + "' has no subscription 'a''b'"},
		"pause no schedule": {func() error { return e.Pause(ctx, posthaste.OfSchedule("missing"), posthaste.PauseOptions{}) }, `not_found name: schedule 'missing' does not exist`},
		"a long key":        {send(posthaste.Message{Key: long}), `too_large key: key has 256 bytes, at most 255 are allowed`},
		"not JSON":          {send(posthaste.Message{Payload: []byte("{"), ContentType: "application/json"}), `invalid payload: payload is not valid JSON in UTF-8, though its content type says so`},
		"too large":         {send(posthaste.Message{Payload: []byte(strings.Repeat("x", 1<<20+1))}), `too_large payload: payload of 1048577 bytes is over the queue's limit of 1048576 (max_payload)`},
		"late":              {send(posthaste.Message{SendAt: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)}), `invalid send_at: send_at must be a time from the year 1 to the last day but one of the year 9999, got 9999-12-31T00:00:00Z`},
		"a bad name":        {func() error { return e.CreateQueue(ctx, "A", posthaste.QueueOptions{}) }, `invalid name: name "A" must consist of a-z, 0-9, _, - and .`},
		"receive nothing": {func() error {
			_, err := e.Receive(ctx, posthaste.ReceiveRequest{QueueRef: s.ref(), Lease: time.Second})
			return err
		}, `invalid max: max must be 1 to 1000, got 0`},
		"no subscription": {func() error {
			_, err := e.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: s.queue, Subscription: "x"}, Max: 1, Lease: time.Second})
			return err
		}, `not_found subscription: queue 'suite' has no subscription 'x'`},
	} {
		err := c.do()
		var told *posthaste.Error
		if !errors.As(err, &told) {
			s.Errorf("%s: %v", what, err)
		} else if got := string(told.Code) + " " + told.Field + ": " + told.Message; got != c.want {
			s.Errorf("%s says\n%s\nand not\n%s", what, got, c.want)
		}
	}
}
