package redis

import (
	"context"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// addUnique adds the unique key of a message to its options.
func (s *sendCall) addUnique(m *posthaste.Message, q *queue, c *content, o *sendOptions) {
	var u *sendUnique
	if m.Unique != nil {
		u = &sendUnique{Key: m.UniqueKey(c.payload), Until: string(m.Unique.Until), Replace: m.Unique.Exists == posthaste.ReplaceExisting, MaxDelay: (m.Unique.MaxDelay + time.Microsecond - 1).Microseconds()}
	}
	if of := s.head.copies; of != nil {
		o.Excluded, u = of.letters, of.unique
	}
	if u == nil {
		if s.unique != nil {
			s.unique = append(s.unique, "")
		}
		return
	}
	for len(s.unique) < len(s.args)/2-1 { // of the messages before, without one
		s.unique = append(s.unique, "")
	}
	s.unique = append(s.unique, q.name+"/"+u.Key)
	hash := s.engine.keys.unique(q.name)
	if at := slices.Index(s.once, hash); at >= 0 {
		u.At = at + 1
	} else {
		s.once = append(s.once, hash, s.engine.keys.uniqueLine(q.name))
		u.At = len(s.once) - 1
	}
	o.Unique = u
}

// cannotReplace returns an error if send.lua replied that a message cannot replace another.
func (s *sendCall) cannotReplace(reply any) error {
	all, _ := reply.([]any)
	if len(all) != 4 || all[0] != "other" {
		return nil
	}
	n, ok := all[1].(int64)
	if !ok || n < 1 || int(n) > len(s.of) {
		return unexpected("send", reply)
	}
	message, err := id(str(all[2]), s.of[n-1].number)
	if err != nil {
		return err
	}
	return otherRoute(posthaste.MessageID(message), str(all[3]))
}

// uniqueAgain gives unique keys back to dead letters that are about to be replayed. It returns
// the places of those that can be, and those whose keys other messages hold.
func (e *Engine) uniqueAgain(ctx context.Context, action, name string, places []string) (rest []string, held []posthaste.MessageID, err error) {
	if action != "replay" {
		return places, nil, nil
	}
	exists, err := e.client.Exists(ctx, e.keys.unique(name)).Result()
	if err != nil || exists == 0 {
		return places, nil, readError(err)
	}
	reply, q, err := e.togetherWith(ctx, againScript, name, []string{e.keys.unique(name)}, func(q *queue) arguments {
		args := arguments{{"letters", q.allLetters()}}
		for _, p := range places {
			args = append(args, arg{is: p})
		}
		return args
	})
	if err != nil {
		return nil, nil, writeError(err)
	}
	conflicts, err := list("again", reply, 0)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range conflicts {
		n, err := id(str(p), q.number)
		if err != nil {
			return nil, nil, err
		}
		held = append(held, posthaste.MessageID(n))
	}
	return slices.DeleteFunc(slices.Clone(places), func(p string) bool { return slices.Contains(conflicts, any(p)) }), held, nil
}

// forgetUniqueMost bounds the messages whose unique keys one call looks at.
const forgetUniqueMost = 100

// forgetUnique forgets unique keys of a queue that no message needs any more.
func (e *Engine) forgetUnique(ctx context.Context, name string) error {
	_, _, err := e.togetherWith(ctx, forgetUniqueScript, name, []string{e.keys.unique(name), e.keys.uniqueLine(name)}, func(q *queue) arguments {
		return arguments{{"letters", q.allLetters()}, {"most", forgetUniqueMost}}
	})
	return readError(err)
}

// allLetters returns the letters of all subscriptions, in the order of all.
func (q *queue) allLetters() string {
	if q.first != "" {
		return q.letters()
	}
	return "@" + q.letters()
}
