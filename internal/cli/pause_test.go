//go:build unix

package cli

// pauses runs commands that pause with a reason and an end, and list pauses.
func (b *both) pauses() {
	b.same(0, "", "schedule", "pause", "nightly", "--reason", "month end", "--until", "2100-01-02T03:04:05Z")
	b.same(2, "", "schedule", "pause", "nightly", "--until", "2020-01-02T03:04:05Z")
	b.same(2, "", "schedule", "pause", "nightly", "--reason", "a\nb")
	b.reads("queue", "pauses")
	b.reads("queue", "pauses", "orders")
	b.same(1, "", "queue", "pauses", "nope")
	b.same(1, "", "schedule", "pause", "nope")
}
