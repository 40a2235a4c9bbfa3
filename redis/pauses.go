package redis

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/quote"
)

// A pause is stored with the paused thing, in one step with the flag that claims and ticks read: of a
// queue or a key in the queue's slot (scripts/pauses.lua), of a kind in the registry, of a schedule
// in the schedule. Its end is decided there, too. Those are many places in several slots, so that
// there is a list of them (scripts/pause_index.lua): a process adds an entry to the list first,
// and the times at which to look are among the ticks, which heartbeats and the scheduler read anyway.
// A process that is killed in between leaves an entry of the list without a pause, which is found and
// removed. An entry is never used again: it has the id of its pause, and an end applies to a pause
// with that id only, even if operators resume and pause again meanwhile.

const (
	// pauseWithin is how long a process may take from adding an entry to storing its pause, and
	// pauseKept how long an entry without a pause is kept: clocks of servers differ.
	pauseWithin = time.Minute
	pauseKept   = 2 * time.Minute
	// pauseAgain is when an end that failed is tried again.
	pauseAgain = 5 * time.Second
)

// switching is a change of whether something is paused.
type switching struct {
	is     *pauseNote // nil to resume
	before int64      // until when it may be stored
	ended  int64      // the id of the pause whose end is reached, or 0
}

// args are the last arguments of pause.lua and pause_key.lua.
func (c switching) args() arguments {
	is, ended := "", ""
	if c.is != nil {
		rest, _ := json.Marshal(pauseNote{By: c.is.By, Reason: c.is.Reason}) // always encodes
		is = fmt.Sprintf("%d %s %s", c.is.ID, c.is.ends(), rest)
	}
	if c.ended != 0 {
		ended = strconv.FormatInt(c.ended, 10)
	}
	return arguments{{"is", is}, {"before", c.before}, {"ended", ended}}
}

// of decides about a pause that is stored as a whole, as pauses.lua does.
func (c switching) of(was *pauseNote, paused bool, now time.Time) (is *pauseNote, said string) {
	switch {
	case c.is == nil && c.ended != 0 && (was == nil || was.ID != c.ended):
		return was, "other"
	case c.is == nil && c.ended != 0 && (was.Until.IsZero() || was.Until.After(now)):
		return was, "early"
	case c.is == nil && !paused:
		return nil, "same"
	case c.is == nil:
		return nil, "changed"
	case micros(now) > c.before:
		return was, "late"
	case !c.is.Until.IsZero() && !c.is.Until.After(now):
		return was, "past"
	case paused && was != nil && was.same(c.is):
		return was, "same"
	}
	next := *c.is
	next.Since = now
	if was != nil {
		next.Since = was.Since
	}
	return &next, "changed"
}

// Pause implements [posthaste.QueueAdmin].
func (e *Engine) Pause(ctx context.Context, what posthaste.Pausable, o posthaste.PauseOptions) error {
	now, err := e.client.Time(ctx).Result()
	if err != nil {
		return readError(err)
	}
	if err := o.Complete(now); err != nil {
		return err
	}
	member, err := e.pausableMember("pause", what)
	if err != nil {
		return err
	}
	if err := e.canPause(ctx, what); err != nil {
		return err
	}
	is := &pauseNote{Until: o.Until, By: cmp.Or(posthaste.ActorOf(ctx), "redis"), Reason: o.Reason}
	reply, err := e.pauseIndex(ctx, "add", member, is.ends(), pauseKept.Microseconds(), "")
	if err != nil {
		return writeError(err)
	}
	if reply == "past" {
		return o.Complete(o.Until)
	}
	added, err := list("a pause", reply, 1)
	if err != nil {
		return err
	}
	is.ID, _ = parseMicros(str(added[0]))
	member = indexMember(is.ID, member)
	said, was, err := e.switchPause(ctx, what, switching{is: is, before: is.ID + pauseWithin.Microseconds()}, o)
	if err == nil {
		switch said {
		case "late":
			err = busy()
		case "past":
			err = o.Complete(o.Until)
		}
	}
	if err != nil || said != "changed" {
		// After a lost reply it is unknown whether it is paused.
		if code := posthaste.CodeOf(err); err == nil || code == posthaste.CodeInvalid || code == posthaste.CodeNotFound || code == posthaste.CodeUnsupported {
			_, fault := e.pauseIndex(ctx, "remove", member, "", 0, "")
			err = cmp.Or(err, readError(fault))
		}
		return err
	}
	if _, err = e.pauseIndex(ctx, "keep", member, is.ends(), 0, ""); err == nil && was != 0 {
		err = e.unlist(ctx, what, was)
	}
	return writeError(err)
}

// Resume implements [posthaste.QueueAdmin].
func (e *Engine) Resume(ctx context.Context, what posthaste.Pausable) error {
	if _, err := e.pausableMember("resume", what); err != nil {
		return err
	}
	said, was, err := e.switchPause(ctx, what, switching{}, posthaste.PauseOptions{})
	if err == nil && said == "changed" && was != 0 {
		err = writeError(e.unlist(ctx, what, was))
	}
	return err
}

// unlist removes the entry of a pause that has ended.
func (e *Engine) unlist(ctx context.Context, what posthaste.Pausable, id int64) error {
	member, err := e.pausableMember("resume", what)
	if err == nil {
		_, err = e.pauseIndex(ctx, "remove", indexMember(id, member), "", 0, "")
	}
	return err
}

// canPause returns an error if something does not exist or cannot be paused, so that it is not even
// listed.
func (e *Engine) canPause(ctx context.Context, what posthaste.Pausable) error {
	_, name, _ := posthaste.PausableNames(what)
	if name == "" {
		return nil // a schedule
	}
	q, err := e.registry.queue(ctx, name)
	if err != nil {
		return err
	}
	switch x := what.(type) {
	case posthaste.OfKey:
		return checkPausedKey(q, x.Key)
	case posthaste.OfKind:
		return x.Check()
	}
	return nil
}

// checkPausedKey returns an error if a queue cannot pause a key.
func checkPausedKey(q *queue, key string) error {
	if key == "" {
		return posthaste.Invalidf("key", "the key must not be empty")
	}
	if err := (&posthaste.Message{Queue: q.name, Key: key}).Check(); err != nil {
		return err
	}
	if q.looks == 0 {
		return &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "key", Message: "queue " + quote.Name(q.name) + " does not support pausing keys",
			Hint: "pause the queue, or create one that is ordered, fair or has a limit per key"}
	}
	return nil
}

// switchPause changes whether something is paused, and records that. It returns what pauses.lua
// says, and the id that the pause had before, or 0.
func (e *Engine) switchPause(ctx context.Context, what posthaste.Pausable, c switching, o posthaste.PauseOptions) (said string, was int64, err error) {
	action := posthaste.PauseAction(what, c.is != nil, o)
	switch x := what.(type) {
	case posthaste.OfKind:
		return e.switchKind(ctx, x, c, action)
	case posthaste.OfSchedule:
		said, was, err = e.switchSchedule(ctx, string(x), c)
	case posthaste.OfKey:
		said, was, err = e.switchKey(ctx, x, c)
	case posthaste.OfQueue:
		said, was, err = switched(e.tryQueue(ctx, string(x), func(q *queue) (any, error) {
			return pauseScript.run(ctx, e.client, append(q.keys[:len(q.keys):len(q.keys)], e.keys.pauses(q.name)), append(arguments{{"number", q.numberArg}}, c.args()...))
		}))
	}
	if err == nil && said == "changed" {
		err = writeError(e.record(ctx, record{Action: action.Action, Queue: action.Queue, Details: action.Details}))
	}
	return said, was, err
}

// switched reads the reply of pause.lua and pause_key.lua.
func switched(reply any, _ *queue, err error) (said string, was int64, _ error) {
	if err != nil {
		return "", 0, writeError(err)
	}
	all, err := list("a pause", reply, 2)
	if err != nil {
		return "", 0, err
	}
	if is := readPause(str(all[1])); is != nil {
		was = is.ID
	}
	return str(all[0]), was, nil
}

// readPause reads what pauses.lua stores, nil if it is nothing.
func readPause(text string) *pauseNote {
	parts := strings.SplitN(text, " ", 4)
	if len(parts) != 4 {
		return nil
	}
	var p pauseNote
	if json.Unmarshal([]byte(parts[3]), &p) != nil {
		return nil
	}
	p.ID, _ = parseMicros(parts[0])
	if until, ok := parseMicros(parts[1]); ok {
		p.Until = at(until).UTC()
	}
	since, _ := parseMicros(parts[2])
	p.Since = at(since).UTC()
	return &p
}

func (e *Engine) switchKey(ctx context.Context, what posthaste.OfKey, c switching) (said string, was int64, err error) {
	q, err := e.registry.queue(ctx, what.Queue)
	if err == nil {
		err = checkPausedKey(q, what.Key)
	}
	if err != nil {
		return "", 0, err
	}
	return switched(e.togetherWith(ctx, pauseKeyScript, what.Queue, []string{e.keys.pauses(what.Queue)}, func(*queue) arguments {
		return append(arguments{{"key", what.Key}}, c.args()...)
	}))
}

// switchKind pauses or resumes a kind of a queue. The paused kinds are changed as options are, so
// that no call that begins later follows the old ones.
func (e *Engine) switchKind(ctx context.Context, what posthaste.OfKind, c switching, action posthaste.Action) (said string, was int64, err error) {
	if err := what.Check(); err != nil {
		return "", 0, err
	}
	err = e.change(ctx, what.Queue, c.before, func(q *queue) (is stored, changed bool, _ posthaste.Action, err error) {
		if c.is != nil && q.looks > 0 {
			return is, false, action, &posthaste.Error{Code: posthaste.CodeUnsupported, Field: "queue",
				Message: "queue " + quote.Name(q.name) + " hands out messages by their keys, so that a kind of it cannot be paused", Hint: "pause the queue, or a key"}
		}
		now, err := e.client.Time(ctx).Result()
		if err != nil {
			return is, false, action, err
		}
		is = q.options
		had, paused := is.Pauses[what.Kind]
		was = 0
		var next *pauseNote
		if paused {
			was = had.ID
			next, said = c.of(&had, true, now.UTC())
		} else {
			next, said = c.of(nil, false, now.UTC())
		}
		if said != "changed" {
			return is, false, action, nil
		}
		if is.PausedKinds, err = what.Apply(q.options.PausedKinds, c.is != nil); err != nil {
			return is, false, action, err
		}
		is.Pauses = map[string]pauseNote{}
		for kind, p := range q.options.Pauses {
			is.Pauses[kind] = p
		}
		delete(is.Pauses, what.Kind)
		if next != nil {
			is.Pauses[what.Kind] = *next
		}
		return is, true, action, nil
	})
	return said, was, err
}

func (e *Engine) switchSchedule(ctx context.Context, name string, c switching) (said string, was int64, err error) {
	_, err = e.changeSchedule(ctx, name, func(*scheduled) bool { return false }, func(s *scheduled, now time.Time) error {
		was = 0
		if s.Pause != nil {
			was = s.Pause.ID
		}
		next, then := c.of(s.Pause, s.paused(), now)
		if said = then; said != "changed" {
			return errUnchanged
		}
		s.Pause = next
		switch {
		case next != nil && !s.paused():
			s.Paused = next.Since
		case next == nil && s.fault != nil:
			return s.fault
		case next == nil:
			s.Paused, s.Next = time.Time{}, s.line.Resumed(s.zone, s.Next, now)
		}
		return nil
	})
	if errors.Is(err, errUnchanged) {
		err = nil
	}
	return said, was, err
}

// errUnchanged says that a schedule needs no change.
var errUnchanged = errors.New("no change")
