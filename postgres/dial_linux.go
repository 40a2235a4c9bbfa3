package postgres

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// controlSocket sets TCP_USER_TIMEOUT: keepalive alone does not end a connection that has sent
// data without an acknowledgment.
func controlSocket(network, _ string, raw syscall.RawConn) error {
	if len(network) < 3 || network[:3] != "tcp" {
		return nil
	}
	// Ignore errors: without the option statements still end at their deadlines.
	return raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silenceTimeout.Milliseconds()))
	})
}
