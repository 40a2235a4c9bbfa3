package redis

import (
	"strconv"
	"time"
)

// An id is a place in a queue and the number of that queue: the store must find
// the queue of whatever is settled or looked for by its id alone, and ids of all
// queues must be in the order of time. A place is the time at which it was given, in
// microseconds since 2025, or one more than the place before it. So no id is ever
// given twice, also where Redis has lost its last second or a replica took over that
// did not have it: a late settlement cannot hit another message.
const (
	numberBits = 12
	// maxQueues is how many queues there can be at once; 0 is none's number.
	maxQueues = 1<<numberBits - 1
	// epoch is the start of 2025 in Unix time, as in scripts/keys.lua.
	epoch = 1735689600
)

// id makes one of a place as a script tells it.
func id(place string, number int64) (int64, error) {
	n, err := strconv.ParseInt(place, 10, 64)
	if err != nil || n <= 0 || n >= 1<<(63-numberBits) {
		return 0, unexpected("a place", place)
	}
	return n<<numberBits | number, nil
}

// place is the place of an id as scripts know it, and number that of its queue.
func place(id int64) string { return strconv.FormatInt(id>>numberBits, 10) }

func number(id int64) int64 { return id & maxQueues }

// at is the time that a script tells in microseconds.
func at(micros int64) time.Time { return time.UnixMicro(epoch*1e6 + micros) }

// micros is a time as scripts have it.
func micros(t time.Time) int64 { return t.UnixMicro() - epoch*1e6 }

// parseMicros is a time or duration that a script told, or ok false if it told none.
func parseMicros(s string) (n int64, ok bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}
