package nats

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/cron"
)

const (
	// tickTime is about how long a call ticks.
	tickTime = time.Second
	// tickTry bounds a try of one schedule.
	tickTry = 3 * time.Second
	// Records of ticks are kept for ticksKept ticks, at least tickKept and at most tickKeptMost.
	tickKept     = 2 * time.Hour
	tickKeptMost = 24 * time.Hour
	ticksKept    = 1500
)

// tickDue ends pauses whose end is reached, and sends the messages of due ticks.
//
// The message of a tick is stored in one atomic batch with a record of the tick
// (i.t.<schedule>.<created>.<tick>), so that only one process sends it. Then the schedule is moved
// on, and the process that moves it counts. A process that is killed in between leaves the schedule
// as it was; the next one finds the record. A process that was frozen sends no tick late: it
// reads the schedule from the leader at most tickTry before it sends, and records are kept for hours.
func (e *Engine) tickDue(ctx context.Context, reply *posthaste.MaintainReply) error {
	began := uptime()
	var failed error
	reply.PausesEnded, failed = e.endPauses(ctx, began)
	var due []*schedule
	for _, s := range e.schedules.knownAll() {
		if s.ticks() && !s.Next.After(e.clock.now()) && e.schedules.resting.rests(s.Queue) == 0 {
			due = append(due, s)
		}
	}
	slices.SortFunc(due, func(a, b *schedule) int { return a.Next.Compare(b.Next) })
	for _, s := range due {
		if uptime()-began > tickTime || ctx.Err() != nil {
			break
		}
		if e.schedules.resting.rests(s.Queue) > 0 {
			continue // another of its queue has failed just now
		}
		sent, missed, err := e.tickSoon(ctx, s)
		reply.TicksSent, reply.TicksMissed = reply.TicksSent+sent, reply.TicksMissed+missed
		failed = errors.Join(failed, err)
	}
	if reply.TicksSent+reply.TicksMissed+reply.PausesEnded == 0 && failed != nil {
		return failed
	}
	reply.TickIn = e.tickIn()
	return ctx.Err()
}

// tickIn returns the time until the next tick or the next end of a pause as far as this process
// knows, or 0.
func (e *Engine) tickIn() (in time.Duration) {
	now := e.clock.now()
	at := func(t time.Time, least time.Duration) {
		if d := max(1, least, t.Sub(now)); in == 0 || d < in {
			in = d
		}
	}
	for _, s := range e.schedules.knownAll() {
		if s.ticks() {
			at(s.Next, e.schedules.resting.rests(s.Queue))
		}
		if s.Pause != nil && !s.Pause.Until.IsZero() {
			at(s.Pause.Until, 0)
		}
	}
	for _, q := range e.queues.listed() {
		if q.Pause != nil && !q.Pause.Until.IsZero() {
			at(q.Pause.Until, e.schedules.resting.rests(q.Name))
		}
	}
	return in
}

// tickSoon is tick with a timeout.
func (e *Engine) tickSoon(ctx context.Context, s *schedule) (sent, missed int, err error) {
	soon, cancel := context.WithTimeout(ctx, tickTry)
	defer cancel()
	sent, missed, err = e.tick(soon, subjectToken(s.Name))
	e.schedules.resting.tried(s.Queue, err)
	return sent, missed, err
}

// lastTick is the last tick of a schedule that was sent.
type lastTick struct {
	at time.Time
	id posthaste.MessageID
}

// ticksOf returns the subject of the record of a tick, or a filter for them.
func (q *queue) ticksOf(s *schedule, tick string) string {
	return q.subjects.under("i", "t", subjectToken(s.Name), strconv.FormatInt(micros(s.Created), 10), tick)
}

// lastTick returns the last tick of a schedule that has a record, zero if none has.
func (e *Engine) lastTick(ctx context.Context, q *queue, s *schedule) (last lastTick, err error) {
	m, err := e.lastOn(ctx, q.stream, q.ticksOf(s, "*"))
	if err != nil || m == nil {
		return last, err
	}
	seconds, err := strconv.ParseInt(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:], 10, 64)
	if err != nil {
		return last, err
	}
	r, err := e.readRecord(ctx, q, m.Subject)
	if err != nil || r == nil {
		return last, err
	}
	return lastTick{at: time.Unix(seconds, 0).UTC(), id: r.Sent[0].ID}, nil
}

// tick sends the due ticks of a schedule and moves it on. It returns how many ticks it sent and
// missed; of several processes only one counts them.
func (e *Engine) tick(ctx context.Context, name string) (sent, missed int, err error) {
	s, _, err := e.schedules.read(ctx, name)
	if err != nil || s == nil {
		return 0, 0, err
	}
	now := e.clock.now()
	line, zone, fault := s.Parsed()
	if !s.ticks() || s.Next.After(now) || fault != nil {
		return 0, 0, nil
	}
	q, err := e.queueOfSchedule(ctx, s)
	if err != nil {
		return 0, 0, err
	}
	if q == nil { // a schedule ends with its queue
		return 0, 0, e.dropOrphan(ctx, name)
	}
	last, err := e.lastTick(ctx, q, s)
	if err != nil {
		return 0, 0, err
	}
	moved := &moving{schedule: *s}
	if last.at.Before(s.Next) {
		moved.plan(line.Due(zone, s.Next, now, s.CatchUp))
		err = e.sendTicks(ctx, q, s, moved, now)
	} else {
		// Another process has sent the ticks up to last, and was killed, failed to move the schedule on, or is about
		// to. Later ticks wait for the next call: only the last record is read, so none may be written
		// while an older one is not counted yet.
		moved.plan(line.Due(zone, s.Next, last.at, s.CatchUp))
		moved.Ticked(last.at, last.id, now)
	}
	if moved.Next.Equal(s.Next) {
		return 0, 0, ignoreNotFound(err) // the first one failed
	}
	sent, missed, fault = e.moveOn(ctx, name, s, moved)
	return sent, missed, errors.Join(ignoreNotFound(err), fault)
}

// moving is how a schedule moves on.
type moving struct {
	schedule
	due     cron.Due
	counted int // ticks with a message
}

// plan makes the schedule move on past the due ticks.
func (m *moving) plan(due cron.Due) {
	m.due, m.Next, m.counted = due, due.Next, len(due.Ticks)
}

// sendTicks sends the messages of the due ticks. After an error, the schedule moves on to the tick that
// failed.
func (e *Engine) sendTicks(ctx context.Context, q *queue, s *schedule, m *moving, now time.Time) error {
	ticks := m.due.Ticks
	began := uptime()
	for i, tick := range ticks {
		if i > 0 && uptime()-began > tickTime { // the next call goes on
			m.counted -= len(ticks) - i
			m.Next = tick
			return nil
		}
		id, err := e.sendTick(ctx, q, s, tick, m.due.Next.Sub(tick))
		switch code := posthaste.CodeOf(err); {
		case err == nil:
			m.Ticked(tick, id, now)
		case code == posthaste.CodeInvalid || code == posthaste.CodeTooLarge || code == posthaste.CodeUnsupported:
			m.counted--
			m.due.Missed++
			m.Error = err.Error()
		default:
			m.counted -= len(ticks) - i
			m.Next = tick
			return err
		}
	}
	return nil
}

// sendTick sends the message of a tick, unless another process has, and returns its id.
func (e *Engine) sendTick(ctx context.Context, q *queue, s *schedule, tick time.Time, interval time.Duration) (posthaste.MessageID, error) {
	now, all, err := e.prepare(ctx, []posthaste.Message{s.at(tick)})
	if err == nil && !now.CreatedAt.Equal(q.CreatedAt) {
		err = noQueue(q.Name) // it was dropped, and there is another one
	}
	if err != nil {
		return 0, err
	}
	subject := q.ticksOf(s, strconv.FormatInt(tick.Unix(), 10))
	stored, err := e.sendUnlessRecorded(ctx, q, subject, max(tickKept, min(ticksKept*min(interval, tickKeptMost), tickKeptMost)), &all[0].meta, all[0].body)
	if err != nil || stored {
		return all[0].meta.ID, err
	}
	r, err := e.readRecord(ctx, q, subject)
	if err != nil || r == nil {
		return 0, err
	}
	return r.Sent[0].ID, nil
}

// moveOn stores that a schedule has ticked, unless another process has stored it. It keeps concurrent
// changes, such as a pause.
func (e *Engine) moveOn(ctx context.Context, name string, from *schedule, moved *moving) (sent, missed int, err error) {
	done := false
	_, err = e.schedules.change(ctx, name, func(was *schedule) (*schedule, error) {
		done = was != nil && was.Next.Equal(from.Next) && was.Created.Equal(from.Created) && was.Sent == from.Sent && was.Missed == from.Missed
		if !done {
			return nil, errSame
		}
		next := *was
		next.Advance(&moved.Record, int64(moved.counted), moved.due.Missed)
		return &next, nil
	})
	if err != nil || !done {
		return 0, 0, err
	}
	return moved.counted, int(moved.due.Missed), nil
}
