package bench

import (
	"fmt"
	"strings"
)

// sendingLines adds the lines of scenarios transactional and senders.
func (r *Result) sendingLines(line func(name, format string, args ...any)) {
	v := r.SendingResult
	if v == nil {
		return
	}
	asked := "as fast as goes"
	if v.AskedPerSecond > 0 {
		asked = fmt.Sprintf("%g/s asked for", v.AskedPerSecond)
	}
	line("by", "%d senders to %d queues, %s; worker processes: %d", v.Connections, v.SentTo, asked, v.WorkerProcesses)
	for _, w := range v.Ways {
		line(strings.TrimSpace(w.Way+" "+w.Worker), "%s/s%s", grouped(w.PerSecond), knownOf(": ", []named{
			{"of two rows", w.RatioToPayloads}, {"of the row alone", w.RatioToRow}, {"of plain", w.RatioToPlain},
			{"of Engine.Send", w.RatioToEngine}, {"of the same without a worker", w.RatioToNobody}}))
		line("", "µs CPU%s", knownOf(": ", []named{{r.on("PostgreSQL", "Redis"), w.ServerCPU}, {"more than for two rows", w.ServerCPUAbove},
			{"HTTP server", w.HTTPServerCPU}, {"senders", w.ClientCPU}, {"workers", w.WorkerCPU}}))
		line("", "%g notifications/s, %d at the onset of each round%s", w.Notifications, w.AtOnset, knownOf(", ", []named{{"of the senders at work waiting for their lock", w.LockWaits}}))
	}
}

// named is a figure that may be unknown.
type named struct {
	name  string
	value *float64
}

// knownOf lists the known figures after a separator. It returns "" if none is known.
func knownOf(separator string, figures []named) string {
	var all []string
	for _, f := range figures {
		if f.value != nil {
			all = append(all, fmt.Sprintf("%g %s", *f.value, f.name))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return separator + strings.Join(all, ", ")
}
