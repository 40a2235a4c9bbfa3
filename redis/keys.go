package redis

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/posthaste-mq/posthaste"
)

// keys builds the names of all keys; no other file and no script does. The keys of a queue
// share a hash tag, and so a slot of a cluster. Neither prefixes nor names of queues contain
// braces or colons, so that no two names are equal.
type keys struct{ prefix string }

// enrolled returns the field of a further subscription in queues.
func enrolled(queue, subscription string) string { return queue + ":" + subscription }

// layout is a string: the version of the layout of all keys.
func (k keys) layout() string { return k.global("layout") }

// queues is a hash, the registry: the name of a queue to its number, time of creation and
// options, and a further subscription (enrolled) to its number and time of enrollment.
func (k keys) queues() string { return k.global("queues") }

// beats is a sorted set: workers by the end of their leases.
func (k keys) beats() string { return k.global("beats") }

// workers is a hash: a worker to its name, version and times.
func (k keys) workers() string { return k.global("workers") }

// actions is a list: the actions of operators, newest first.
func (k keys) actions() string { return k.global("actions") }

// tokens is a hash: the name of a token to the token, and "#ever" once there was one.
func (k keys) tokens() string { return k.global("tokens") }

// schedules is a hash: the name of a schedule to the name of its queue and the schedule.
func (k keys) schedules() string { return k.global("schedules") }

// ticks is a sorted set: schedules that are not paused, by their next ticks, and "#" and entries of
// pauseIndex by when to look at them.
func (k keys) ticks() string { return k.global("ticks") }

// ticked is a hash in the slot of a queue: the name of a schedule to the last tick sent to the
// queue and its message, "time message".
func (k keys) ticked(queue string) string { return k.of(queue, "ticked") }

// pauseIndex is a sorted set: what may be paused, with the id of the pause (pauses.go).
func (k keys) pauseIndex() string { return k.global("pauses") }

// pauses is a hash in the slot of a queue: a paused key, or "" for the queue, to its pause
// (scripts/pauses.lua).
func (k keys) pauses(queue string) string { return k.of(queue, "pauses") }

// unique is a hash in the slot of a queue: unique keys to their last holders, and messages to
// their unique keys (scripts/unique.lua).
func (k keys) unique(queue string) string { return k.of(queue, "unique") }

// uniqueLine is a list: the messages in unique, those first of which it is checked next whether
// they still need their key.
func (k keys) uniqueLine(queue string) string { return k.of(queue, "unique.line") }

// chart is a hash in the slot of a queue, with the figures of one minute or hour for charts. Redis
// removes it after [chartTTL]. The name ends with the number of the minute or hour since 1970.
func (k keys) chart(queue, what string, unit int64) string {
	return k.of(queue, what+":"+strconv.FormatInt(unit, 10))
}

// The figures of a minute and of an hour.
const (
	statsOfMinute   = "stats.minute"   // counts of workers: subscription, kind, version and worker, packed, to counts (charts.go)
	statsOfHour     = "stats.hour"     // the same
	errorsOfMinute  = "errors.minute"  // subscription, kind and version, packed, to errors (charts.go)
	errorsOfHour    = "errors.hour"    // the same
	samplesOfMinute = "samples.minute" // subscription to its sample (sample.lua)
	samplesOfHour   = "samples.hour"   // the same
)

// sampled is a hash in the slot of a queue: subscription to its last sample (sample.lua).
func (k keys) sampled(queue string) string { return k.of(queue, "sampled") }

func (k keys) global(what string) string { return "{" + k.prefix + "}:" + what }

func (k keys) of(queue, what string) string { return "{" + k.prefix + ":" + queue + "}:" + what }

// own is a key that each subscription has for itself. The names for the default subscription
// do not contain its name.
func (k keys) own(queue, subscription, what string) string {
	if subscription == posthaste.DefaultSubscription {
		return k.of(queue, what)
	}
	return k.of(queue, "of:"+subscription+":"+what)
}

// bell is the channel on which a queue rings. Every server of a cluster broadcasts it, so that
// a process listens over one connection.
func (k keys) bell(queue string) string { return k.of(queue, "bell") }

// request is a string: the reply to an idempotent request, until it expires.
func (k keys) request(digest string) string { return k.global("request:" + digest) }

// answer is the same for clusters, in the slot of the queue that the request sends to.
func (k keys) answer(queue, request string) string {
	return k.of(queue, strings.TrimPrefix(request, k.global("")))
}

// once is a string: the message of a dedupe key of the queue with a number, until it expires.
func (k keys) once(queue string, number int64, key string) string {
	return k.of(queue, fmt.Sprintf("once:%d:%s", number, key))
}

// ofQueue are the keys of a subscription, in the order in which scripts get them. The scripts
// name them by their places (scripts/keys.lua). All but the common ones are its own.
var ofQueue = []string{
	"meta",   // hash: the queue's number, when it was made, the last id, since when it is paused, its limits, its further subscriptions; first: "leaving" or "ended" for the default subscription
	"msg",    // hash: message to its content; immutable until it is removed
	"st",     // hash: message to its state, from the end of its first attempt on, or from the beginning if it has a time from which its age counts
	"run",    // hash: delivery to its holder ("worker:number", or "T" and the time of a receive) and, after "/", its message if the id differs
	"due",    // sorted set: priority:message by priority and due time (scripts/keys.lua): delayed first attempts, retries, messages that were lost once or released
	"alone",  // sorted set: the same for messages that must run alone
	"ready0", // list: messages that wait for their first attempt, in the order of sending
	"ready1",
	"ready2",
	"ready3",
	"stale",  // set: messages in a ready list that must not be handed out from it
	"leases", // sorted set: workers that claimed, by the end of their leases
	"names",  // hash: those workers to their names, and "#worker" to the number of its last claim
	"claims", // sorted set: holders "worker:number" by worker
	"claim",  // hash: holder to the time of its claim, its deliveries and their due times
	"open",   // hash: holder to the number of its unsettled deliveries
	"timed",  // sorted set: received deliveries by the end of their leases
	"dead",   // sorted set: dead letters by id
	"past",   // list: settled messages that are kept, oldest first: "time:message", or "B" and, packed, a batch with its common outcome
	"asleep", // string: a process sleeps and waits for the bell
	// Messages that a purge moved aside and has not cancelled yet: due, alone, ready0 to ready3.
	"aside.due", "aside.alone", "aside0", "aside1", "aside2", "aside3",
	"known",       // sorted set: messages by id that are due later, wait in a queue that looks at keys, were tried before, or are kept by themselves
	"words",       // sorted set, all of one score: "r" and a reference or "t" and a term, a zero byte, and a message that has it, in 16 digits
	"tally",       // hash: the subscription's number, totals, its rate, up to which message it still gets older ones, and the count of repairs; for the default subscription this is meta
	"holders",     // hash: message to its holders, if further subscriptions get it (scripts/holders.lua)
	"apart",       // sorted set by name: messages that were set aside, by kind (scripts/apart.lua)
	"aside.apart", // what a purge moved aside of apart
}

// common are the keys that all subscriptions of a queue share.
var common = map[string]bool{"meta": true, "msg": true, "asleep": true, "holders": true, "paused": true}

// ofKeyed are the additional keys of a queue that looks at keys. They follow its bell.
var ofKeyed = []string{
	"wait",       // sorted set by name: waiting messages, as key, a zero byte and the message in 16 digits; in an ordered queue also those in due and alone
	"turn",       // sorted set: keys that may have messages to hand out, by their turns
	"fresh",      // sorted set: the same in a fair queue, for keys without a turn or with few messages
	"later",      // sorted set: keys by the time when their rate allows more
	"again",      // sorted set: keys to check after a change of limits
	"held",       // hash: key to the number of its messages in flight, if that is limited
	"spent",      // sorted set: keys by the time when all tokens of their rate are available again
	"stopped",    // hash: key to the number of dead messages that stop it
	"paused",     // sorted set by name: keys that are paused
	"aside.wait", // what a purge moved aside of wait
}

// queue returns all keys of the default subscription, and the queue's bell.
func (k keys) queue(name string, looks bool) []string {
	return k.subscription(name, posthaste.DefaultSubscription, looks)
}

// subscription returns all keys of a subscription, and the queue's bell.
func (k keys) subscription(queue, subscription string, looks bool) []string {
	all := make([]string, 0, len(ofQueue)+1+len(ofKeyed))
	add := func(names []string) {
		for _, what := range names {
			switch {
			case common[what]:
				all = append(all, k.of(queue, what))
			case what == "tally" && subscription == posthaste.DefaultSubscription:
				all = append(all, k.of(queue, "meta"))
			default:
				all = append(all, k.own(queue, subscription, what))
			}
		}
	}
	add(ofQueue)
	all = append(all, k.bell(queue))
	if looks {
		add(ofKeyed)
	}
	return all
}
