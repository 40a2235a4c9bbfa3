package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

const (
	// ticksMost is how many schedules one call ticks, tickTime about how long it takes,
	// dueMost how many it looks at where all of the first rest.
	ticksMost = 100
	tickTime  = time.Second
	dueMost   = 1000
	// tickAgain is how long the schedules of a queue rest after one of them failed: the
	// server of a cluster that has the queue is away, and keeps nobody from the others'.
	// Nor does it hold them up: others come first, and a try ends after tickTry.
	tickAgain = 5 * time.Second
	tickTry   = 3 * time.Second
	// tickPatience is how late a tick may be before Doctor tells of it.
	tickPatience = 5 * time.Minute
)

// errTicked says that somebody else has sent a tick of the schedule meanwhile.
var errTicked error = &posthaste.Error{Code: posthaste.Conflict, Message: "somebody else ticks"}

// Tick implements [posthaste.Scheduling]: up to 100 schedules, and 100 messages or 1,000
// ticks of each.
//
// Schedules and queues are in different slots. The queue's has the last tick that was
// sent to it of each schedule, and a tick is sent by the script that looks at that: it
// must be what was read before the ticks were counted out. So of any number of processes
// one sends, and what is left undone by one that is killed between the two is to move
// the schedule on, which whoever comes next does.
func (e *Engine) Tick(ctx context.Context) (reply posthaste.TickReply, err error) {
	due, now, in, err := e.readSchedules(ctx, "due", ticksMost)
	if err != nil || len(due) == 0 {
		return posthaste.TickReply{TickIn: in}, err
	}
	rested := len(due) == ticksMost
	if due = e.inTurn(due); rested && len(due) == 0 {
		if due, now, _, err = e.readSchedules(ctx, "due", dueMost); err != nil {
			return reply, err
		}
		due = e.inTurn(due)
	}
	var failed error
	for i, began := 0, time.Now(); i < min(len(due), ticksMost) && time.Since(began) < tickTime && ctx.Err() == nil; i++ {
		sent, missed, err := e.tickSoon(ctx, due[i], now)
		reply.Sent, reply.Missed = reply.Sent+sent, reply.Missed+missed
		failed = errors.Join(failed, err)
	}
	if reply.Sent+reply.Missed == 0 && failed != nil {
		return reply, failed
	}
	if _, _, reply.TickIn, err = e.readSchedules(ctx, "due", 0); err != nil {
		reply.TickIn = 1 // what was sent is told
	}
	return reply, nil
}

// inTurn is what of schedules is to be tried now: last those of queues that failed, and
// not those that failed just now.
func (e *Engine) inTurn(due []*scheduled) (now []*scheduled) {
	e.ticking.Lock()
	defer e.ticking.Unlock()
	var again []*scheduled
	for _, s := range due {
		if at, failed := e.failed[s.queue]; !failed {
			now = append(now, s)
		} else if time.Since(at) > tickAgain {
			again = append(again, s)
		}
	}
	return append(now, again...)
}

// tickSoon is tick within a bounded time, of a queue that has not failed meanwhile: its
// answer may be lost, for whoever comes next finds what was sent.
func (e *Engine) tickSoon(ctx context.Context, s *scheduled, now time.Time) (sent, missed int, err error) {
	e.ticking.Lock()
	at, failed := e.failed[s.queue]
	e.ticking.Unlock()
	if failed && time.Since(at) < tickAgain {
		return 0, 0, nil
	}
	soon, cancel := context.WithTimeout(ctx, tickTry)
	defer cancel()
	sent, missed, err = e.tick(soon, s, now)
	e.ticking.Lock()
	defer e.ticking.Unlock()
	if err == nil {
		delete(e.failed, s.queue)
		return sent, missed, nil
	}
	if e.failed == nil {
		e.failed = map[string]time.Time{}
	}
	e.failed[s.queue] = time.Now()
	return sent, missed, err
}

// lastTick is what the schedule's queue has of its last tick.
type lastTick struct {
	text string
	at   time.Time
	id   posthaste.MessageID
}

func (e *Engine) lastTick(ctx context.Context, s *scheduled, number int64) (last lastTick, err error) {
	last.text, err = e.client.HGet(ctx, e.keys.ticked(s.queue), s.name).Result()
	if errors.Is(err, goredis.Nil) {
		return last, nil
	}
	if err != nil {
		return last, readError(err)
	}
	tick, place, _ := strings.Cut(last.text, " ")
	n, ok := parseMicros(tick)
	if !ok {
		return last, unexpected("the last tick of schedule "+s.name, last.text)
	}
	message, err := id(place, number)
	last.at, last.id = at(n).UTC(), posthaste.MessageID(message)
	return last, err
}

// tick sends what is due of a schedule and moves it on. It returns what it counted: of
// several processes one counts.
func (e *Engine) tick(ctx context.Context, s *scheduled, now time.Time) (sent, missed int, err error) {
	if s.fault != nil || s.Next.After(now) {
		return 0, 0, nil
	}
	due := s.line.Due(s.zone, s.Next, now, s.CatchUp)
	q, err := e.queue(ctx, s.queue)
	if err != nil {
		return 0, 0, ignore(err, posthaste.NotFound) // a schedule ends with its queue
	}
	last, err := e.lastTick(ctx, s, q.number)
	if err != nil {
		return 0, 0, err
	}
	counted := len(due.Ticks)
	// What was sent, by a process that did not come to move the schedule on.
	before := func(tick time.Time) bool { return !tick.After(last.at) }
	if last.text != "" && !last.at.Before(s.Next) && last.at.Before(due.Next) && due.Missed > 0 &&
		!slices.ContainsFunc(due.Ticks, last.at.Equal) {
		counted++ // and with later ones it was not the last one then
		due.Missed--
	}
	moved := *s
	moved.Next = due.Next
	if counted > 0 {
		moved.LastTick, moved.LastMessage, moved.LastSent, moved.Error = last.at, last.id, now, ""
	}
	if ticks := slices.DeleteFunc(due.Ticks, before); len(ticks) > 0 {
		ids, err := e.sendTicks(ctx, s, last, ticks)
		switch code := posthaste.CodeOf(err); {
		case errors.Is(err, errTicked):
			return 0, 0, nil
		case code == posthaste.Invalid || code == posthaste.TooLarge:
			counted -= len(ticks)
			due.Missed += int64(len(ticks))
			moved.LastTick, moved.LastMessage, moved.LastSent, moved.Error = s.LastTick, s.LastMessage, s.LastSent, err.Error()
		case err != nil:
			return 0, 0, ignore(err, posthaste.NotFound)
		default:
			moved.LastTick, moved.LastMessage = ticks[len(ticks)-1], ids[len(ids)-1]
		}
	}
	return e.moveOn(ctx, s, &moved, counted, int(due.Missed))
}

// sendTicks sends the messages of ticks, if last is still what the queue has.
func (e *Engine) sendTicks(ctx context.Context, s *scheduled, last lastTick, ticks []time.Time) ([]posthaste.MessageID, error) {
	messages := make([]posthaste.Message, len(ticks))
	for i := range ticks {
		messages[i] = s.at(ticks[i])
	}
	return e.sendAll(ctx, sendHead{of: s.Of, Schedule: s.name, Before: last.text, Tick: fmt.Sprint(micros(ticks[len(ticks)-1]))}, "", messages)
}

// moveOn moves a schedule on after it was ticked, unless somebody else has. It may have
// been paused or changed otherwise meanwhile.
func (e *Engine) moveOn(ctx context.Context, was, moved *scheduled, sent, missed int) (int, int, error) {
	for range scheduleTries {
		now := *was
		now.Next, now.Error = moved.Next, moved.Error
		now.LastTick, now.LastMessage, now.LastSent = moved.LastTick, moved.LastMessage, moved.LastSent
		now.Sent, now.Missed = was.Sent+int64(sent), was.Missed+int64(missed)
		said, err := e.setSchedule(ctx, was, &now, false)
		if err != nil {
			return 0, 0, err
		}
		if said == "ok" {
			return sent, missed, nil
		}
		found, _, _, err := e.readSchedules(ctx, "read", was.name)
		if err != nil || len(found) == 0 || !found[0].Next.Equal(was.Next) || !found[0].Created.Equal(was.Created) {
			return 0, 0, err
		}
		was = found[0]
	}
	return 0, 0, scheduleBusy(was.name)
}

func ignore(err error, code posthaste.Code) error {
	if posthaste.CodeOf(err) == code {
		return nil
	}
	return err
}

// doctorSchedules looks whether somebody sends what is due.
func (e *Engine) doctorSchedules(ctx context.Context) (found []posthaste.Finding, err error) {
	due, now, _, err := e.readSchedules(ctx, "due", ticksMost)
	for _, s := range due {
		if s.fault != nil {
			found = append(found, posthaste.Finding{Check: "schedules", Fault: true, Queue: s.queue,
				Message: fmt.Sprintf("this program does not know the time zone %q of schedule %q", s.Zone, s.name),
				Hint:    "put the schedule anew with one that it knows, or mend the time zone data of this machine"})
		}
		if late := now.Sub(s.Next); late > tickPatience {
			found = append(found, posthaste.Finding{Check: "schedules", Queue: s.queue,
				Message: fmt.Sprintf("schedule %q should have ticked %s ago", s.name, late.Round(time.Second)), Hint: "run a worker, of whatever queue"})
		}
	}
	return found, err
}
