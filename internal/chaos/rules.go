package chaos

import "time"

// Rule names a broken rule.
type Rule string

// The rules.
const (
	Lost        Rule = "lost"         // sent and acknowledged, and not handled
	Half        Rule = "half"         // only some messages of a transaction came
	Ghost       Rule = "ghost"        // rejected or rolled back, and handed out
	Invented    Rule = "invented"     // handed out, and not sent
	Mistaken    Rule = "mistaken"     // handed out with a different id than it was sent with
	Altered     Rule = "altered"      // its payload differs from the one sent
	Twice       Rule = "twice"        // run again, and no fault explains it
	Attempts    Rule = "attempts"     // run again under the same attempt
	TooMany     Rule = "too many"     // more run again, or lost, than can have been in flight
	Order       Rule = "order"        // of a key, started before its turn
	Early       Rule = "early"        // handed out before its time
	Together    Rule = "together"     // of a key, run at the same time
	NotOne      Rule = "not one"      // several messages came for a dedupe key or a tick, or senders got different ids
	NoTick      Rule = "no tick"      // a schedule skipped a tick
	OverLimit   Rule = "over limit"   // more ran at a time than a queue's limit allows
	OverRate    Rule = "over rate"    // more started in a period than a queue's rate allows
	NotOnce     Rule = "not once"     // an exactly-once effect happened never or more than once
	NotMailed   Rule = "not mailed"   // a relayed message arrived less often than it was confirmed, or more often than it was published
	MoreThan    Rule = "more than"    // at most once, and run more than once
	Behind      Rule = "left behind"  // rows are left in the ledger
	LateRescue  Rule = "late rescue"  // a dead worker's message ran again too late
	LateFlow    Rule = "late flow"    // a queue or a process resumed too late after the database was back
	Hung        Rule = "hung"         // a process did nothing for too long
	NoReason    Rule = "no reason"    // a send failed while no fault struck its sender
	NotDrained  Rule = "not drained"  // messages still waited when the time was over
	Quit        Rule = "quit"         // a process ended by itself
	StruckNone  Rule = "struck none"  // a kind of fault had no target
	NotTried    Rule = "not tried"    // a kind of fault was left out of a long run without a request to do so
	Stands      Rule = "stands"       // the ring did not advance in a long run
	Grows       Rule = "grows"        // the memory of a process, or of a role's processes, grew in a long run
	NothingDone Rule = "nothing done" // there was too little to check
)

// Violation is one broken guarantee.
type Violation struct {
	Rule Rule
	Text string
}

// Error implements error.
func (v Violation) Error() string { return string(v.Rule) + ": " + v.Text }

const (
	// resume is how soon everything must flow again after the database is back.
	resume = 5 * time.Second
	// skew is how much two clocks may differ in a second that both have measured.
	skew = 10 * time.Millisecond
	// rescue is how soon after its lease a dead worker's messages must run again.
	rescue = 3 * time.Second
)
