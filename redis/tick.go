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
	// ticksMost is the maximum of schedules that a call ticks, tickTime about its duration, and
	// dueMost the maximum of schedules that it reads if all of the first ones rest.
	ticksMost = 100
	tickTime  = time.Second
	dueMost   = 1000
	// tickAgain is how long the schedules of a queue rest after one of them failed, because the
	// queue's server of a cluster may be unreachable. So that it does not delay the schedules of
	// other queues, those come first, and a try ends after tickTry.
	tickAgain = 5 * time.Second
	tickTry   = 3 * time.Second
	// tickPatience is how late a tick may be before Doctor reports it.
	tickPatience = 5 * time.Minute
)

// tickDue ends pauses whose end is reached, and sends the messages of due ticks, of up to 100 schedules, and 100 messages or 1,000
// ticks of each.
//
// Schedules and queues are in different slots. The queue's slot records the last tick that
// each schedule sent to it. Before it computes the due ticks, a process reads that record, and
// send.lua sends them only if the record is still the same. So only one process sends a tick.
// A process that is killed after that leaves the schedule with its old next tick; the next
// process that ticks finds the record and advances the schedule.
func (e *Engine) tickDue(ctx context.Context, reply *posthaste.MaintainReply) error {
	due, ends, now, in, err := e.readTicks(ctx, dueUpTo(ticksMost))
	if err != nil || len(due)+len(ends) == 0 {
		reply.TickIn = in
		return err
	}
	rested := len(due)+len(ends) == ticksMost
	var failed error
	reply.PausesEnded, failed = e.endPauses(ctx, ends, now)
	if due = e.inTurn(due); rested && len(due) == 0 {
		if due, now, _, err = e.readSchedules(ctx, dueUpTo(dueMost)); err != nil {
			return err
		}
		due = e.inTurn(due)
	}
	for i, began := 0, time.Now(); i < min(len(due), ticksMost) && time.Since(began) < tickTime && ctx.Err() == nil; i++ {
		sent, missed, err := e.tickSoon(ctx, due[i], now)
		reply.TicksSent, reply.TicksMissed = reply.TicksSent+sent, reply.TicksMissed+missed
		failed = errors.Join(failed, err)
	}
	if reply.TicksSent+reply.TicksMissed+reply.PausesEnded == 0 && failed != nil {
		return failed
	}
	if _, _, reply.TickIn, err = e.readSchedules(ctx, dueUpTo(0)); err != nil {
		reply.TickIn = 1 // the counts are returned nevertheless
	}
	return nil
}

// inTurn returns the schedules to try now. It puts those of queues that failed last, and
// leaves out those of queues that failed within tickAgain.
func (e *Engine) inTurn(due []*scheduled) (now []*scheduled) {
	var again []*scheduled
	for _, s := range due {
		if at, failed := e.ticker.failedAt(s.queue); !failed {
			now = append(now, s)
		} else if time.Since(at) > tickAgain {
			again = append(again, s)
		}
	}
	return append(now, again...)
}

// tickSoon is tick with a timeout, unless another schedule of the queue failed just now. A
// lost reply does no harm, because the next process finds the record of the tick.
func (e *Engine) tickSoon(ctx context.Context, s *scheduled, now time.Time) (sent, missed int, err error) {
	if at, failed := e.ticker.failedAt(s.queue); failed && time.Since(at) < tickAgain {
		return 0, 0, nil
	}
	soon, cancel := context.WithTimeout(ctx, tickTry)
	defer cancel()
	sent, missed, err = e.tick(soon, s, now)
	e.ticker.tried(s.queue, err)
	return sent, missed, err
}

// lastTick is the record of a schedule's last tick in the slot of its queue.
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

// tick sends the due ticks of a schedule and advances it. It returns how many ticks it sent
// and missed; of several processes only one counts them.
func (e *Engine) tick(ctx context.Context, s *scheduled, now time.Time) (sent, missed int, err error) {
	if s.fault != nil || s.Next.After(now) {
		return 0, 0, nil
	}
	due := s.line.Due(s.zone, s.Next, now, s.CatchUp)
	q, err := e.registry.queue(ctx, s.queue)
	if err != nil {
		return 0, 0, ignore(err, posthaste.CodeNotFound) // a schedule ends with its queue
	}
	last, err := e.lastTick(ctx, s, q.number)
	if err != nil {
		return 0, 0, err
	}
	counted := len(due.Ticks)
	// Ticks up to last were sent by a process that did not advance the schedule.
	before := func(tick time.Time) bool { return !tick.After(last.at) }
	if last.text != "" && !last.at.Before(s.Next) && last.at.Before(due.Next) && due.Missed > 0 &&
		!slices.ContainsFunc(due.Ticks, last.at.Equal) {
		counted++ // it was the last due tick at that time, and later ticks are due by now
		due.Missed--
	}
	moved := *s
	moved.Next = due.Next
	if counted > 0 {
		moved.Ticked(last.at, last.id, now)
	}
	if ticks := slices.DeleteFunc(due.Ticks, before); len(ticks) > 0 {
		sent, err := e.sendTicks(ctx, s, last, ticks)
		switch code := posthaste.CodeOf(err); {
		case errors.Is(err, errTicked):
			return 0, 0, nil
		case code == posthaste.CodeInvalid || code == posthaste.CodeTooLarge:
			counted -= len(ticks)
			due.Missed += int64(len(ticks))
			moved.LastTick, moved.LastMessage, moved.LastSent, moved.Error = s.LastTick, s.LastMessage, s.LastSent, err.Error()
		case err != nil:
			return 0, 0, ignore(err, posthaste.CodeNotFound)
		default:
			moved.LastTick, moved.LastMessage = ticks[len(ticks)-1], sent[len(sent)-1].ID
		}
	}
	return e.moveOn(ctx, s, &moved, counted, int(due.Missed))
}

// sendTicks sends the messages of ticks, if last is still the record of the queue.
func (e *Engine) sendTicks(ctx context.Context, s *scheduled, last lastTick, ticks []time.Time) ([]posthaste.Sent, error) {
	messages := make([]posthaste.Message, len(ticks))
	for i := range ticks {
		messages[i] = s.at(ticks[i])
	}
	return e.sendAll(ctx, sendHead{of: s.Of, Schedule: s.name, Before: last.text, Tick: fmt.Sprint(micros(ticks[len(ticks)-1]))}, "", messages)
}

// moveOn advances a schedule after it was ticked, unless another process has. It keeps
// concurrent changes, such as a pause.
func (e *Engine) moveOn(ctx context.Context, was, moved *scheduled, sent, missed int) (int, int, error) {
	for range scheduleTries {
		now := *was
		now.Advance(&moved.Record, int64(sent), int64(missed))
		said, err := e.setSchedule(ctx, was, &now, false)
		if err != nil {
			return 0, 0, err
		}
		if said == "ok" {
			return sent, missed, nil
		}
		found, _, _, err := e.readSchedules(ctx, named(was.name))
		if err != nil || len(found) == 0 || !found[0].Next.Equal(was.Next) || !found[0].Created.Equal(was.Created) {
			return 0, 0, err
		}
		was = found[0]
	}
	return 0, 0, scheduleBusy(was.name)
}
