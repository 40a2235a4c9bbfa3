//go:build unix

package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/telemetry"
	"github.com/posthaste-mq/posthaste/worker"
)

// lines stores log lines for inspection.
type lines struct{ testrun.Log }

// of counts the lines about one message, of its outcome or as possible duplicates.
func (l *lines) of(id posthaste.MessageID, outcome string) (n int, textless bool) {
	for line := range strings.SplitSeq(l.String(), "\n") {
		var said struct{ Msg, Message, Delivery, Outcome, Error string }
		if json.Unmarshal([]byte(line), &said) != nil || said.Message != id.String() || said.Delivery == "" || said.Outcome != outcome {
			continue
		}
		n++
		failed := outcome != "done" && outcome != "released"
		textless = textless || failed && said.Error == ""
	}
	return n, textless
}

// silent is an error without a text.
type silent struct{}

func (silent) Error() string { return "" }

// snooze is longer than the test, so that a released message stays released.
const snooze = 24 * time.Hour

// loseClaimed lets a worker claim the message of a queue and be lost.
func (s *stage) loseClaimed(queue string) {
	s.Helper()
	lost, err := s.engine.Register(s.ctx, posthaste.WorkerInfo{Name: "lost", Lease: 100 * time.Millisecond})
	s.must(err)
	reply, err := s.engine.Claim(s.ctx, posthaste.ClaimRequest{Worker: lost, Number: 1, QueueRef: posthaste.QueueRef{Queue: queue}, Max: 1})
	s.must(err)
	if len(reply.Deliveries) != 1 {
		s.Fatalf("the worker that is to be lost got %d messages", len(reply.Deliveries))
	}
}

// behave handles a message as its payload says.
func (s *stage) behave(ctx context.Context, d posthaste.Delivery[any]) error {
	switch d.Payload {
	case "retried":
		if d.Attempt == 1 {
			return silent{}
		}
	case "dead":
		return posthaste.Permanent(errors.New("no such user"))
	case "failed":
		return silent{}
	case "released":
		return posthaste.Snooze(snooze)
	case "twice": // as if another worker had settled it in the meantime
		_, err := s.engine.Settle(ctx, []posthaste.Settlement{{Delivery: d.ID, Outcome: posthaste.OutcomeDone}})
		return errors.Join(errors.New("too late"), err)
	}
	return nil
}

// countedIn returns the value of a counter, of those with the outcome unless it is empty.
func (s *stage) countedIn(registry *prometheus.Registry, name, outcome string) (n float64) {
	families, err := registry.Gather()
	s.must(err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			matches := outcome == ""
			for _, l := range m.GetLabel() {
				matches = matches || l.GetName() == "outcome" && l.GetValue() == outcome
			}
			if f.GetName() == name && matches {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// Every outcome, including a possible duplicate, is counted, logged with the message's id, and
// recorded. An error's text is never empty.
func TestTR2_EveryOutcomeIsSeen(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	q := s.queue(impatient(2))
	once := s.queue(posthaste.QueueOptions{Mode: posthaste.AtMostOnce})
	events, log := telemetry.NewPrometheus(), &lines{}
	registry := prometheus.NewRegistry()
	registry.MustRegister(events)

	lost := s.send(q, 1)[0]
	s.loseClaimed(q) // before the worker starts
	behaviours := []string{"done", "retried", "dead", "released", "twice", "failed"}
	ids := map[string]posthaste.MessageID{}
	for _, b := range behaviours {
		to := q
		if b == "failed" {
			to = once
		}
		sent, err := posthaste.IDs(s.client.Send(s.ctx, posthaste.Message{Queue: to, Payload: b}))
		s.must(err)
		ids[b] = sent[0]
	}

	w := worker.New(s.open(), worker.Config{Telemetry: events, Logger: slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	worker.Handle(w, q, s.behave)
	worker.Handle(w, once, s.behave)
	s.run(w)

	ids["lost"] = lost
	for what, c := range map[string]struct {
		line, metric, label string
		count               float64 // of the metric, including that of other messages
		row                 string
		state               posthaste.State
	}{
		// Messages that were lost or retried at first are done in the end, too.
		"done":     {"done", "posthaste_deliveries_settled_total", "done", 3, "", posthaste.StateDone},
		"retried":  {"retried", "posthaste_deliveries_settled_total", "retried", 1, "retried", posthaste.StateDone},
		"dead":     {"dead", "posthaste_deliveries_settled_total", "dead", 1, "dead", posthaste.StateDead},
		"released": {"released", "posthaste_deliveries_settled_total", "released", 1, "released", posthaste.StateScheduled},
		"failed":   {"failed", "posthaste_deliveries_settled_total", "failed", 1, "", posthaste.StateHandedOut}, // only the process knows
		"twice":    {"retried", "posthaste_possible_duplicates_total", "", 1, "", posthaste.StateDone},
		"lost":     {"lost", "posthaste_deliveries_rescued_total", "", 1, "lost", posthaste.StateDone},
	} {
		s.until(what+" is counted and logged", func() bool {
			n, _ := log.of(ids[what], c.line)
			return n >= 1 && s.countedIn(registry, c.metric, c.label) >= c.count
		})
		if n, textless := log.of(ids[what], c.line); n != 1 || textless {
			t.Errorf("%s has %d log lines, one without an error text: %t", what, n, textless)
		}
		if n := s.countedIn(registry, c.metric, c.label); n != c.count {
			t.Errorf("%s %s is %v, want %v", c.metric, c.label, n, c.count)
		}
		s.until(what+" is on record", func() bool { return s.state(ids[what]).State == c.state })
		if c.row == "" {
			continue
		}
		s.until(what+" is on record", func() bool {
			n, textless := s.recordOf(ids[what], c.row)
			if textless && what != "released" {
				t.Errorf("%s is on record without an error text", what)
			}
			return n == 1
		})
	}
}

// recordOf counts the recorded attempts of a message with an outcome, and reports whether one
// that failed has no error text.
func (s *stage) recordOf(id posthaste.MessageID, outcome string) (n int, textless bool) {
	s.Helper()
	if !s.redis() {
		conn := s.conn()
		defer conn.Close(s.ctx)
		n = one[int](s, conn, fmt.Sprintf(`select count(*)::int from posthaste.outcomes where message_id = %s and outcome = '%s'`, id, outcome))
		return n, one[int](s, conn, fmt.Sprintf(`select count(*)::int from posthaste.outcomes where message_id = %s and coalesce(error, '') = ''`, id)) > 0
	}
	state := s.state(id)
	if outcome == string(posthaste.OutcomeReleased) {
		// A release is not an attempt. The record contains when the message is due again.
		if len(state.Attempts) == 0 && time.Until(state.DueAt) > snooze/2 {
			n = 1
		}
		return n, false
	}
	for _, a := range state.Attempts {
		if string(a.Outcome) == outcome {
			n++
		}
		textless = textless || a.Outcome != "" && a.Outcome != posthaste.OutcomeDone && a.Error == "" // "": it runs
	}
	return n, textless
}
