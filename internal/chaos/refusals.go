package chaos

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// lead is how long a process may be disturbed before the fault is recorded, because the rig
// first waits until it has work in flight.
const lead = time.Second

// refusals checks that every failed send has a fault as its reason, which may last until
// everything flows again. Failures of one process with one kind of error are reported
// together.
func (c *checker) refusals() {
	type class struct{ process, err string }
	refused := map[class][]*send{}
	for _, s := range c.list {
		if s.answer == Refused && !c.disturbed(s) {
			k := class{s.process, errorClass(s.note)}
			refused[k] = append(refused[k], s)
		}
	}
	for k, sends := range refused {
		first := slices.MinFunc(sends, func(x, y *send) int { return cmp.Compare(x.to, y.to) })
		c.broken(NoReason, "%d sends of %s were refused (%s) although no fault struck it; the first one, %s to %s, at %s: %s",
			len(sends), k.process, k.err, first.token, first.queue, clock(first.to), first.note)
	}
}

// disturbed reports whether a fault may have made a send fail. An HTTP sender waits for a
// server to start.
func (c *checker) disturbed(s *send) bool {
	if p := c.processes[s.process]; p != nil && p.role == roleHTTPSender {
		for _, server := range c.processes {
			if server.role == roleServer && s.touches(span{server.from - lead, server.from + 2*resume + c.b.Slack}) {
				return true
			}
		}
	}
	touches := func(o span) bool { return s.touches(span{o.from - lead, o.to + resume + c.b.Slack}) }
	return slices.ContainsFunc(c.stalls, touches) || slices.ContainsFunc(c.faults, func(f *fault) bool {
		// A sender with a dedupe key waits for another transaction with that key.
		return touches(f.span) && (c.concerns(f, s.process) || s.queue == Deduped) && (!unnoticed(f.kind) || f.kind == FullMemory)
	})
}

// errorClass returns the part of an error that does not depend on addresses and times: the
// SQLSTATE if there is one, or the last part.
func errorClass(text string) string {
	const state = "SQLSTATE "
	if i := strings.Index(text, state); i >= 0 && len(text) >= i+len(state)+5 {
		return text[i : i+len(state)+5]
	}
	text, _, _ = strings.Cut(text[strings.LastIndex(text, ": ")+1:], " (")
	return strings.TrimSpace(text)
}
