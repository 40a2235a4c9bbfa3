package posthaste

import (
	"context"
	"time"
)

// Doorbell lets a process sleep until a message is sent.
type Doorbell interface {
	// Sleep arms the wake-up for queue and then calls look: look finds messages sent
	// before, and messages sent after it ring. Sleep may call look again while it waits,
	// but never concurrently. If look finds nothing, Sleep returns when the bell rings,
	// when look's NextDue has passed, when [Doorbell.Wake] is called, or when ctx ends.
	// It returns nil unless ctx ended or look failed. Spurious returns are allowed. Only
	// one Sleep per queue may run at a time.
	Sleep(ctx context.Context, queue string, look func(ctx context.Context) (LookReply, error)) error
	// Wake ends the Sleep on queue in this process, if there is one.
	Wake(queue string)
	// Close ends all Sleeps and releases the doorbell's connections.
	Close()
}

// LookReply is the result of a look at a queue.
type LookReply struct {
	// Found says that there was a message.
	Found bool
	// Handed is how many messages the look took, if it is a claim.
	Handed int
	// NextDue is the time until the next scheduled message or retry falls due, or negative
	// if none is known.
	NextDue time.Duration
	// AtLimit says that messages wait for a limit of the queue: until NextDue only
	// settlements change that, and sends do not.
	AtLimit bool
}
