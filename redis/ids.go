package redis

import (
	"strconv"
	"time"
)

// An id is a place in a queue, followed by the number of that queue: the store finds the
// queue of a message or delivery by the id alone, and ids of all queues sort by time. A place
// is the time at which it was assigned, in microseconds since 2025, or the place before it
// plus one. So no id is assigned twice, even if Redis lost its last second, or a replica that
// lacked it took over, and a late settlement cannot hit another message.
const (
	numberBits = 12
	// maxQueues is the maximum of queues and further subscriptions. No queue has the number 0.
	maxQueues = 1<<numberBits - 1
	// epoch is the start of 2025 in Unix time, as in scripts/keys.lua.
	epoch = 1735689600
)

// id makes an id of a place in a reply.
func id(place string, number int64) (int64, error) {
	n, err := strconv.ParseInt(place, 10, 64)
	if err != nil || n <= 0 || n >= 1<<(63-numberBits) {
		return 0, unexpected("a place", place)
	}
	return n<<numberBits | number, nil
}

// place returns the place of an id in the form of scripts, number that of its queue.
func place(id int64) string { return strconv.FormatInt(id>>numberBits, 10) }

func number(id int64) int64 { return id & maxQueues }

// at converts a time of a script.
func at(micros int64) time.Time { return time.UnixMicro(epoch*1e6 + micros) }

// micros converts a time to that of scripts.
func micros(t time.Time) int64 { return t.UnixMicro() - epoch*1e6 }
