//go:build !linux

package postgres

import "syscall"

// controlSocket does nothing where there is no TCP_USER_TIMEOUT: keepalive and
// deadlines end dead connections there.
func controlSocket(_, _ string, _ syscall.RawConn) error { return nil }
