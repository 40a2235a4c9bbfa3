package prove

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Report is the account of a proof.
type Report struct {
	// Seed, Workers and Rate are the parameters of the run.
	Seed    uint64  `json:"seed"`
	Workers int     `json:"workers"`
	Rate    float64 `json:"rate"`
	// Took is the time from the first event to the last.
	Took duration `json:"took"`
	// Interrupted says that the run was ended early.
	Interrupted bool `json:"interrupted"`
	// Histories is the folder of the histories.
	Histories string `json:"histories"`

	// Attempted counts all messages that senders were about to send. Each is one of the next
	// four.
	Attempted    int `json:"attempted"`
	Acknowledged int `json:"acknowledged"`
	Refused      int `json:"refused"`
	RolledBack   int `json:"rolled_back"`
	// Unknown counts messages whose sender got no answer, and UnknownHandled those of them that
	// arrived. Both outcomes are allowed, but only for all messages of a transaction together.
	Unknown        int `json:"unknown"`
	UnknownHandled int `json:"unknown_handled"`

	// Handled counts messages that were handled, Lost those that were acknowledged and not
	// handled, and Ghosts those that were delivered although they were not sent.
	Handled int `json:"handled"`
	Lost    int `json:"lost"`
	Ghosts  int `json:"ghosts"`
	// Redelivered counts further runs of messages, and Doubled those of them that came after a
	// run that was handled to its end. Unexplained counts doubles that no fault explains.
	Redelivered int `json:"redelivered"`
	Doubled     int `json:"doubled"`
	Unexplained int `json:"unexplained"`

	Faults  []FaultReport `json:"faults"`
	Doubles []Double      `json:"doubles"`
	// Broken lists the promises that were broken, in words.
	Broken []string `json:"broken"`
}

// FaultReport is one fault and its consequences.
type FaultReport struct {
	Number int      `json:"number"`
	Kind   Fault    `json:"kind"`
	Whom   string   `json:"whom"`
	At     duration `json:"at"`
	// InFlight counts the messages that it was sending or handling.
	InFlight int `json:"in_flight"`
	// Doubled counts the messages that were handled twice because of it.
	Doubled int `json:"doubled"`
	// LastRedelivery is when the last message that it interrupted ran again, from the fault;
	// 0 if none had to.
	LastRedelivery duration `json:"last_redelivery"`
	// FlowedAfter is when the first message that was sent after the kill was handled, from the
	// moment at which the last killed process was gone; 0 if there was none.
	FlowedAfter duration `json:"flowed_after"`
}

// Double is a message that was handled twice.
type Double struct {
	Message string              `json:"message"`
	ID      posthaste.MessageID `json:"id"`
	First   string              `json:"first"`
	Second  string              `json:"second"`
	// Fault is the number of the fault that explains it; 0 without one.
	Fault int `json:"fault"`
}

// Kept reports whether every promise was kept.
func (r *Report) Kept() bool { return len(r.Broken) == 0 }

func (r *Report) broken(format string, args ...any) {
	r.Broken = append(r.Broken, fmt.Sprintf(format, args...))
}

// Words are the result in sentences.
func (r *Report) Words() []string {
	kills := map[Fault]int{}
	for _, f := range r.Faults {
		kills[f.Kind]++
	}
	words := []string{fmt.Sprintf("In %s, PostgreSQL was killed %s, a worker %s and a sender %s.",
		r.Took.text(), often(kills[KillDatabase]), often(kills[KillWorker]), often(kills[KillSender]))}
	if r.Lost == 0 {
		words = append(words, fmt.Sprintf("Nothing was lost: of %d messages that were acknowledged to their senders, each was handled.", r.Acknowledged))
	} else {
		words = append(words, fmt.Sprintf("LOST: of %d messages that were acknowledged to their senders, %s never handled.", r.Acknowledged, wereOf(r.Lost)))
	}
	switch {
	case r.Doubled == 0:
		words = append(words, "No message was handled twice.")
	case r.Unexplained == 0:
		words = append(words, fmt.Sprintf("%s handled twice, which at-least-once delivery allows: each time a kill came before the acknowledgment was stored.", were(r.Doubled)))
	default:
		words = append(words, fmt.Sprintf("UNEXPLAINED: %s handled twice, and no kill explains it for %d of them.", were(r.Doubled), r.Unexplained))
	}
	if r.Unknown > 0 {
		words = append(words, fmt.Sprintf("%s sent without an answer, because the sender or PostgreSQL was killed during the send: %d arrived and %d were never stored. Both are allowed.",
			were(r.Unknown), r.UnknownHandled, r.Unknown-r.UnknownHandled))
	}
	if n := r.Refused + r.RolledBack; n > 0 && r.Ghosts == 0 {
		words = append(words, fmt.Sprintf("%s refused or rolled back, and none of them was delivered.", were(n)))
	}
	return words
}

// duration is a time span, in seconds as JSON.
type duration time.Duration

// MarshalJSON implements [json.Marshaler].
func (d duration) MarshalJSON() ([]byte, error) {
	return json.Marshal(float64(time.Duration(d).Round(time.Millisecond)) / float64(time.Second))
}

func (d duration) text() string { return seconds(time.Duration(d)) }

// String returns the time span in seconds, or "-" for 0.
func (d duration) String() string {
	if d == 0 {
		return "-"
	}
	return d.text()
}

// seconds formats a time span.
func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// were begins a sentence about messages.
func were(n int) string {
	if n == 1 {
		return "1 message was"
	}
	return fmt.Sprintf("%d messages were", n)
}

// wereOf continues a sentence about messages.
func wereOf(n int) string {
	if n == 1 {
		return "1 was"
	}
	return fmt.Sprintf("%d were", n)
}

func often(n int) string {
	switch n {
	case 0:
		return "never"
	case 1:
		return "once"
	case 2:
		return "twice"
	}
	return fmt.Sprintf("%d times", n)
}
