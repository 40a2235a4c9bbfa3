package redis

import (
	"fmt"
	"strings"

	"github.com/posthaste-mq/posthaste"
)

// keys builds the names of all keys; no other file, and no script, does. Those of
// one queue share a hash tag, and so a slot of a cluster. Prefixes hold neither
// braces nor colons, and names of queues hold neither, so that no two meet.
type keys struct{ prefix string }

// enrolled is the field of a further subscription in queues.
func enrolled(queue, subscription string) string { return queue + ":" + subscription }

// layout tells which layout the keys have.
func (k keys) layout() string { return k.global("layout") }

// queues is a hash: the name of a queue to what there is to know of it, and that of a
// further subscription (enrolled) to its number and when it was enrolled.
func (k keys) queues() string { return k.global("queues") }

// beats is a sorted set: workers by when their lease ends.
func (k keys) beats() string { return k.global("beats") }

// workers is a hash: a worker to its name, version and times.
func (k keys) workers() string { return k.global("workers") }

// actions is a list of what operators did, newest first.
func (k keys) actions() string { return k.global("actions") }

// tokens is a hash: the name of a token to what it is, and whether there ever was one.
func (k keys) tokens() string { return k.global("tokens") }

// schedules is a hash: the name of a schedule to what it is.
func (k keys) schedules() string { return k.global("schedules") }

// ticks is a sorted set: schedules that are not paused by their next ticks.
func (k keys) ticks() string { return k.global("ticks") }

// ticked is a hash in the slot of a queue: the name of a schedule to its last tick that
// was sent there and the message of that, "time message".
func (k keys) ticked(queue string) string { return k.of(queue, "ticked") }

func (k keys) global(what string) string { return "{" + k.prefix + "}:" + what }

func (k keys) of(queue, what string) string { return "{" + k.prefix + ":" + queue + "}:" + what }

// own is a key that each subscription of a queue has for itself. Those of the one that
// the queue is born with are named as if there were no others.
func (k keys) own(queue, subscription, what string) string {
	if subscription == posthaste.DefaultSubscription {
		return k.of(queue, what)
	}
	return k.of(queue, "of:"+subscription+":"+what)
}

// bell is the channel on which a queue rings. In a cluster every server passes it on,
// so that a process listens over one connection.
func (k keys) bell(queue string) string { return k.of(queue, "bell") }

// request remembers one request that may come again, until it expires.
func (k keys) request(digest string) string { return k.global("request:" + digest) }

// answer is the same in the slot of the queue that the request sent to, for clusters.
func (k keys) answer(queue, request string) string {
	return k.of(queue, strings.TrimPrefix(request, k.global("")))
}

// once remembers one dedupe key of the queue with this number, until it expires.
func (k keys) once(queue string, number int64, key string) string {
	return k.of(queue, fmt.Sprintf("once:%d:%s", number, key))
}

// The keys of a subscription, in the order in which every script of one gets them.
// The scripts name them by their places (scripts/keys.lua). All but those in common are
// its own.
var ofQueue = []string{
	"meta",   // hash: the queue's number, when it was made, the last id, since when it is paused, its limits, its further subscriptions; first: that the one that it was born with is "leaving" or has "ended"
	"msg",    // hash: message to its content; immutable until it is removed
	"st",     // hash: message to its state, of all but those that wait for or are in their first attempt
	"run",    // hash: delivery to its holder ("worker:number" or "T" and when it was received) and, after "/", its message where that differs
	"due",    // sorted set: priority:message by priority and when it may be handed out (scripts/keys.lua); first attempts held back, retries, what was lost once or released
	"alone",  // sorted set: the same of those that must run alone
	"ready0", // list: messages that wait for their first attempt, in the order of sending
	"ready1",
	"ready2",
	"ready3",
	"stale",  // set: messages that are still in a ready list, and must not be handed out from it
	"leases", // sorted set: workers that claimed, by when their lease ends
	"names",  // hash: those workers to their names, and "#worker" to the last number they claimed with
	"claims", // sorted set: holders "worker:number" by worker
	"claim",  // hash: holder to when it claimed what, and when what was held back was due
	"open",   // hash: holder to how many of its deliveries are not settled
	"timed",  // sorted set: received deliveries by when their lease ends
	"dead",   // sorted set: dead letters by id
	"past",   // list: settled messages that are kept, oldest first: "time:message", or "B" and, packed, many at once and how it went
	"asleep", // string: somebody sleeps and wants the bell to be rung
	// What a purge put aside and has not cancelled yet: due, alone, ready0 to ready3.
	"aside.due", "aside.alone", "aside0", "aside1", "aside2", "aside3",
	"known",   // sorted set: messages by id that are due later, wait in a queue that looks at keys, were tried before, or are kept by themselves
	"words",   // sorted set, all of one score: "r" and a reference or "t" and a term, a zero byte, and a message that has it, in 16 digits
	"tally",   // hash: the subscription's number, totals, its rate, up to which message it still gets what was sent before, and what upkeep repaired; with the first subscription it is in meta
	"holders", // hash: message to whose it is, of those that further subscriptions get (scripts/holders.lua)
}

// common are the keys that the subscriptions of a queue share.
var common = map[string]bool{"meta": true, "msg": true, "asleep": true, "holders": true, "paused": true}

// The further keys of a queue that looks at keys, behind its bell.
var ofKeyed = []string{
	"wait",       // sorted set by name: all that waits, as key, a zero byte and the message in 16 digits; in an ordered queue also what is in due and alone
	"turn",       // sorted set: keys by their turn, of which something may be handed out
	"fresh",      // sorted set: in a fair queue the same, of keys that had no turn or of which little waits
	"later",      // sorted set: keys by when their rate lets something through
	"again",      // sorted set: keys to look at, for limits have changed
	"held",       // hash: key to how many messages of it are handed out, if that is bounded
	"spent",      // sorted set: keys by when all tokens of their rate are there again
	"stopped",    // hash: key to how many dead messages stop it
	"paused",     // sorted set by name: keys that are paused
	"aside.wait", // what a purge put aside of wait
}

// queue are all keys of the subscription that a queue is born with, and its bell.
func (k keys) queue(name string, looks bool) []string {
	return k.subscription(name, posthaste.DefaultSubscription, looks)
}

// subscription are all keys of a subscription, and the queue's bell.
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
