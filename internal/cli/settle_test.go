package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/memory"
)

// Received messages are settled by their delivery ids.
func TestSettleCommands(t *testing.T) {
	t.Parallel()
	s := &session{T: t, store: memory.Open()}
	received := func() string {
		s.Helper()
		s.does("receive orders --json")
		return s.found(`^\[\{"id":"(\d+)"`)
	}
	s.does("queue create orders")
	s.does("send orders 1")
	id := received()
	s.does("message extend --lease 1h "+id, `^`+id+` +true`)
	s.does("message release "+id, `^DELIVERY +SETTLED`, `^`+id+` +true +released`)
	s.ends(exitFailed, []string{"message", "ack", id, "--json"}, `^\[\{"id":"`+id+`","settled":false\}\]$`, `"code":"conflict".*not yours any more: `+id+`.*posthaste receive QUEUE`)
	id = received()
	s.does("message fail "+id+" --error paper --retry-after 0", `^`+id+` +true +retried`)
	id = received()
	if s.found(`"attempt":(\d)`) != "2" {
		t.Errorf("a release counts an attempt, or a failure does not: %s", s.out)
	}
	s.does(`message fail `+id+` --error printer --permanent --receipt {"code":7} -o yaml`, `^  outcome: dead$`)
	s.does("message ls --queue orders --state dead,done -o jsonl", `"error":"printer","receipt":\{"code":7\}`)
	s.does("send orders 2")
	s.does("message ack "+received()+" --receipt 8", " done")
	s.does("message ls --queue orders --state dead,done -o jsonl", `(?s)"receipt":8.*"receipt":\{"code":7\}`)

	s.refuses("message fail 1", "--error is required")
	s.refuses("message fail 1 --error x --permanent --retry-after 1s", "mutually exclusive")
	s.refuses("message ack 1 --receipt {", "--receipt must be JSON")
	s.refuses("message ack 7 7", "given twice")
	s.refuses("message ack x", `got "x"`)
	s.refuses("message ack", "takes 1 to 1000 delivery ids")
	s.refuses("message extend 1 --lease 0", "above zero")
}

// A message that runs is cancelled, and its receiver is told.
func TestR10_CancelByCommand(t *testing.T) {
	t.Parallel()
	s := &session{T: t, store: memory.Open()}
	s.does("queue create orders")
	s.does("send orders 1 --json")
	message := s.found(`"id":"(\d+)"`)
	s.does("receive orders --json")
	id := s.found(`^\[\{"id":"(\d+)"`)
	s.does("message cancel "+message, `^default +false +running, cancel requested$`, `told by the next heartbeat`, `becomes cancelled unless it finishes`)
	s.does("message cancel "+message+" --json", `"in_time":false,"state":"running","requested":true`)
	s.does("message show "+message, `^state +running, cancel requested$`)
	s.does("message extend --lease 1h "+id, `^`+id+` +true`, `delivery `+id+` was cancelled.*posthaste message release `+id)
	s.does("message extend --lease 1h --json "+id, `"settled":true,"cancelled":true`)
	s.does("message release "+id, `^`+id+` +true +cancelled`)
	s.does("message cancel "+message, `^default +false +cancelled`) // it had been handed out
	s.does("receive orders")
	s.does("message show "+message, `^state +cancelled$`)
}

// A message that cannot be cancelled, rescheduled or run is named on stderr, with the reason.
func TestNotWaitingByCommand(t *testing.T) {
	t.Parallel()
	s := &session{T: t, store: memory.Open()}
	s.does("queue create orders")
	s.does("send orders 1 --json")
	message := s.found(`"id":"(\d+)"`)
	s.does("receive orders --ack")
	for _, command := range []string{"message cancel " + message, "message run " + message, "message reschedule " + message + " 1h"} {
		s.ends(exitFailed, strings.Fields(command), `^default +false +done`, `^posthaste: message `+message+` was not changed, because it is no longer waiting: it is done in default$`)
	}
}

// A look counts no attempt.
func TestPeek(t *testing.T) {
	t.Parallel()
	s := &session{T: t, store: memory.Open()}
	s.does("queue create orders")
	s.does("queue peek orders", "^no messages are ready$")
	s.does(`send orders "first"`)
	s.does(`send orders "look"`)
	s.does("queue peek orders", "^state +ready$", `^"look"$`, "^… more: --before 2$")
	s.does("queue peek orders --before 2", `^"first"$`)
	s.does("queue peek orders --limit 5 -o jsonl", `^\{.*"payload":"look".*\}\n\{.*"payload":"first"`)
	s.does("queue peek orders --state retrying", "^no messages are retrying$")
	s.does("queue peek orders --key k", "^no messages are ready$")
	s.does("receive orders --json", `"attempt":1,.*"payload":"first"`)
	s.ends(exitFailed, []string{"queue", "peek", "orders", "--subscription", "audit"}, `has no subscription "audit"`)
	s.ends(exitFailed, []string{"queue", "peek", "nowhere"}, "queue 'nowhere' does not exist")
	s.refuses("queue peek orders --state done", "must be ready or retrying or scheduled")
}

// A message whose kind no worker handles is shown as set aside, also when it is run now.
func TestSetAsideIsShown(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	engine := memory.Open()
	s := &session{T: t, store: engine}
	s.does("queue create orders")
	s.does("send orders 1 --kind sms --json")
	message := s.found(`"id":"(\d+)"`)
	s.does("message show " + message)
	if strings.Contains(s.out, "held by") {
		t.Errorf("before it was set aside it is shown as\n%s", s.out)
	}
	w, err := engine.Register(ctx, posthaste.WorkerInfo{Name: "w", Lease: time.Minute, Kinds: map[posthaste.QueueRef][]string{{Queue: "orders", Subscription: "default"}: {"mail"}}})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := engine.Claim(ctx, posthaste.ClaimRequest{Worker: w, Number: 1, QueueRef: posthaste.QueueRef{Queue: "orders", Subscription: "default"}, Max: 1})
	if err != nil || len(reply.Deliveries) != 1 {
		t.Fatalf("%+v, %v", reply, err)
	}
	if _, err := engine.Settle(ctx, []posthaste.Settlement{{Delivery: reply.Deliveries[0].ID, Outcome: posthaste.OutcomeSetAside}}); err != nil {
		t.Fatal(err)
	}
	s.does("message show "+message, `^state +ready$`, `^held by +set_aside$`)
	s.does("message run "+message, `^default +true +ready +set_aside$`)
}
