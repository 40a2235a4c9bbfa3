package posthaste

// WithAttempt returns a story with one more attempt, as every engine stores it. The new attempt
// gets the checkpoint of the one before it, unless it has its own: only the newest has one. A
// released attempt replaces an earlier release of the same attempt. Of all logs the newest
// [MaxLogBytes] stay.
func WithAttempt(story []Attempt, next Attempt) []Attempt {
	all := append(make([]Attempt, 0, len(story)+1), story...)
	if n := len(all) - 1; n >= 0 {
		if next.Checkpoint == nil {
			next.Checkpoint = all[n].Checkpoint
		}
		all[n].Checkpoint = nil
		if next.Outcome == OutcomeReleased && all[n].Outcome == OutcomeReleased && next.Attempt == all[n].Attempt {
			next.Log = all[n].Log + next.Log
			all = all[:n]
		}
	}
	all = append(all, next)
	room := MaxLogBytes
	for i := len(all) - 1; i >= 0; i-- {
		all[i].Log = LogTail(all[i].Log, room)
		room -= len(all[i].Log)
	}
	return all
}

// NewestCheckpoint removes, in place, every checkpoint of a message's attempts but the newest one,
// and returns the attempts. Engines show a running attempt behind the story with it.
func NewestCheckpoint(attempts []Attempt) []Attempt {
	found := false
	for i := len(attempts) - 1; i >= 0; i-- {
		if found {
			attempts[i].Checkpoint = nil
		}
		found = found || attempts[i].Checkpoint != nil
	}
	return attempts
}
