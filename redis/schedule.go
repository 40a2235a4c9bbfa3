package redis

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // every process knows every zone: any of them may have to tick

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/cron"
	"github.com/posthaste-mq/posthaste/internal/jsoncheck"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

// scheduled is a schedule as it is stored, in JSON behind the name of its queue.
type scheduled struct {
	definition
	Next        time.Time           `json:"next,omitzero"` // also while it is paused
	LastTick    time.Time           `json:"last_tick,omitzero"`
	LastMessage posthaste.MessageID `json:"last_message,omitzero"`
	LastSent    time.Time           `json:"last_sent,omitzero"`
	Sent        int64               `json:"sent,omitzero"`
	Missed      int64               `json:"missed,omitzero"`
	Error       string              `json:"error,omitzero"`
	Paused      time.Time           `json:"paused,omitzero"`
	Created     time.Time           `json:"created"`
	Changed     time.Time           `json:"changed"`

	name, queue string
	text        string // as it was read
	line        cron.Spec
	zone        *time.Location
	fault       error // the zone is not known here; then zone is nil
}

// definition is what somebody has put.
type definition struct {
	// Of is the number of its queue and when that was made, as the registry has it.
	Of          string            `json:"of"`
	Spec        string            `json:"spec"`
	Zone        string            `json:"zone"`
	CatchUp     posthaste.CatchUp `json:"catch_up"`
	Payload     json.RawMessage   `json:"payload"`
	ContentType string            `json:"content_type,omitzero"`
	Key         string            `json:"key,omitzero"`
	Kind        string            `json:"kind,omitzero"`
	Headers     map[string]string `json:"headers,omitempty"`
	Reference   string            `json:"reference,omitzero"`
	Terms       []string          `json:"terms,omitempty"`
	Priority    int               `json:"priority,omitzero"`
}

// message is what the schedule sends, but for what tells the tick.
func (s *scheduled) message() posthaste.Message {
	return posthaste.Message{Queue: s.queue, Payload: s.Payload, ContentType: s.ContentType, Key: s.Key, Kind: s.Kind,
		Headers: s.Headers, Reference: s.Reference, Terms: s.Terms, Priority: s.Priority}
}

// at is the message of a tick.
func (s *scheduled) at(tick time.Time) posthaste.Message {
	return cron.Tick(s.name, s.message(), tick)
}

func (s *scheduled) paused() bool { return !s.Paused.IsZero() }

func (s *scheduled) info() posthaste.ScheduleInfo {
	info := posthaste.ScheduleInfo{
		Schedule: posthaste.Schedule{Name: s.name, Spec: s.Spec, TimeZone: s.Zone, CatchUp: s.CatchUp, Message: s.message()},
		LastTick: s.LastTick, LastMessage: s.LastMessage, LastSentAt: s.LastSent, Sent: s.Sent, Missed: s.Missed, Error: s.Error,
		PausedAt: s.Paused, CreatedAt: s.Created, ChangedAt: s.Changed,
	}
	if !s.paused() && !s.Next.IsZero() {
		info.NextAt = s.Next
		if s.fault == nil {
			info.Upcoming = s.line.Upcoming(s.zone, s.Next, 5)
		}
	}
	return info
}

func readScheduled(name, text string) (*scheduled, error) {
	s := &scheduled{name: name, text: text}
	var is string
	s.queue, is, _ = strings.Cut(text, " ")
	err := json.Unmarshal([]byte(is), s)
	if err == nil {
		s.line, err = cron.Parse(s.Spec)
	}
	if err != nil {
		return nil, fmt.Errorf("what Redis has of schedule %s: %w", name, err)
	}
	s.zone, s.fault = cron.Zone(s.Zone)
	return s, nil
}

func (e *Engine) scheduleKeys() []string {
	return []string{e.keys.schedules(), e.keys.ticks(), e.keys.queues()}
}

// readSchedules reads schedules ("read" and names, or none for all) or those that are due
// ("due" and how many at most). tickIn is as in [posthaste.TickReply].
func (e *Engine) readSchedules(ctx context.Context, args ...any) (found []*scheduled, now time.Time, in time.Duration, err error) {
	reply, err := scheduleScript.run(ctx, e.client, e.scheduleKeys(), args...)
	if err != nil {
		return nil, now, 0, readError(err)
	}
	all, err := list("schedules", reply, 2)
	if err != nil {
		return nil, now, 0, err
	}
	n, ok := parseMicros(str(all[0]))
	if !ok || len(all)%2 != 0 {
		return nil, now, 0, unexpected("schedules", reply)
	}
	for row := range slices.Chunk(all[2:], 2) {
		s, err := readScheduled(str(row[0]), str(row[1]))
		if err != nil {
			return nil, now, 0, err
		}
		found = append(found, s)
	}
	return found, at(n).UTC(), tickIn(str(all[1])), nil
}

// tickIn is how long it is until the next tick, as a script tells it.
func tickIn(s string) time.Duration {
	if n, ok := parseMicros(s); ok {
		return max(1, fromMicros(n))
	}
	return 0
}

// setSchedule stores a schedule that was was before, nil if there was none, unless
// somebody has changed it meanwhile. put is as schedule.lua has it. It returns what
// that says.
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
	args := []any{"set", s.name, before, s.queue + " " + string(text), next}
	if put {
		args = append(args, s.Of)
	}
	reply, err := scheduleScript.run(ctx, e.client, e.scheduleKeys(), args...)
	return str(reply), readError(err) // doing it again is harmless
}

// scheduleTries is how often somebody else may change a schedule at the same time.
const scheduleTries = 1000

// changeSchedule changes a schedule unless it is as it should be.
func (e *Engine) changeSchedule(ctx context.Context, name string, is func(*scheduled) bool, change func(s *scheduled, now time.Time) error) (*scheduled, error) {
	for range scheduleTries {
		found, now, _, err := e.readSchedules(ctx, "read", name)
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, noSchedule(name)
		}
		changed := *found[0]
		if is(&changed) {
			return &changed, nil
		}
		if err := change(&changed, now); err != nil {
			return nil, err
		}
		if said, err := e.setSchedule(ctx, found[0], &changed, false); err != nil || said == "ok" {
			return &changed, err
		}
	}
	return nil, scheduleBusy(name)
}

func noSchedule(name string) error {
	return &posthaste.Error{Code: posthaste.NotFound, Field: "name", Message: "schedule " + quote.Name(name) + " does not exist", Hint: "list them, or check its name"}
}

func scheduleBusy(name string) error {
	return &posthaste.Error{Code: posthaste.Unavailable, Message: "others change schedule " + quote.Name(name) + " all the time", Hint: "try again"}
}

// SchedulePut implements [posthaste.Scheduling].
func (e *Engine) SchedulePut(ctx context.Context, p posthaste.Schedule) (next time.Time, err error) {
	for range scheduleTries {
		q, s, err := e.newScheduled(ctx, &p)
		if err != nil {
			return next, err
		}
		found, now, _, err := e.readSchedules(ctx, "read", p.Name)
		if err != nil {
			return next, err
		}
		s.Created, s.Changed = now, now
		var ok bool
		if s.Next, ok = s.line.Next(s.zone, now.Truncate(time.Second)); !ok {
			return next, &posthaste.Error{Code: posthaste.Invalid, Field: "spec", Message: "the cron line " + quote.Name(s.Spec) + " never fires",
				Hint: "no month that it names has such a day"}
		}
		if err := e.sendable(s, q); err != nil {
			return next, err
		}
		var was *scheduled
		if len(found) > 0 {
			was = found[0]
			if same(was, s) {
				return was.Next, nil
			}
			s.goesOn(was)
		}
		said, err := e.setSchedule(ctx, was, s, true)
		switch {
		case err != nil:
			return next, err
		case said == "ok":
			return s.Next, nil
		case said == "gone":
			if _, err := e.queues(ctx); err != nil { // it says so, or has a later one of the name
				return next, err
			}
		case said == "due":
			// Some process may be sending its tick as it was put before.
			if was.fault == nil {
				_, _, err = e.tick(ctx, was, now)
			} else { // who knows no such zone cannot tell which
				err = e.ScheduleDrop(ctx, p.Name)
			}
			if err != nil {
				return next, err
			}
		}
	}
	return next, scheduleBusy(p.Name)
}

// newScheduled checks what is to be put, as far as one need not know when.
func (e *Engine) newScheduled(ctx context.Context, p *posthaste.Schedule) (*queue, *scheduled, error) {
	if err := p.Check(); err != nil {
		return nil, nil, err
	}
	m := &p.Message
	s := &scheduled{name: p.Name, queue: m.Queue, definition: definition{Spec: strings.Trim(p.Spec, " \t"), CatchUp: p.CatchUp, Key: m.Key, Kind: m.Kind,
		Headers: m.Headers, Reference: m.Reference, Terms: m.Terms, Priority: m.Priority, ContentType: m.ContentType}}
	var err error
	if s.line, err = cron.Parse(p.Spec); err == nil {
		s.zone, err = cron.Zone(p.TimeZone)
	}
	if err != nil {
		return nil, nil, err
	}
	s.Zone = s.zone.String()
	switch s.CatchUp {
	case "":
		s.CatchUp = posthaste.CatchUpOnce
	case posthaste.CatchUpOnce, posthaste.CatchUpEach, posthaste.CatchUpSkip:
	default:
		return nil, nil, posthaste.Invalidf("catch_up", "catch_up is each, once or skip, and not %q", p.CatchUp)
	}
	for _, name := range []string{posthaste.HeaderSchedule, posthaste.HeaderTick} {
		if _, set := m.Headers[name]; set {
			return nil, nil, posthaste.Invalidf("headers", "headers %s and %s are set by each tick", posthaste.HeaderSchedule, posthaste.HeaderTick)
		}
	}
	body, _, err := m.Body()
	if err != nil {
		return nil, nil, err
	}
	if err := jsoncheck.Check("payload", body); err != nil {
		return nil, nil, err
	}
	s.Payload = body
	q, err := e.queue(ctx, m.Queue)
	if err != nil {
		return nil, nil, err
	}
	s.Of = q.of()
	return q, s, nil
}

// sendable refuses what the queue would refuse of a tick's message.
func (e *Engine) sendable(s *scheduled, q *queue) error {
	m := s.at(s.Next)
	if err := m.Check(); err != nil {
		return err
	}
	if _, err := contentOf(&m, q); err != nil {
		return err
	}
	if q.looks > 0 {
		return checkKeyed(&m, q)
	}
	return nil
}

// same reports whether a schedule is put as it is.
func same(a, b *scheduled) bool {
	x, xErr := json.Marshal(a.definition)
	y, yErr := json.Marshal(b.definition)
	return xErr == nil && yErr == nil && a.queue == b.queue && string(x) == string(y)
}

// goesOn takes over what stays of a schedule that is put anew.
func (s *scheduled) goesOn(was *scheduled) {
	if was.line == s.line && was.Zone == s.Zone && !was.Next.IsZero() {
		s.Next = was.Next
	}
	s.LastTick, s.LastMessage, s.LastSent = was.LastTick, was.LastMessage, was.LastSent
	s.Sent, s.Missed, s.Error, s.Paused, s.Created = was.Sent, was.Missed, was.Error, was.Paused, was.Created
}

// ScheduleDrop implements [posthaste.Scheduling].
func (e *Engine) ScheduleDrop(ctx context.Context, name string) error {
	reply, err := scheduleScript.run(ctx, e.client, e.scheduleKeys(), "drop", name)
	if err == nil && reply == int64(0) {
		return noSchedule(name)
	}
	return writeError(err)
}

// SchedulePause implements [posthaste.Scheduling].
func (e *Engine) SchedulePause(ctx context.Context, name string) error {
	_, err := e.changeSchedule(ctx, name, (*scheduled).paused, func(s *scheduled, now time.Time) error {
		s.Paused = now
		return nil
	})
	return err
}

// ScheduleResume implements [posthaste.Scheduling].
func (e *Engine) ScheduleResume(ctx context.Context, name string) (time.Time, error) {
	ticks := func(s *scheduled) bool { return !s.paused() }
	s, err := e.changeSchedule(ctx, name, ticks, func(s *scheduled, now time.Time) error {
		if s.fault == nil {
			s.Paused, s.Next = time.Time{}, s.line.Resumed(s.zone, s.Next, now)
		}
		return s.fault
	})
	if err != nil {
		return time.Time{}, err
	}
	return s.Next, nil
}

// Schedules implements [posthaste.Scheduling]. Names that are no schedules are left out.
func (e *Engine) Schedules(ctx context.Context, names ...string) ([]posthaste.ScheduleInfo, error) {
	args := []any{"read"}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		args = append(args, name)
	}
	found, _, _, err := e.readSchedules(ctx, args...)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b *scheduled) int { return strings.Compare(a.name, b.name) })
	infos := make([]posthaste.ScheduleInfo, len(found))
	for i, s := range found {
		infos[i] = s.info()
	}
	return infos, nil
}
