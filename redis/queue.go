package redis

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// queue is a subscription of a queue: the default one, which stands for the queue, or a
// further one. It never changes: if the queue's options do, another one takes its place.
type queue struct {
	name         string
	subscription string
	number       int64  // of its deliveries' ids
	messages     int64  // of its messages' ids: the number of the queue
	created      int64  // of the queue
	value        string // of the queue in the registry
	options      stored
	keys         []string
	numberArg    string
	rules        string
	looks        int    // 1 if it looks at keys, 2 if it is ordered, 3 if it is fair
	once         string // "1" if the queue delivers at most once
	limits       string // packed for scripts
	paused       string // the paused kinds, packed for scripts; "" if there are none
	// Only of the default subscription:
	version string   // of its subscriptions, "" if there are no further ones
	subs    []*queue // the further ones, in the order of creation
	leaving []*queue // ended ones that still hold messages
	first   string   // "", or "leaving" or "ended" if it has ended itself
	stray   []field  // further ones in the registry that were not made
	unread  error    // why its further subscriptions could not be read
	// unreadNos are their numbers in that case.
	unreadNos []string
	// Only of a further subscription:
	born     *queue
	letter   string
	enrolled int64
	wanted   posthaste.SubscriptionOptions
}

// stored is a queue in the registry, after its number and time of creation.
type stored struct {
	posthaste.QueueOptions
	// Revision counts the changes of the options.
	Revision int `json:",omitempty"`
	// PausedKinds are the paused kinds, in order.
	PausedKinds []string `json:",omitempty"`
	// Pauses has why and until when each of them is paused.
	Pauses map[string]pauseNote `json:",omitempty"`
	// Stopped says that StopOnDead was set before, so that keys may be stopped.
	Stopped bool `json:",omitempty"`
}

// revision returns the revision of the options as scripts know it, "" if they were never
// changed.
func (q *queue) revision() string {
	if q.options.Revision == 0 {
		return ""
	}
	return strconv.Itoa(q.options.Revision)
}

// tally returns the key of its counters.
func (q *queue) tally() string { return q.keys[slices.Index(ofQueue, "tally")] }

// of identifies a queue among those that had its name, in the form that schedules store.
func (q *queue) of() string { return fmt.Sprint(q.messages, " ", q.created) }

// A queue has the subscription "default", with which it is born, and further ones. A
// further subscription has its own keys, named like those of its queue, and its own
// number, so that the ids of its deliveries identify it. A script for one subscription
// touches the keys of no other. They share the contents of messages and a record of who
// still holds each (scripts/holders.lua). The queue's slot lists the subscriptions, and
// send.lua rejects a sender that does not know them all.

// subscriber is a further subscription as it is stored in the queue's slot.
type subscriber struct {
	Name     string `codec:"n"`
	Number   string `codec:"i"`
	Letter   string `codec:"h"`
	Enrolled int64  `codec:"c"`
	Options  string `codec:"o"`
	Leaving  bool   `codec:"g"`
}

// field is a further subscription in the registry (enroll.lua).
type field struct{ name, is string }

// parts returns its number and time of enrollment.
func (f field) parts() (number, at string, ok bool) {
	all := strings.Fields(f.is)
	if len(all) != 3 {
		return "", "", false
	}
	return all[0], all[1], true
}

// ref names the subscription.
func (q *queue) ref() posthaste.QueueRef {
	return posthaste.QueueRef{Queue: q.name, Subscription: q.subscription}
}

// mark returns its letter (scripts/holders.lua).
func (q *queue) mark() string { return cmp.Or(q.letter, "@") }

// all returns the subscriptions of the queue, in the order of creation.
func (q *queue) all() []*queue {
	if q.first != "" {
		return q.subs
	}
	return append([]*queue{q}, q.subs...)
}

// named returns the subscription with a name, or nil.
func (q *queue) named(name string) *queue {
	if name == "" || name == posthaste.DefaultSubscription {
		if q.first != "" {
			return nil
		}
		return q
	}
	for _, s := range q.subs {
		if s.subscription == name {
			return s
		}
	}
	return nil
}

// letters returns the letters of the further subscriptions.
func (q *queue) letters() (all string) {
	for _, s := range q.subs {
		all += s.letter
	}
	return all
}

// allOf returns the subscriptions of queues.
func allOf(queues map[string]*queue) (all []*queue) {
	for _, q := range queues {
		all = append(all, q.all()...)
	}
	return all
}

// pauseNote is a pause as it is stored.
type pauseNote struct {
	ID     int64     `json:"id,omitzero"`
	Until  time.Time `json:"until,omitzero"`
	Since  time.Time `json:"since,omitzero"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
}

// ends returns the end for scripts.
func (p *pauseNote) ends() string {
	if p.Until.IsZero() {
		return ""
	}
	return strconv.FormatInt(micros(p.Until), 10)
}

// same reports whether the pause has the reason and the end of another.
func (p *pauseNote) same(o *pauseNote) bool { return p.Reason == o.Reason && p.Until.Equal(o.Until) }
