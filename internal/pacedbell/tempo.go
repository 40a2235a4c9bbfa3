package pacedbell

import "time"

const (
	// denseGap is the gap between two wake-ups below which sends count as dense.
	denseGap = 5 * time.Millisecond
	// denseEnough is the sum of how much gaps must be shorter than denseGap before the process
	// polls: three or four tiny gaps in a row.
	denseEnough = 15 * time.Millisecond
	// calmGap is the gap between two finds above which sends count as calm. It is twice
	// denseGap, so that a steady load does not alternate.
	calmGap = 2 * denseGap
	// A process polls until the sum of how much gaps exceed calmGap reaches firstStay. If it
	// polls again within falseCalm, the traffic was not calm: its senders stall now and then,
	// or other processes take most of the messages. Then that sum grows by the factor
	// stayGrowth each time, up to longestStay. Otherwise such a process would ring most of the
	// time.
	firstStay, longestStay = 200 * time.Millisecond, 16 * time.Second
	falseCalm, stayGrowth  = 2 * time.Second, 8
	// A pause after a find is as long as the look took, within these bounds. While nothing is
	// found, pauses grow to emptyPause.
	shortestPause, longestPause = time.Millisecond, 5 * time.Millisecond
	emptyPause                  = 10 * time.Millisecond
	// From the fifth find in a row on, a pause is denseTimes as long, so that one look finds
	// many messages, which costs less. Short pauses every streakEnd finds show whether
	// messages are still that frequent: with long ones each look finds something.
	denseStreak, streakEnd, denseTimes = 4, 16, 3
	// After a round that took at least crowd messages, a pause is crowdTimes as long as the
	// look, up to emptyPause: at such rates a look costs more than the latency of a message
	// matters.
	crowd, crowdTimes = 16, 6
)

// tempo decides whether a process sleeps on the doorbell or polls. Both decisions use a
// cumulative sum of how far gaps are from a limit, which is never below zero: a single short
// gap in calm traffic changes nothing, and neither does a single stall in dense traffic.
type tempo struct {
	polling bool
	short   time.Duration // while sleeping: sum of how much gaps were shorter than denseGap
	long    time.Duration // while polling: sum of how much they were longer than calmGap
	stay    time.Duration // value of long that ends polling
	pause   time.Duration // before the next round of looks
	counted bool          // the current round has found something
	streak  int           // number of rounds in a row that found something
	handed  int           // number of messages taken in the current round
	crowded bool          // the current round, or the one before it, took many
	woken   time.Time     // when a message last ended a sleep
	left    time.Time     // when polling last ended
}

// woke records that a message ended a sleep of that length. The length does not include looks,
// which are slow on a busy machine whatever the traffic. But if a look took longer than
// denseGap and a message came before the process had slept for as long, the look counts: sends
// during such looks ring, and those rings make the looks even slower.
func (t *tempo) woke(now time.Time, slept, looking time.Duration) {
	gap := min(now.Sub(t.woken), slept)
	t.woken = now
	if t.polling {
		return // it fell asleep before that
	}
	if gap < denseGap {
		t.short += max(0, looking-denseGap)
	}
	if t.short = max(0, t.short+denseGap-gap); t.short < denseEnough {
		return
	}
	if now.Sub(t.left) < falseCalm {
		t.stay = min(stayGrowth*t.stay, longestStay)
	} else {
		t.stay = firstStay
	}
	t.polling, t.long, t.pause = true, 0, shortestPause
}

// round records that the next round of looks begins, waited after the last one. It ends
// polling if too little was found for too long.
func (t *tempo) round(now time.Time, waited time.Duration) {
	t.long += waited
	if t.streak++; !t.counted {
		t.streak = 0
	}
	t.counted, t.crowded, t.handed = false, t.handed >= crowd, 0
	t.pause = min(t.pause*3/2, emptyPause) // until something is found
	if t.long >= t.stay {
		t.end(now)
	}
}

// end ends polling. A single short gap is enough to poll again, so that few sends notify if
// this was a pause in dense traffic.
func (t *tempo) end(now time.Time) {
	t.polling, t.left, t.short = false, now, denseEnough-denseGap/2
}

// found records that the current round found something. Each round counts once, whatever the
// number of messages and queues.
func (t *tempo) found(handed int) {
	t.handed += handed
	t.crowded = t.crowded || t.handed >= crowd
	if !t.counted {
		t.counted = true
		t.long = max(0, t.long-calmGap)
	}
}

// lookTook sets the pause after a look that found something.
func (t *tempo) lookTook(took time.Duration) {
	longest := longestPause
	switch {
	case t.crowded:
		took *= crowdTimes
		longest = emptyPause
	case t.streak%streakEnd >= denseStreak:
		took *= denseTimes
	}
	t.pause = min(max(took, shortestPause), longest)
}
