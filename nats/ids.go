package nats

import (
	"context"
	"sync"

	"github.com/posthaste-mq/posthaste"
)

// A message's id consists of a unique number (51 bits) and the number of its queue (12 bits), so that the
// id tells the queue. Numbers are taken in blocks of idBlock: a block is a sequence of the stream
// <prefix>-ids, which keeps only its last message.
const (
	idBlock   = 1 << 14
	queueBits = 12
	maxQueues = 1<<queueBits - 1
)

// ids hands out numbers of the blocks that this process has taken.
type ids struct {
	sequence    func(ctx context.Context) (int64, error) // the number of a block
	mu          sync.Mutex
	next, until int64
}

// take returns the first of n numbers that follow each other.
func (i *ids) take(ctx context.Context, n int) (first int64, err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.until-i.next < int64(n) {
		blocks := int64(n+idBlock-1) / idBlock
		var last int64
		for range blocks {
			if last, err = i.sequence(ctx); err != nil {
				return 0, err
			}
			if i.until != last*idBlock { // another process took the blocks between
				i.next = last * idBlock
			}
			i.until = (last + 1) * idBlock
		}
	}
	if i.until-i.next < int64(n) { // blocks that do not follow each other
		return 0, unavailable("ids of one call must follow each other, and other processes take some at this moment", nil)
	}
	first = i.next
	i.next += int64(n)
	return first, nil
}

// sequence returns a number that no other call of any process returns.
func (e *Engine) sequence(ctx context.Context) (n int64, err error) {
	err = untilAnswered(ctx, func(ctx context.Context) error {
		ack, err := e.js.Publish(ctx, e.prefix+".ids", nil)
		if err == nil {
			n = int64(ack.Sequence)
		}
		return err
	})
	return n, e.readError(err)
}

func messageID(number int64, queue int) posthaste.MessageID {
	return posthaste.MessageID(number<<queueBits | int64(queue))
}

// queueNumber returns the number of a message's queue.
func queueNumber(id posthaste.MessageID) int { return int(id & maxQueues) }
