package postgres

import (
	"net"
	"time"
)

// silenceTimeout is how long the peer may be silent before a connection counts as dead (TCP
// keepalive and TCP_USER_TIMEOUT).
const silenceTimeout = 10 * time.Second

// dialer returns a dialer whose connections detect a dead peer. Without the keepalive an idle
// listener would wait for hours, and without the user timeout a statement that was sent.
func dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout:         timeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: silenceTimeout / 2, Interval: silenceTimeout / 5, Count: 3},
		Control:         controlSocket,
	}
}
