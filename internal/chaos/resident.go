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

// memoryEvery is the interval of memory readings.
const memoryEvery = 2 * time.Second

// watchMemory records the memory of the watched processes. If the system does not provide it,
// nothing is recorded.
func (r *rig) watchMemory() (stop func()) {
	return every(memoryEvery, func() {
		r.mu.Lock()
		there := slices.Clone(r.places)
		r.mu.Unlock()
		for _, p := range there {
			if p == nil || !slices.Contains(memoryRoles, p.role) {
				continue
			}
			// A process that has ended has none, and its pid may belong to another process.
			if n := residentOf(p.cmd.Process.Pid); n > 0 && p.alive() == 1 {
				r.record.Record(history.Event{Kind: Memory, Whom: p.name, Count: n})
			}
		}
	})
}

// residentOf returns a process's resident memory in bytes, or 0 if it is unknown.
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

// spared reports whether the process at a place is never killed or replaced: in a long run the
// first of each role with several processes, because otherwise none would live long enough to
// show growing memory. All other faults also strike it.
func (r *rig) spared(place int) bool {
	role := r.cast[place]
	first := slices.Index(r.cast, role) == place
	return r.Duration >= longRun && first && slices.Contains(r.cast[place+1:], role)
}

// mortal returns a place of one of the roles that is not spared.
func (r *rig) mortal(roles ...string) int {
	for {
		if place := r.some(roles...); !r.spared(place) {
			return place
		}
	}
}
