//go:build unix && !linux

package cli

import "syscall"

// childOf puts a child in its own process group. The child does not end with this process.
func childOf() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
