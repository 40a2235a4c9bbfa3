package postgres

import "github.com/posthaste-mq/posthaste"

// Remembers counts what e keeps in memory about a worker's claims.
func (e *Engine) Remembers(worker posthaste.WorkerID) int {
	n := 0
	if _, ok := e.numbers.Load(worker); ok {
		n++
	}
	e.paces.Range(func(key, _ any) bool {
		if key.(paceKey).worker == worker {
			n++
		}
		return true
	})
	return n
}

// ClockFinding is what the doctor says of two clocks.
var ClockFinding = clockFinding
