package posthaste

import (
	"context"
	"time"
)

// Sender stores messages.
type Sender interface {
	// Send stores the messages in one transaction and returns what became of each, in order.
	// If one message is invalid, none is stored, and the error names the field. A
	// [CodeOutcomeUnknown] error means that the response was lost.
	Send(ctx context.Context, messages ...Message) ([]Sent, error)
}

// Engine stores messages and hands them out. It has the methods that clients and workers need. A method that
// returns nil has committed its changes. All methods are safe for concurrent use, and all times
// are the store's. Package enginetest has the tests that every engine must pass.
type Engine interface {
	Sender
	// SendOnce is Send for a request that may be repeated. With the same scope, key and
	// digest it stores nothing and returns the same result and replayed, even if both requests
	// run concurrently. With another digest the error is [CodeKeyReused]. A rejected request
	// may be repeated with other content.
	SendOnce(ctx context.Context, request Idempotency, messages ...Message) (sent []Sent, replayed bool, err error)
	// Register registers a worker, which [Engine.Heartbeat] keeps alive.
	Register(ctx context.Context, info WorkerInfo) (WorkerID, error)
	// Heartbeat keeps the worker alive and looks at its queues in the same statement.
	// [CodeWorkerLost] means that the worker was declared lost: its deliveries run
	// elsewhere, and it must register again.
	Heartbeat(ctx context.Context, beat Heartbeat) (HeartbeatReply, error)
	// Unregister ends a registration. The worker's unsettled deliveries are rescued.
	Unregister(ctx context.Context, worker WorkerID) error
	// Claim hands out messages to a worker. It does not block. If its response was lost it
	// may be repeated with the same number, and then returns the deliveries of the first
	// call that are not settled; those of an at-most-once queue are lost. Otherwise
	// req.Number must be above all earlier numbers of the worker.
	Claim(ctx context.Context, req ClaimRequest) (ClaimReply, error)
	// Unsettled lists the worker's unsettled deliveries of claims with numbers up to upTo.
	// The worker releases those it does not know: their response was lost.
	Unsettled(ctx context.Context, worker WorkerID, upTo int64) ([]DeliveryID, error)
	// Receive hands out up to req.Max messages with a lease, to a consumer that is not a
	// worker. It does not block.
	Receive(ctx context.Context, req ReceiveRequest) (ReceiveReply, error)
	// Settle records outcomes, many in one round trip, and returns a result for each, in
	// order. After an error the state of all of them is unknown; settling again is safe
	// and returns it.
	Settle(ctx context.Context, settlements []Settlement) ([]SettleResult, error)
	// Extend extends the leases of received deliveries, or records notes of any deliveries
	// that are handed out, or both. It returns a result for each, in order: Settled says that
	// the delivery is the caller's, and that its note is recorded. Of a note and whatever ends
	// the delivery at the same moment one comes first: a note that is recorded is seen by the
	// next attempt. Cancelled says that the message was cancelled meanwhile: it is extended, and
	// its note recorded, as for any other.
	Extend(ctx context.Context, req ExtendRequest) ([]SettleResult, error)
	// Report stores what a worker counted since its last report, for [Charts]. The store adds the
	// time, and the name and version of the worker's registration. Counts of queues and
	// subscriptions that do not exist are left out. The error is [CodeWorkerLost] if the worker is
	// not registered any more.
	Report(ctx context.Context, worker WorkerID, stats []HandlerStats) error
	// Queues lists queues with their counters: those with the names, or all.
	Queues(ctx context.Context, names ...string) ([]QueueInfo, error)
	// Doorbell opens a doorbell for one process. The caller closes it.
	Doorbell(ctx context.Context) (Doorbell, error)
	// Maintain does one step of each kind of upkeep in kinds. Any number of processes may
	// call it at any time; they divide the work.
	Maintain(ctx context.Context, kinds Upkeep) (MaintainReply, error)
	// Ready returns an error with a hint if the store cannot be used, for example because it
	// is unavailable or not migrated.
	Ready(ctx context.Context) error
	// Close releases the engine's connections if the engine opened them.
	Close()
}

// WorkerInfo describes a process that registers as a worker.
type WorkerInfo struct {
	// Name identifies the process to operators, for example "host/pid".
	Name string
	// Lease is how long the worker lives without a heartbeat.
	Lease time.Duration
	// Version is the program's version.
	Version string
	// Kinds has the kinds that the worker handles in each subscription in which it does not
	// handle all. Of the messages that were set aside, its claims get only those. The store
	// also uses it to tell kinds that no running worker handles.
	Kinds map[QueueRef][]string
	// Sinks are the subscriptions that the worker delivers to external systems, for operators.
	Sinks []WorkerSink
}

// WorkerSink is a subscription whose messages a worker delivers to an external system, as a relay
// does.
type WorkerSink struct {
	Queue        string `json:"queue"`
	Subscription string `json:"subscription"`
	// Destination names the external system, without secrets, in at most [MaxWordBytes]; empty
	// if it is unknown.
	Destination string `json:"destination,omitempty"`
}

// Heartbeat keeps a worker alive.
type Heartbeat struct {
	Worker WorkerID
	// Queues are the subscriptions that the heartbeat also looks at.
	Queues []QueueRef
	// State is shown to operators, see [WorkerStatus].
	State WorkerState
}

// WorkerState is what a worker does at one moment.
type WorkerState struct {
	// Concurrency is how many handlers the process may run at the same time, in all
	// subscriptions together.
	Concurrency int `json:"concurrency,omitempty"`
	// Loads has an entry for each subscription.
	Loads []WorkerLoad `json:"loads,omitempty"`
	// Running are the messages whose handlers have run longest, longest first, at most
	// [MaxRunningShown].
	Running []RunningMessage `json:"running,omitempty"`
}

// MaxRunningShown is the maximum number of running messages that a worker reports.
const MaxRunningShown = 10

// WorkerLoad is the work of a worker in one subscription.
type WorkerLoad struct {
	Queue        string `json:"queue"`
	Subscription string `json:"subscription"`
	// Concurrency is how many handlers may run at the same time, and Running how many do. One
	// call of a sink or batch handler counts once.
	Concurrency int `json:"concurrency"`
	Running     int `json:"running"`
	// Claimed is how many messages the worker has claimed and not started.
	Claimed int `json:"claimed"`
}

// RunningMessage is a message whose handler runs, or the first message of a call with several.
type RunningMessage struct {
	Message      MessageID `json:"message_id"`
	Queue        string    `json:"queue"`
	Subscription string    `json:"subscription"`
	Kind         string    `json:"kind,omitempty"`
	Attempt      int       `json:"attempt"`
	// Ran is how long the handler had run at the heartbeat.
	Ran time.Duration `json:"ran_ns"`
}

// HeartbeatReply is the result of a heartbeat.
type HeartbeatReply struct {
	// QueuesUnknown says that the heartbeat was recorded, but the queues could not be
	// examined: the other fields but Cancelled are unknown.
	QueuesUnknown bool
	// Looks has a result for each of Heartbeat.Queues, in order.
	Looks []LookReply
	// Maintain says that upkeep may have work: messages were sent, handed out or settled
	// since its last round.
	Maintain bool
	// Rescue says that a worker's heartbeat is overdue or a lease expired.
	Rescue bool
	// Cancelled has the worker's deliveries whose messages were cancelled while they were handed
	// out (see [MessageAdmin]), all of them each time; some may have ended. It is set even if
	// QueuesUnknown is.
	Cancelled []DeliveryID
	// RescueIn is the time until the first lease of another worker expires, unless that worker
	// sends a heartbeat before. Zero if no other worker has a lease, or if Rescue is set.
	RescueIn time.Duration
	// TickIn is the time until the next schedule ticks or the next pause ends, as in
	// [MaintainReply].
	TickIn time.Duration
}

// Upkeep is a set of kinds of upkeep.
type Upkeep uint8

// The kinds of upkeep.
const (
	// UpkeepRescue redelivers the unsettled messages of lost workers and expired leases, a
	// part at a time. Repeat it until MaintainReply.Rescued is 0.
	UpkeepRescue Upkeep = 1 << iota
	// UpkeepTicks sends the messages of schedules whose ticks are due, each exactly once, and
	// ends pauses whose end is reached, in bounded steps.
	UpkeepTicks
	// UpkeepSpace reclaims space, updates counters, and rescues as UpkeepRescue does.
	UpkeepSpace
)

// MaintainReply is the result of [Engine.Maintain]. Fields of kinds of upkeep that were not
// requested are zero.
type MaintainReply struct {
	// Rescued is how many deliveries of lost workers and expired leases became available
	// again.
	Rescued int
	// TicksSent counts messages of schedules, and TicksMissed ticks without a message.
	TicksSent, TicksMissed int
	// PausesEnded counts pauses whose end was reached, and which this call ended.
	PausesEnded int
	// TickIn is the time until the next tick or the next end of a pause, above zero even if one is
	// already due; zero if none is expected.
	TickIn time.Duration
	// More says that another step of UpkeepSpace would find work now.
	More bool
	// Flowed says that messages were sent, handed out or settled since the last
	// UpkeepSpace of any process, as far as the store knows.
	Flowed bool
	// ClockSetBack says that the store's clock was set back since the last UpkeepSpace of
	// any process. Only one call reports it.
	ClockSetBack bool
}

// ClaimRequest requests messages for a worker.
type ClaimRequest struct {
	Worker WorkerID
	// Number is the worker's ascending number of this request.
	Number int64
	QueueRef
	// Max is the maximum number of messages, 1 to [MaxPlaces] per track.
	Max int
	// Single requests deliveries that can be settled independently, each in its handler's
	// transaction.
	Single bool
	// AllowAlone says that a message that must run alone may be handed out, because nothing
	// else runs in the process.
	AllowAlone bool
}

// ClaimReply is the result of a claim.
type ClaimReply struct {
	Deliveries []RawDelivery
	// NextDue is as in [LookReply], if Deliveries is empty.
	NextDue time.Duration
	// AloneWaiting says that a message is waiting that must run alone: finish the running
	// messages, then claim with AllowAlone.
	AloneWaiting bool
	// Limits says that the queue limits deliveries in flight or their rate: claim only what
	// can start immediately.
	Limits bool
	// AtLimit says that a limit of the queue is reached: until NextDue, new messages cannot
	// be handed out.
	AtLimit bool
	// FreedBySettle, set together with AtLimit, says that a settlement may free capacity.
	// The wake-up for it may be late, so claim again after settling.
	FreedBySettle bool
	// InOrder says that the queue is ordered. Of the messages with one key, over all
	// claims, each may start only when the one before it is done, in the order in which
	// they were handed out. If one is not done, release those of its key from claims that
	// began before that was settled.
	InOrder bool
}

// ReceiveRequest requests messages with a lease.
type ReceiveRequest struct {
	QueueRef
	// Max is the maximum number of messages, 1 to 1,000.
	Max int
	// Lease is how long they are held, above zero and at most 12 h.
	Lease time.Duration
}

// ReceiveReply is the result of a receive.
type ReceiveReply struct {
	Deliveries []RawDelivery
	// NextDue and AtLimit are as in [LookReply], if Deliveries is empty. Another consumer
	// may be reading a part of the queue, which they do not cover: look again from time to
	// time.
	NextDue time.Duration
	AtLimit bool
}

// ExtendRequest requests longer leases, and records notes.
type ExtendRequest struct {
	Deliveries []DeliveryID
	// Lease is the time from now after which the leases end. With Notes it may be zero, which
	// extends none: a worker's deliveries have no leases of their own.
	Lease time.Duration
	// Notes, if not nil, has a note for each of Deliveries, of which one may occur several
	// times; the later note counts. A note that cannot be stored, or cannot be stored now, has
	// an Err in its result, and the others are recorded.
	Notes []Note
}

// Check returns a [CodeInvalid] error if the request as a whole is invalid.
func (r *ExtendRequest) Check() error {
	if r.Notes != nil && len(r.Notes) != len(r.Deliveries) {
		return Invalidf("notes", "there must be a note for each delivery: %d notes for %d deliveries", len(r.Notes), len(r.Deliveries))
	}
	if least := time.Duration(1); r.Notes == nil && r.Lease < least || r.Lease < 0 || r.Lease > 12*time.Hour {
		return Invalidf("lease", "lease must be above zero and at most 12h, got %s", r.Lease)
	}
	return nil
}
