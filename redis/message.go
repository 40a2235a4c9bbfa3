package redis

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// told is all that Redis has about a message.
type told struct {
	posthaste.MessageInfo
	state   *state
	content bool // is still stored
}

// tell looks up messages of a queue by their places. It returns nil for unknown ones.
func (e *Engine) tell(ctx context.Context, name string, places []string) ([]*told, error) {
	found := make([]*told, len(places))
	err := e.each(ctx, tellScript, name, func(q *queue) arguments { return q.telling(places) },
		func(q *queue, reply any) error { return q.toldAll(places, reply, found) })
	return found, readError(err)
}

// telling returns the arguments of tell.lua.
func (q *queue) telling(places []string) arguments {
	args := arguments{{"number", q.numberArg}, {"rules", q.rules}}
	for _, p := range places {
		args = append(args, arg{is: p})
	}
	return args
}

// toldAll adds the reply of tell.lua to the messages that other subscriptions have.
func (q *queue) toldAll(places []string, reply any, found []*told) error {
	all, err := list("tell", reply, 5*len(places))
	if err != nil {
		return err
	}
	for i, p := range places {
		f := all[5*i : 5*i+5]
		if str(f[0]) != "1" {
			continue
		}
		one, err := q.told(p, str(f[1]), str(f[2]), str(f[3]), str(f[4]))
		if err != nil {
			return err
		}
		if found[i] == nil {
			found[i] = one
		} else {
			found[i].join(one)
		}
	}
	return nil
}

// join adds the state of the message in another subscription.
func (t *told) join(other *told) {
	before := t.MessageInfo
	if !t.content {
		t.MessageInfo, t.content = other.MessageInfo, other.content
	}
	for _, term := range slices.Concat(before.Terms, other.Terms) {
		if !slices.Contains(t.Terms, term) {
			t.Terms = append(t.Terms, term)
		}
	}
	if t.ErasedAt.IsZero() {
		t.ErasedAt = cmp.Or(before.ErasedAt, other.ErasedAt)
	}
	t.Subscriptions = append(before.Subscriptions, other.Subscriptions...)
}

func (q *queue) told(place, text, packedState, due, running string) (*told, error) {
	n, err := id(place, q.messages)
	if err != nil {
		return nil, err
	}
	t := &told{state: &state{Attempt: 1}, MessageInfo: posthaste.MessageInfo{ID: posthaste.MessageID(n), Queue: q.name, CreatedAt: at(n >> numberBits)}}
	if text != "" {
		t.content = true
		c, err := decodeContent(text)
		if err != nil {
			return nil, err
		}
		t.Key, t.Kind, t.Headers, t.Reference, t.Terms, t.ContentType, t.Payload = c.key, c.kind, c.headers, c.reference, c.terms, c.contentType, c.payload
		t.Options = c.attempts.options()
	}
	if packedState != "" {
		if err := unpack(packedState, t.state); err != nil {
			return nil, err
		}
		if len(t.Terms) == 0 {
			t.Terms = t.state.Terms
		}
		if t.state.Erased != 0 {
			t.ErasedAt = at(t.state.Erased)
		}
	}
	standing := posthaste.MessageState{Subscription: q.subscription, State: posthaste.State(t.state.State), Attempts: t.state.story()}
	dueAt, isDue := parseMicros(due)
	if isDue {
		standing.DueAt = at(dueAt)
	}
	switch {
	case running != "":
		var r struct {
			At     int64  `codec:"t"`
			Worker string `codec:"w"`
		}
		if err := unpack(running, &r); err != nil {
			return nil, err
		}
		standing.State = posthaste.StateRunning
		one := posthaste.Attempt{Attempt: t.state.Attempt, Worker: r.Worker, ClaimedAt: at(r.At)}
		t.state.Notes.addTo(&one)
		standing.Attempts = posthaste.NewestCheckpoint(append(standing.Attempts, one))
	case standing.State != "" && standing.State != "waits":
	case t.state.replayed():
		standing.State, standing.DueAt = posthaste.StateReady, time.Time{}
	case t.state.Attempt > 1:
		standing.State = posthaste.StateRetrying
	case isDue:
		standing.State = posthaste.StateScheduled
	default:
		standing.State = posthaste.StateReady
	}
	t.Subscriptions = []posthaste.MessageState{standing}
	return t, nil
}

// Message implements [posthaste.MessageAdmin].
func (e *Engine) Message(ctx context.Context, wanted posthaste.MessageID) (posthaste.MessageInfo, error) {
	unknown := &posthaste.Error{Code: posthaste.CodeNotFound, Field: "id", Message: fmt.Sprintf("message %d is unknown, or its space was reclaimed", wanted)}
	queues, err := e.registry.ofIDs(ctx, []int64{int64(wanted)})
	if err != nil {
		return posthaste.MessageInfo{}, err
	}
	q := queues[number(int64(wanted))]
	if q == nil || q.born != nil {
		return posthaste.MessageInfo{}, unknown
	}
	found, err := e.tell(ctx, q.name, []string{place(int64(wanted))})
	if err != nil {
		return posthaste.MessageInfo{}, err
	}
	if found[0] == nil || found[0].ID != wanted {
		return posthaste.MessageInfo{}, unknown
	}
	found[0].Version = posthaste.VersionOf(&found[0].MessageInfo)
	return found[0].MessageInfo, nil
}

// places returns the places of ids, by the names of their queues.
func (e *Engine) places(ctx context.Context, ids []posthaste.MessageID) (map[string][]string, error) {
	all := make([]int64, len(ids))
	for i := range ids {
		all[i] = int64(ids[i])
	}
	queues, err := e.registry.ofIDs(ctx, all)
	if err != nil {
		return nil, err
	}
	byName := map[string][]string{}
	for _, n := range slices.Compact(slices.Sorted(slices.Values(all))) {
		if q := queues[number(n)]; q != nil && q.born == nil && n > 0 {
			byName[q.name] = append(byName[q.name], place(n))
		}
	}
	return byName, nil
}
