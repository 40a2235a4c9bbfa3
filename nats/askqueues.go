package nats

import (
	"context"
	"encoding/json"
	"errors"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
)

// queuesSubject is the subject on which a process names the queues of deliveries that it holds.
func (e *Engine) queuesSubject(no int64) string { return e.processSubject(no) + ".queues" }

// listenQueues answers askQueues of other processes.
func (e *Engine) listenQueues() error {
	return e.subscribe(e.queuesSubject(e.holding.processNumber()), func(m *natsgo.Msg) {
		var ids []posthaste.DeliveryID
		if json.Unmarshal(m.Data, &ids) != nil {
			return
		}
		names := make([]string, len(ids))
		for i, id := range ids {
			if d := e.holding.get(id); d != nil {
				names[i] = d.q.Name
			}
		}
		if body, err := json.Marshal(names); err == nil {
			_ = m.Respond(body)
		}
	})
}

// askQueues asks the processes that hold deliveries for the queues of these. A name is "" if the process is
// gone or does not hold the delivery.
func (e *Engine) askQueues(ctx context.Context, ids []posthaste.DeliveryID) ([]string, error) {
	names := make([]string, len(ids))
	indexes := map[int64][]int{} // by process
	for i, id := range ids {
		if no := int64(id) >> 32; no != e.holding.processNumber() {
			indexes[no] = append(indexes[no], i)
		}
	}
	for no, at := range indexes {
		asked := make([]posthaste.DeliveryID, len(at))
		for i, index := range at {
			asked[i] = ids[index]
		}
		body, err := json.Marshal(asked)
		if err != nil {
			return nil, err
		}
		theirs, err := e.askProcess(ctx, no, body)
		if err != nil {
			return nil, err
		}
		for i, name := range theirs {
			if i < len(at) {
				names[at[i]] = name
			}
		}
	}
	return names, nil
}

func (e *Engine) askProcess(ctx context.Context, no int64, body []byte) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	m, err := e.conn.RequestWithContext(ctx, e.queuesSubject(no), body)
	if errors.Is(err, natsgo.ErrNoResponders) {
		return nil, nil
	}
	if err != nil {
		return nil, e.readError(err)
	}
	return names, json.Unmarshal(m.Data, &names)
}
