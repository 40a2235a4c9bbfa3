//go:build unix

package chaos

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/posthaste-mq/posthaste/internal/history"
)

// memoryEvery is how often memory is looked at.
const memoryEvery = 2 * time.Second

// watchMemory records the memory of the processes whose memory is watched. Where the
// system does not tell it, nothing is recorded.
func (r *rig) watchMemory() (stop func()) {
	return every(memoryEvery, func() {
		r.mu.Lock()
		there := slices.Clone(r.places)
		r.mu.Unlock()
		for _, p := range there {
			if p == nil || !slices.Contains(memoryRoles, p.role) {
				continue
			}
			// One that has ended meanwhile has none, and its number may be another's.
			if n := residentOf(p.cmd.Process.Pid); n > 0 && p.alive() == 1 {
				r.record.Record(history.Event{Kind: Memory, Whom: p.name, Count: n})
			}
		}
	})
}

// residentOf is a process's resident memory in bytes; 0 where nobody tells it.
func residentOf(pid int) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("\nVmRSS:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	kilobytes, _ := strconv.Atoi(string(bytes.TrimSpace(bytes.TrimSuffix(line, []byte("kB")))))
	return kilobytes << 10
}

// spared says that nobody kills or replaces the process at a place: in a long run the
// first of each role of which there are several, for else none would live long enough
// to show whether its memory grows. All else strikes it like the others.
func (r *rig) spared(place int) bool {
	role := r.cast[place]
	first := slices.Index(r.cast, role) == place
	return r.Duration >= longRun && first && slices.Contains(r.cast[place+1:], role)
}

// mortal is a place of one of the roles that is not spared.
func (r *rig) mortal(roles ...string) int {
	for {
		if place := r.some(roles...); !r.spared(place) {
			return place
		}
	}
}
