package bench

import (
	"time"

	"github.com/posthaste-mq/posthaste/internal/cpumeter"
)

// cost adds up the CPU that spans of a run used, and for how many messages.
type cost struct {
	meter          cpumeter.Meter
	server, client time.Duration
	unknown        bool // the server's CPU is out of reach
	messages       int64
}

// span starts to count; the function it returns ends it for so many messages.
func (c *cost) span() (end func(messages int64)) {
	server, ok := c.meter.Total()
	client := ownCPU()
	return func(messages int64) {
		c.client += ownCPU() - client
		now, still := c.meter.Total()
		c.unknown = c.unknown || !ok || !still
		c.server += now - server
		c.messages += messages
	}
}

func (c *cost) serverPerMessage() *float64 {
	if c.unknown || c.messages == 0 {
		return nil
	}
	return known(float64(c.server.Microseconds()) / float64(c.messages))
}

func (c *cost) clientPerMessage() *float64 {
	if c.messages == 0 {
		return nil
	}
	return known(float64(c.client.Microseconds()) / float64(c.messages))
}
