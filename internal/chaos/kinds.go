package chaos

import "github.com/posthaste-mq/posthaste/internal/history"

// What the histories hold besides history.Started, Handled and Failed, which
// receivers write, and history.Sent, which bears the ids of a whole token.
const (
	// Of senders. An Intent without an answer is as good as Unsure.
	Intent     history.Kind = "intent"      // about to send Count messages as Token to Queue, with Key (of Deduped the dedupe key), held back for Took
	Refused    history.Kind = "refused"     // the answer says that nothing was stored
	RolledBack history.Kind = "rolled back" // the sender rolled its transaction back
	Unsure     history.Kind = "unsure"      // the answer was lost
	Ticked     history.Kind = "ticked"      // it was sent by a schedule; nobody writes this

	// Of receivers. Of the shipped worker and the shipped relay their other side writes:
	// a mail server from the mail to its answer, and the proxy before the broker from
	// the message to its confirm.
	Claimed history.Kind = "claimed" // Count messages of Queue were handed to the process, which starts them when it can
	Damaged history.Kind = "damaged" // a payload is not what was sent
	Effect  history.Kind = "effect"  // a row that a handler's transaction left behind or a relayed message that arrived, read at the end; or a mail that arrived

	// Of the rig.
	Born    history.Kind = "born"     // process Whom starts: Note is its role, Took its lease, Count what it may hold
	Asked   history.Kind = "asked"    // process Whom is asked to end in order: it takes nothing more
	Died    history.Kind = "died"     // process Whom is gone: Note is one of the deaths
	Struck  history.Kind = "struck"   // the fault Token begins: Note is its kind, Whom whom it strikes, "" is everybody
	Healed  history.Kind = "healed"   // the fault Token is over: it struck Count, and became Note
	Planned history.Kind = "planned"  // the run is to take Took
	Wanted  history.Kind = "wanted"   // the fault Note must strike something that is in flight
	LeftOut history.Kind = "left out" // the fault Note is not brought about in this run, for Key; Count is 1 where that was asked for
	Memory  history.Kind = "memory"   // process Whom has Count bytes of resident memory
	Stalled history.Kind = "stalled"  // the whole machine stood still for Took
	Began   history.Kind = "began"    // the schedule's first tick is Note
	Rests   history.Kind = "rests"    // the schedule was stopped at Note, by the clock that it goes by
	Calm    history.Kind = "calm"     // no faults any more, and nobody sends
	Drained history.Kind = "drained"  // nothing waits any more
	Left    history.Kind = "left"     // Count of Note were left in the ledger at the end
	Turned  history.Kind = "turned"   // the ring went on Count times
)

// How a process died.
const (
	Killed = "killed" // by the rig, with SIGKILL
	Ended  = "ended"  // in order, as it was asked to
	Failed = "failed" // by itself
)

// Crashed is what became of a store whose disk was full, if it did not survive that.
const Crashed = "crashed"

// nature is what a kind of fault can bring about.
type nature int

const (
	harmless nature = iota // nothing that a receiver may notice
	death                  // what the process had in flight runs again elsewhere
	silence                // so it does if this lasts for about the lease
	outage                 // silence of the store, for everybody
	crash                  // an outage that claims which were not flushed do not survive
)

// Fault is a kind of fault.
type Fault string

// The kinds of faults, in the order of reports.
const (
	KillWorker   Fault = "worker killed"
	KillSender   Fault = "sender killed"
	KillServer   Fault = "HTTP server killed"
	KillPostgres Fault = "PostgreSQL killed"
	Immediate    Fault = "PostgreSQL shut down at once"
	Fast         Fault = "PostgreSQL shut down in order"
	DiskFull     Fault = "disk full"
	KillRedis    Fault = "Redis killed"
	ShutRedis    Fault = "Redis shut down in order"
	FullMemory   Fault = "Redis out of memory"
	Pause        Fault = "process stopped for a while"
	LongPause    Fault = "process stopped for longer than its lease"
	Cut          Fault = "connections cut"
	CutStatement Fault = "cut in the middle of a statement"
	CutAnswer    Fault = "cut between a commit and its answer"
	CutReply     Fault = "cut in the middle of an answer"
	HalfOpen     Fault = "connections half open"
	Slow         Fault = "connections slowed"
	Terminate    Fault = "backends terminated"
	Listener     Fault = "listening backend terminated"
	Heartbeat    Fault = "heartbeat's backend terminated"
	Snapshot     Fault = "long open snapshot"
	Backup       Fault = "locks of a backup"
	Migrate      Fault = "migrations run again"
	Rewrite      Fault = "append-only file rewritten"
	Replace      Fault = "workers replaced in turn"
	Clock        Fault = "client's clock a minute off"
	KillBroker   Fault = "broker killed"
	CutBroker    Fault = "connections to the broker cut"
	CutConfirm   Fault = "cut between publishing and the confirm"
	BrokerAlarm  Fault = "broker's disk alarm"
	RefuseMails  Fault = "mails refused for now"
	CutMails     Fault = "cut between a mail and its answer"
)

// natures says of every kind what it can bring about.
var natures = map[Fault]nature{
	KillWorker: death, KillSender: death, KillServer: harmless,
	KillPostgres: crash, Immediate: crash, Fast: outage, DiskFull: crash,
	// What appendonly promises: what Redis has written outlives its process.
	KillRedis: outage, ShutRedis: outage, FullMemory: harmless,
	Pause: silence, LongPause: silence,
	Cut: harmless, CutStatement: harmless, CutAnswer: harmless, CutReply: harmless, HalfOpen: silence, Slow: silence,
	Terminate: harmless, Listener: harmless, Heartbeat: harmless,
	Snapshot: harmless, Backup: harmless, Migrate: harmless, Rewrite: harmless, Replace: harmless, Clock: harmless,
	KillBroker: harmless, CutBroker: harmless, CutConfirm: harmless, BrokerAlarm: harmless,
	RefuseMails: harmless, CutMails: harmless,
}

// only is the queue whose messages alone can notice a kind of fault, for it strikes what
// they are delivered to; "" for all others.
func only(f Fault) string {
	switch f {
	case KillBroker, CutBroker, CutConfirm, BrokerAlarm:
		return Relayed
	case RefuseMails, CutMails:
		return Mails
	}
	return ""
}

// unnoticed says that a kind of fault costs nobody an attempt but those of [only].
func unnoticed(f Fault) bool {
	switch f {
	case FullMemory, Snapshot, Backup, Migrate, Rewrite, Replace, Clock:
		return true
	}
	return only(f) != ""
}

// leasesRunOn says that a worker's lease does not begin anew when an outage is over.
func leasesRunOn(f Fault) bool { return f == KillRedis || f == ShutRedis }

// The queues of a run, one for each promise.
const (
	Plain   = "plain"
	Ordered = "ordered"
	Effects = "effects"
	Once    = "once" // at most once
	Mails   = "emails"
	Relayed = "relayed" // to a broker
	Shared  = "shared"  // with a further subscription, Audit
	Deduped = "deduped" // sent to with keys that several senders use
	Limited = "limited" // with limits
	Ticks   = "ticks"   // of a schedule
)

// Audit is the further subscription of Shared.
const Audit = "audit"

// subscriptions are those of a queue.
func subscriptions(queue string) []string {
	if queue == Shared {
		return []string{"", Audit}
	}
	return []string{""}
}

// The roles of processes.
const (
	roleServer       = "server"      // posthaste serve, as shipped
	roleMailWorker   = "mail-worker" // posthaste worker, as shipped
	roleRelay        = "relay"       // posthaste relay, as shipped
	roleSender       = "sender"
	roleSQLSender    = "sql-sender"
	roleHTTPSender   = "http-sender"
	roleWorker       = "worker"
	roleSQLReceiver  = "sql-receiver"
	roleHTTPReceiver = "http-receiver"
)

// workerRoles are those that run the runtime: the rig's own program, and the shipped one.
var workerRoles = []string{roleWorker, roleMailWorker, roleRelay}

// receives reports whether processes of a role take from several queues.
func receives(role string) bool {
	return role == roleWorker || role == roleSQLReceiver || role == roleHTTPReceiver
}

// needed is the queue without which a run has no process of a role.
var needed = map[string]string{roleMailWorker: Mails, roleRelay: Relayed}

// AllFaults are all kinds, in the order of reports.
func AllFaults() []Fault {
	return []Fault{KillWorker, KillSender, KillServer, KillPostgres, Immediate, Fast, DiskFull, KillRedis, ShutRedis, FullMemory, Pause, LongPause,
		Cut, CutStatement, CutAnswer, CutReply, HalfOpen, Slow, Terminate, Listener, Heartbeat,
		Snapshot, Backup, Migrate, Rewrite, Replace, Clock, KillBroker, CutBroker, CutConfirm, BrokerAlarm, RefuseMails, CutMails}
}
