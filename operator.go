package posthaste

import (
	"context"
	"encoding/json"
	"time"
)

// Admin has the operations of operators. A parameter named by is the operator who requested
// the operation; it is recorded (see [Action]).
type Admin interface {
	QueueCreate(ctx context.Context, name string, options QueueOptions) error
	QueueDrop(ctx context.Context, name string) error
	// QueuePause stops delivery of a queue: claims and receives find nothing. Deliveries
	// that are handed out can be settled, and sending continues. QueueResume ends the
	// pause and wakes workers. Both are idempotent.
	QueuePause(ctx context.Context, by, name string) error
	QueueResume(ctx context.Context, by, name string) error
	// QueueLimit replaces a queue's limits; limits that are zero are removed. A queue that
	// was created without keys cannot get limits per key (Unsupported).
	QueueLimit(ctx context.Context, by, name string, limits QueueLimits) error
	// KeyPause stops delivery of one key, for the queue's current subscriptions; other keys
	// are not affected. Deliveries that are handed out can be settled. KeyResume ends the
	// pause. Both are idempotent. Only queues that look at keys support it (else
	// Unsupported).
	KeyPause(ctx context.Context, by, queue, key string) error
	KeyResume(ctx context.Context, by, queue, key string) error
	// Queues lists queues with their counters: those with the names, or all.
	Queues(ctx context.Context, names ...string) ([]QueueInfo, error)
	// Message returns a message with its state and history for each subscription.
	Message(ctx context.Context, id MessageID) (MessageInfo, error)
	// Messages lists messages, newest first. A search that would have to read too much
	// stops early and returns cutAt: found then has all matches down to that id. Continue
	// with cutAt as Before. Otherwise cutAt is 0.
	Messages(ctx context.Context, filter MessageFilter) (found []MessageInfo, cutAt MessageID, err error)
	// DeadLetters lists dead letters, newest first. cutAt is as in Messages.
	DeadLetters(ctx context.Context, filter DeadLetterFilter) (found []DeadLetter, cutAt MessageID, err error)
	// Replay sends dead letters again under their old ids, and returns the ids that were
	// replayed. Erased ones are skipped. If none of the ids can be replayed, the error is
	// [NotFound], and nothing changes.
	Replay(ctx context.Context, by string, ids ...MessageID) ([]MessageID, error)
	// Discard removes dead letters and returns their ids. If none of the ids is a dead
	// letter, the error is [NotFound].
	Discard(ctx context.Context, by string, ids ...MessageID) ([]MessageID, error)
	// ReplayMatching replays the newest dead letters that match, at most filter.Limit of
	// them, in one transaction. If next is not 0 there may be more: call it again with
	// next as Before. A message that dies again meanwhile is then not replayed twice.
	ReplayMatching(ctx context.Context, by string, filter DeadLetterFilter) (were []MessageID, next MessageID, err error)
	// DiscardMatching discards as ReplayMatching replays.
	DiscardMatching(ctx context.Context, by string, filter DeadLetterFilter) (were []MessageID, next MessageID, err error)
	// Erase erases the content of the newest messages with a term, with ids below before
	// (0: all); times and outcomes remain. Messages that are still to be delivered are
	// reported as pending and not erased. If next is not 0 there may be more: call it
	// again with next as before.
	Erase(ctx context.Context, by, term string, before MessageID) (found []Erasure, next MessageID, err error)
	// Actions lists recorded actions of operators, newest first.
	Actions(ctx context.Context, filter ActionFilter) ([]Action, error)
	// Workers lists registered workers.
	Workers(ctx context.Context) ([]WorkerStatus, error)
	// Vitals returns the state of the store in numbers. Its cost does not depend on how
	// many messages wait.
	Vitals(ctx context.Context) (Vitals, error)
	// Doctor returns present and expected problems, faults first; none if all is well.
	Doctor(ctx context.Context) ([]Finding, error)
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
}
