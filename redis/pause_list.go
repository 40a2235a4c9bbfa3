package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

// indexMember returns the entry of a pause in the list.
func indexMember(id int64, member string) string { return fmt.Sprintf("%016d %s", id, member) }

// pausableMember returns what names something in the list.
func (e *Engine) pausableMember(verb string, what posthaste.Pausable) (string, error) {
	of, queue, name := posthaste.PausableNames(what)
	if of == "" {
		return "", posthaste.Invalidf("what", "cannot %s %T: it must be OfQueue, OfKey, OfKind or OfSchedule", verb, what)
	}
	text, err := json.Marshal([]string{of, queue, name})
	return string(text), err
}

// listedPause is an entry of the list.
type listedPause struct {
	member string
	id     int64
	what   posthaste.Pausable
}

func readListed(member string) (l listedPause, err error) {
	l.member = member
	id, text, _ := strings.Cut(member, " ")
	var names []string
	n, ok := parseMicros(id)
	if !ok || json.Unmarshal([]byte(text), &names) != nil || len(names) != 3 {
		return l, unexpected("a pause in the list", member)
	}
	l.id, l.what = n, posthaste.NewPausable(names[0], names[1], names[2])
	return l, nil
}

// stale reports that an entry without a pause will get none.
func (l listedPause) stale(now time.Time) bool { return micros(now)-l.id > pauseKept.Microseconds() }

func (e *Engine) pauseIndex(ctx context.Context, what, member, ends string, check int64, most any) (any, error) {
	return pauseIndexScript.run(ctx, e.client, []string{e.keys.pauseIndex(), e.keys.ticks()},
		arguments{{"what", what}, {"member", member}, {"ends", ends}, {"check", check}, {"most", most}})
}

// endPauses ends the pauses with these entries if their ends are reached, and returns how many. After
// one of a queue has failed it puts the others of the queue off, and it leaves some for the next call
// rather than take longer than tickTime: the queue's server of a cluster may be unreachable, for
// which schedules must not wait.
func (e *Engine) endPauses(ctx context.Context, members []string, now time.Time) (ended int, err error) {
	failed := map[string]bool{} // queues
	for i, began := 0, time.Now(); i < len(members) && time.Since(began) < tickTime && ctx.Err() == nil; i++ {
		l, fault := readListed(members[i])
		_, queue, _ := posthaste.PausableNames(l.what)
		later := failed[queue]
		if fault == nil && !later {
			var done bool
			if done, fault = e.endPauseSoon(ctx, l, now); done {
				ended++
			}
			failed[queue] = fault != nil && queue != ""
		}
		if fault != nil || later {
			_, again := e.pauseIndex(ctx, "look", members[i], strconv.FormatInt(micros(now.Add(pauseAgain)), 10), 0, "")
			err = errors.Join(err, fault, again)
		}
	}
	return ended, readError(err)
}

// endPauseSoon is endPause with a timeout.
func (e *Engine) endPauseSoon(ctx context.Context, l listedPause, now time.Time) (ended bool, err error) {
	soon, cancel := context.WithTimeout(ctx, tickTry)
	defer cancel()
	return e.endPause(soon, l, now)
}

func (e *Engine) endPause(ctx context.Context, l listedPause, now time.Time) (ended bool, err error) {
	said, _, err := e.switchPause(posthaste.WithActor(ctx, posthaste.EndOfPause), l.what, switching{ended: l.id}, posthaste.PauseOptions{})
	if posthaste.CodeOf(err) == posthaste.CodeNotFound {
		said, err = "other", nil
	}
	look := ""
	switch {
	case err != nil:
		return said == "changed", err
	case said == "other" && !l.stale(now): // another process may be about to store it
		look = strconv.FormatInt(l.id+pauseKept.Microseconds()+1, 10)
	case said == "early":
		found, err := e.pausesOf(ctx, []listedPause{l})
		if err != nil {
			return false, err
		}
		if p := found[l.member]; p != nil && p.Until.IsZero() {
			_, err = e.pauseIndex(ctx, "keep", l.member, "", 0, "")
			return false, err
		} else if p != nil {
			look = p.ends()
		}
	}
	if look != "" {
		_, err = e.pauseIndex(ctx, "look", l.member, look, 0, "")
	} else {
		_, err = e.pauseIndex(ctx, "remove", l.member, "", 0, "")
	}
	return said == "changed", err
}

// pausesOf reads the pauses with these entries. Those that do not exist are missing.
func (e *Engine) pausesOf(ctx context.Context, all []listedPause) (map[string]*pauseNote, error) {
	found := map[string]*pauseNote{}
	pipe := e.client.Pipeline()
	answers := map[string]*goredis.StringCmd{}
	var queues map[string]*queue
	args := scheduleArgs("read", "")
	asked := map[string][]listedPause{}
	for _, l := range all {
		switch x := l.what.(type) {
		case posthaste.OfQueue:
			answers[l.member] = pipe.HGet(ctx, e.keys.pauses(string(x)), "")
		case posthaste.OfKey:
			answers[l.member] = pipe.HGet(ctx, e.keys.pauses(x.Queue), x.Key)
		case posthaste.OfKind:
			if queues == nil {
				var err error
				if queues, err = e.registry.read(ctx); err != nil {
					return nil, err
				}
			}
			if q := queues[x.Queue]; q != nil {
				if p, ok := q.options.Pauses[x.Kind]; ok {
					found[l.member] = &p
				}
			}
		case posthaste.OfSchedule:
			if len(asked[string(x)]) == 0 {
				args = append(args, arg{is: string(x)})
			}
			asked[string(x)] = append(asked[string(x)], l)
		}
	}
	if len(asked) > 0 {
		schedules, _, _, err := e.readSchedules(ctx, args)
		if err != nil {
			return nil, err
		}
		for _, s := range schedules {
			for _, l := range asked[s.name] {
				found[l.member] = s.Pause
			}
		}
	}
	if len(answers) > 0 {
		_, _ = pipe.Exec(ctx) // each reply has its own error
	}
	for member, answer := range answers {
		text, err := answer.Result()
		if err != nil && !errors.Is(err, goredis.Nil) {
			return nil, readError(err)
		}
		found[member] = readPause(text)
	}
	for _, l := range all {
		if p := found[l.member]; p == nil || p.ID != l.id {
			delete(found, l.member)
		}
	}
	return found, nil
}

// Pauses implements [posthaste.QueueAdmin]. It removes entries of the list that processes left
// which were killed.
func (e *Engine) Pauses(ctx context.Context, f posthaste.PauseFilter) (pauses []posthaste.Pause, err error) {
	limit, err := limited(f.Limit, "pauses")
	if err != nil {
		return nil, err
	}
	if f.Queue != "" {
		if _, err := e.registry.queue(ctx, f.Queue); err != nil {
			return nil, err
		}
	}
	from := ""
	if f.Before > 0 {
		from = fmt.Sprintf("%016d", f.Before)
	}
	most := 1000
	if f.Queue == "" {
		most = max(limit, 100)
	}
	for {
		reply, err := e.pauseIndex(ctx, "list", from, "", 0, most)
		if err != nil {
			return nil, readError(err)
		}
		rows, err := list("pauses", reply, 1)
		if err != nil {
			return nil, err
		}
		n, _ := parseMicros(str(rows[0]))
		var all []listedPause
		for _, row := range rows[1:] {
			l, err := readListed(str(row))
			if err != nil {
				return nil, err
			}
			from = l.member
			if _, queue, _ := posthaste.PausableNames(l.what); f.Queue == "" || queue == f.Queue {
				all = append(all, l)
			}
		}
		found, err := e.pausesOf(ctx, all)
		if err != nil {
			return nil, err
		}
		for _, l := range all {
			if p := found[l.member]; p != nil {
				pauses = append(pauses, p.public(l.what))
			} else if l.stale(at(n)) {
				_, _ = e.pauseIndex(ctx, "remove", l.member, "", 0, "") // else the next list does
			}
			if len(pauses) == limit {
				return pauses, nil
			}
		}
		if len(rows) <= most {
			return pauses, nil
		}
	}
}

// pauseNote returns since when, by whom, until when and why a queue is paused, as the end of a
// sentence; "" if that is unknown.
func (e *Engine) pauseNote(ctx context.Context, queue string) string {
	text, err := e.client.HGet(ctx, e.keys.pauses(queue), "").Result()
	if p := readPause(text); err == nil && p != nil {
		return p.public(posthaste.OfQueue(queue)).Note()
	}
	return ""
}

// public returns the pause of what.
func (p *pauseNote) public(what posthaste.Pausable) posthaste.Pause {
	return posthaste.Pause{ID: p.ID, What: what, Since: p.Since, By: p.By, PauseOptions: posthaste.PauseOptions{Reason: p.Reason, Until: p.Until}}
}
