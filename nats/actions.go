package nats

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthaste-mq/posthaste"
)

// audited is an action as it is stored in the log. Its subject has the queue and the message, too.
type audited struct {
	By      string              `json:"by"`
	Action  string              `json:"action"`
	Queue   string              `json:"queue,omitempty"`
	Message posthaste.MessageID `json:"message,omitzero"`
	Details json.RawMessage     `json:"details,omitempty"`
}

// actionsOn returns the subject of actions on a queue and a message, "" and "0" if an action is on none. With
// "*" for one of them it returns a filter.
func (e *Engine) actionsOn(queue, message string) string {
	if queue == "" {
		queue = "_"
	}
	return e.prefix + ".log.action." + subjectToken(queue) + "." + message
}

// record records an action of the context's actor after it was done. A process that is killed in
// between has changed something without a record. An error says that the action was done, so that
// the caller does not repeat it.
func (e *Engine) record(ctx context.Context, action, queue string, message posthaste.MessageID, details any) error {
	a := audited{By: cmp.Or(posthaste.ActorOf(ctx), "nats"), Action: action, Queue: queue, Message: message}
	var err error
	if details != nil {
		if a.Details, err = json.Marshal(details); err != nil {
			return err
		}
	}
	body, err := json.Marshal(a)
	if err != nil {
		return err
	}
	ctx, cancel := withSendTimeout(ctx)
	defer cancel()
	m := &natsgo.Msg{Subject: e.actionsOn(queue, strconv.FormatInt(int64(message), 10)), Header: natsgo.Header{}, Data: body}
	if err = e.storeOne(ctx, m); err == nil {
		return nil
	}
	what := strings.ReplaceAll(action, "_", " ")
	if message != 0 {
		what += " of message " + message.String()
	}
	return &posthaste.Error{Code: posthaste.CodeOutcomeUnknown, Message: what + " was done, but may be missing among the actions: " + err.Error(), Hint: "do not repeat it", Cause: err}
}

// Actions implements [posthaste.Observer]. The log keeps them for 90 days.
func (e *Engine) Actions(ctx context.Context, f posthaste.ActionFilter) ([]posthaste.Action, error) {
	limit, err := listLimit(f.Limit, "actions")
	if err != nil {
		return nil, err
	}
	if f.Queue != "" {
		if err := posthaste.CheckName("queue", f.Queue); err != nil {
			return nil, err
		}
	}
	if err := e.ready(ctx); err != nil {
		return nil, err
	}
	queue, message := cmp.Or(f.Queue, "*"), "*"
	if f.MessageID != 0 {
		message = strconv.FormatInt(int64(f.MessageID), 10)
	}
	filter := e.actionsOn(queue, message)
	last, err := e.lastOn(ctx, e.prefix+"-log", filter)
	if err != nil || last == nil {
		return nil, err
	}
	before := last.Sequence + 1
	if f.Before > 0 {
		before = min(before, uint64(f.Before))
	}
	return e.actionsBefore(ctx, filter, before, limit)
}

// actionsBefore reads the last actions before a sequence, newest first. The log can only be read forward,
// so it reads parts of it, from the end backward. Each is twice as long as the one before, because
// between actions there can be any number of outcomes of messages.
func (e *Engine) actionsBefore(ctx context.Context, filter string, before uint64, limit int) (found []posthaste.Action, err error) {
	for size := uint64(limit); before > 1 && len(found) < limit; size *= 2 {
		from := uint64(1)
		if before > size {
			from = before - size
		}
		part, err := e.actionsFrom(ctx, filter, from, before)
		if err != nil {
			return nil, err
		}
		slices.Reverse(part)
		found = append(found, part...)
		before = from
	}
	return found[:min(len(found), limit)], nil
}

// actionsFrom reads the actions with sequences from from to before-1.
func (e *Engine) actionsFrom(ctx context.Context, filter string, from, before uint64) (part []posthaste.Action, err error) {
	for from < before {
		m, err := e.leaderGet(ctx, e.prefix+"-log", map[string]any{"seq": from, "next_by_subj": filter})
		if err != nil {
			return nil, err
		}
		if m == nil || m.Sequence >= before {
			break
		}
		a, err := actionOf(m)
		if err != nil {
			return nil, err
		}
		part = append(part, a)
		from = m.Sequence + 1
	}
	return part, nil
}

func actionOf(m *jetstream.RawStreamMsg) (posthaste.Action, error) {
	var a audited
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return posthaste.Action{}, fmt.Errorf("nats: action %d cannot be read: %w", m.Sequence, err)
	}
	return posthaste.Action{ID: int64(m.Sequence), At: m.Time.UTC(), By: a.By, Action: a.Action, Queue: a.Queue, MessageID: a.Message, Details: a.Details}, nil
}
