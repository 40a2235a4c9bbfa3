package chaos

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// lead is how long a process may be disturbed before it is recorded that something
// strikes it: it is caught in the middle of something first.
const lead = time.Second

// refusals checks that no send was refused but because of a fault, which may last until
// everything flows again: who can reach the store can send. Those of one process with
// one kind of error are told together.
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
		c.broken(NoReason, "%d sends of %s were refused (%s) while nothing struck it, the first, %s to %s, at %s: %s",
			len(sends), k.process, k.err, first.token, first.queue, clock(first.to), first.note)
	}
}

// disturbed reports whether something may have kept the sender from sending. Who sends
// over HTTP waits for a server to start.
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
		// Who sends under a dedupe key waits for another's transaction with that key.
		return touches(f.span) && (c.concerns(f, s.process) || s.queue == Deduped) && (!unnoticed(f.kind) || f.kind == FullMemory)
	})
}

// errorClass is what is alike in errors that differ in addresses and times: the
// SQLSTATE if there is one, or what is said last.
func errorClass(text string) string {
	const state = "SQLSTATE "
	if i := strings.Index(text, state); i >= 0 && len(text) >= i+len(state)+5 {
		return text[i : i+len(state)+5]
	}
	text, _, _ = strings.Cut(text[strings.LastIndex(text, ": ")+1:], " (")
	return strings.TrimSpace(text)
}
