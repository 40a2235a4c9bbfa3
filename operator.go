package posthaste

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Store is a complete engine: for clients and workers, for operators, and for the tokens of the
// HTTP API.
type Store interface {
	Engine
	Operator
	TokenStore
	Charts
}

// Operator manages and observes a store. Operations that change something are recorded with
// the operator that [WithActor] set in the context (see [Action]); a call that changes
// nothing is not recorded, except for purging and erasing.
type Operator interface {
	QueueAdmin
	MessageAdmin
	ScheduleAdmin
	Observer
}

// QueueAdmin manages queues and their subscriptions.
type QueueAdmin interface {
	// CreateQueue creates a queue. If it exists nothing changes; if an option that is set has
	// another value there, the error is a [CodeConflict] that shows both. Options that are
	// not set get their defaults in a new queue, and match any value of an existing one.
	CreateQueue(ctx context.Context, name string, options QueueOptions) error
	// UpdateQueue changes options of a queue while it runs; the next claim follows them, in
	// every process. Deliveries in flight keep their timeout. Options that determine where
	// messages lie cannot change: the error is [CodeUnsupported] and says why. An update
	// that changes nothing is not recorded.
	UpdateQueue(ctx context.Context, name string, update QueueUpdate) error
	// DropQueue removes a queue with its messages and schedules.
	DropQueue(ctx context.Context, name string, options DropOptions) error
	// PurgeQueue removes all waiting messages of a queue as of one moment, including
	// scheduled messages and retries. Messages that are handed out continue.
	PurgeQueue(ctx context.Context, queue string) ([]Purged, error)
	// Pause stops delivery of a queue ([OfQueue]), of one key of it ([OfKey]) or of one kind
	// of messages of it ([OfKind]), or a schedule ([OfSchedule]). Claims and receives then return none of its messages.
	// Deliveries that are already handed out can be settled, and sending continues. Ticks
	// of a paused schedule do not count as missed. Idempotent. A key can be paused only in
	// a queue that is ordered, fair or limited per key, and a kind in any other queue;
	// otherwise the error is [CodeUnsupported]. At most [MaxKinds] kinds can be paused.
	// If it is already paused, it gets the reason and the end of the options; only if they differ is
	// that recorded.
	Pause(ctx context.Context, what Pausable, options PauseOptions) error
	// Resume ends a pause and wakes workers. A schedule continues with its first tick from
	// now on. Idempotent. A pause with an end resumes in the same way, by [EndOfPause].
	Resume(ctx context.Context, what Pausable) error
	// Pauses lists the pauses, the last one first.
	Pauses(ctx context.Context, filter PauseFilter) ([]Pause, error)
	// Subscribe adds a subscription to a queue. Each message is delivered to every
	// subscription, and settled by each independently. If the subscription exists with the
	// same options nothing changes; with other options the error is a [CodeConflict].
	Subscribe(ctx context.Context, queue, subscription string, options SubscriptionOptions) error
	// Unsubscribe removes a subscription with its retries and dead letters. Space that it
	// held is released, and deliveries of its workers count as settled. The last
	// subscription of a queue cannot be removed: the error is a [CodeConflict].
	Unsubscribe(ctx context.Context, queue, subscription string, options DropOptions) error
}

// DropOptions are the options of [QueueAdmin.DropQueue] and [QueueAdmin.Unsubscribe]. The zero value
// removes everything.
type DropOptions struct {
	// IfEmpty removes nothing if a message waits, is in flight or is a dead letter: the error is
	// [CodeRefused]. A message that is being sent at that moment is not seen.
	IfEmpty bool
}

// Pausable is what [QueueAdmin.Pause] and [QueueAdmin.Resume] apply to: [OfQueue], [OfKey],
// [OfKind] or [OfSchedule].
type Pausable interface{ pausable() }

// OfQueue names a queue.
type OfQueue string

// OfKey names one key of a queue.
type OfKey struct{ Queue, Key string }

// OfKind names one kind of messages of a queue.
type OfKind struct{ Queue, Kind string }

// OfSchedule names a schedule.
type OfSchedule string

func (OfQueue) pausable()    {}
func (OfKey) pausable()      {}
func (OfKind) pausable()     {}
func (OfSchedule) pausable() {}

// MessageAdmin finds and changes messages.
type MessageAdmin interface {
	// Message returns a message with its state and history for each subscription.
	Message(ctx context.Context, id MessageID) (MessageInfo, error)
	// Messages lists messages, newest first.
	Messages(ctx context.Context, filter MessageFilter) (Page[MessageInfo], error)
	// Cancel cancels a message, or its retry, for each subscription, and returns a result for
	// each. A message reported as cancelled is never handed out. Where it is handed out now, its
	// holder is told: a worker by its next heartbeat, which ends the handler's context with
	// [ErrCancelled] as its cause, a receiver by [Engine.Extend]. A success then still counts;
	// after any other end, a loss included, the message is cancelled. Idempotent.
	Cancel(ctx context.Context, id MessageID) ([]Withdrawal, error)
	// Reschedule changes the time of a message, or of its next attempt, for each
	// subscription to which it is not handed out now, and returns a result for each. A
	// time in the past means now.
	Reschedule(ctx context.Context, id MessageID, at time.Time) ([]Withdrawal, error)
	// UpdateMessage changes a waiting message for all subscriptions, or not at all: the error
	// is [CodeConflict], with the subscription's name, once one was handed it. It keeps its id
	// and its times. A dead letter is sent again with the changes, as a new message with the
	// header [HeaderReplayOf], because an inbox would drop the old id. The key of a message
	// cannot be changed in a queue that looks at keys, nor its kind and headers so that other
	// subscriptions would get it, nor anything in an ordered queue.
	UpdateMessage(ctx context.Context, id MessageID, update MessageUpdate) (Updated, error)
	// RunMessage makes a message, or its next attempt, due now for each subscription to which
	// it is not handed out now. Pauses, limits and order still hold, and the result names them.
	RunMessage(ctx context.Context, id MessageID) ([]RunResult, error)
	// DeadLetters lists dead letters, newest first.
	DeadLetters(ctx context.Context, filter DeadLetterFilter) (Page[DeadLetter], error)
	// Replay sends dead letters again under their old ids, and returns these ids.
	//
	// A dead letter whose unique key another message holds stays, and is listed in
	// Page.Conflicts. With filter.IDs it replays these messages, and skips those that are
	// erased or no dead letters; if none can be replayed the error is [CodeNotFound], or
	// [CodeUniqueConflict]. IDs cannot be combined
	// with other fields. Without IDs it replays the newest dead letters that match, at most
	// filter.Limit of them, in one transaction. A filter without any condition must set
	// All; otherwise the error is [CodeInvalid].
	Replay(ctx context.Context, filter DeadLetterFilter) (Page[MessageID], error)
	// Discard removes dead letters, chosen as by Replay, and returns their ids.
	Discard(ctx context.Context, filter DeadLetterFilter) (Page[MessageID], error)
	// Erase erases the content of messages with a term, newest first, one page per call:
	// before is 0 for the first page and Page.Next for further ones. Times and outcomes
	// remain. Messages that are still to be delivered are reported as pending and not
	// erased.
	Erase(ctx context.Context, term string, before MessageID) (Page[Erasure], error)
}

// Page is a part of a listing, or of the messages that an operation changed.
type Page[T any] struct {
	Items []T
	// Next is where the next page begins: pass it as Before. It is 0 if nothing more
	// matches, except that a full page always has a next one, which may be empty. A page
	// may also hold fewer items than requested, even none, and have a next one: a search
	// that would have to read too much stops early.
	Next MessageID
	// Conflicts are dead letters that Replay left, because other messages hold their unique
	// keys.
	Conflicts []MessageID
}

// NewPage is for engines. It returns the page of a list that was limited to limit items. cutAt
// is the id at which the search stopped early, or 0, and id returns an item's id.
func NewPage[T any](items []T, limit int, cutAt MessageID, id func(*T) MessageID) Page[T] {
	if n := len(items); n > 0 && n >= limit {
		cutAt = id(&items[n-1])
	}
	return Page[T]{Items: items, Next: cutAt}
}

// ScheduleAdmin manages recurring schedules, which [QueueAdmin] pauses and [Engine.Maintain]
// ticks. All times and time zone rules are the store's.
type ScheduleAdmin interface {
	// PutSchedule creates a schedule, or changes the one with that name, and returns the
	// next tick. A paused schedule stays paused. If Spec and TimeZone do not change, the
	// next tick does not change.
	PutSchedule(ctx context.Context, s Schedule) (next time.Time, err error)
	// DropSchedule removes a schedule. Messages that it has sent remain.
	DropSchedule(ctx context.Context, name string) error
	// RunSchedule sends the message of a schedule now, also of one that is paused, and returns
	// its id. The next tick does not change, and the message has no [HeaderTick].
	RunSchedule(ctx context.Context, name string) (MessageID, error)
	// Schedules lists the schedules with the names, or all, ordered by name.
	Schedules(ctx context.Context, names ...string) ([]ScheduleInfo, error)
}

// Observer shows the state of a store.
type Observer interface {
	// Workers lists registered workers.
	Workers(ctx context.Context) ([]WorkerStatus, error)
	// Actions lists recorded actions of operators, newest first.
	Actions(ctx context.Context, filter ActionFilter) ([]Action, error)
	// Vitals returns the state of the store in numbers. Its cost does not depend on how
	// many messages wait.
	Vitals(ctx context.Context) (Vitals, error)
	// Doctor returns present and expected problems, faults first; none if all is well.
	Doctor(ctx context.Context) ([]Finding, error)
	// Capabilities returns what the store can do. Requesting a feature that it lacks fails
	// with [CodeUnsupported].
	Capabilities() Capabilities
}

// Capabilities are the features of a store.
type Capabilities struct {
	// Subscriptions: a queue can have more than one subscription.
	Subscriptions bool
	// MaxLag: subscriptions can skip messages (see [SubscriptionOptions]).
	MaxLag bool
	// Limits: queues can have limits, fair turns and paused keys.
	Limits bool
	// Ordered: queues can be ordered.
	Ordered bool
	// OrderedRuns: a worker can get several messages of a key of an ordered queue at once.
	OrderedRuns bool
	// StopOnDead: a dead letter can hold up its key in an ordered queue.
	StopOnDead bool
	// PauseKinds: kinds of messages can be paused.
	PauseKinds bool
	// Exact: the store knows the state of each message, which has these effects. A claim finds all
	// earlier messages, and counts of queues are exact. A look tells when the next message is due, and
	// that one does not wait behind a backlog. Messages that were set aside are handed out only to
	// workers that handle their kind. Messages that are due can be rescheduled, and those that are done
	// can be looked up also without a retention.
	Exact bool
	// AtMostOnce: queues can have the mode [AtMostOnce].
	AtMostOnce bool
	// SendAcross: one call of Send can send to more than one queue.
	SendAcross bool
	// SendApart: the engine stores calls of Send that run at the same time faster one by one than
	// gathered into one, so that a [Client] does not gather them.
	SendApart bool
	// Idempotency: SendOnce recognizes repeated requests.
	Idempotency bool
	// Attempts: messages and dead letters list their attempts.
	Attempts bool
	// Search: messages are found, and erased, by more than their id.
	Search bool
	// Withdrawal: waiting messages can be cancelled, rescheduled and purged.
	Withdrawal bool
	// Updates: waiting messages can be changed.
	Updates bool
	// Unique: messages can have unique keys.
	Unique bool
	// Schedules: there are recurring schedules.
	Schedules bool
	// Tokens: there are tokens of the HTTP API.
	Tokens bool
	// Totals: queues count the messages that were sent, done, retried, lost, withdrawn and
	// expired since they were created.
	Totals bool
	// Charts: reports of workers and samples of queues are kept (see [Charts]).
	Charts bool
	// SQL: the operations are also SQL functions.
	SQL bool
}

// Vitals is the state of a store. Fields that an engine does not have are zero.
type Vitals struct {
	// SlotsFree is how many slots of the log can take new messages, of which SlotsWanted
	// should be free. SlotAge is the time since the oldest one in use was opened.
	SlotsFree, SlotsWanted int
	SlotAge                time.Duration
	// Workers is how many workers are alive. OverdueWorkers missed their lease and will be
	// declared lost. HeartbeatAge is the longest time since a worker's last heartbeat.
	Workers, OverdueWorkers int
	HeartbeatAge            time.Duration
	// Doorbells is how many processes hold a connection for wake-ups.
	Doorbells int
	// UpkeepAge is the time since the last round of upkeep.
	UpkeepAge time.Duration
}

// Action is the record of an operator's action.
type Action struct {
	// ID grows with time.
	ID int64
	At time.Time
	// By is the operator: the name given, or else the database user.
	By string
	// Action is one word, for example replay or discard.
	Action string
	// Queue and MessageID are the target; empty if they do not apply.
	Queue     string
	MessageID MessageID
	// Details is a JSON object with further information, or nil.
	Details json.RawMessage
}

// ActionFilter selects records of actions. Empty fields select all.
type ActionFilter struct {
	Queue     string
	MessageID MessageID
	// Before selects records with lower ids, for paging.
	Before int64
	// Limit is at most 1,000; 0 means 100.
	Limit int
}

// WorkerStatus is a registered worker.
type WorkerStatus struct {
	ID          WorkerID
	Name        string
	Version     string
	StartedAt   time.Time
	HeartbeatAt time.Time
	LostAt      time.Time
	// State is the worker's state as of HeartbeatAt.
	State WorkerState
	// Sinks are as in [WorkerInfo].
	Sinks []WorkerSink
}

// Check returns an error if the kind cannot be paused. It is for engines.
func (k OfKind) Check() error {
	if k.Kind == "" {
		return Invalidf("kind", "kind must not be empty")
	}
	return checkWord("kind", k.Kind, MaxWordBytes)
}

// Apply returns the paused kinds of a queue, in order, after the kind was paused or resumed; it is
// [CodeUnsupported] to pause too many. It is for engines.
func (k OfKind) Apply(paused []string, pause bool) ([]string, error) {
	at, found := slices.BinarySearch(paused, k.Kind)
	switch {
	case found == pause:
		return paused, nil
	case found:
		return slices.Delete(slices.Clone(paused), at, at+1), nil
	case len(paused) >= MaxKinds:
		return nil, &Error{Code: CodeUnsupported, Field: "kind", Message: fmt.Sprintf("at most %d kinds of a queue can be paused", MaxKinds)}
	}
	return slices.Insert(slices.Clone(paused), at, k.Kind), nil
}

// HeldBy returns what may hold a due message of a queue for a subscription. It is for engines.
func HeldBy(q *QueueInfo, m *MessageInfo, subscription string) (held []string) {
	unhandled := slices.ContainsFunc(q.Subscriptions, func(s SubscriptionInfo) bool {
		return s.Name == subscription && slices.ContainsFunc(s.SetAside, func(a SetAside) bool { return a.Kind == m.Kind && !a.Known && !a.Paused })
	})
	for _, x := range [...]struct {
		name  string
		holds bool
	}{
		{"paused", !q.PausedAt.IsZero()}, {"key_paused", slices.Contains(q.PausedKeys, m.Key)}, {"kind_paused", slices.Contains(q.PausedKinds, m.Kind)},
		{"set_aside", unhandled}, {"order", q.Options.Ordered}, {"concurrency", q.Options.Limits.Concurrency > 0}, {"rate_limit", !q.Options.Limits.RateLimit.IsZero()},
		{"key_concurrency", q.Options.Limits.KeyConcurrency > 0}, {"key_rate_limit", !q.Options.Limits.KeyRateLimit.IsZero()},
	} {
		if x.holds {
			held = append(held, x.name)
		}
	}
	return held
}
