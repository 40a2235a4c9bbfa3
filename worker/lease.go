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

// since is the time that has passed: the larger of what the monotonic and the wall clock say.
// Go's monotonic clock stands still while the machine is suspended. When the machine wakes,
// the kernel adds the same time to its wall clock as to CLOCK_BOOTTIME, which counts it, and
// the wall clock needs no further system call for each message. Setting the wall clock
// forward only causes a heartbeat.
func (rt *runtime) since(i instant) time.Duration {
	t := time.Now()
	return max(t.Sub(i.at), time.Duration(rt.wall(t)-i.wall))
}

// mayStart reports whether the run's messages are this worker's still: its lease is not over,
// and they are of the registration that has it. What is handed out at most once runs nowhere
// else.
func (s *slot) mayStart(r *run) bool {
	rt := s.pool.rt
	if r.seg.sub.once.Load() {
		return true
	}
	if rt.heart.over() || !rt.held.lives(r.seg) {
		return false
	}
	if r.call != nil {
		for _, p := range r.call.more {
			if !rt.held.lives(p.seg) {
				return false
			}
		}
	}
	return true
}
