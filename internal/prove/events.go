package prove

import "github.com/posthaste-mq/posthaste/internal/history"

// The kinds of events besides those of package history.
const (
	// Began says that the run begins.
	Began history.Kind = "began"
	// Intent says that a sender is about to send Count messages under Token.
	Intent history.Kind = "intent"
	// Refused says that the send failed, so that none of its messages may be delivered.
	Refused history.Kind = "refused"
	// RolledBack says that the sender rolled its transaction back, with the same consequence.
	RolledBack history.Kind = "rolled back"
	// Unknown says that the sender got no answer: its messages may be delivered or not.
	Unknown history.Kind = "unknown"
	// Settled says that the database confirmed Count acknowledgments of this worker.
	Settled history.Kind = "settled"
	// Struck says that a fault of the kind Note begins. Whom is the process, Count the number
	// of messages that were in flight, and Token names the fault.
	Struck history.Kind = "struck"
	// Down says that the last process of the target of the fault Token is gone.
	Down history.Kind = "down"
	// Healed says that the target of the fault Token runs again.
	Healed history.Kind = "healed"
	// Calm says that no fault and no send follows.
	Calm history.Kind = "calm"
)

// Fault is a kind of fault.
type Fault string

// The kinds of faults.
const (
	KillWorker   Fault = "worker killed"
	KillSender   Fault = "sender killed"
	KillDatabase Fault = "PostgreSQL killed"
)
