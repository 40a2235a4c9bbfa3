package main

import (
	"fmt"
	"strings"
)

// claimBound is the least ratio of the worker's claims to those of the raw client.
const claimBound = 0.7

type report struct {
	Duration    string    `json:"duration"`
	Rate        int       `json:"rate"`
	AckWait     string    `json:"ack_wait"`
	Schedules   int       `json:"schedules"`
	Retention   string    `json:"retention"`
	ClaimRatios []float64 `json:"claim_ratios"`
	ClaimRatio  float64   `json:"claim_ratio"`
	Faults      faults    `json:"faults"`
	*findings
	Passed bool `json:"passed"`
}

// words is the report in words.
func (r *report) words() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("Messages were sent for %s at up to %d a second, with an AckWait of %s and %d schedules in the stream, whose retention is %s.", r.Duration, r.Rate, r.AckWait, r.Schedules, r.Retention)
	line("Faults: %d leaders killed, all servers killed %d times, %d rolling restarts, %d followers cut off, %d workers frozen.",
		r.Faults.LeadersKilled, r.Faults.AllKilled, r.Faults.RollingRestarts, r.Faults.FollowersCut, r.Faults.WorkersFrozen)
	line("Confirmed sends: %d; without a known outcome: %d; runs: %d; copies of second deliveries: %d; retries: %d.",
		r.Confirmed, r.OutcomeUnknown, r.Runs, r.Copies, r.Retries)
	line("Lost: %d. Stuck: %d. Leaked: %d. Schedules lost: %d of %d.", r.Lost, r.Stuck, r.Leaked, r.SchedulesLost, r.Schedules)
	line("Doubles: %d (lease ended: %d, acknowledgment unconfirmed: %d, plain send repeated: %d, unexplained: %d).",
		r.Doubles, r.LeaseEnded, r.Unconfirmed, r.SentAgain, r.Unexplained)
	line("Repeated batches: %d, of which %d were stored again.", r.Repeats, r.RepeatsAccepted)
	line("Claims: %.2f of the raw client (rounds: %.2f; required: %.1f).", r.ClaimRatio, r.ClaimRatios, claimBound)
	for _, e := range r.Examples {
		line("- %s", e)
	}
	verdict := "The rule is kept."
	if !r.Passed {
		verdict = "The rule is broken."
	}
	line("%s", verdict)
	return b.String()
}
