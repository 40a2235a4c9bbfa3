//go:build unix

package acceptance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/nats"
)

// delivered is a delivery as the server sent it. Its Count is the sequence of the entry, and its Note says
// how often the server had delivered that. Its Key is the schedule that has fired the entry, with
// the entry that this one continues; it is empty without a schedule.
const delivered history.Kind = "delivered"

// tapped opens an engine on a connection of its own, and records all deliveries that come through it,
// whether or not the engine hands them out.
func tapped(ctx context.Context, t task) (posthaste.Store, *history.Recorder, error) {
	record, err := history.Open(t.Dir, t.Name)
	if err != nil {
		return nil, nil, err
	}
	servers, query, _ := strings.Cut(t.URL, "?")
	options, err := url.ParseQuery(query)
	if err != nil {
		return nil, nil, err
	}
	ackWait, err := time.ParseDuration(options.Get("ack_wait"))
	if err != nil {
		return nil, nil, err
	}
	inbox := "_INBOX." + t.Name
	// Those of nats.Open.
	conn, err := natsgo.Connect(servers, natsgo.CustomInboxPrefix(inbox), natsgo.Timeout(5*time.Second),
		natsgo.MaxReconnects(-1), natsgo.ReconnectWait(200*time.Millisecond), natsgo.ReconnectJitter(100*time.Millisecond, 100*time.Millisecond),
		natsgo.PingInterval(2*time.Second), natsgo.MaxPingsOutstanding(2), natsgo.ReconnectBufSize(-1),
		natsgo.ErrorHandler(func(*natsgo.Conn, *natsgo.Subscription, error) {}))
	if err != nil {
		return nil, nil, err
	}
	all, err := conn.Subscribe(inbox+".>", func(m *natsgo.Msg) {
		if e, is := arrival(m); is {
			record.Record(e)
		}
	})
	if err != nil {
		return nil, nil, err
	}
	if err := all.SetPendingLimits(-1, -1); err != nil {
		return nil, nil, err
	}
	engine, err := nats.New(ctx, conn, nats.WithAckWait(ackWait))
	return engine, record, err
}

// arrival returns the event of a delivery. It reports false for other answers of the server.
func arrival(m *natsgo.Msg) (e history.Event, is bool) {
	info, err := m.Metadata()
	head := m.Header.Get("Posthaste")
	if n, err := strconv.Atoi(head); err == nil && strings.HasPrefix(head, "+") && n <= len(m.Data) {
		head = string(m.Data[:n])
	}
	var about struct {
		ID      posthaste.MessageID `json:"id"`
		Attempt int                 `json:"n"`
		From    uint64              `json:"from"`
	}
	if err != nil || json.Unmarshal([]byte(head), &about) != nil {
		return e, false
	}
	e = history.Event{Kind: delivered, ID: about.ID, Attempt: max(about.Attempt, 1), Count: int(info.Sequence.Stream), Note: fmt.Sprintf("delivered %d times", info.NumDelivered)}
	if schedule := m.Header.Get("Nats-Scheduler"); schedule != "" {
		e.Key = fmt.Sprintf("%s after %d", schedule, about.From)
	}
	return e, true
}

// doubles finds runs that should not have been: an attempt that ran twice, and a run after one whose
// end was confirmed. It tells what the server had delivered of such a message. An attempt may run twice
// if its schedule has fired twice.
func doubles(events []history.Event) []history.Fault {
	once := withoutFiredTwice(events)
	faults := append(history.Attempts(once, 0), unexplained(once)...)
	for i := range faults {
		for _, e := range events {
			if e.Kind == delivered && e.ID == faults[i].ID {
				faults[i].Text += fmt.Sprintf("; %s got attempt %d at %s: entry %d, %s, schedule %q", e.Process, e.Attempt, e.At, e.Count, e.Note, e.Key)
			}
		}
	}
	return faults
}

// attempt is one of a message.
type attempt struct {
	id     posthaste.MessageID
	number int
}

// firedTwice returns the attempts of which the stream had two entries that one schedule has fired: see
// nats/fired.go.
func firedTwice(events []history.Event) map[attempt]bool {
	entries := map[attempt]map[int]string{} // the schedule of each
	for _, e := range events {
		if of := (attempt{e.ID, e.Attempt}); e.Kind == delivered {
			if entries[of] == nil {
				entries[of] = map[int]string{}
			}
			if e.Key != "" {
				entries[of][e.Count] = e.Key
			}
		}
	}
	twice := map[attempt]bool{}
	for of, all := range entries {
		if schedules := slices.Collect(maps.Values(all)); len(schedules) == 2 && schedules[0] == schedules[1] {
			twice[of] = true
		}
	}
	return twice
}

// withoutFiredTwice leaves out the second run of an attempt whose schedule has fired twice, if another
// process than that of the first one ran it: one process must not run both.
func withoutFiredTwice(events []history.Event) (once []history.Event) {
	twice := firedTwice(events)
	ran := map[attempt][]string{} // by which processes
	for _, e := range events {
		if of := (attempt{e.ID, e.Attempt}); e.Kind == history.Started {
			if ran[of] = append(ran[of], e.Process); len(ran[of]) == 2 && twice[of] && ran[of][0] != ran[of][1] {
				continue
			}
		}
		once = append(once, e)
	}
	return once
}
