//go:build !linux

package postgres

import "syscall"

// controlSocket does nothing: this system has no TCP_USER_TIMEOUT, so keepalive and deadlines
// end dead connections.
func controlSocket(_, _ string, _ syscall.RawConn) error { return nil }
