package chaos

import "github.com/posthaste-mq/posthaste/internal/history"

// Events of the histories besides history.Started, Handled and Failed, which receivers write,
// and history.Sent, which contains the ids of a whole token.
const (
	// Events of senders. An Intent without an answer counts as Unsure.
	Intent     history.Kind = "intent"      // about to send Count messages as Token to Queue, with Key (of Deduped the dedupe key), delayed by Took
	Refused    history.Kind = "refused"     // the answer says that nothing was stored
	RolledBack history.Kind = "rolled back" // the sender rolled its transaction back
	Unsure     history.Kind = "unsure"      // the answer was lost
	Ticked     history.Kind = "ticked"      // sent by a schedule; never written

	// Events of receivers. For the shipped worker and the shipped relay their peers write
	// them: a mail server from the mail to its answer, and the proxy in front of the broker
	// from the message to its confirm.
	Claimed history.Kind = "claimed" // Count messages of Queue were handed to the process, which starts them when it can
	Damaged history.Kind = "damaged" // the payload differs from the one sent
	Effect  history.Kind = "effect"  // a row of a handler's transaction or a relayed message that arrived, read at the end; or a mail that arrived

	// Events of the rig.
	Born    history.Kind = "born"     // process Whom starts: Note is its role, Took its lease, Count its maximum number of messages
	Asked   history.Kind = "asked"    // process Whom is asked to end gracefully: it takes no more messages
	Died    history.Kind = "died"     // process Whom has ended: Note is one of the deaths
	Struck  history.Kind = "struck"   // the fault Token begins: Note is its kind, Whom its target, "" is all
	Healed  history.Kind = "healed"   // the fault Token is over: it struck Count targets, with the outcome Note
	Planned history.Kind = "planned"  // the planned duration of the run is Took
	Wanted  history.Kind = "wanted"   // the fault Note must strike work in flight
	LeftOut history.Kind = "left out" // the fault Note is left out of this run because of Key; Count is 1 if that was requested
	Memory  history.Kind = "memory"   // process Whom has Count bytes of resident memory
	Stalled history.Kind = "stalled"  // the whole machine stalled for Took
	Began   history.Kind = "began"    // the schedule's first tick is Note
	Rests   history.Kind = "rests"    // the schedule was stopped at Note, by its own clock
	Calm    history.Kind = "calm"     // no more faults and no more sends
	Drained history.Kind = "drained"  // no messages wait any more
	Left    history.Kind = "left"     // Count of Note were left in the ledger at the end
	Turned  history.Kind = "turned"   // the ring advanced Count times
)

// How a process ended.
const (
	Killed = "killed" // by the rig, with SIGKILL
	Ended  = "ended"  // gracefully, when asked
	Failed = "failed" // by itself
)

// Crashed is the outcome of a full disk if the store did not survive it.
const Crashed = "crashed"

// nature is what a kind of fault can cause.
type nature int

const (
	harmless nature = iota // nothing that a receiver may notice
	death                  // the process's messages in flight run again elsewhere
	silence                // the same, if it lasts for about the lease
	outage                 // silence of the store, seen by all processes
	crash                  // an outage that unflushed claims do not survive
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

// natures maps every kind to its possible effect.
var natures = map[Fault]nature{
	KillWorker: death, KillSender: death, KillServer: harmless,
	KillPostgres: crash, Immediate: crash, Fast: outage, DiskFull: crash,
	// With appendonly, written data outlives Redis's process.
	KillRedis: outage, ShutRedis: outage, FullMemory: harmless,
	Pause: silence, LongPause: silence,
	Cut: harmless, CutStatement: harmless, CutAnswer: harmless, CutReply: harmless, HalfOpen: silence, Slow: silence,
	Terminate: harmless, Listener: harmless, Heartbeat: harmless,
	Snapshot: harmless, Backup: harmless, Migrate: harmless, Rewrite: harmless, Replace: harmless, Clock: harmless,
	KillBroker: harmless, CutBroker: harmless, CutConfirm: harmless, BrokerAlarm: harmless,
	RefuseMails: harmless, CutMails: harmless,
}

// only returns the only queue whose messages can be affected by a kind of fault, because it
// strikes their target; "" for all other kinds.
func only(f Fault) string {
	switch f {
	case KillBroker, CutBroker, CutConfirm, BrokerAlarm:
		return Relayed
	case RefuseMails, CutMails:
		return Mails
	}
	return ""
}

// unnoticed reports whether a kind of fault costs an attempt only in the queue of [only].
func unnoticed(f Fault) bool {
	switch f {
	case FullMemory, Snapshot, Backup, Migrate, Rewrite, Replace, Clock:
		return true
	}
	return only(f) != ""
}

// leasesRunOn reports whether a worker's lease continues to run during an outage.
func leasesRunOn(f Fault) bool { return f == KillRedis || f == ShutRedis }

// The queues of a run, one for each guarantee.
const (
	Plain   = "plain"
	Ordered = "ordered"
	Effects = "effects"
	Once    = "once" // at most once
	Mails   = "emails"
	Relayed = "relayed" // to a broker
	Shared  = "shared"  // with a second subscription, Audit
	Deduped = "deduped" // messages with dedupe keys that several senders use
	Limited = "limited" // with limits
	Ticks   = "ticks"   // of a schedule
)

// Audit is the second subscription of Shared.
const Audit = "audit"

// subscriptions returns the subscriptions of a queue.
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

// workerRoles are the roles with the worker runtime: the rig's own program, and the shipped
// one.
var workerRoles = []string{roleWorker, roleMailWorker, roleRelay}

// receives reports whether processes of a role receive from several queues.
func receives(role string) bool {
	return role == roleWorker || role == roleSQLReceiver || role == roleHTTPReceiver
}

// needed is the queue without which a run has no process of a role.
var needed = map[string]string{roleMailWorker: Mails, roleRelay: Relayed}

// AllFaults returns all kinds, in the order of reports.
func AllFaults() []Fault {
	return []Fault{KillWorker, KillSender, KillServer, KillPostgres, Immediate, Fast, DiskFull, KillRedis, ShutRedis, FullMemory, Pause, LongPause,
		Cut, CutStatement, CutAnswer, CutReply, HalfOpen, Slow, Terminate, Listener, Heartbeat,
		Snapshot, Backup, Migrate, Rewrite, Replace, Clock, KillBroker, CutBroker, CutConfirm, BrokerAlarm, RefuseMails, CutMails}
}
