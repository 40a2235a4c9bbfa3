package chaos

import (
	"slices"
	"time"
)

const (
	// longRun is the duration from which a run must show everything: each kind of fault
	// struck, none was left out, the ring advanced, and memory stayed constant.
	longRun = 5 * time.Minute
	// longLife is the age from which a process's memory is compared with its earlier memory.
	longLife = 3 * time.Minute
	// youngFrom and youngTo are the age at which processes of a role are compared.
	youngFrom, youngTo = 5 * time.Second, 35 * time.Second
)

// memoryRoles are the roles whose memory is watched: processes that run shipped code, the
// program or the library.
var memoryRoles = []string{roleServer, roleMailWorker, roleRelay, roleSender, roleWorker}

// grew reports whether memory increased too much. Garbage collection and changing load stay
// below the limit.
func grew(first, last int) bool { return last > first*3/2+32<<20 }

// resident is a process's memory at a time.
type resident struct {
	at    time.Duration
	bytes int
}

// roleMemory is the memory of a role's processes in the report.
type roleMemory struct {
	role               string
	first, last, worst int // medians of the quarters of their lives, and the maximum
}

// memory checks that the memory of no process grows: of each long-lived process during its
// life, and of a role from one process to the next, at the same age.
func (c *checker) memory() {
	for _, role := range memoryRoles {
		var processes []*process
		var first, last []int
		worst := 0
		for _, p := range c.processes {
			if p.role != role || len(p.memory) == 0 {
				continue
			}
			processes = append(processes, p)
			for _, m := range p.memory {
				worst = max(worst, m.bytes)
			}
			x, y := p.quarters()
			first, last = append(first, x...), append(last, y...)
		}
		if len(processes) == 0 {
			continue
		}
		c.v.memory = append(c.v.memory, roleMemory{role, median(first), median(last), worst})
		if c.planned < longRun {
			continue
		}
		slices.SortFunc(processes, func(x, y *process) int { return int(x.from - y.from) })
		for _, p := range processes {
			if x, y := p.quarters(); p.memory[len(p.memory)-1].at-p.from >= longLife && grew(median(x), median(y)) {
				c.broken(Grows, "%s had %s in the first quarter of its life and %s in the last", p.name, megabytes(median(x)), megabytes(median(y)))
			}
		}
		c.generations(role, processes)
	}
}

// generations checks that the processes of a role that started in the last quarter of a period
// did not need much more memory, at the same age, than those of the first quarter. This finds
// growth that no process shows that is killed early. They are ordered by their start.
func (c *checker) generations(role string, processes []*process) {
	var births []time.Duration
	var levels []int
	for _, p := range processes {
		var young []int
		for _, m := range p.memory {
			if age := m.at - p.from; age >= youngFrom && age <= youngTo {
				young = append(young, m.bytes)
			}
		}
		if len(young) >= 3 {
			births, levels = append(births, p.from), append(levels, median(young))
		}
	}
	if len(births) < 2 {
		return
	}
	quarter := (births[len(births)-1] - births[0]) / 4
	early, late := births[0]+quarter, births[len(births)-1]-quarter
	var first, last []int
	for i, at := range births {
		if at <= early {
			first = append(first, levels[i])
		}
		if at >= late {
			last = append(last, levels[i])
		}
	}
	if late-early >= longLife/2 && grew(median(first), median(last)) {
		c.broken(Grows, "each %s begins with more: %s at first, and %s in the end", role, megabytes(median(first)), megabytes(median(last)))
	}
}

// quarters returns a process's memory in the first and in the last quarter of its life.
func (p *process) quarters() (first, last []int) {
	end := p.memory[len(p.memory)-1].at
	quarter := (end - p.from) / 4
	for _, m := range p.memory {
		if m.at <= p.from+quarter {
			first = append(first, m.bytes)
		}
		if m.at >= end-quarter {
			last = append(last, m.bytes)
		}
	}
	if len(first) == 0 {
		first = last // it lived only briefly
	}
	return first, last
}

func median(values []int) int {
	if len(values) == 0 {
		return 0
	}
	values = slices.Sorted(slices.Values(values))
	return values[len(values)/2]
}
