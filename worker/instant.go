package worker

import "time"

// instant is a moment from which a lease is counted.
type instant struct {
	at   time.Time
	wall int64 // in ns
}

func (rt *runtime) moment() instant {
	t := time.Now()
	return instant{t, rt.wall(t)}
}

// since is the time that has passed by the clock by which more has. Go's monotonic clock
// stands still while the machine is suspended. What the kernel then adds to its clock of
// suspended time (CLOCK_BOOTTIME) it adds to the wall clock as well, and that costs no
// further system call for each message. Somebody who sets the wall clock forward only
// causes a heartbeat.
func (rt *runtime) since(i instant) time.Duration {
	t := time.Now()
	return max(t.Sub(i.at), time.Duration(rt.wall(t)-i.wall))
}
