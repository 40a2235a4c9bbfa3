package redis

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/posthaste-mq/posthaste"
)

// record is an action as it is stored.
type record struct {
	By      string              `json:"by"`
	Action  string              `json:"action"`
	Queue   string              `json:"queue,omitempty"`
	Message posthaste.MessageID `json:"message,omitzero"`
	Details json.RawMessage     `json:"details,omitempty"`
}

// record records actions of the context's actor after they were done. In a cluster, the queue
// and the list are in different slots. A process that is killed in between has changed the
// queue without a record. An error says that the actions were done, so that the caller does not
// repeat them.
func (e *Engine) record(ctx context.Context, actions ...record) error {
	if len(actions) == 0 {
		return nil
	}
	var args arguments
	for _, a := range actions {
		a.By = cmp.Or(posthaste.ActorOf(ctx), "redis")
		text, err := json.Marshal(a)
		if err != nil {
			return err
		}
		args = append(args, arg{is: text})
	}
	_, err := recordActionsScript.run(ctx, e.client, []string{e.keys.actions()}, args)
	if err == nil {
		return nil
	}
	what := strings.ReplaceAll(actions[0].Action, "_", " ")
	if actions[0].Message != 0 {
		what += " of message " + actions[0].Message.String()
	}
	if len(actions) > 1 {
		what += fmt.Sprintf(" and %d more", len(actions)-1)
	}
	return &posthaste.Error{Code: posthaste.CodeOutcomeUnknown, Message: what + " was done, but may be missing among the actions: " + err.Error(), Hint: "do not repeat it", Cause: err}
}

// Actions implements [posthaste.Observer]. Redis keeps the last 10,000 actions.
func (e *Engine) Actions(ctx context.Context, f posthaste.ActionFilter) ([]posthaste.Action, error) {
	limit, err := limited(f.Limit, "actions")
	if err != nil {
		return nil, err
	}
	const page = 1000
	var found []posthaste.Action
	for from := int64(0); ; from += page {
		rows, err := e.client.LRange(ctx, e.keys.actions(), from, from+page-1).Result()
		if err != nil {
			return nil, readError(err)
		}
		for _, row := range rows {
			head, text, _ := strings.Cut(row, " ")
			n, err := strconv.ParseInt(head, 10, 64)
			var r record
			if err == nil {
				err = json.Unmarshal([]byte(text), &r)
			}
			if err != nil {
				return nil, unexpected("an action", row)
			}
			if (f.Before != 0 && n >= f.Before) || (f.Queue != "" && f.Queue != r.Queue) || (f.MessageID != 0 && f.MessageID != r.Message) {
				continue
			}
			found = append(found, posthaste.Action{ID: n, At: at(n), By: r.By, Action: r.Action, Queue: r.Queue, MessageID: r.Message, Details: r.Details})
			if len(found) == limit {
				return found, nil
			}
		}
		if len(rows) < page {
			return found, nil
		}
	}
}

// limited returns the limit of a listing, by default 100.
func limited(limit int, what string) (int, error) {
	if limit < 0 || limit > 1000 {
		return 0, posthaste.Invalidf("limit", "a call lists 1 to 1000 %s, not %d", what, limit)
	}
	return cmp.Or(limit, 100), nil
}
