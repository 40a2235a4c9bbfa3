package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/cron"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

// scheduled is a schedule. It is stored as the name of its queue, a blank and JSON.
type scheduled struct {
	// Of has the number and the time of creation of its queue.
	Of string `json:"of"`
	cron.Record
	Paused time.Time  `json:"paused,omitzero"`
	Pause  *pauseNote `json:"pause,omitempty"`

	name, queue string
	text        string // as it was read, to detect changes
	line        cron.Spec
	zone        *time.Location
	fault       error // set if this machine does not know the zone; zone is nil then
}

// message returns the message of the schedule, without the headers of a tick.
func (s *scheduled) message() posthaste.Message { return s.Message(s.queue) }

// at returns the message of a tick.
func (s *scheduled) at(tick time.Time) posthaste.Message {
	return cron.Tick(s.name, s.message(), tick)
}

func (s *scheduled) paused() bool { return !s.Paused.IsZero() }

func (s *scheduled) info() posthaste.ScheduleInfo { return s.Info(s.name, s.queue, s.Paused) }

func readScheduled(name, text string) (*scheduled, error) {
	s := &scheduled{name: name, text: text}
	var is string
	s.queue, is, _ = strings.Cut(text, " ")
	err := json.Unmarshal([]byte(is), s)
	if err == nil {
		s.line, err = cron.Parse(s.Spec)
	}
	if err != nil {
		return nil, fmt.Errorf("read schedule %s: %w", name, err)
	}
	s.zone, s.fault = cron.Zone(s.Zone)
	return s, nil
}

func (e *Engine) scheduleKeys() []string {
	return []string{e.keys.schedules(), e.keys.ticks(), e.keys.queues()}
}

// scheduleArgs are the arguments of schedule.lua for an action on the schedule with a name.
func scheduleArgs(what, name string) arguments {
	return arguments{{"what", what}, {"name", name}, {"before", ""}, {"after", ""}, {"tick", ""}, {"queue", ""}, {"most", ""}}
}

// named are the arguments to read one schedule.
func named(name string) arguments { return append(scheduleArgs("read", ""), arg{is: name}) }

// dueUpTo are the arguments to read most due schedules at most.
func dueUpTo(most int) arguments {
	args := scheduleArgs("due", "")
	args[len(args)-1].is = most
	return args
}

// readSchedules reads the schedules that args (scheduleArgs, named, dueUpTo) ask for. in is
// TickIn as in [posthaste.MaintainReply].
func (e *Engine) readSchedules(ctx context.Context, args arguments) (found []*scheduled, now time.Time, in time.Duration, err error) {
	found, _, now, in, err = e.readTicks(ctx, args)
	return found, now, in, err
}

// readTicks is readSchedules that also returns entries of the list of pauses (indexMember) at which
// to look.
func (e *Engine) readTicks(ctx context.Context, args arguments) (found []*scheduled, ends []string, now time.Time, in time.Duration, err error) {
	reply, err := scheduleScript.run(ctx, e.client, e.scheduleKeys(), args)
	if err != nil {
		return nil, nil, now, 0, readError(err)
	}
	all, err := list("schedules", reply, 2)
	if err != nil {
		return nil, nil, now, 0, err
	}
	n, ok := parseMicros(str(all[0]))
	if !ok || len(all)%2 != 0 {
		return nil, nil, now, 0, unexpected("schedules", reply)
	}
	for row := range slices.Chunk(all[2:], 2) {
		if end, ok := strings.CutPrefix(str(row[0]), "#"); ok {
			ends = append(ends, end)
			continue
		}
		s, err := readScheduled(str(row[0]), str(row[1]))
		if err != nil {
			return nil, nil, now, 0, err
		}
		found = append(found, s)
	}
	return found, ends, at(n).UTC(), tickIn(str(all[1])), nil
}

// setSchedule replaces the schedule was, nil if there was none, by s, unless it has changed
// since. put makes schedule.lua check the queue. It returns the reply of schedule.lua.
func (e *Engine) setSchedule(ctx context.Context, was, s *scheduled, put bool) (string, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return "", err
	}
	before, next := "", ""
	if was != nil {
		before = was.text
	}
	if !s.paused() && !s.Next.IsZero() {
		next = fmt.Sprint(micros(s.Next))
	}
	of := ""
	if put {
		of = s.Of
	}
	reply, err := scheduleScript.run(ctx, e.client, e.scheduleKeys(), arguments{{"what", "set"}, {"name", s.name}, {"before", before},
		{"after", s.queue + " " + string(text)}, {"tick", next}, {"queue", of}, {"most", ""}})
	return str(reply), readError(err) // a repetition is harmless
}

// scheduleTries bounds the repetitions because of concurrent changes of a schedule.
const scheduleTries = 1000

func noSchedule(name string) error {
	return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "name", Message: "schedule " + quote.Name(name) + " does not exist", Hint: "check its name; list the schedules"}
}

func scheduleBusy(name string) error {
	return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "schedule " + quote.Name(name) + " is being changed by other processes", Hint: "try again"}
}
