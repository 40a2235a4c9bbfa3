package posthaste

import (
	"context"
	"encoding/json"
	"time"
)

// Engine is where messages live. An engine promises durability: a method that
// returns nil has committed. All methods are safe for concurrent use, and all
// times are the store's. Package enginetest holds what every engine must do.
type Engine interface {
	// Send stores the messages in one transaction and returns their ids in
	// order. If one is refused, none is stored, and the error names its field.
	// An [OutcomeUnsure] error means that the answer was lost.
	Send(ctx context.Context, messages ...Message) ([]MessageID, error)
	// SendIdempotent is Send for a request that may come again: with the same
	// scope, key and digest it stores nothing and returns the same ids, also
	// where both come at once. With another digest the error is [KeyReused].
	// A request that was refused may come again with other content.
	SendIdempotent(ctx context.Context, request Idempotency, messages ...Message) ([]MessageID, error)
	Claims
	Admin
	Subscriptions
	Withdrawing
	Tokens
	Scheduling
	// Doorbell opens a doorbell for one process. The caller closes it.
	Doorbell(ctx context.Context) (Doorbell, error)
	// Maintain does one round of upkeep (expired leases, space, counters).
	// Any number of processes may call it at any time; one does the work.
	Maintain(ctx context.Context) (MaintainReply, error)
	// Rescue hands out anew what one lost holder or ended lease left
	// unsettled, and returns how many deliveries were lost. It is called
	// until it returns 0.
	Rescue(ctx context.Context) (lost int, err error)
	// Ready returns nil if the store can be used now, and otherwise an error
	// that says what to do.
	Ready(ctx context.Context) error
	// Close releases the engine's connections if the engine opened them.
	Close()
}

// Claims is how deliveries are handed out and settled.
type Claims interface {
	// Register makes a worker known. It stays alive by [Claims.Heartbeat].
	Register(ctx context.Context, info WorkerInfo) (WorkerID, error)
	// Heartbeat keeps the worker alive and looks at its queues in the same
	// statement. [WorkerLost] means the worker was declared lost: whatever it
	// holds will run elsewhere, and it must register anew.
	Heartbeat(ctx context.Context, beat Heartbeat) (HeartbeatReply, error)
	// Unregister ends a registration. What the worker still holds is rescued.
	Unregister(ctx context.Context, worker WorkerID) error
	// Claim hands out up to req.Max messages to a worker and does not block.
	// It may be repeated with the same number after its answer was lost, and
	// then returns what that number already has. req.Number must be above all
	// numbers the worker used before, else.
	Claim(ctx context.Context, req ClaimRequest) (ClaimReply, error)
	// Unsettled lists the worker's deliveries that are not settled, of claims
	// with numbers up to upTo: what its own memory does not know was handed
	// out in an answer that got lost, and must be released.
	Unsettled(ctx context.Context, worker WorkerID, upTo int64) ([]DeliveryID, error)
	// Settle records outcomes, many in one round trip, and answers each in
	// order. An error means nothing is known of any of them; settling again
	// is safe and tells.
	Settle(ctx context.Context, settlements []Settlement) ([]SettleResult, error)
	// Receive hands out up to req.Max messages until a lease ends, to a
	// holder that is no worker. It does not block.
	Receive(ctx context.Context, req ReceiveRequest) (ReceiveReply, error)
	// Extend moves the lease ends of received deliveries to lease from now.
	Extend(ctx context.Context, deliveries []DeliveryID, lease time.Duration) ([]SettleResult, error)
}

// Admin is what operators do.
type Admin interface {
	QueueCreate(ctx context.Context, name string, options QueueOptions) error
	QueueDrop(ctx context.Context, name string) error
	// QueuePause lets claims and receives find nothing in the queue; what is
	// handed out can be settled, and sending goes on. QueueResume ends that
	// and wakes who sleeps. Doing either twice is no error. by says who asked.
	QueuePause(ctx context.Context, by, name string) error
	QueueResume(ctx context.Context, by, name string) error
	// QueueLimit gives a queue exactly these limits: those that are zero end. by
	// says who asked. A queue that was made to not look at keys cannot get limits
	// for each of them (Unsupported).
	QueueLimit(ctx context.Context, by, name string, limits QueueLimits) error
	// KeyPause lets claims and receives find nothing of a key of a queue that looks
	// at keys, for the subscriptions that it has then; other keys notice nothing. What is handed
	// out can be settled. KeyResume ends that. Doing either twice is no error. by
	// says who asked. Of other queues no key can be paused (Unsupported).
	KeyPause(ctx context.Context, by, queue, key string) error
	KeyResume(ctx context.Context, by, queue, key string) error
	// Queues lists queues with their counters; names limits it to those.
	Queues(ctx context.Context, names ...string) ([]QueueInfo, error)
	// Message tells a message's state and whole story per subscription.
	Message(ctx context.Context, id MessageID) (MessageInfo, error)
	// Messages lists messages, newest first. A search may be cut where it would
	// have to look at too many: then cutAt is not 0, what it found is all down to
	// that id, and older ones are found with that as Before.
	Messages(ctx context.Context, filter MessageFilter) (found []MessageInfo, cutAt MessageID, err error)
	// DeadLetters lists dead letters, newest first. A search may be cut where it
	// would have to look at too many, and is told as by Messages.
	DeadLetters(ctx context.Context, filter DeadLetterFilter) (found []DeadLetter, cutAt MessageID, err error)
	// Replay sends dead letters once more under their old ids and returns the
	// ids that were dead letters. What was erased stays. If none of the ids is a
	// dead letter that can be replayed, it is [NotFound], and nothing is changed.
	// by says who asked, which is recorded.
	Replay(ctx context.Context, by string, ids ...MessageID) ([]MessageID, error)
	// Discard removes dead letters and returns the ids that were; if none was, it
	// is [NotFound]. by says who asked, which is recorded.
	Discard(ctx context.Context, by string, ids ...MessageID) ([]MessageID, error)
	// ReplayMatching replays the newest dead letters that match, at most
	// filter.Limit of them, in one transaction. If next is not 0 there may be
	// more: they are chosen with next as Before, so that what dies again
	// meanwhile is not replayed again.
	ReplayMatching(ctx context.Context, by string, filter DeadLetterFilter) (were []MessageID, next MessageID, err error)
	// DiscardMatching discards as ReplayMatching replays.
	DiscardMatching(ctx context.Context, by string, filter DeadLetterFilter) (were []MessageID, next MessageID, err error)
	// Erase erases what is kept of messages that bear a term: the fact and the
	// times stay, the content goes. What is still to be delivered is told as
	// pending and left alone. It deals with the newest below before (0: all); if
	// next is not 0 there may be more, and it is called again with that.
	Erase(ctx context.Context, by, term string, before MessageID) (found []Erasure, next MessageID, err error)
	// Actions lists what operators did, newest first.
	Actions(ctx context.Context, filter ActionFilter) ([]Action, error)
	// Workers lists registered workers.
	Workers(ctx context.Context) ([]WorkerStatus, error)
	// Vitals tells how the store itself is, in numbers. It costs the same however
	// many messages wait.
	Vitals(ctx context.Context) (Vitals, error)
	// Doctor tells what is wrong or soon will be, faults first; nothing if all is well.
	Doctor(ctx context.Context) ([]Finding, error)
}

// Tokens is how callers of the HTTP API prove who they are.
type Tokens interface {
	// TokenAdd makes a token with the name, scopes, queues and end given, and
	// returns its secret, which cannot be asked for again. by says who asked.
	// The error is a Conflict if there is a token of that name.
	TokenAdd(ctx context.Context, by string, token Token) (secret string, err error)
	// TokenDrop ends a token. Servers refuse it within seconds.
	TokenDrop(ctx context.Context, by, name string) error
	// Tokens lists the tokens that were not dropped, by name.
	Tokens(ctx context.Context) ([]Token, error)
	// TokensInForce returns name, hash, scopes and queues of the tokens that were
	// neither dropped nor have expired, and whether a token was ever made. used
	// names those that somebody came with since the last call. A server asks
	// this about once a second while it is called.
	TokensInForce(ctx context.Context, used ...string) (tokens []Token, ever bool, err error)
	// DeliveryQueues tells the queue of each delivery in order, "" where it is
	// not known (any more).
	DeliveryQueues(ctx context.Context, deliveries ...DeliveryID) ([]string, error)
}

// Doorbell lets a process sleep until something was sent.
type Doorbell interface {
	// Sleep arms the wake-up for queue, then calls look: what was sent before
	// arming is found by look, what is sent after it rings. It may call look
	// again while it waits, never twice at the same time. If look finds nothing, Sleep waits until the bell rings, until the time that
	// look or [Doorbell.Wake] tells, or until ctx ends, and returns nil
	// unless ctx ended or look failed. Spurious returns are allowed. One
	// Sleep per queue at a time.
	Sleep(ctx context.Context, queue string, look func(ctx context.Context) (LookReply, error)) error
	// Wake ends the Sleep on queue, if there is one, in this process.
	Wake(queue string)
	// Close lets go of everything. It ends all Sleeps.
	Close()
}

// LookReply is what a look at a queue found.
type LookReply struct {
	// Found says there was something.
	Found bool
	// Handed is how many messages the look took, if it is a claim.
	Handed int
	// NextDue is how long until the next scheduled message or retry falls due,
	// or negative if none is known.
	NextDue time.Duration
	// AtLimit says that what waits waits for a limit of the queue, and not for
	// what is sent: until NextDue only what is settled changes that.
	AtLimit bool
}

// WorkerInfo describes a process that wants to be a worker.
type WorkerInfo struct {
	// Name tells people which process this is, for example "host/pid".
	Name string
	// Lease is how long the worker lives without a heartbeat.
	Lease time.Duration
	// Version is the program's version.
	Version string
}

// QueueRef names a subscription of a queue. An empty Subscription means
// [DefaultSubscription].
type QueueRef struct {
	Queue        string
	Subscription string
}

// Heartbeat keeps a worker alive.
type Heartbeat struct {
	Worker WorkerID
	// Queues are looked at on the way.
	Queues []QueueRef
}

// HeartbeatReply is what a heartbeat saw on the way.
type HeartbeatReply struct {
	// Blind says that the worker is kept alive and that nothing could be looked
	// at: all else says nothing.
	Blind bool
	// Looks answers Heartbeat.Queues in order.
	Looks []LookReply
	// Maintain says that messages flowed since the last round of upkeep.
	Maintain bool
	// Rescue says that some worker's heartbeat is overdue or a lease ended.
	Rescue bool
	// RescueIn is how long it is until the first lease of another worker ends that
	// does not beat meanwhile, above zero; zero if there is none, or Rescue is set.
	RescueIn time.Duration
	// TickIn is how long it is until a schedule ticks, as in [TickReply].
	TickIn time.Duration
}

// MaintainReply is what a round of upkeep tells.
type MaintainReply struct {
	// More says that another round at once would find work.
	More bool
	// Flowed says that messages were sent, handed out or settled since the last round of
	// any process, as far as the store knows.
	Flowed bool
	// ClockSetBack says that the store's clock was found to have been set back
	// since the last round of any process. It is told once.
	ClockSetBack bool
	// Rescued is how many deliveries of lost holders and ended leases the round
	// handed out anew.
	Rescued int
}

// ClaimRequest asks for messages on behalf of a worker.
type ClaimRequest struct {
	Worker WorkerID
	// Number is the worker's own ascending number of this request.
	Number int64
	QueueRef
	// Max is the most messages wanted, 1 to [MaxPlaces] per track.
	Max int
	// Single asks for deliveries that are settled one by one inside
	// transactions of the handler's own.
	Single bool
	// Idle says that nothing else is running in the process, so that a
	// message that must run alone may be handed out.
	Idle bool
}

// ClaimReply is what was handed out.
type ClaimReply struct {
	Deliveries []RawDelivery
	// NextDue is as in [LookReply]; meaningful when Deliveries is empty.
	NextDue time.Duration
	// WantsIdle says that a message waits that must run alone: finish what
	// runs, then claim with Idle.
	WantsIdle bool
	// Limits says that what is handed out counts against limits: a claim should
	// ask for no more than can be started at once.
	Limits bool
	// AtLimit says that nothing was handed out for the queue's own limits are
	// reached: what is sent until NextDue changes nothing.
	AtLimit bool
	// FreedBySettle says that a settle may free a place where AtLimit is set, and that the
	// engine may take a while to tell of it: look again after a settle of your own.
	FreedBySettle bool
	// InOrder says that the queue is ordered: of messages with one key the next
	// may start only when the one before it is done, in the order in which they
	// were handed out, over all claims. Where one is not done, those of its key
	// that were handed out by claims begun before that was settled must be
	// released.
	InOrder bool
}

// ReceiveRequest asks for messages until a lease ends.
type ReceiveRequest struct {
	QueueRef
	// Max is the most messages wanted, 1 to 1,000.
	Max int
	// Lease is how long they are held, above zero and at most 12 h.
	Lease time.Duration
}

// ReceiveReply is what was handed out until a lease ends.
type ReceiveReply struct {
	Deliveries []RawDelivery
	// NextDue and AtLimit are as in [LookReply]; meaningful when Deliveries is
	// empty. Others may be reading a part of the queue, of which nothing is told:
	// whoever waits looks again now and then.
	NextDue time.Duration
	AtLimit bool
}

// QueueOptions are a queue's settings. Zero values mean the default.
type QueueOptions struct {
	// MaxAttempts is how often a message is tried (default 20, at most 1,000).
	MaxAttempts int
	// BackoffBase is the upper bound of the wait before the second attempt;
	// each further attempt doubles it (default 1 s). Full jitter applies.
	BackoffBase time.Duration
	// BackoffMax bounds the wait (default 1 h, at most 365 days); it is not below
	// BackoffBase.
	BackoffMax time.Duration
	// Timeout bounds one run of a handler (default 30 s, at most 365 days).
	Timeout time.Duration
	// MaxPayload bounds payloads in bytes (default 1 MiB, at most 32 MiB).
	MaxPayload int
	// Lanes is how many parts SQL receivers can read side by side (default 1,
	// at most 64). With more than one, a queue that is not ordered keeps no
	// order. Of an ordered queue (default 8) it is how many workers can read it.
	Lanes int
	// Mode says how often a message may be handed out (default [AtLeastOnce]).
	// [AtMostOnce] excludes MaxAttempts and Backoff: nothing is tried again.
	Mode Mode
	// Retention is how long settled messages can be looked up beyond the time
	// that the ring has room for them; 0: no longer.
	Retention time.Duration
	// RetainPayload keeps payloads that long, too. It needs Retention.
	RetainPayload bool
	// Ordered keeps the messages of each key strictly first in, first out,
	// through retries and a worker's death. Each message needs a key then.
	Ordered bool
	// StopOnDead stops a key of an ordered queue at a message that is dead, until
	// that is replayed or discarded. By default the key goes on.
	StopOnDead bool
	// Fair lets the keys of a queue take turns: however many messages of one key
	// wait, those of the others do not wait for them.
	Fair bool
	// Limits bound how much is handed out (default: no bounds).
	Limits QueueLimits
}

// QueueLimits bound how much of a queue is handed out, over all processes
// together and for each subscription by itself. What is over a limit waits: no
// attempt is counted and no lease runs meanwhile. Zero values: no bound.
type QueueLimits struct {
	// Concurrency bounds how many messages are handed out and not settled (at
	// most 100,000). A queue that hands out at most once has none.
	Concurrency int
	// RateLimit bounds how many messages are handed out in how long.
	RateLimit Rate
	// KeyConcurrency bounds how many messages of each key are handed out and not
	// settled. Messages without a key are not bounded.
	KeyConcurrency int
	// KeyRateLimit bounds how many messages of each key are handed out in how
	// long.
	KeyRateLimit Rate
}

// Mode is what a queue promises of each message.
type Mode string

// The modes (docs/guarantees.md).
const (
	AtLeastOnce Mode = "at_least_once" // handed out until it was settled
	AtMostOnce  Mode = "at_most_once"  // handed out once, and settled by that
)

// QueueInfo is a queue with its counters. Counts are as of CountedAt.
type QueueInfo struct {
	Name      string
	Options   QueueOptions
	CreatedAt time.Time
	// PausedAt is since when the queue is paused; zero while it is not.
	PausedAt time.Time
	// PausedKeys are the keys that are paused, in order; the first 100.
	PausedKeys []string
	// Subscriptions holds the counters per subscription.
	Subscriptions []SubscriptionInfo
}

// Vitals is how a store is. An engine leaves zero what it has not.
type Vitals struct {
	// SlotsFree of the ring's slots can take new messages; SlotsWanted is how
	// many should be free. SlotAge is how long the oldest one in use has been.
	SlotsFree, SlotsWanted int
	SlotAge                time.Duration
	// Workers beat in time; OverdueWorkers missed their lease and will be declared
	// lost. HeartbeatAge is the longest time since one of them beat.
	Workers, OverdueWorkers int
	HeartbeatAge            time.Duration
	// Doorbells is how many processes hold a connection to be woken by.
	Doorbells int
	// UpkeepAge is the time since the last round of upkeep.
	UpkeepAge time.Duration
}

// SubscriptionInfo counts one subscription's messages.
type SubscriptionInfo struct {
	Name string
	// Filter and MaxLag are as in [SubscriptionOptions].
	Filter Filter
	MaxLag time.Duration
	// Depth is how many messages wait, scheduled ones and retries included.
	Depth int64
	// InFlight is how many are handed out and not settled.
	InFlight int64
	// Dead is how many dead letters there are.
	Dead int64
	// Totals since the queue was made.
	Sent, Done, Retried, Lost int64
	// Withdrawn counts what was cancelled, moved to another time, purged, or taken
	// for MaxLag before it was handed out, since the queue was made.
	Withdrawn int64
	// Per second, over the last interval of counting.
	SentPerSecond, DonePerSecond float64
	// OldestAge is the age of the oldest message that waits and may be handed
	// out; zero if none.
	OldestAge time.Duration
	// CountedAt is when the counts were taken.
	CountedAt time.Time
}

// MessageInfo is a message as people look at it.
type MessageInfo struct {
	ID          MessageID
	Queue       string
	Key         string
	Kind        string
	Headers     map[string]string
	Reference   string
	Terms       []string
	ContentType string
	// Payload is absent in listings, and where it was erased or not retained.
	Payload   []byte
	CreatedAt time.Time
	// ErasedAt is when its content was erased; zero if it was not.
	ErasedAt time.Time
	// Subscriptions tells the state for each.
	Subscriptions []MessageState
}

// MessageState is where a message stands for one subscription.
type MessageState struct {
	Subscription string
	State        State
	// DueAt is when it may be handed out next, where that lies ahead.
	DueAt time.Time
	// Attempts tells every attempt, oldest first.
	Attempts []Attempt
}

// MessageFilter selects messages. Empty fields select all.
type MessageFilter struct {
	Queue     string
	Reference string
	Key       string
	Term      string
	State     State
	// Before lists only messages with lower ids, for paging.
	Before MessageID
	// Limit is at most 1,000; 0 means 100.
	Limit int
}

// DeadLetterFilter selects dead letters. Empty fields select all.
type DeadLetterFilter struct {
	// All says that every dead letter is meant. Replaying and discarding refuse a
	// filter that neither says so nor selects by a field.
	All   bool
	Queue string
	// Subscription needs Queue.
	Subscription string
	Kind         string
	Key          string
	Reference    string
	// Term is one of the message's terms.
	Term string
	// Error is a part of the last error's text, A to Z in any case.
	Error string
	// DiedFrom and DiedBefore bound the time of death; from is included.
	DiedFrom, DiedBefore time.Time
	// IDs selects these only.
	IDs []MessageID
	// Before lists only messages with lower ids, for paging.
	Before MessageID
	// Limit is at most 1,000; 0 means 100.
	Limit int
}

// DeadLetter is a message that failed for good.
type DeadLetter struct {
	ID           MessageID
	Queue        string
	Subscription string
	Key          string
	Kind         string
	Headers      map[string]string
	Reference    string
	Terms        []string
	ContentType  string
	Payload      []byte
	CreatedAt    time.Time
	DiedAt       time.Time
	// Error is the last error.
	Error string
	// Attempts tells every attempt, oldest first.
	Attempts []Attempt
	// ErasedAt is when its content was erased; zero if it was not.
	ErasedAt time.Time
}

// Erasure is what became of one message that was to be erased.
type Erasure struct {
	MessageID MessageID
	Queue     string
	// Pending says that it is still to be delivered, and was left as it is.
	Pending bool
}

// Action is the record of what an operator did.
type Action struct {
	// ID counts up with time.
	ID int64
	At time.Time
	// By is who asked: a name that was given, or the database's user.
	By string
	// Action is one word, such as replay or discard.
	Action string
	// Queue and MessageID say what it was done to; empty where that does not apply.
	Queue     string
	MessageID MessageID
	// Details is a JSON object of what else there is to say, or nil.
	Details json.RawMessage
}

// ActionFilter selects records of actions. Empty fields select all.
type ActionFilter struct {
	Queue     string
	MessageID MessageID
	// Before lists only records with lower ids, for paging.
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

// SinkResult answers one delivery of a batch.
type SinkResult struct {
	// Err is nil when delivered. [Permanent] rejects for good, [RetryAfter]
	// says when to try again, anything else is retried with backoff.
	Err error
	// Receipt is JSON to keep with the outcome, also of a failed attempt. The
	// next attempt finds it in its story.
	Receipt json.RawMessage
	// Terms are words to find the message by, as [Settlement.Terms].
	Terms []string
}

// Sink delivers to the outside. Package sinktest holds what every sink must do.
type Sink interface {
	// Deliver delivers a batch and answers each in order, with exactly one
	// result per delivery. It must return soon after ctx ends, and must only
	// answer nil for what the outside has confirmed. Safe for concurrent use.
	Deliver(ctx context.Context, batch []RawDelivery) []SinkResult
	// Close releases connections.
	Close() error
}
