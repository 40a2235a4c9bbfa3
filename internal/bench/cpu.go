package bench

import (
	"time"

	"github.com/posthaste-mq/posthaste/internal/cpumeter"
)

// cost sums the CPU time of spans of a run, and their messages.
type cost struct {
	meter          cpumeter.Meter
	server, client time.Duration
	unknown        bool // the server's CPU time cannot be read
	messages       int64
}

// span starts a span; the returned function ends it, and takes its number of messages.
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

// into sets the CPU figures of a result.
func (c *cost) into(res *Result) {
	res.ServerCPU, res.ClientCPU = c.serverPerMessage(), c.clientPerMessage()
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

// perMessage returns the CPU time of server and client together in microseconds, or 0 if it
// cannot be read.
func (c *cost) perMessage() float64 {
	server, client := c.serverPerMessage(), c.clientPerMessage()
	if server == nil || client == nil {
		return 0
	}
	return *server + *client
}
