package cpumeter

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// tick is the unit of times in /proc/PID/stat: USER_HZ, 100 everywhere.
const tick = 10 * time.Millisecond

// Meter reads the CPU time of a server on this machine. Safe for concurrent use. The zero
// value returns no value.
type Meter struct {
	postmaster int
	children   *children
}

// children are a server's children at the last reading.
type children struct {
	mu     sync.Mutex
	living map[one]time.Duration // nil before the first reading
	reaped time.Duration         // of children that the server has reaped, in ticks
	gone   time.Duration         // of children that ended since the first reading
}

// one identifies a process, because process ids are reused.
type one struct{ pid, started int }

// Server returns a meter of the PostgreSQL server that has the backend pid. If that server is
// not on this machine, the meter returns no value.
func Server(backend int) Meter {
	p, ok := readProcess(backend)
	if !ok {
		return Meter{}
	}
	// A remote server may have a backend with a pid that also exists here.
	if parent, ok := readProcess(p.parent); ok && p.postgres && parent.postgres {
		return Meter{p.parent, new(children)}
	}
	return Meter{}
}

// Process returns a meter of a process whose name begins with name, and of its children.
func Process(pid int, name string) Meter {
	if p, ok := readProcess(pid); !ok || !strings.HasPrefix(p.name, name) {
		return Meter{}
	}
	return Meter{pid, new(children)}
}

// Total returns the CPU time of the server: of the postmaster, its living children, and the
// children that ended since the first call. It never decreases. For a child that ended since
// the last reading, it counts the CPU time at that reading, or the increase of the server's
// total for reaped children if that is larger, because those ticks are sampled. The latter is
// used only if both values could be read for the same moment, which is not possible on a
// server whose connections come and go all the time.
func (m Meter) Total() (time.Duration, bool) {
	if m.postmaster == 0 {
		return 0, false
	}
	c := m.children
	c.mu.Lock()
	defer c.mu.Unlock()
	for begun := time.Now(); ; {
		before, ok := readProcess(m.postmaster)
		if !ok {
			return 0, false
		}
		living := m.living()
		after, ok := readProcess(m.postmaster)
		if !ok {
			return 0, false
		}
		still := after.reaped == before.reaped
		if !still && time.Since(begun) < 100*time.Millisecond {
			continue
		}
		if c.living != nil {
			var gone time.Duration
			for k, own := range c.living {
				if _, lives := living[k]; !lives {
					gone += own
				}
			}
			if still {
				gone = max(gone, after.reaped-c.reaped)
			}
			c.gone += gone
		}
		c.living, c.reaped = living, after.reaped
		sum := after.own + c.gone
		for _, own := range living {
			sum += own
		}
		return sum, true
	}
}

// living returns the CPU time of the postmaster's living children.
func (m Meter) living() map[one]time.Duration {
	all := map[one]time.Duration{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if p, ok := readProcess(pid); ok && p.parent == m.postmaster {
			all[one{pid, p.started}] = p.own
		}
	}
	return all
}

type process struct {
	parent      int
	started     int // in ticks since the machine booted
	own, reaped time.Duration
	name        string
	postgres    bool
}

func readProcess(pid int) (p process, ok bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return p, false
	}
	// The name is in parentheses and may contain any bytes.
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 0 || end < open {
		return p, false
	}
	p.name = string(b[open+1 : end])
	p.postgres = strings.HasPrefix(p.name, "postgres") || p.name == "postmaster"
	fields := strings.Fields(string(b[end+1:]))
	if len(fields) < 20 {
		return p, false
	}
	number := func(i int) int { n, _ := strconv.Atoi(fields[i]); return n }
	p.parent, p.started = number(1), number(19)
	p.own = time.Duration(number(11)+number(12)) * tick
	// Ticks are sampled, and miss most of the time of processes that run for less than one at
	// a time. The exact time is that of the first thread alone.
	if b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/schedstat"); err == nil {
		if exact, err := strconv.ParseInt(string(bytes.SplitN(b, []byte(" "), 2)[0]), 10, 64); err == nil && exact > 0 {
			p.own = max(p.own, time.Duration(exact))
		}
	}
	p.reaped = time.Duration(number(13)+number(14)) * tick
	return p, true
}

// Of returns the CPU time of a process of this machine, or 0 if it does not exist.
func Of(pid uint32) time.Duration {
	p, _ := readProcess(int(pid))
	return p.own
}
